//! The host names of backends: a thread that looks them up, and again when their answers end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hickory_resolver::Resolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::RecordType;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::config::{Backend, Config};
use crate::names_io::Sockets;
use crate::upstream::Upstreams;

/// Follows host names, on a thread that begins with the first name.
#[derive(Debug)]
pub(crate) struct Names {
    upstreams: Arc<Upstreams>,
    running: Option<(mpsc::UnboundedSender<Wanted>, JoinHandle<()>)>,
}

/// What a configuration wants to be looked up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) hosts: BTreeSet<String>,
    servers: Vec<SocketAddr>,
    /// Look up at once what was looked up before.
    pub(crate) anew: bool,
}

/// A task that looks one name up again and again, until this is dropped.
struct Following(AbortHandle);

/// The addresses of a name, and how long they are good.
struct Answer {
    addresses: Vec<IpAddr>,
    lifetime: Duration,
}

impl Wanted {
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
            servers: config.name_servers.clone(),
            anew: false,
        }
    }
}

impl Names {
    pub(crate) fn new(upstreams: Arc<Upstreams>) -> Self {
        Self {
            upstreams,
            running: None,
        }
    }

    /// Looks these names up from now on, and no others.
    pub(crate) fn follow(&mut self, wanted: Wanted) -> io::Result<()> {
        self.upstreams.follow(&wanted.hosts);
        if self.running.is_none() && !wanted.hosts.is_empty() {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let (wishes, coming) = mpsc::unbounded_channel();
            let upstreams = self.upstreams.clone();
            let thread = std::thread::Builder::new()
                .name("widelane-names".into())
                .spawn(move || runtime.block_on(serve(upstreams, coming)))?;
            self.running = Some((wishes, thread));
        }
        if let Some((wishes, _)) = &self.running {
            let _ = wishes.send(wanted);
        }
        Ok(())
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        if let Some((wishes, thread)) = self.running.take() {
            drop(wishes);
            let _ = thread.join();
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn serve(upstreams: Arc<Upstreams>, mut wishes: mpsc::UnboundedReceiver<Wanted>) {
    let mut following: BTreeMap<String, Following> = BTreeMap::new();
    let mut servers = Vec::new();
    while let Some(wanted) = wishes.recv().await {
        if wanted.anew || wanted.servers != servers {
            following.clear();
            servers = wanted.servers;
        }
        following.retain(|host, _| wanted.hosts.contains(host));
        for host in wanted.hosts {
            following.entry(host).or_insert_with_key(|host| {
                let task = follow(host.clone(), servers.clone(), upstreams.clone());
                Following(tokio::spawn(task).abort_handle())
            });
        }
    }
}

async fn follow(host: String, servers: Vec<SocketAddr>, upstreams: Arc<Upstreams>) {
    let mut pause = SHORTEST;
    loop {
        let before = upstreams.addresses_of(&host);
        let answer = tokio::time::timeout(PATIENCE, look_up(&host, &servers, &before)).await;
        let answer = answer.unwrap_or_else(|_| Err("no answer in time".into()));
        match answer {
            Ok(answer) => {
                upstreams.learned(&host, answer.addresses);
                pause = SHORTEST;
                tokio::time::sleep(answer.lifetime).await;
            }
            Err(fault) => {
                upstreams.not_learned(&host, fault);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// All addresses of a name, of both families. `before`: those that it had.
async fn look_up(host: &str, servers: &[SocketAddr], before: &[IpAddr]) -> Result<Answer, String> {
    let resolver = resolver(servers)?;
    let found = resolver.lookup_ip(host).await;
    let found = found.map_err(|error| fault(&error))?;
    let mut addresses: Vec<IpAddr> = found.iter().filter(is_of_a_machine).collect();
    for (has, record) in [
        (IpAddr::is_ipv4 as fn(&IpAddr) -> bool, RecordType::A),
        (IpAddr::is_ipv6, RecordType::AAAA),
    ] {
        // The answers of both families are one answer to the resolver, also if one of them has failed.
        if before.iter().any(has) && !addresses.iter().any(has) {
            let name = found.query().name().clone();
            match resolver.lookup(name, record).await {
                Ok(_) => {}
                Err(error) if error.is_no_records_found() || error.is_nx_domain() => {}
                Err(error) => return Err(format!("{record}: {error}")),
            }
        }
    }
    // In an order of their own, so that a server that turns its answers changes nothing.
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.len() > Backend::MOST {
        let (found, used) = (addresses.len(), Backend::MOST);
        tracing::warn!(
            name = host,
            found,
            used,
            "too many addresses, and the last are not used"
        );
        addresses.truncate(used);
    }
    if addresses.is_empty() {
        return Err("the answer has no address of a machine".into());
    }
    let lifetime = found
        .valid_until()
        .saturating_duration_since(Instant::now());
    Ok(Answer {
        addresses,
        lifetime: lifetime.clamp(SHORTEST, LONGEST),
    })
}

fn fault(error: &NetError) -> String {
    if error.is_nx_domain() {
        "the DNS server knows no such name (NXDOMAIN)".into()
    } else if error.is_no_records_found() {
        "the name has no address".into()
    } else {
        error.to_string()
    }
}

/// Connecting to 0.0.0.0 or `::` would reach this machine; filters of DNS answer with them.
fn is_of_a_machine(address: &IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

/// A resolver for one lookup, so that changes of `/etc/resolv.conf` and `/etc/hosts` count at once.
fn resolver(servers: &[SocketAddr]) -> Result<Resolver<Sockets>, String> {
    let runtime = Sockets::default();
    let mut builder = match servers {
        [] => Resolver::builder(runtime).unwrap_or_else(|error| {
            tracing::debug!(%error, "no /etc/resolv.conf");
            let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![local]);
            Resolver::builder_with_config(config, Sockets::default())
        }),
        servers => {
            let servers = servers.iter().map(|server| {
                let mut one = NameServerConfig::udp_and_tcp(server.ip());
                for connection in &mut one.connections {
                    connection.port = server.port();
                }
                one
            });
            let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
            let mut builder = Resolver::builder_with_config(config, runtime);
            builder.options_mut().timeout = ANSWERING;
            builder
        }
    };
    let options = builder.options_mut();
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = 0;
    options.edns0 = true;
    builder.build().map_err(|error| error.to_string())
}

/// Also the first pause after a lookup that has failed.
const SHORTEST: Duration = Duration::from_secs(1);
/// Names of `/etc/hosts` have no time of their own.
const LONGEST: Duration = Duration::from_secs(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For one server of `name_servers`, once.
const ANSWERING: Duration = Duration::from_secs(2);
/// For all servers and search domains together.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a start or a reload waits for names that it does not know.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(5);
