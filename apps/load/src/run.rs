//! A run from its beginning to its end: limits, the trial connection, the threads, their sum.

use crate::batching::Batching;
use crate::error::LoadError;
use crate::plan::{After, Arrivals, Plan};
use crate::report::Report;
use crate::schedule::Schedule;
use crate::tally::{Tally, Window};
use crate::watch::Watch;
use crate::worker::Worker;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Runs `plan` to its end.
///
/// Raises the soft limit of file descriptors of this process if the plan needs it.
///
/// # Errors
///
/// A [`LoadError`] if the plan cannot be carried out, or if the trial connection
/// ([`Plan::preflight`]) fails. Later failures of connections are counted, not returned.
pub fn run(plan: &Plan) -> Result<Report, LoadError> {
    run_watched(plan, &Watch::default())
}

/// Does the same as [`run`], but `watch` shows how far it is, and can stop it early. Then the report has what
/// was measured until then.
///
/// # Errors
///
/// The same as for [`run`].
pub fn run_watched(plan: &Plan, watch: &Watch) -> Result<Report, LoadError> {
    plan.check()?;
    let plan = &with_descriptors(plan)?;
    let batching = match plan.batches() {
        true => Some(Batching::start(plan.most_in_flight())?),
        false => None,
    };
    if plan.preflight {
        preflight(plan, watch)?;
    }
    let (tally, window) = run_threads(plan, batching.as_ref(), watch)?;
    Ok(Report::new(plan, &tally, window, watch.is_stopped()))
}

/// Makes sure that there are enough file descriptors for the connections.
fn with_descriptors(plan: &Plan) -> Result<Plan, LoadError> {
    let mut plan = plan.clone();
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let spare = SPARE_DESCRIPTORS + plan.threads as u64;
    if let Arrivals::Rate { .. } = plan.arrivals {
        // Our own bound, not the caller's, so it is lowered to the system's limit.
        let most = usize::try_from(hard.saturating_sub(spare)).unwrap_or(usize::MAX);
        plan.max_in_flight = plan.max_in_flight.min(most).max(plan.threads);
    }
    let needed = plan.most_in_flight() as u64 + spare;
    if needed > hard {
        return Err(LoadError::Descriptors { needed, limit: hard });
    }
    if limit.current.is_some_and(|soft| soft < needed) {
        let raised = Rlimit {
            current: Some(needed),
            maximum: limit.maximum,
        };
        let raised = setrlimit(Resource::Nofile, raised);
        raised.map_err(LoadError::system("raise the limit of file descriptors"))?;
    }
    Ok(plan)
}

/// Tries one connection. If it fails, all would fail in the same way.
fn preflight(plan: &Plan, watch: &Watch) -> Result<(), LoadError> {
    let mut single = plan.clone();
    single.arrivals = Arrivals::Concurrency(1);
    single.threads = 1;
    single.limit = Some(1);
    single.retries = 0;
    single.duration = plan.timeout + PREFLIGHT_SPARE;
    if single.after == After::Hold {
        single.after = After::Close;
    }
    let from = Instant::now();
    let window = Window {
        from,
        to: from + single.duration,
    };
    let worker = Worker::new(&single, 0, None, &watch.apart())?;
    let (tally, _) = worker.run(Schedule::new(&single, 0, from), window)?;
    let fault = tally.first_fault;
    let error = fault.and_then(|fault| fault.into_load_error(plan.address, &plan.server_name, plan.timeout));
    error.map_or(Ok(()), Err)
}

fn run_threads(plan: &Plan, batching: Option<&Batching>, watch: &Watch) -> Result<(Tally, Window), LoadError> {
    thread::scope(|scope| {
        // Every thread reports when it is ready. Then all start at the same instant.
        let (ready, readies) = mpsc::channel();
        let mut threads = Vec::new();
        for index in 0..plan.threads {
            let ready = ready.clone();
            let (start, started) = mpsc::sync_channel::<Instant>(1);
            let body = move || {
                let worker = pin(plan, index).and_then(|()| Worker::new(plan, index, batching, watch));
                let worker = match worker {
                    Ok(worker) => worker,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return None;
                    }
                };
                let _ = ready.send(Ok(()));
                drop(ready);
                // No instant comes if another thread could not be set up.
                let origin = started.recv().ok()?;
                let from = origin + plan.warmup;
                let window = Window {
                    from,
                    to: from + plan.duration,
                };
                Some(worker.run(Schedule::new(plan, index, origin), window))
            };
            let thread = thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn_scoped(scope, body)
                .map_err(LoadError::system("start a thread"))?;
            threads.push((start, thread));
        }
        drop(ready);
        for outcome in readies {
            outcome?;
        }
        let origin = Instant::now();
        for (start, _) in &threads {
            let _ = start.send(origin);
        }
        let mut sum = Tally::default();
        let from = origin + plan.warmup;
        let mut window = Window { from, to: from };
        for (_, thread) in threads {
            let outcome = thread.join().unwrap_or_else(|_| {
                let system = LoadError::system("continue, because a thread of the generator panicked");
                Some(Err(system(io::Error::other("see its message above"))))
            });
            let Some(outcome) = outcome else { continue };
            let (tally, its) = outcome?;
            sum.add(&tally);
            window.to = window.to.max(its.to);
        }
        Ok((sum, window))
    })
}

fn pin(plan: &Plan, index: usize) -> Result<(), LoadError> {
    if let Some(cpu) = plan.cpus.iter().cycle().nth(index) {
        widelane_affinity::pin(cpu).map_err(|source| LoadError::Cpu { cpu, source })?;
    }
    // By default the kernel may wake us 50 µs late, as long as a handshake takes. If this fails,
    // starts are later, which is measured.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    Ok(())
}

/// Descriptors for standard streams, epoll, and other files of the program.
const SPARE_DESCRIPTORS: u64 = 64;
/// Time for the close of the trial connection, after its timeout.
const PREFLIGHT_SPARE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_connections_for_the_system_are_an_error_that_says_so() {
        let mut plan = Plan::new("127.0.0.1:1").expect("an address");
        let Some(hard) = getrlimit(Resource::Nofile).maximum else {
            eprintln!("SKIP: no limit of file descriptors here");
            return;
        };
        plan.arrivals = Arrivals::Concurrency(hard as usize);
        let error = with_descriptors(&plan).expect_err("beyond the limit").to_string();
        assert!(error.contains("ulimit") && error.contains("--concurrency"), "{error}");
    }

    #[test]
    fn an_open_loop_stays_within_the_limit() {
        let mut plan = Plan::new("127.0.0.1:1").expect("an address");
        plan.arrivals = Arrivals::Rate {
            per_second: 1.0,
            spacing: crate::plan::Spacing::Even,
            storm: None,
        };
        plan.max_in_flight = usize::MAX / 2;
        let Some(hard) = getrlimit(Resource::Nofile).maximum else {
            eprintln!("SKIP: no limit of file descriptors here");
            return;
        };
        let most = with_descriptors(&plan).expect("bounded").max_in_flight;
        assert!((most as u64) < hard);
    }
}
