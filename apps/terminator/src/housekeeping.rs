//! One thread for all that waits and does a little: handshakes do not wait for it, and it does not wait for handshakes.
//!
//! | task                      | what it does                                                        |
//! |---------------------------|---------------------------------------------------------------------|
//! | metrics                   | answers `/metrics` and `/healthz` (`observe/endpoint.rs`)           |
//! | checks of backends        | connects to each address from time to time (`back/checks.rs`)       |
//! | host names                | decides when each is looked up (`widelane-names`)                   |
//! | first answers about names | logs names that have no address five seconds after the start        |
//! | OCSP responses            | decides when each is renewed (`widelane-ocsp`)                      |
//! | ticket keys               | rolls keys that this process has made (`material/resumption.rs`)    |
//!
//! A panic ends neither the thread nor other tasks: it is logged, and its task begins again ([`Housekeeping::run`]).
//!
//! No task blocks the thread. What blocks has a thread of its own, for these reasons:
//!
//! - a lookup of a name and a question to a responder, while they last: the system does not let a lookup be cut off, and
//!   nothing may wait for it, not even a stop. They are started one by one and not by tokio's pool, which panics where
//!   the system has no thread left; here that is a failed lookup, and is tried again;
//! - the writer of the access log: it writes to disks and to readers who stand still, and a stop waits until its lines
//!   are written;
//! - signals, changed files and reloads: they are the program's first thread (`signals.rs`). A reload reads files, and
//!   nothing else may pass meanwhile;
//! - workers and vector cores, which do the work itself; and the page of the demonstration, which stands in for another
//!   program.

use std::future::{pending, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep};

/// The thread. Dropping this ends all tasks where they wait, and then the thread.
#[derive(Debug)]
pub(crate) struct Housekeeping(Option<(UnboundedSender<Begin>, JoinHandle<()>)>);

/// A task. It goes on when this is dropped.
#[derive(Debug)]
pub(crate) struct Task {
    stop: oneshot::Sender<()>,
    /// Disconnected when the task has ended, and all that it held is dropped.
    ended: mpsc::Receiver<()>,
}

/// Starts a task, on the thread.
struct Begin(Box<dyn FnOnce() + Send>);

/// A panic of a task, which was caught.
#[derive(Debug, PartialEq, Eq)]
struct Panicked;

impl Housekeeping {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        Self::start_on(Builder::new_current_thread())
    }

    /// Starts the thread with a runtime of this kind.
    fn start_on(mut runtime: Builder) -> io::Result<Self> {
        let (begin, mut coming) = unbounded_channel::<Begin>();
        let (report, ready) = mpsc::channel();
        let thread = thread::Builder::new().name("widelane-housekeeping".into());
        let thread = thread.spawn(move || {
            let runtime = runtime.enable_all().build_local(LocalOptions::default());
            match runtime {
                Ok(runtime) => {
                    let _ = report.send(Ok(()));
                    runtime.block_on(async {
                        while let Some(Begin(begin)) = coming.recv().await {
                            begin();
                        }
                    });
                    // Dropping the runtime drops all tasks.
                }
                Err(error) => drop(report.send(Err(error))),
            }
        })?;
        ready
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the thread ended at once")))?;
        Ok(Self(Some((begin, thread))))
    }

    /// Runs a task, which `work` does on the thread. After a panic, `work` is called again, with what it owns, after a
    /// pause: it doubles from 1 s to 60 s, and is 1 s again if the task has run for long before.
    pub(crate) fn run(&self, name: &'static str, work: impl AsyncFnMut() + Send + 'static) -> Task {
        let (stop, stopped) = oneshot::channel();
        let (alive, ended) = mpsc::channel::<()>();
        let begin = move || {
            spawn_local(async move {
                // Dropped last.
                let _alive = alive;
                tokio::select! {
                    biased;
                    () = order(stopped) => {}
                    () = persist(work, |pause| log_panic(name, Some(pause))) => {}
                }
            });
        };
        if let Some((running, _)) = &self.0 {
            let _ = running.send(Begin(Box::new(begin)));
        }
        Task { stop, ended }
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        if let Some((begin, thread)) = self.0.take() {
            drop(begin);
            let _ = thread.join();
        }
    }
}

impl Task {
    /// Has the task end where it waits, and does not wait for that: the thread may be held up.
    pub(crate) fn end_later(self) {
        let _ = self.stop.send(());
    }

    /// Ends the task where it waits, and returns when all that it held is dropped.
    pub(crate) fn end(self) {
        let _ = self.stop.send(());
        let _ = self.ended.recv();
    }
}

/// Runs a part of a task beside the others, on their thread, once. A panic ends this part alone, and is logged.
pub(crate) fn spawn(name: &'static str, part: impl Future<Output = ()> + 'static) -> AbortHandle {
    let part = async move {
        if let Err(Panicked) = caught(part).await {
            log_panic(name, None);
        }
    };
    spawn_local(part).abort_handle()
}

/// Runs a part of a task beside the others, on their thread. After a panic it begins again, as a task does.
pub(crate) fn spawn_persistent(name: &'static str, work: impl AsyncFnMut() + 'static) -> AbortHandle {
    spawn_local(persist(work, move |pause| log_panic(name, Some(pause)))).abort_handle()
}

/// Does something until it ends by itself. After a panic, of which `report` gets the pause that follows, it begins
/// again. The pause doubles from panic to panic, and is short again after a long time without one.
async fn persist(mut work: impl AsyncFnMut(), mut report: impl FnMut(Duration)) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let begun = Instant::now();
        let Err(Panicked) = caught(async { work().await }).await else {
            return;
        };
        if begun.elapsed() > LONGEST_PAUSE {
            pause = SHORTEST_PAUSE;
        }
        report(pause);
        sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Does something to its end, or to a panic. What a panic leaves half done belongs to `work` alone, or is behind locks
/// whose users expect that.
async fn caught(work: impl Future<Output = ()>) -> Result<(), Panicked> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let turn = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        turn.map_or(Poll::Ready(Err(Panicked)), |turn| turn.map(Ok))
    })
    .await
}

/// Logs that a task has failed: nothing else would show it.
fn log_panic(task: &str, pause: Option<Duration>) {
    match pause {
        Some(pause) => tracing::error!(
            task,
            "a task of the server has failed, which is a fault of the program; the others go on, and it begins again in \
             {} s",
            pause.as_secs()
        ),
        None => tracing::error!(
            task,
            "a part of a task of the server has failed, which is a fault of the program; all others go on"
        ),
    }
}

/// Waits for an order. Where its sender has gone, there is none.
async fn order(stopped: oneshot::Receiver<()>) {
    if stopped.await.is_err() {
        pending::<()>().await;
    }
}

/// Time from the first panic of a task to its next begin.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// The same after many. A task that has run for longer than this has not failed at its begin.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Says when it is dropped.
    struct Held(mpsc::Sender<&'static str>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.send("dropped").unwrap();
        }
    }

    /// A runtime whose clock goes on by itself when all tasks wait.
    fn paused() -> Builder {
        let mut runtime = Builder::new_current_thread();
        runtime.enable_time().start_paused(true);
        runtime
    }

    #[test]
    fn a_task_begins_again_after_a_panic_and_the_others_go_on() {
        let housekeeping = Housekeeping::start_on(paused()).unwrap();
        let (answer, answers) = mpsc::channel();
        let (ask, mut asked) = unbounded_channel::<()>();
        let _answers = housekeeping.run("answers", async move || {
            while asked.recv().await.is_some() {
                answer.send(()).unwrap();
            }
        });
        let (say, said) = mpsc::channel();
        let mut begun = 0;
        let _fails = housekeeping.run("fails", async move || {
            begun += 1;
            let _held = Held(say.clone());
            match begun {
                1 => panic!("at once"),
                2 => {
                    tokio::task::yield_now().await;
                    panic!("in its second turn");
                }
                _ => {
                    say.send("works").unwrap();
                    pending::<()>().await;
                }
            }
        });
        for expected in ["dropped", "dropped", "works"] {
            assert_eq!(said.recv(), Ok(expected));
        }
        ask.send(()).unwrap();
        assert_eq!(answers.recv(), Ok(()));
        drop(housekeeping);
        assert_eq!(said.try_recv(), Ok("dropped"));
    }

    #[test]
    fn a_panic_is_reported_once_and_the_pauses_are_bounded() {
        paused().build_local(LocalOptions::default()).unwrap().block_on(async {
            let (begun, reported) = (RefCell::new(Vec::new()), Cell::new(0));
            let start = Instant::now();
            let work = async || {
                let times = begun.borrow().len();
                begun.borrow_mut().push(start.elapsed().as_secs());
                match times {
                    0..8 => panic!("at once"),
                    8 => {
                        sleep(2 * LONGEST_PAUSE).await;
                        panic!("after a long time");
                    }
                    _ => {}
                }
            };
            persist(work, |_| reported.set(reported.get() + 1)).await;
            let begun = begun.into_inner();
            let pauses: Vec<u64> = begun.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 120 + 1]);
            assert_eq!(reported.get(), pauses.len(), "each panic once, and the end not at all");
        });
    }

    #[test]
    fn a_part_that_panics_ends_alone() {
        paused().build_local(LocalOptions::default()).unwrap().block_on(async {
            let (say, said) = oneshot::channel();
            spawn("a part", async { panic!("a part") });
            spawn("another part", async { say.send(()).unwrap() });
            said.await.unwrap();
            let (say, mut said) = unbounded_channel();
            let part = spawn_persistent("a part that stays", async move || {
                say.send(()).unwrap();
                panic!("always");
            });
            for _ in 0..3 {
                said.recv().await.unwrap();
            }
            part.abort();
            assert_eq!(said.recv().await, None);
            assert_eq!(caught(async { panic!("a part") }).await, Err(Panicked));
            assert_eq!(caught(async {}).await, Ok(()));
        });
    }

    #[test]
    fn a_task_ends_by_order_or_with_the_thread_and_drops_what_it_holds_before() {
        let housekeeping = Housekeeping::start().unwrap();
        let (say, said) = mpsc::channel();
        let waits = || {
            let held = Held(say.clone());
            housekeeping.run("waits", async move || {
                let _held = &held;
                pending::<()>().await;
            })
        };
        let [one, other] = [waits(), waits()];
        one.end();
        assert_eq!(said.try_recv(), Ok("dropped"));
        assert_eq!(said.try_recv(), Err(mpsc::TryRecvError::Empty), "the other one goes on");
        drop(other);
        assert_eq!(
            said.try_recv(),
            Err(mpsc::TryRecvError::Empty),
            "also without a sender of orders"
        );
        drop(housekeeping);
        assert_eq!(said.try_recv(), Ok("dropped"));
    }

    /// An order ends a task also in the pause after a panic.
    #[test]
    fn a_task_that_waits_to_begin_again_ends_by_order() {
        let housekeeping = Housekeeping::start().unwrap();
        let (say, said) = mpsc::channel();
        let task = housekeeping.run("fails", async move || {
            say.send(()).unwrap();
            panic!("always");
        });
        said.recv().unwrap();
        task.end();
        assert!(said.recv().is_err(), "what it held is dropped");
    }

    /// A task that has ended by itself, and one that was never begun because the thread has gone.
    #[test]
    fn the_end_of_a_task_that_does_not_run_is_not_waited_for() {
        let mut housekeeping = Housekeeping::start().unwrap();
        let task = housekeeping.run("ends", async || {});
        let (begin, thread) = housekeeping.0.take().unwrap();
        drop(begin);
        thread.join().unwrap();
        task.end();
        housekeeping.run("never begins", async || pending().await).end();
    }
}
