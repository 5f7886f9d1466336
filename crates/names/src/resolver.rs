//! Who finds the addresses of a name, and which of them count.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType};
use rustix::io::Errno;

/// Finds the addresses of a name.
#[derive(Clone)]
pub struct Resolver(Arc<LookUp>);

type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Why a name could not be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// The reason, for people.
    pub reason: String,
    /// It may be over in a while, with nothing corrected.
    pub passing: bool,
}

impl Resolver {
    /// One of the caller's own. An error of the kind `NotFound` says that waiting does not help.
    pub fn new(look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    /// That of the system: `/etc/nsswitch.conf` says what it asks.
    pub fn system() -> Self {
        Self::new(ask_system)
    }

    /// Waits for the addresses of a name.
    pub(crate) fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, NoAnswer> {
        let found = (self.0)(name).map_err(|error| NoAnswer {
            passing: is_passing(&error),
            reason: error.to_string(),
        });
        found.and_then(|found| usable(found, reaches))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl NoAnswer {
    /// A failure that may be over in a while.
    pub fn passing(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { reason, passing: true }
    }

    /// A failure that stays until an operator corrects something.
    pub fn lasting(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { reason, passing: false }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

fn is_passing(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

fn ask_system(host: &str) -> io::Result<Vec<IpAddr>> {
    // Each address once, not once for each type of socket.
    let hints = AddrInfoHints {
        socktype: SockType::Stream.into(),
        ..AddrInfoHints::default()
    };
    let found = dns_lookup::getaddrinfo(Some(host), None, Some(hints));
    let found = found.map_err(|error| match described(error.kind()) {
        Some((kind, text)) => io::Error::new(kind, text),
        None => error.into(),
    })?;
    found.map(|one| Ok(one?.sockaddr.ip())).collect()
}

/// The system's words for these are hard to tell from each other.
fn described(kind: LookupErrorKind) -> Option<(io::ErrorKind, &'static str)> {
    match kind {
        LookupErrorKind::NoName => Some((io::ErrorKind::NotFound, "there is no such name")),
        LookupErrorKind::NoData => Some((io::ErrorKind::NotFound, "the name has no address")),
        LookupErrorKind::Again => Some((io::ErrorKind::Other, "no DNS server answers, or one has failed")),
        _ => None,
    }
}

/// Those to which connections can go, in an order of their own: a server that turns its answers changes nothing.
fn usable(found: Vec<IpAddr>, reaches: fn(IpAddr) -> bool) -> Result<Vec<IpAddr>, NoAnswer> {
    let canonical = found.iter().map(IpAddr::to_canonical);
    let mut addresses: Vec<IpAddr> = canonical.filter(is_of_a_machine).collect();
    if addresses.is_empty() {
        return Err(NoAnswer::lasting("the answer has no address of a machine"));
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses.retain(|address| reaches(*address));
    if addresses.is_empty() {
        return Err(NoAnswer::passing(
            "this machine has no route to any address of the name",
        ));
    }
    Ok(addresses)
}

/// Connecting to 0.0.0.0 or `::` would reach this machine; filters of DNS answer with them.
fn is_of_a_machine(address: &IpAddr) -> bool {
    let is_broadcast = *address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// Whether this machine has a route and an address of its own for it. Sends nothing. (`AI_ADDRCONFIG` asks less:
/// whether there is any address of the family.)
fn reaches(address: IpAddr) -> bool {
    let own: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let connected = UdpSocket::bind((own, 0)).and_then(|socket| socket.connect((address, ANY_PORT)));
    let code = connected.err().and_then(|error| error.raw_os_error());
    ![Errno::NETUNREACH, Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT]
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}

const ANY_PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|one| one.parse().unwrap()).collect()
    }

    fn any(_: IpAddr) -> bool {
        true
    }

    #[test]
    fn addresses_that_cannot_be_reached_are_left_out() {
        let both = || ips(&["10.0.0.1", "fd00::1"]);
        let v4 = |address: IpAddr| address.is_ipv4();
        assert_eq!(usable(both(), v4), Ok(ips(&["10.0.0.1"])));
        let fault = usable(both(), |_| false).unwrap_err();
        assert!(fault.reason.contains("no route") && fault.passing);
        assert!(reaches([127, 0, 0, 1].into()));
    }

    #[test]
    fn addresses_of_no_machine_are_left_out() {
        let none = ["0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1"];
        let mapped = ["::ffff:0.0.0.0", "::ffff:255.255.255.255"];
        assert_eq!(
            usable(ips(&[&none[..], &mapped].concat()), any),
            Err(NoAnswer::lasting("the answer has no address of a machine"))
        );
        let same = ["::ffff:10.0.0.2", "10.0.0.1", "::ffff:10.0.0.1"];
        let canonical = Ok(ips(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(usable(ips(&same), any), canonical);
    }

    #[test]
    fn the_system_knows_the_hosts_file_and_says_what_it_does_not_know() {
        if std::net::ToSocketAddrs::to_socket_addrs(&("localhost", 0)).is_ok() {
            let found = ask_system("localhost").unwrap();
            assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
        } else {
            println!("SKIP: this machine does not know localhost (/etc/hosts)");
        }
        let passing = |kind| described(kind).map(|(kind, text)| is_passing(&io::Error::new(kind, text)));
        assert_eq!(passing(LookupErrorKind::NoName), Some(false));
        assert_eq!(passing(LookupErrorKind::NoData), Some(false));
        assert_eq!(passing(LookupErrorKind::Again), Some(true));
    }
}
