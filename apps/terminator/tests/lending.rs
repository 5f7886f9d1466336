//! Idle vector cores are lent to the workers, and reclaimed before wide code runs on them.

mod common;

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::*;
use widelane_affinity::allowed;
use widelane_batching::Clock;
use widelane_terminator::{Config, Cpus, PlacementChoice, Server};

/// With a clock that wide code lowers, `auto` keeps passes and workers apart, but lends the CPU of
/// an idle vector core to the workers.
#[test]
fn workers_have_an_idle_vector_core_and_leave_it_before_passes() {
    let _alone = alone();
    let Some(cpus) = two_cpus() else { return };
    let vector = cpus[cpus.len() - (cpus.len() / 4).max(1)..].to_vec();
    let scalar = cpus[..cpus.len() - vector.len()].to_vec();
    let files = Files::new();
    let mut config = settings(&files);
    // Long enough that masks can be looked at in between.
    config.batching.rest = Some(Duration::from_millis(300));
    let server = start(&config);
    let address = server.addresses()[0];
    assert_eq!(workers().len(), cpus.len(), "one for each, lent ones included");

    for _ in 0..2 {
        let all_idle = || metric(&server, GIVEN_BACK) == vector.len() as u64;
        eventually("all vector cores are lent", all_idle);
        let wide_open = || workers().iter().all(|allowed| *allowed == cpus);
        eventually("the workers may use all CPUs", wide_open);
        assert_eq!(metric(&server, ACTIVE), 0);

        let taken = metric(&server, TAKES);
        eventually("workers are seen to stay off while handshakes run", || {
            finish(&mut hello(address).expect("a handshake")).expect("an end");
            let gives = metric(&server, GIVES);
            let active = metric(&server, ACTIVE);
            let seen = workers();
            // If no core was lent meanwhile, this number was at work all the time.
            if active == 0 || metric(&server, GIVES) != gives {
                return false;
            }
            for allowed in &seen {
                let lent = vector.iter().filter(|cpu| allowed.contains(cpu)).count();
                assert!(lent as u64 + active <= vector.len() as u64, "{seen:?}");
                assert!(scalar.iter().all(|cpu| allowed.contains(cpu)), "{seen:?}");
            }
            true
        });
        assert!(metric(&server, TAKES) > taken);
        assert_eq!(metric(&server, TAKE_FAILURES), 0);
    }
    let page = metrics(&server);
    let passes = sum(&page, "widelane_engine_passes_total{");
    let on_vector_cores = sum(&page, "widelane_engine_passes_on_vector_cores_total{");
    assert_eq!(passes, on_vector_cores);
    if passes == 0 {
        eprintln!("SKIP: no lanes, so that there are no passes");
    }
    server.stop(PATIENCE);
    eventually("the workers are gone", || workers().is_empty());
}

/// Handshakes one after another with hardly a rest between them, each of which takes the core.
#[test]
fn a_core_that_comes_and_goes_all_the_time_answers_every_handshake() {
    let _alone = alone();
    let Some(_) = two_cpus() else { return };
    let files = Files::new();
    let mut config = settings(&files);
    config.batching.rest = Some(Duration::from_millis(1));
    let server = start(&config);
    let address = server.addresses()[0];
    for _ in 0..50 {
        finish(&mut hello(address).expect("a handshake")).expect("an end");
    }
    assert_eq!(metric(&server, TAKE_FAILURES), 0);
    // Workers end while cores come and go.
    let clients: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(move || while hello(address).is_ok() {}))
        .collect();
    eventually("some handshakes", || metric(&server, OK_13) > 60);
    server.stop(Duration::ZERO);
    for client in clients {
        client.join().expect("a client");
    }
}

/// While the vector cores are at work, the workers that wait for them sleep through new
/// connections; once one is lent, they share in them.
#[test]
fn workers_without_a_cpu_leave_connections_to_others() {
    let _alone = alone();
    let Some(cpus) = two_cpus() else { return };
    let files = Files::new();
    let mut config = settings(&files);
    config.batching.rest = Some(Duration::from_millis(500));
    let server = start(&config);
    let address = server.addresses()[0];
    let spare = format!("widelane-{}", cpus.len() - 1);
    let mut live = Vec::new();
    eventually("a spare worker that sleeps while others accept", || {
        let (gives, before) = (metric(&server, GIVES), pauses(&spare));
        live.extend((0..20).map(|_| hello(address).expect("a handshake")));
        let at_work = metric(&server, ACTIVE) > 0 && metric(&server, GIVES) == gives;
        at_work && pauses(&spare) == before
    });
    eventually("a core is lent", || metric(&server, GIVEN_BACK) > 0);
    eventually("a spare worker that accepts, too", || {
        let before = pauses(&spare);
        live.push(hello(address).expect("a handshake"));
        pauses(&spare) > before
    });
    for stream in &mut live {
        ping(stream).expect("an answer");
    }
    // They end normally, on any worker.
    let stopping = std::thread::spawn(move || server.stop(PATIENCE));
    for mut stream in live {
        finish(&mut stream).expect("an end");
    }
    assert_eq!(stopping.join().expect("stopped"), 0);
}

#[test]
fn workers_that_the_operator_pinned_stay_where_they_are() {
    let _alone = alone();
    let Some(cpus) = two_cpus() else { return };
    let files = Files::new();
    let mut config = settings(&files);
    config.batching.rest = Some(Duration::from_millis(1));
    config.cpus = Cpus::from_iter([cpus[0]]);
    let server = start(&config);
    for _ in 0..3 {
        finish(&mut hello(server.addresses()[0]).expect("a handshake")).expect("an end");
        assert_eq!(workers(), [[cpus[0]]]);
    }
    assert_eq!((metric(&server, GIVES), metric(&server, GIVEN_BACK)), (0, 0));
    assert_eq!(metric(&server, ACTIVE), cpus.len() as u64 - 1);
}

/// The threads of one server at a time are looked at.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPUs of this process, if there are two.
fn two_cpus() -> Option<Vec<usize>> {
    let cpus: Vec<_> = allowed(None).expect("an affinity").iter().collect();
    if cpus.len() < 2 {
        eprintln!("SKIP: one CPU, which cannot be spared");
        return None;
    }
    Some(cpus)
}

/// On a processor with the published figures of a Gold 6130.
fn start(config: &Config) -> Server {
    let mut document = document(config);
    document.set_clock(Some(Clock::GOLD_6130));
    Server::start(&document).expect("a server")
}

/// Settings with placement `auto`.
fn settings(files: &Files) -> Config {
    let mut config = simple(files, Kind::Ecdsa, echo());
    config.workers = None;
    config.batching.placement = PlacementChoice::Auto;
    config
}

/// The affinities of this process's workers.
fn workers() -> Vec<Vec<usize>> {
    let of_worker = |status: &String| {
        let number = field(status, "Name:")?.strip_prefix("widelane-")?;
        number.parse::<usize>().ok()?;
        let cpus: Cpus = field(status, "Cpus_allowed_list:")?.parse().ok()?;
        Some(cpus.iter().collect())
    };
    statuses().iter().filter_map(of_worker).collect()
}

/// Number of times that a thread of this process has gone to sleep.
fn pauses(thread: &str) -> u64 {
    let statuses = statuses();
    let status = statuses
        .iter()
        .find(|status| field(status, "Name:") == Some(thread))
        .expect("a thread of that name");
    let pauses = field(status, "voluntary_ctxt_switches:").expect("a count");
    pauses.parse().expect("a number")
}

/// The kernel's record of each thread.
fn statuses() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc");
    let status = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("status")).ok();
    tasks.filter_map(status).collect()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| Some(line.strip_prefix(name)?.trim());
    status.lines().find_map(value)
}

fn sum(page: &str, series: &str) -> u64 {
    let lines = page.lines().filter(|line| line.starts_with(series));
    let value = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    lines.filter_map(value).sum()
}

const ACTIVE: &str = "widelane_vector_cores_active";
const GIVEN_BACK: &str = "widelane_vector_cores_given_back";
const GIVES: &str = "widelane_vector_core_gives_total";
const TAKES: &str = "widelane_vector_core_takes_total";
const TAKE_FAILURES: &str = "widelane_vector_core_take_failures_total";
const OK_13: &str = r#"widelane_handshakes_total{result="ok",version="1.3",resumed="no"}"#;
