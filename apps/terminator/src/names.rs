//! The host names of backends: a thread that looks them up, and again when their answers end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

use crate::config::{Backend, Config};
use crate::names_lookup::{SHORTEST, System};
use crate::upstream::{NoAnswer, Upstreams};

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

    pub(crate) fn has_servers_of(&self, other: &Self) -> bool {
        self.servers == other.servers
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
    let places = Arc::new(Semaphore::new(MOST_AT_ONCE));
    while let Some(wanted) = wishes.recv().await {
        if wanted.anew || wanted.servers != servers {
            following.clear();
            servers = wanted.servers;
        }
        following.retain(|host, _| wanted.hosts.contains(host));
        for host in wanted.hosts {
            following.entry(host).or_insert_with_key(|host| {
                let task = follow(
                    host.clone(),
                    servers.clone(),
                    upstreams.clone(),
                    places.clone(),
                );
                Following(tokio::spawn(task).abort_handle())
            });
        }
    }
}

async fn follow(
    host: String,
    servers: Vec<SocketAddr>,
    upstreams: Arc<Upstreams>,
    places: Arc<Semaphore>,
) {
    let system = System::default();
    let mut pause = SHORTEST;
    loop {
        let place = places.acquire().await;
        let before = upstreams.addresses_of(&host);
        let lookup = system.look_up(&host, &servers, &before);
        let answer = tokio::time::timeout(PATIENCE, lookup).await;
        drop(place);
        let answer = answer.unwrap_or_else(|_| Err(NoAnswer::passing("no answer in time")));
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

/// Each lookup has descriptors of its own.
const MOST_AT_ONCE: usize = 64;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For all search domains together.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a start or a reload waits for names that it does not know.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(5);
