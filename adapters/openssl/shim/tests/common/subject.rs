//! What is done to servers of any protocol: clients that go away at random points, reloads, another certificate; and
//! that nothing stays of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::Signal;

use super::aborts::{Host, Over, Random, clients, go_away};
use super::client::{Client, Wish};
use super::nginx::{BAD, KINDS};
use super::protocol::{Protocol, Steps};
use super::{Kind, Process, Server, With};

/// A server.
pub struct Subject {
    pub name: &'static str,
    pub start: fn(With) -> Option<Server>,
    pub with: With,
    pub protocol: Protocol,
    /// Names of its hosts, and kinds of their keys.
    pub hosts: &'static [(Kind, &'static str)],
    pub reload: Reload,
    /// Makes it close its sockets for a moment when it reloads, so that clients are refused or reset.
    pub listens_anew: bool,
    /// Name of the processes that serve; without one, all children of the first process serve, or it does.
    pub worker: Option<&'static str>,
    /// KiB that may stay of all clients, and of each thousand of them.
    pub may_stay: (u64, u64),
    /// Makes it close connections whose clients say nothing for a while.
    pub closes_idle: bool,
    /// The time limit of a handshake, if the process shall be stopped for longer again and again: then the time of
    /// handshakes runs out that wait for a pass.
    pub stopped: Option<Duration>,
}

/// A way to make a server read its certificates again.
#[derive(Clone, Copy, Debug)]
pub enum Reload {
    Signal(Signal),
    /// By a client that says these steps.
    Client(Protocol),
}

/// How much is done to a server.
pub struct Plan {
    pub in_flight: usize,
    /// Clients that go away before memory is measured for the first time, and after that.
    pub aborts: [usize; 2],
    pub reloads: usize,
    /// Between two reloads.
    pub pause: Duration,
    pub compares_logs: bool,
}

/// What a server at rest holds, in the process that holds most.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub kib: u64,
    pub descriptors: usize,
    pub stacks: usize,
}

/// What came of a plan.
pub struct Endured {
    pub idle: Held,
    pub first: Held,
    pub last: Held,
    /// Honest clients that were answered during reloads.
    pub answered: usize,
    /// Attempts of honest clients that failed.
    pub again: usize,
}

impl Subject {
    /// Starts the server; `None`, and says why, if it is not installed.
    pub fn start(&self) -> Option<Server> {
        (self.start)(self.with)
    }

    /// Does everything of the plan to a server. `None` if it is not installed.
    pub fn endure(&self, plan: &Plan) -> Option<Endured> {
        let name = self.name;
        let server = self.start()?;
        let again = AtomicUsize::new(0);
        assert_eq!(self.honest(&server, &again), Ok(()));
        let again = AtomicUsize::new(0);
        let idle = self.at_rest(&server);
        println!("{name}: {idle:?} at the start");
        // More at once than later: what the heap keeps of a crowd is there before memory is measured.
        self.abort(&server, 2 * plan.in_flight, 0..plan.aborts[0]);
        let first = self.settled(&server, &idle);
        println!("{name}: {first:?} after {} clients", plan.aborts[0]);
        let all: usize = plan.aborts.iter().sum();
        let mut next = plan.aborts[0];
        while next < all {
            let end = all.min(next + 3_000);
            self.abort(&server, plan.in_flight, next..end);
            next = end;
            println!("{name}: {:?} after {next} clients", self.settled(&server, &idle));
        }
        let last = self.settled(&server, &idle);
        let may_stay = self.may_stay.0 + self.may_stay.1 * plan.aborts[1] as u64 / 1000;
        assert!(last.kib < first.kib + may_stay, "{name}: {first:?} became {last:?}");
        assert_eq!(self.honest(&server, &again), Ok(()), "{name}");
        let answered = self.mixed(&server, plan, &again);
        assert_eq!(self.honest(&server, &again), Ok(()), "{name}");
        self.at_rest(&server);
        server.assert_log_without(BAD);
        if plan.compares_logs {
            self.says_nothing_new(&server, plan);
        }
        Some(Endured {
            idle,
            first,
            last,
            answered,
            again: again.into_inner(),
        })
    }

    /// Agrees on the same and says the same, whatever it has of ours.
    pub fn answers_are_the_same(&self) {
        let mut plain = None;
        for with in [With::Nothing, With::Provider, With::Shim, With::Imports] {
            let Some(server) = (self.start)(with) else { return };
            let (_, name) = self.hosts[0];
            let session = |client| {
                let session = self.protocol.ask(&client, server.address, name);
                let session = session.unwrap_or_else(|error| panic!("{with:?}: {error}"));
                // Times and numbers of processes may differ.
                let text = String::from_utf8_lossy(&session.heard).replace(|c: char| c.is_ascii_digit(), "0");
                (session.agreed, text)
            };
            let sessions: Vec<_> = clients(&server.files).into_iter().map(session).collect();
            assert_eq!(plain.get_or_insert_with(|| sessions.clone()), &sessions, "{with:?}");
        }
    }

    /// Replaces the certificate while clients connect. Each is answered, and once one has seen the new certificate, so
    /// do all that come later.
    pub fn replace_certificate(&self) {
        let Some(server) = self.start() else { return };
        let (kind, name) = self.hosts[0];
        let clients = [0, 1].map(|version| Wish::of(version).client(&server.files));
        let ask = |client: &Client| self.protocol.ask(client, server.address, name);
        let old = ask(&clients[0]).expect("a server that answers").certificate;
        let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (is_new, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
        let refused = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _over = Over(&over);
                super::eventually("clients are answered", || answered.load(Relaxed) >= 50);
                server.files.certificate(kind, name);
                self.reload(&server);
                super::eventually("clients see the new certificate", || seen.load(Relaxed) > 0);
                is_new.store(true, Relaxed);
                super::eventually("clients see it again and again", || seen.load(Relaxed) > 50);
            });
            super::load_while(16, |i| {
                if over.load(Relaxed) {
                    return Ok(false);
                }
                let is_new = is_new.load(Relaxed);
                let certificate = match ask(&clients[i % clients.len()]) {
                    Ok(session) => session.certificate,
                    Err(error) if self.listens_anew && (error.contains("refused") || error.contains("reset")) => {
                        refused.fetch_add(1, Relaxed);
                        std::thread::sleep(super::STEP);
                        return Ok(true);
                    }
                    Err(error) => return Err(error),
                };
                answered.fetch_add(1, Relaxed);
                if certificate != old {
                    seen.fetch_add(1, Relaxed);
                } else if is_new {
                    return Err("the old certificate came back".to_owned());
                }
                Ok(true)
            });
        });
        let [answered, refused] = [answered, refused].map(AtomicUsize::into_inner);
        println!("{}: {answered} clients were answered, {refused} refused", self.name);
    }

    pub fn host<'a>(&self, server: &Server, name: &'a str) -> Host<'a> {
        Host {
            address: server.address,
            name,
            protocol: self.protocol,
            closes_idle: self.closes_idle,
        }
    }

    /// A host, as `random` will have it.
    fn any_host(&self, server: &Server, random: &mut Random) -> Host<'static> {
        let (_, name) = self.hosts[random.below(self.hosts.len())];
        self.host(server, name)
    }

    pub fn at_rest(&self, server: &Server) -> Held {
        self.worker(server).becomes_idle();
        self.held(server)
    }

    fn held(&self, server: &Server) -> Held {
        let worker = self.worker(server);
        Held {
            kib: worker.resident(),
            descriptors: worker.descriptors(),
            stacks: super::guard_areas(worker),
        }
    }

    /// What it holds once no connection is open.
    pub fn settled(&self, server: &Server, idle: &Held) -> Held {
        super::eventually("all connections are closed", || {
            self.worker(server).descriptors() <= idle.descriptors
        });
        self.at_rest(server)
    }

    /// The process that serves: the largest, where there are several.
    pub fn worker(&self, server: &Server) -> Process {
        let workers = self.workers(server).into_iter().filter(|one| one.runs());
        workers.max_by_key(|one| one.resident()).unwrap_or(server.process())
    }

    /// Processes that serve; none if the first one does.
    fn workers(&self, server: &Server) -> BTreeSet<Process> {
        let mut workers = server.process().children();
        if let Some(name) = self.worker {
            workers.retain(|one| one.file("comm").is_ok_and(|comm| comm.trim_end() == name));
        }
        workers
    }

    /// Clients that go away; their numbers are their seeds.
    fn abort(&self, server: &Server, in_flight: usize, numbers: std::ops::Range<usize>) {
        let clients = clients(&server.files);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if let Some(limit) = self.stopped {
                let (over, worker) = (&over, self.worker(server));
                scope.spawn(move || {
                    while !over.load(Relaxed) {
                        worker.signal(Signal::STOP);
                        std::thread::sleep(limit + limit / 4);
                        worker.signal(Signal::CONT);
                        std::thread::sleep(limit * 2);
                    }
                });
            }
            let _over = Over(&over);
            let start = numbers.start;
            println!(
                "{}: clients with the seeds {numbers:?} go away, {in_flight} at a time",
                self.name
            );
            super::load(in_flight, numbers.len(), |i| {
                let mut random = Random::new(start + i);
                let client = &clients[random.below(clients.len())];
                let host = self.any_host(server, &mut random);
                // Errors are what the server is asked for.
                let _ = go_away(client, &host, &mut random);
                Ok(())
            });
        });
    }

    /// A session of each kind, version and group. Counts how often one was tried again: on a busy machine the time of
    /// honest clients may run out, too.
    fn honest(&self, server: &Server, again: &AtomicUsize) -> Result<(), String> {
        for client in clients(&server.files) {
            for (_, name) in self.hosts {
                retried(again, || self.protocol.ask(&client, server.address, name))?;
            }
        }
        Ok(())
    }

    /// Clients of both kinds while the server is reloaded; how many were answered.
    fn mixed(&self, server: &Server, plan: &Plan, again: &AtomicUsize) -> usize {
        let clients = clients(&server.files);
        let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _over = Over(&over);
                for i in 1..=plan.reloads {
                    let goal = answered.load(Relaxed) + 100;
                    super::eventually("handshakes go on", || answered.load(Relaxed) >= goal);
                    std::thread::sleep(plan.pause);
                    self.reload(server);
                    if i % 6 == 0 {
                        let sum = answered.load(Relaxed);
                        let held = self.held(server);
                        println!("{}: {sum} answered, {i} reloads, {held:?}", self.name);
                    }
                }
            });
            super::load_while(plan.in_flight / 4, |i| {
                if over.load(Relaxed) {
                    return Ok(false);
                }
                let mut random = Random::new(1_000_000 + i);
                let client = &clients[random.below(clients.len())];
                let host = self.any_host(server, &mut random);
                if i % 2 == 0 {
                    let _ = go_away(client, &host, &mut random);
                    return Ok(true);
                }
                retried(again, || self.protocol.ask(client, host.address, host.name))?;
                answered.fetch_add(1, Relaxed);
                Ok(true)
            });
        });
        answered.into_inner()
    }

    /// Reloads the server and waits until its processes were replaced, if it has several.
    fn reload(&self, server: &Server) {
        let before = self.workers(server);
        match self.reload {
            Reload::Signal(signal) => server.process().signal(signal),
            Reload::Client(protocol) => {
                let client = Wish::default().client(&server.files);
                let (_, name) = self.hosts[0];
                protocol.ask(&client, server.address, name).expect("an answer");
            }
        }
        if !before.is_empty() {
            super::eventually("other processes have taken over", || {
                let now = self.workers(server);
                !now.is_empty() && now.is_disjoint(&before)
            });
        }
    }

    /// The server's log has no kind of complaint that the server without us does not have under the same load.
    fn says_nothing_new(&self, server: &Server, plan: &Plan) {
        let plain = (self.start)(With::Nothing).expect("it was there before");
        self.abort(&plain, plan.in_flight, 0..plan.aborts[0]);
        let short = Plan {
            reloads: 1,
            pause: Duration::ZERO,
            ..*plan
        };
        self.mixed(&plain, &short, &AtomicUsize::new(0));
        let known: BTreeSet<_> = complaints(&plain).into_keys().collect();
        let mut new = complaints(server);
        new.retain(|kind, _| !known.contains(kind));
        assert!(new.is_empty(), "{}: {new:#?}", self.name);
    }
}

fn retried<T>(again: &AtomicUsize, mut one: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    for _ in 0..4 {
        if let Ok(done) = one() {
            return Ok(done);
        }
        again.fetch_add(1, Relaxed);
        std::thread::sleep(Duration::from_millis(100));
    }
    one()
}

/// What the log complains about, without numbers and names, and one line of each kind.
fn complaints(server: &Server) -> BTreeMap<String, String> {
    // Dovecot takes for errors what its processes write to their standard error.
    let log = server.log().replace("Error: widelane", "widelane");
    let serious = |line: &&str| {
        let line = line.to_lowercase();
        ["warn", "error", "crit", "alert", "emerg", "widelane: openssl"]
            .iter()
            .any(|word| line.contains(word))
            // nginx tells at this level what clients do.
            && !line.contains("[info]")
            // How many clients came at once, which is ours to know.
            && !line.contains("maxrequestworkers")
    };
    let kind = |line: &str| {
        let line = line.split("client").next().unwrap_or(line);
        // Words with digits are numbers, addresses and names.
        let words = line.split(|c: char| !c.is_ascii_alphanumeric());
        let words = words.filter(|word| !word.is_empty() && !word.contains(|c: char| c.is_ascii_digit()));
        words.collect::<Vec<_>>().join(" ")
    };
    let lines = log.lines().filter(serious);
    lines.map(|line| (kind(line), line.to_owned())).collect()
}
