//! TLS handshakes of any process, by the means of `widelane trace`.

use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use widelane_trace::handshakes::Ending;
use widelane_trace::latency::{Histogram, bucket_of};
use widelane_trace::{Clock, Filter, Handshake, Handshakes, Table, Tracer, Want};

/// TLS handshakes of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tls {
    /// Processes that have ended handshakes, the one with the most first.
    pub processes: Vec<TlsProcess>,
    /// Events a second that were lost: rates are too low by their share.
    pub lost: f64,
}

/// A process that has ended handshakes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TlsProcess {
    /// Number of the process.
    pub pid: u32,
    /// The name of the thread that ended one last.
    pub name: String,
    /// The family of libraries.
    pub library: String,
    /// Complete handshakes a second.
    pub handshakes: f64,
    /// Failed handshakes a second.
    pub failed: f64,
    /// Median time from the first call of a complete handshake to its last return, in microseconds, exact to 6 %.
    pub p50_us: Option<f64>,
    /// The time that 99 of 100 do not exceed.
    pub p99_us: Option<f64>,
    /// Cryptographic functions in them, the one that takes the most time first.
    pub functions: Vec<TlsFunction>,
}

/// Calls of a cryptographic function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TlsFunction {
    /// Name of its operation, such as `rsa-2048 sign`.
    pub name: String,
    /// Calls a second.
    pub calls: f64,
    /// Time from entry to return, in CPUs.
    pub cpus: f64,
}

/// Traces on a thread of its own until it is dropped.
pub(crate) struct Tracing {
    shared: Arc<Mutex<Shared>>,
    /// A socket that ends the thread when something is written to it.
    end: UnixStream,
    thread: Option<JoinHandle<()>>,
    since: Instant,
}

/// Handshakes that the thread has seen since the last question.
#[derive(Default)]
struct Shared {
    sums: BTreeMap<u32, Sums>,
    lost: u64,
    /// Reason why the thread has ended.
    error: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    name: String,
    library: String,
    failed: u64,
    walls: Histogram,
    /// Calls and nanoseconds.
    functions: BTreeMap<String, (u64, u64)>,
}

impl Tracing {
    /// Puts probes into all processes with a library that is known.
    pub(crate) fn start() -> Result<Self, String> {
        let text = |error: io::Error| error.to_string();
        let (end, ended) = UnixStream::pair().map_err(text)?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let of_thread = Arc::clone(&shared);
        let (sender, started) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name("widelane-trace".to_owned())
            .spawn(move || trace(&of_thread, &ended, &sender))
            .map_err(text)?;
        match started.recv() {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(why),
            Err(_) => return Err("the thread that traces has ended".to_owned()),
        }
        Ok(Self {
            shared,
            end,
            thread: Some(thread),
            since: Instant::now(),
        })
    }

    /// Rates since the last call.
    pub(crate) fn read(&mut self) -> Result<Tls, String> {
        let now = Instant::now();
        let elapsed = now.duration_since(std::mem::replace(&mut self.since, now));
        let mut shared = lock(&self.shared);
        if let Some(error) = &shared.error {
            return Err(error.clone());
        }
        let lost = std::mem::take(&mut shared.lost);
        let sums = std::mem::take(&mut shared.sums);
        drop(shared);
        Ok(rates(&sums, lost, elapsed))
    }
}

impl Drop for Tracing {
    /// Comes back when the probes are gone.
    fn drop(&mut self) {
        // If it fails, the thread has ended already.
        let _ = self.end.write_all(b"e");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Sums {
    fn add(&mut self, handshake: &Handshake) {
        self.name.clone_from(&handshake.comm);
        self.library.clone_from(&handshake.library);
        match handshake.result {
            Ending::Ok => self.walls.add(bucket_of(handshake.wall), 1, handshake.wall),
            Ending::Alert | Ending::Closed => self.failed += 1,
        }
        for part in &handshake.functions {
            if self.functions.len() < MOST_FUNCTIONS || self.functions.contains_key(&part.name) {
                let sum = self.functions.entry(part.name.clone()).or_default();
                sum.0 += part.count;
                sum.1 = sum.1.saturating_add(part.ns);
            }
        }
    }
}

/// Traces until it is stopped, on the thread of its own.
fn trace(shared: &Mutex<Shared>, ended: &UnixStream, sender: &SyncSender<Result<(), String>>) {
    let (filter, table) = (Filter::default(), Table::builtin());
    let mut tracer = match Tracer::start(filter, table, Want::handshakes()) {
        Ok(tracer) => tracer,
        Err(error) => {
            let _ = sender.send(Err(error.to_string()));
            return;
        }
    };
    // Those that were seen while probes were put into further processes belong to no interval.
    let begin = Clock::monotonic();
    let _ = sender.send(Ok(()));
    let mut handshakes = Handshakes::new(Clock::now());
    let mut lost = 0;
    loop {
        let pause = handshakes.settles_after().unwrap_or(LONGEST);
        let seen = match tracer.wait(Instant::now() + pause, ended.as_fd()) {
            Ok(seen) => seen,
            Err(error) => {
                lock(shared).error = Some(error.to_string());
                return;
            }
        };
        if seen.stopped {
            return;
        }
        let mut all = Vec::new();
        for event in &seen.events {
            all.extend(handshakes.take(event));
        }
        all.extend(handshakes.settle(Clock::monotonic()));
        let mut shared = lock(shared);
        for handshake in all.iter().filter(|one| one.time >= begin) {
            if shared.sums.len() < MOST_PROCESSES || shared.sums.contains_key(&handshake.pid) {
                shared.sums.entry(handshake.pid).or_default().add(handshake);
            }
        }
        shared.lost += tracer.lost() - lost;
        lost = tracer.lost();
    }
}

fn rates(sums: &BTreeMap<u32, Sums>, lost: u64, elapsed: Duration) -> Tls {
    let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let process = |(&pid, sums): (&u32, &Sums)| {
        let done = sums.walls.count();
        let quantile = |share| (done > 0).then(|| sums.walls.quantile(share) as f64 / 1e3);
        let mut functions: Vec<TlsFunction> = (sums.functions.iter())
            .map(|(name, &(calls, ns))| TlsFunction {
                name: name.clone(),
                calls: calls as f64 / seconds,
                cpus: ns as f64 / 1e9 / seconds,
            })
            .collect();
        functions.sort_by(|one, other| other.cpus.total_cmp(&one.cpus));
        functions.truncate(MOST_SHOWN);
        TlsProcess {
            pid,
            name: sums.name.clone(),
            library: sums.library.clone(),
            handshakes: done as f64 / seconds,
            failed: sums.failed as f64 / seconds,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            functions,
        }
    };
    let mut processes: Vec<TlsProcess> = sums.iter().map(process).collect();
    processes.sort_by(|one, other| other.handshakes.total_cmp(&one.handshakes));
    Tls {
        processes,
        lost: lost as f64 / seconds,
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Sums are whole at every step.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

const LONGEST: Duration = Duration::from_secs(3600);
/// Functions of a process that are counted apart, and those that are shown.
const MOST_FUNCTIONS: usize = 64;
const MOST_SHOWN: usize = 5;
const MOST_PROCESSES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_trace::Role;
    use widelane_trace::handshakes::Operations;

    fn handshake(pid: u32, wall: u64, result: Ending) -> Handshake {
        Handshake {
            time: 0,
            time_s: 0.0,
            pid,
            tid: pid,
            comm: "nginx".to_owned(),
            library: "openssl".to_owned(),
            side: None,
            version: None,
            cipher: None,
            group: None,
            resumed: None,
            server_name: None,
            result,
            alert: None,
            calls: 2,
            again: 1,
            wall,
            cpu: None,
            waiting: Some(0),
            functions: ["x25519 derive", "rsa-2048 sign"]
                .map(|name| Operations {
                    name: name.to_owned(),
                    role: Role::Sign,
                    count: 1,
                    ns: 10_000_000 * name.len() as u64,
                    innermost_ns: 0,
                })
                .to_vec(),
        }
    }

    #[test]
    fn rates_are_of_each_process_and_the_busiest_comes_first() {
        let mut sums: BTreeMap<u32, Sums> = BTreeMap::new();
        for (pid, wall, result) in [
            (7, 1_000_000, Ending::Ok),
            (8, 2_000_000, Ending::Ok),
            (8, 4_000_000, Ending::Ok),
            (8, 9_000_000, Ending::Closed),
        ] {
            let handshake = handshake(pid, wall, result);
            sums.entry(pid).or_default().add(&handshake);
        }
        let tls = rates(&sums, 6, Duration::from_secs(2));
        assert_eq!(tls.lost, 3.0);
        let pids: Vec<u32> = tls.processes.iter().map(|one| one.pid).collect();
        assert_eq!(pids, [8, 7]);
        let first = &tls.processes[0];
        assert_eq!((first.handshakes, first.failed), (1.0, 0.5));
        let near = |is: Option<f64>, us: f64| (us..us * 1.07).contains(&is.unwrap());
        assert!(near(first.p50_us, 2_000.0) && near(first.p99_us, 4_000.0), "{first:?}");
        // Both names have thirteen letters, and each three calls.
        let functions: Vec<_> = first.functions.iter().map(|one| (one.calls, one.cpus)).collect();
        assert_eq!(functions, [(1.5, 0.195), (1.5, 0.195)]);
    }

    #[test]
    fn without_complete_handshakes_there_are_no_times() {
        let mut sums: BTreeMap<u32, Sums> = BTreeMap::new();
        sums.entry(7).or_default().add(&handshake(7, 5, Ending::Alert));
        let tls = rates(&sums, 0, Duration::ZERO);
        assert_eq!((tls.processes[0].p50_us, tls.processes[0].p99_us), (None, None));
        assert_eq!(rates(&BTreeMap::new(), 0, Duration::from_secs(1)), Tls::default());
    }
}
