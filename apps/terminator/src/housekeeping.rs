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

use std::future::pending;
use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_local};

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

impl Housekeeping {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (begin, mut coming) = unbounded_channel::<Begin>();
        let (report, ready) = mpsc::channel();
        let thread = thread::Builder::new().name("widelane-housekeeping".into());
        let thread = thread.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default());
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

    /// Runs a task, which `begin` makes on the thread.
    pub(crate) fn run<F>(&self, name: &'static str, begin: impl FnOnce() -> F + Send + 'static) -> Task
    where
        F: Future<Output = ()>,
    {
        let (stop, stopped) = oneshot::channel();
        let (alive, ended) = mpsc::channel::<()>();
        let begin = move || {
            spawn(name, async move {
                // Dropped last.
                let _alive = alive;
                tokio::select! {
                    biased;
                    () = order(stopped) => {}
                    () = async { begin().await } => {}
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
    /// Ends the task where it waits, and returns when all that it held is dropped.
    pub(crate) fn end(self) {
        let _ = self.stop.send(());
        let _ = self.ended.recv();
    }
}

/// Runs a part of a task beside the others, on their thread. A panic ends this part alone, and is logged.
pub(crate) fn spawn(name: &'static str, part: impl Future<Output = ()> + 'static) -> AbortHandle {
    let part = async move {
        let _notice = PanicNotice(name);
        part.await;
    };
    spawn_local(part).abort_handle()
}

/// Logs that a task has failed: nothing else would show it.
struct PanicNotice(&'static str);

impl Drop for PanicNotice {
    fn drop(&mut self) {
        if thread::panicking() {
            let task = self.0;
            tracing::error!(
                task,
                "a task of the server has failed, which is a fault of the program; the others go on. Restart it"
            );
            #[cfg(test)]
            tests::FAILED.lock().unwrap().push(task);
        }
    }
}

/// Waits for an order. Without anybody who can give one, there is none.
async fn order(stopped: oneshot::Receiver<()>) {
    if stopped.await.is_err() {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    pub(super) static FAILED: Mutex<Vec<&str>> = Mutex::new(Vec::new());

    /// Tells when it is dropped.
    struct Held(mpsc::Sender<&'static str>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.send("dropped").unwrap();
        }
    }

    #[test]
    fn a_panic_ends_one_task_and_is_reported_and_the_others_go_on() {
        let housekeeping = Housekeeping::start().unwrap();
        let (say, said) = mpsc::channel();
        let (ask, mut asked) = unbounded_channel::<()>();
        let answer = say.clone();
        let _answers = housekeeping.run("answers", || async move {
            while asked.recv().await.is_some() {
                answer.send("answer").unwrap();
            }
        });
        let fails = |name: &'static str, begin: fn()| {
            let held = Held(say.clone());
            housekeeping
                .run(name, move || {
                    begin();
                    async move {
                        let _held = held;
                        tokio::task::yield_now().await;
                        panic!("in its second turn");
                    }
                })
                .ended
                .recv()
                .unwrap_err();
            assert_eq!(said.recv(), Ok("dropped"));
            ask.send(()).unwrap();
            assert_eq!(said.recv(), Ok("answer"));
            assert!(FAILED.lock().unwrap().contains(&name));
        };
        fails("fails in a turn", || {});
        fails("fails at its beginning", || panic!("at once"));
        // A part of a task is reported, too.
        let part = || async {
            spawn("a part", async { panic!("a part") });
            tokio::task::yield_now().await;
        };
        housekeeping.run("has parts", part).ended.recv().unwrap_err();
        ask.send(()).unwrap();
        assert_eq!(said.recv(), Ok("answer"));
        assert!(FAILED.lock().unwrap().contains(&"a part"));
        assert!(!FAILED.lock().unwrap().contains(&"answers"));
    }

    #[test]
    fn a_task_ends_by_order_or_with_the_thread_and_drops_what_it_holds_before() {
        let housekeeping = Housekeeping::start().unwrap();
        let (say, said) = mpsc::channel();
        let waits = || {
            let held = Held(say.clone());
            housekeeping.run("waits", || async move {
                let _held = held;
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
            "also when nobody can end it"
        );
        drop(housekeeping);
        assert_eq!(said.try_recv(), Ok("dropped"));
    }

    /// A task that has ended by itself, and one that was never begun because the thread has gone.
    #[test]
    fn the_end_of_a_task_that_does_not_run_is_not_waited_for() {
        let mut housekeeping = Housekeeping::start().unwrap();
        let task = housekeeping.run("ends", || async {});
        let (begin, thread) = housekeeping.0.take().unwrap();
        drop(begin);
        thread.join().unwrap();
        task.end();
        housekeeping.run("never begins", pending).end();
    }
}
