//! One lookup of a host name: the hosts file first, then DNS servers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, Resolver};
use rustix::io::Errno;

use crate::config::{Backend, is_passing};
use crate::names_io::Sockets;
use crate::upstream::NoAnswer;

/// What this machine says about names. It is read again for each lookup, so that changes count at once.
#[derive(Clone, Debug)]
pub(crate) struct System {
    hosts: PathBuf,
    resolv: PathBuf,
    /// Of the servers in `resolv`.
    port: u16,
    /// For all tries with all servers, if there are few.
    answering: Duration,
    /// Whether this machine could send to an address.
    reaches: fn(IpAddr) -> bool,
}

/// The addresses of a name, and how long they are good.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) lifetime: Duration,
}

/// Whom to ask, and for what.
struct Plan {
    servers: Vec<NameServerConfig>,
    options: ResolverOpts,
    /// Complete names, in order.
    candidates: Vec<Name>,
}

/// All that was found for one complete name.
struct Found {
    addresses: Vec<IpAddr>,
    ends: Option<Instant>,
}

/// What one name says that has no address.
enum Missing {
    /// NXDOMAIN for both families, or one of them.
    Name,
    Addresses,
}

impl Default for System {
    fn default() -> Self {
        Self {
            hosts: "/etc/hosts".into(),
            resolv: "/etc/resolv.conf".into(),
            port: 53,
            answering: ANSWERING,
            reaches,
        }
    }
}

impl System {
    /// All addresses of a name, of both families. Without `servers`, those of the system are asked.
    /// `before`: the addresses that the name had.
    pub(crate) async fn look_up(
        &self,
        host: &str,
        servers: &[SocketAddr],
        before: &[IpAddr],
    ) -> Result<Answer, NoAnswer> {
        let name = Name::from_ascii(host).map_err(|error| NoAnswer::lasting(error.to_string()))?;
        let pinned = self.pinned(&name)?;
        let (found, lifetime) = if pinned.is_empty() {
            let plan = match servers {
                [] => self.plan(host, &name)?,
                servers => plan_of(servers, &name),
            };
            let found = ask(plan, self.answering, before).await?;
            let now = Instant::now();
            let lifetime = found.ends.map(|end| end.saturating_duration_since(now));
            (found.addresses, lifetime.unwrap_or_default())
        } else {
            (pinned, LONGEST)
        };
        Ok(Answer {
            addresses: self.usable(host, found, before)?,
            lifetime: lifetime.clamp(SHORTEST, LONGEST),
        })
    }

    /// The addresses of a name in the hosts file. If there is one, no server is asked, not even for the
    /// other family: who pins a name wants this address and no other.
    fn pinned(&self, name: &Name) -> Result<Vec<IpAddr>, NoAnswer> {
        let text = read(&self.hosts)?;
        let mut hosts = Hosts::default();
        hosts
            .read_hosts_conf(String::from_utf8_lossy(&text).as_bytes())
            .map_err(|error| unreadable(&self.hosts, &error))?;
        let of = |family| hosts.lookup_static_host(&Query::query(name.clone(), family));
        let both = [of(RecordType::A), of(RecordType::AAAA)];
        Ok(both.iter().flatten().flat_map(addresses).collect())
    }

    /// As resolv.conf(5) says.
    fn plan(&self, host: &str, name: &Name) -> Result<Plan, NoAnswer> {
        let mut text = read(&self.resolv)?;
        let parsed = parse_resolv_conf(&text).or_else(|error| {
            // It may be that only a server is missing. Then it is the one on this machine.
            text.extend(b"\nnameserver 127.0.0.1\n");
            parse_resolv_conf(&text).map_err(|_| error)
        });
        let path = self.resolv.display();
        let (config, options) =
            parsed.map_err(|error| NoAnswer::lasting(format!("{path}: {error}")))?;
        let search = match config.search() {
            // That of the name of this machine.
            [] => config.domain().cloned().into_iter().collect(),
            search => search.to_vec(),
        };
        let candidates = candidates(host, name, &search, options.ndots);
        let servers = config.name_servers().iter().cloned();
        Ok(Plan {
            servers: servers.map(|one| with_port(one, self.port)).collect(),
            options,
            candidates,
        })
    }

    /// Those to which connections can go, at most as many as a backend may have, in an order of their own:
    /// a server that turns its answers changes nothing.
    fn usable(
        &self,
        host: &str,
        found: Vec<IpAddr>,
        before: &[IpAddr],
    ) -> Result<Vec<IpAddr>, NoAnswer> {
        let canonical = found.iter().map(IpAddr::to_canonical);
        let mut addresses: Vec<IpAddr> = canonical.filter(is_of_a_machine).collect();
        if addresses.is_empty() {
            return Err(NoAnswer::lasting("the answer has no address of a machine"));
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses.retain(|address| (self.reaches)(*address));
        if addresses.is_empty() {
            return Err(NoAnswer::passing(
                "this machine has no route to any address of the name",
            ));
        }
        let found = addresses.len();
        addresses.truncate(Backend::MOST);
        let used = addresses.len();
        if found > used && addresses != before {
            tracing::warn!(
                name = host,
                found,
                used,
                "too many addresses, and the last are not used"
            );
        }
        Ok(addresses)
    }
}

/// These servers, without search domains.
fn plan_of(servers: &[SocketAddr], name: &Name) -> Plan {
    let servers = servers.iter().map(|server| {
        let one = NameServerConfig::udp_and_tcp(server.ip());
        with_port(one, server.port())
    });
    Plan {
        servers: servers.collect(),
        options: ResolverOpts::default(),
        candidates: vec![complete(name.clone())],
    }
}

/// The names to ask for, in order: with as many dots as `ndots` first as it is, else last.
fn candidates(host: &str, name: &Name, search: &[Name], ndots: usize) -> Vec<Name> {
    let as_it_is = complete(name.clone());
    if name.is_fqdn() || name.is_localhost() {
        return vec![as_it_is];
    }
    // One that would be too long is no name.
    let searched = search
        .iter()
        .filter_map(|domain| name.clone().append_domain(domain).ok());
    let mut all: Vec<Name> = searched.map(complete).collect();
    let dots = host.matches('.').count();
    let place = if dots >= ndots { 0 } else { all.len() };
    all.insert(place, as_it_is);
    let mut seen = Vec::new();
    for candidate in all {
        if !seen.contains(&candidate) {
            seen.push(candidate);
        }
    }
    seen
}

/// Goes on to the next name only if a server says that the one before does not exist, or has no
/// address. After any other failure, the next one might be a stranger's.
async fn ask(plan: Plan, answering: Duration, before: &[IpAddr]) -> Result<Found, NoAnswer> {
    let resolvers = resolvers(plan.servers, &plan.options, answering)?;
    let mut exists = false;
    for candidate in plan.candidates {
        let (v4, v6) = tokio::join!(
            ask_in_order(&resolvers, &candidate, RecordType::A),
            ask_in_order(&resolvers, &candidate, RecordType::AAAA)
        );
        match together(v4, v6, before)? {
            Ok(found) => return Ok(found),
            Err(Missing::Addresses) => exists = true,
            Err(Missing::Name) => {}
        }
    }
    Err(NoAnswer::lasting(match exists {
        true => "the name has no address",
        false => "the DNS server knows no such name (NXDOMAIN)",
    }))
}

/// One for each server: a resolver with several asks two of them at once, in no order. The first may know
/// names that the second does not, or has other addresses for.
fn resolvers(
    servers: Vec<NameServerConfig>,
    options: &ResolverOpts,
    answering: Duration,
) -> Result<Vec<Resolver<Sockets>>, NoAnswer> {
    let tries = u32::try_from(servers.len()).unwrap_or(u32::MAX);
    let least = answering / MOST_TRIES;
    let patience = (answering / TRIES / tries.max(1)).max(least);
    let build = |server| {
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let mut builder = Resolver::builder_with_config(config, Sockets::default());
        let own = builder.options_mut();
        *own = options.clone();
        own.timeout = options.timeout.clamp(least, patience);
        own.attempts = 0;
        own.use_hosts_file = ResolveHosts::Never;
        own.cache_size = 0;
        own.edns0 = true;
        builder.build()
    };
    let all: Result<Vec<_>, _> = servers.into_iter().map(build).collect();
    all.map_err(|error| NoAnswer::lasting(error.to_string()))
}

/// What the first server says that knows whether there is such a record. Those that were silent are asked
/// again with all others.
async fn ask_in_order(
    resolvers: &[Resolver<Sockets>],
    name: &Name,
    family: RecordType,
) -> Result<Lookup, NetError> {
    let mut last = NetError::NoConnections;
    for _ in 0..TRIES {
        let mut silent = false;
        for resolver in resolvers {
            match resolver.lookup(name.clone(), family).await {
                Err(error) if no_record(&error).is_none() => {
                    silent |= !matches!(error, NetError::Dns(_));
                    last = error;
                }
                answer => return answer,
            }
        }
        if !silent {
            break;
        }
    }
    Err(last)
}

/// What the answers of both families say. If one of them has failed, the other one is an answer only if the
/// name had no address of that family before: else it would lose them.
fn together(
    v4: Result<Lookup, NetError>,
    v6: Result<Lookup, NetError>,
    before: &[IpAddr],
) -> Result<Result<Found, Missing>, NoAnswer> {
    let mut found = Found {
        addresses: Vec::new(),
        ends: None,
    };
    let mut missing = Missing::Addresses;
    let mut failure = None;
    let had_v4 = before.iter().any(IpAddr::is_ipv4);
    let had_v6 = before.iter().any(IpAddr::is_ipv6);
    let mut had_it = false;
    for (family, answer, had) in [("A", v4, had_v4), ("AAAA", v6, had_v6)] {
        match answer {
            Ok(lookup) => {
                found.addresses.extend(addresses(&lookup));
                let end = lookup.valid_until();
                found.ends = Some(found.ends.map_or(end, |other| other.min(end)));
            }
            Err(error) => match no_record(&error) {
                Some(ResponseCode::NXDomain) => missing = Missing::Name,
                Some(_) => {}
                None => {
                    had_it |= had;
                    failure.get_or_insert_with(|| format!("{family}: {error}"));
                }
            },
        }
    }
    match failure {
        Some(failure) if had_it || found.addresses.is_empty() => Err(NoAnswer::passing(failure)),
        _ if found.addresses.is_empty() => Ok(Err(missing)),
        _ => Ok(Ok(found)),
    }
}

/// With which code a server says that there is no such record. `None`: it is another failure.
fn no_record(error: &NetError) -> Option<ResponseCode> {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else {
        return None;
    };
    let code = none.response_code;
    matches!(code, ResponseCode::NXDomain | ResponseCode::NoError).then_some(code)
}

fn addresses(lookup: &Lookup) -> Vec<IpAddr> {
    let records = lookup.answers().iter();
    records.filter_map(|record| record.data.ip_addr()).collect()
}

fn complete(mut name: Name) -> Name {
    name.set_fqdn(true);
    name
}

fn with_port(mut server: NameServerConfig, port: u16) -> NameServerConfig {
    for connection in &mut server.connections {
        connection.port = port;
    }
    server
}

/// What a file has. One that is missing has nothing.
fn read(path: &Path) -> Result<Vec<u8>, NoAnswer> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|error| unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> NoAnswer {
    NoAnswer {
        reason: format!("cannot read {}: {error}", path.display()),
        passing: is_passing(error),
    }
}

/// Connecting to 0.0.0.0 or `::` would reach this machine; filters of DNS answer with them.
fn is_of_a_machine(address: &IpAddr) -> bool {
    let is_broadcast = *address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// Whether this machine has a route and an address of its own for it, as AI_ADDRCONFIG of getaddrinfo(3)
/// asks for. Sends nothing.
fn reaches(address: IpAddr) -> bool {
    let own: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let connected =
        UdpSocket::bind((own, 0)).and_then(|socket| socket.connect((address, ANY_PORT)));
    let code = connected.err().and_then(|error| error.raw_os_error());
    ![Errno::NETUNREACH, Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT]
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}

/// Also the first pause after a lookup that has failed.
pub(crate) const SHORTEST: Duration = Duration::from_secs(1);
/// Names of `/etc/hosts` have no time of their own.
const LONGEST: Duration = Duration::from_secs(300);
/// Less than `FIRST_ANSWER`, so that one family comes without the other.
const ANSWERING: Duration = Duration::from_secs(4);
const TRIES: u32 = 2;
/// More tries take longer: each has half a second.
const MOST_TRIES: u32 = 8;
const ANY_PORT: u16 = 9;

#[cfg(test)]
#[allow(dead_code, unreachable_pub)]
#[path = "../tests/common/dns.rs"]
mod dns;

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::dns::{Dns, How, Records};
    use super::*;

    /// A machine with these files, whose server is `dns`.
    struct Machine {
        system: System,
        directory: TempDir,
        dns: Dns,
    }

    impl Machine {
        fn new(hosts: &str, resolv: &str) -> Self {
            let directory = TempDir::new().unwrap();
            let dns = Dns::start();
            let system = System {
                hosts: directory.path().join("hosts"),
                resolv: directory.path().join("resolv.conf"),
                port: dns.address.port(),
                answering: ANSWERING / FASTER,
                reaches: |_| true,
            };
            fs::write(&system.hosts, hosts).unwrap();
            fs::write(&system.resolv, resolv).unwrap();
            Self {
                system,
                directory,
                dns,
            }
        }

        fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, NoAnswer> {
            let answer = wait_for(self.system.look_up(host, &[], &[]))?;
            Ok(answer.addresses)
        }

        fn how(&self, name: &str, how: How) {
            let records = Records {
                how,
                ..Records::default()
            };
            self.dns.set(name, records);
        }
    }

    fn wait_for<T>(future: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(future)
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|one| one.parse().unwrap()).collect()
    }

    const SERVER: &str = "nameserver 127.0.0.1\n";
    /// A silent server costs these tests so many times less than others.
    const FASTER: u32 = 10;

    #[test]
    fn a_name_of_the_hosts_file_is_asked_of_no_server() {
        let hosts =
            "\u{feff}# our machines\n10.0.0.1 db.test db # and\n10.0.0.2\tDB.test\n::5 six\n";
        let resolv = format!("search far.test\n{SERVER}");
        let machine = Machine::new(hosts, &resolv);
        machine.dns.answer("db.test", &["10.9.9.9", "fd00::9"]);
        machine.dns.answer("db.far.test", &["10.9.9.9", "fd00::9"]);
        machine.dns.answer("six.far.test", &["10.9.9.9"]);
        let both = Ok(ips(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(machine.look_up("db.test"), both);
        assert_eq!(machine.look_up("db"), Ok(ips(&["10.0.0.1"])));
        assert_eq!(machine.look_up("six"), Ok(ips(&["::5"])));
        let servers = [machine.dns.address];
        let answer = wait_for(machine.system.look_up("db.test", &servers, &[]));
        assert_eq!(answer.map(|answer| answer.addresses), both);
        for name in ["db", "db.test", "db.far.test", "six", "six.far.test"] {
            assert_eq!(machine.dns.asked(name), 0, "{name}");
        }
        // Bytes that are no text hide no other line.
        fs::write(&machine.system.hosts, b"10.0.0.7 \xff\xfe\n10.0.0.8 db\n").unwrap();
        assert_eq!(machine.look_up("db"), Ok(ips(&["10.0.0.8"])));
        // A file that cannot be read is no file without names.
        fs::remove_file(&machine.system.hosts).unwrap();
        fs::create_dir(&machine.system.hosts).unwrap();
        let fault = machine.look_up("db.test").unwrap_err();
        assert!(fault.reason.contains("cannot read"), "{fault}");
        assert_eq!(machine.dns.asked("db.test"), 0);
    }

    #[test]
    fn search_domains_are_taken_in_order_while_names_do_not_exist() {
        let resolv = format!("search a.test b.test\noptions ndots:2\n{SERVER}");
        let machine = Machine::new("", &resolv);
        machine.how("app.svc.a.test", How::Well);
        machine.dns.answer("app.svc.b.test", &["10.0.0.1"]);
        machine.dns.answer("app.svc", &["10.9.9.9"]);
        assert_eq!(machine.look_up("app.svc"), Ok(ips(&["10.0.0.1"])));
        assert_eq!(machine.dns.asked("app.svc.a.test"), 2, "no data: go on");
        assert_eq!(machine.dns.asked("app.svc"), 0);
        // With a dot at the end, or enough of them, it is complete.
        assert_eq!(machine.look_up("app.svc."), Ok(ips(&["10.9.9.9"])));
        machine.dns.answer("far.app.svc", &["10.0.0.2"]);
        assert_eq!(machine.look_up("far.app.svc"), Ok(ips(&["10.0.0.2"])));
        assert_eq!(machine.dns.asked("far.app.svc.a.test"), 0);
        let none = machine.look_up("none.svc").unwrap_err();
        assert!(!none.passing, "{none}");
        assert_eq!(machine.dns.asked("none.svc"), 2, "last");
        let none = machine.look_up("app.svc.a.test").unwrap_err();
        assert_eq!(none, NoAnswer::lasting("the name has no address"));
    }

    #[test]
    fn a_name_whose_lookup_fails_is_not_looked_for_in_the_next_domain() {
        let machine = Machine::new("", &format!("search a.test b.test\n{SERVER}"));
        machine.dns.answer("app.b.test", &["10.9.9.9"]);
        machine.dns.answer("app", &["10.9.9.9"]);
        // Answers that are not for us are none.
        for how in [How::ServFail, How::Silent, How::WrongId, How::Garbage] {
            machine.how("app.a.test", how);
            let fault = machine.look_up("app").unwrap_err();
            assert!(fault.passing, "{fault}");
            for other in ["app.b.test", "app"] {
                assert_eq!(machine.dns.asked(other), 0, "{how:?}");
            }
        }
        // Also if only one family fails, and the other one does not exist.
        machine.how("app.a.test", How::NxDomain);
        machine.dns.change("app.a.test", |records| {
            records.how_aaaa = Some(How::ServFail)
        });
        machine.look_up("app").unwrap_err();
        assert_eq!(machine.dns.asked("app.b.test"), 0);
    }

    /// In less than the time that a start waits.
    #[test]
    fn one_family_is_an_answer_while_the_other_is_silent() {
        let machine = Machine::new("", SERVER);
        machine.dns.answer("app.test", &["10.0.0.1"]);
        machine
            .dns
            .change("app.test", |records| records.how_aaaa = Some(How::Silent));
        let limit = crate::names::FIRST_ANSWER / FASTER;
        let lookup = machine.system.look_up("app.test", &[], &[]);
        let answer = wait_for(async { tokio::time::timeout(limit, lookup).await });
        let answer = answer.expect("in time").unwrap();
        assert_eq!(answer.addresses, ips(&["10.0.0.1"]));
        let before = ips(&["10.0.0.1", "fd00::1"]);
        let lookup = machine.system.look_up("app.test", &[], &before);
        assert!(wait_for(lookup).unwrap_err().passing, "it had the other");
    }

    #[test]
    fn the_next_server_is_asked_only_if_one_cannot_tell() {
        let machine = Machine::new("", "");
        let second = Dns::start();
        second.answer("app.test", &["10.9.9.9"]);
        let servers = [machine.dns.address, second.address];
        let look_up = || {
            let answer = wait_for(machine.system.look_up("app.test", &servers, &[]));
            answer.map(|answer| answer.addresses)
        };
        for _ in 0..4 {
            assert!(!look_up().unwrap_err().passing, "it does not exist");
        }
        machine.dns.answer("app.test", &["10.0.0.1"]);
        for _ in 0..4 {
            assert_eq!(look_up(), Ok(ips(&["10.0.0.1"])));
        }
        assert_eq!(second.asked("app.test"), 0);
        for how in [How::ServFail, How::Silent] {
            machine.dns.change("app.test", |records| records.how = how);
            assert_eq!(look_up(), Ok(ips(&["10.9.9.9"])), "{how:?}");
        }
    }

    #[test]
    fn addresses_that_cannot_be_reached_are_left_out() {
        let mut machine = Machine::new("10.0.0.1 app\nfd00::1 app\n", SERVER);
        machine.system.reaches = |address| address.is_ipv4();
        assert_eq!(machine.look_up("app"), Ok(ips(&["10.0.0.1"])));
        machine.system.reaches = |_| false;
        let fault = machine.look_up("app").unwrap_err();
        assert!(fault.reason.contains("no route") && fault.passing);
        assert!(reaches([127, 0, 0, 1].into()));
    }

    #[test]
    fn addresses_of_no_machine_are_left_out() {
        let machine = Machine::new("", SERVER);
        let all = ["0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1"];
        let mapped = ["::ffff:0.0.0.0", "::ffff:255.255.255.255"];
        machine
            .dns
            .answer("none.test", &[&all[..], &mapped].concat());
        let fault = machine.look_up("none.test").unwrap_err();
        assert_eq!(
            fault,
            NoAnswer::lasting("the answer has no address of a machine")
        );
        let same = ["::ffff:10.0.0.1", "10.0.0.1", "::ffff:10.0.0.2"];
        machine.dns.answer("same.test", &same);
        let canonical = Ok(ips(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(machine.look_up("same.test"), canonical);
    }

    #[test]
    fn only_a_missing_server_means_the_one_on_this_machine() {
        let machine = Machine::new("", "search a.test\noptions ndots:3\n");
        machine.dns.answer("x.app.a.test", &["10.0.0.1"]);
        let found = Ok(ips(&["10.0.0.1"]));
        assert_eq!(machine.look_up("x.app"), found, "with its search domains");
        fs::remove_file(&machine.system.resolv).unwrap();
        assert_eq!(machine.look_up("x.app.a.test"), found, "no file");
        fs::create_dir(&machine.system.resolv).unwrap();
        let fault = machine.look_up("x.app.a.test").unwrap_err();
        let path = machine.directory.path().join("resolv.conf");
        let text = format!("cannot read {}", path.display());
        assert!(fault.reason.starts_with(&text), "{fault}");
    }

    #[test]
    fn candidates_follow_the_number_of_dots() {
        let search = ["a.test", "b.test."].map(|one| Name::from_ascii(one).unwrap());
        let of = |host: &str, ndots| -> Vec<String> {
            let name = Name::from_ascii(host).unwrap();
            let all = candidates(host, &name, &search, ndots);
            assert!(all.iter().all(Name::is_fqdn));
            all.iter().map(Name::to_ascii).collect()
        };
        assert_eq!(of("x", 1), ["x.a.test.", "x.b.test.", "x."]);
        assert_eq!(of("x.y", 1), ["x.y.", "x.y.a.test.", "x.y.b.test."]);
        assert_eq!(of("x.y", 2), ["x.y.a.test.", "x.y.b.test.", "x.y."]);
        assert_eq!(of("x", 0)[0], "x.");
        assert_eq!(of("x.", 5), ["x."]);
        assert_eq!(of("localhost", 5), ["localhost."]);
        let long = ["l".repeat(62).as_str(); 4].join(".");
        assert_eq!(of(&long, 9), [format!("{long}.")], "others are too long");
    }
}
