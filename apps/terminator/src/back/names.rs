//! The host names of backends: one thread decides when each is looked up, and each lookup has a thread of its own,
//! in which it asks the system. A lookup that hangs holds up nothing else, not even a stop.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType};
use rustix::io::Errno;

use crate::back::names_schedule::Schedule;
use crate::back::upstream::{NoAnswer, Upstreams};
use crate::config::{Backend, Config, Fault, Listener, is_passing};

/// Who finds the addresses of a name. An error of the kind `NotFound` says that waiting does not help.
#[derive(Clone)]
pub(crate) struct Resolver(Arc<LookUp>);

type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Follows host names, on a thread that begins with the first name.
#[derive(Debug)]
pub(crate) struct Names {
    upstreams: Arc<Upstreams>,
    resolver: Resolver,
    running: Option<(Sender<Event>, JoinHandle<()>)>,
}

/// What a configuration wants to be looked up.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostNames {
    pub(crate) hosts: BTreeSet<String>,
    /// Look up at once what was looked up before.
    pub(crate) anew: bool,
}

/// What the thread waits for.
enum Event {
    Follow(HostNames),
    Answer(String, Result<Vec<IpAddr>, NoAnswer>),
    Stop,
}

/// The work of the thread.
struct Follower {
    upstreams: Arc<Upstreams>,
    resolver: Resolver,
    /// For the threads of lookups.
    events: Sender<Event>,
    schedule: Schedule,
}

impl Resolver {
    pub(crate) fn new(look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    /// That of the system: `/etc/nsswitch.conf` says what it asks.
    pub(crate) fn system() -> Self {
        Self::new(ask_system)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl HostNames {
    pub(crate) fn by(config: &Config) -> Self {
        let all = config.listeners.iter().flat_map(|listener| {
            let routes = listener.routes.iter().flat_map(|route| &route.backend);
            listener.backend.iter().chain(routes)
        });
        let hosts = all.filter_map(|backend| match backend {
            Backend::Name(name) => Some(name.host.clone()),
            _ => None,
        });
        Self {
            hosts: hosts.collect(),
            anew: false,
        }
    }
}

impl Names {
    pub(crate) fn new(upstreams: Arc<Upstreams>, resolver: Resolver) -> Self {
        Self {
            upstreams,
            resolver,
            running: None,
        }
    }

    /// Looks these names up from now on, and no others.
    pub(crate) fn follow(&mut self, wanted: HostNames) -> io::Result<()> {
        self.upstreams.follow(&wanted.hosts);
        if self.running.is_none() && !wanted.hosts.is_empty() {
            let (events, coming) = mpsc::channel();
            let mut follower = Follower {
                upstreams: self.upstreams.clone(),
                resolver: self.resolver.clone(),
                events: events.clone(),
                schedule: Schedule::default(),
            };
            let thread = thread::Builder::new()
                .name("widelane-names".into())
                .spawn(move || follower.run(&coming))?;
            self.running = Some((events, thread));
        }
        if let Some((events, _)) = &self.running {
            let _ = events.send(Event::Follow(wanted));
        }
        Ok(())
    }
}

impl Drop for Names {
    /// Does not wait for lookups.
    fn drop(&mut self) {
        if let Some((events, thread)) = self.running.take() {
            let _ = events.send(Event::Stop);
            let _ = thread.join();
        }
    }
}

impl Follower {
    fn run(&mut self, coming: &Receiver<Event>) {
        loop {
            let now = Instant::now();
            for host in self.schedule.late(now) {
                self.upstreams
                    .not_learned(&host, NoAnswer::passing("no answer in time"));
            }
            for host in self.schedule.begin(now) {
                self.look_up(host);
            }
            let event = match self.schedule.next() {
                Some(next) => coming.recv_timeout(next.saturating_duration_since(now)),
                None => coming.recv().map_err(RecvTimeoutError::from),
            };
            match event {
                Ok(Event::Follow(wanted)) => {
                    let now = Instant::now();
                    self.schedule.follow(&wanted.hosts, wanted.anew, now);
                }
                Ok(Event::Answer(host, answer)) => self.take(&host, answer),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// On a thread for which no other one waits: a call of the system cannot be cut off.
    fn look_up(&self, host: String) {
        let (resolver, events) = (self.resolver.clone(), self.events.clone());
        let name = host.clone();
        let started = thread::Builder::new().name("widelane-lookup".into()).spawn(move || {
            let found = (resolver.0)(&name).map_err(|error| NoAnswer {
                passing: is_passing(&error),
                reason: error.to_string(),
            });
            let answer = found.and_then(|found| usable(found, reaches));
            let _ = events.send(Event::Answer(name, answer));
        });
        if let Err(error) = started {
            let fault = NoAnswer::passing(format!("cannot start a thread: {error}"));
            let _ = self.events.send(Event::Answer(host, Err(fault)));
        }
    }

    fn take(&mut self, host: &str, answer: Result<Vec<IpAddr>, NoAnswer>) {
        let counts = self.schedule.answered(host, answer.is_ok(), Instant::now());
        match answer {
            _ if !counts => {}
            Ok(mut addresses) => {
                let found = addresses.len();
                addresses.truncate(Backend::MOST);
                let used = addresses.len();
                if found > used && addresses != self.upstreams.addresses_of(host) {
                    tracing::warn!(
                        name = host,
                        found,
                        used,
                        "too many addresses, and the last are not used"
                    );
                }
                self.upstreams.learned(host, addresses);
            }
            Err(fault) => self.upstreams.not_learned(host, fault),
        }
    }
}

/// The fault of a host name that cannot be looked up, at the key that names it first.
pub(crate) fn fault(config: &Config, host: &str, fault: &NoAnswer) -> Fault {
    let is_it = |one: &Backend| matches!(one, Backend::Name(name) if name.host == host);
    let in_listener = |(index, listener): (usize, &Listener)| {
        let key = format!("listener[{index}]");
        if listener.backend.iter().any(is_it) {
            return Some(format!("{key}.backend"));
        }
        let mut routes = listener.routes.iter();
        let route = routes.position(|route| route.backend.iter().any(is_it))?;
        Some(format!("{key}.route[{route}].backend"))
    };
    let key = config.listeners.iter().enumerate().find_map(in_listener);
    Fault {
        passing: fault.passing,
        ..Fault::new(
            key.unwrap_or_default(),
            format!("cannot look up `{host}`: {fault}"),
            "correct the name, /etc/hosts or /etc/resolv.conf (`getent ahosts` asks for a name)",
        )
    }
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

/// How long a start or a reload waits for names that it does not know.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(5);
const ANY_PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|one| one.parse().unwrap()).collect()
    }

    fn hosts(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|&host| host.to_owned()).collect()
    }

    fn wanted(all: &[&str]) -> HostNames {
        HostNames {
            hosts: hosts(all),
            anew: false,
        }
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

    /// One name hangs, of which another one is looked up all the same; and nothing waits for it at the end.
    #[test]
    fn a_lookup_that_hangs_holds_up_neither_others_nor_the_end() {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let hung = Arc::new(AtomicUsize::new(0));
        let counts = hung.clone();
        let resolver = Resolver::new(move |host| {
            if host == "hangs.test" {
                counts.fetch_add(1, Ordering::Relaxed);
                let _ = released.lock().unwrap().recv();
            }
            Ok(vec![[127, 0, 0, 1].into()])
        });
        let upstreams = Arc::new(Upstreams::default());
        let mut names = Names::new(upstreams.clone(), resolver);
        names.follow(wanted(&["good.test", "hangs.test"])).unwrap();
        let long = Duration::from_secs(60);
        let of = |host: &str| upstreams.addresses_of(host);
        upstreams.wait_for(&hosts(&["good.test"]), long, &mut || false);
        assert_eq!(of("good.test"), ips(&["127.0.0.1"]));
        // Forgotten and wanted again, as by reloads that are refused, it is not asked for twice.
        for _ in 0..3 {
            names.follow(wanted(&["good.test"])).unwrap();
            names
                .follow(HostNames {
                    anew: true,
                    ..wanted(&["good.test", "hangs.test", "new.test"])
                })
                .unwrap();
        }
        upstreams.wait_for(&hosts(&["new.test"]), long, &mut || false);
        assert!(hung.load(Ordering::Relaxed) <= 1 && of("hangs.test").is_empty());
        drop(names);
        drop(release);
    }

    #[test]
    fn failures_are_told_and_keep_the_addresses() {
        let answer = Arc::new(Mutex::new(Ok(ips(&["127.0.0.1"]))));
        let now = answer.clone();
        let resolver = Resolver::new(move |_| now.lock().unwrap().clone().map_err(io::Error::from));
        let upstreams = Arc::new(Upstreams::default());
        let mut names = Names::new(upstreams.clone(), resolver);
        let mut until = |so: fn(&crate::back::upstream::Name) -> bool| {
            let mut wanted = wanted(&["a.test"]);
            wanted.anew = true;
            names.follow(wanted).unwrap();
            while !so(&upstreams.names()["a.test"]) {
                thread::yield_now();
            }
        };
        until(|name| name.succeeded > 0);
        *answer.lock().unwrap() = Err(io::ErrorKind::NotFound);
        until(|name| name.fault.as_ref().is_some_and(|fault| !fault.passing));
        *answer.lock().unwrap() = Err(io::ErrorKind::Other);
        until(|name| name.fault.as_ref().is_some_and(|fault| fault.passing));
        assert_eq!(upstreams.addresses_of("a.test"), ips(&["127.0.0.1"]));
    }

    #[test]
    fn a_backend_gets_no_more_addresses_than_it_may_have() {
        let many: Vec<IpAddr> = (0..100).rev().map(|last| [127, 0, 0, last].into()).collect();
        let upstreams = Arc::new(Upstreams::default());
        let mut names = Names::new(upstreams.clone(), Resolver::new(move |_| Ok(many.clone())));
        names.follow(wanted(&["a.test"])).unwrap();
        upstreams.wait_for(&hosts(&["a.test"]), Duration::from_secs(60), &mut || false);
        let known = upstreams.addresses_of("a.test");
        assert_eq!(known.len(), Backend::MOST);
        assert!(known.is_sorted());
    }
}
