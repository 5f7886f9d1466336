//! The access log: a line for each client connection when it ends, as JSON or as text.
//!
//! A connection fills a [`LogEntry`] while it lasts. When it ends, its worker puts that into a queue of
//! fixed size, and one thread writes it down (`writer`). A worker never waits, unless the server stops: if
//! the queue is full, the line is lost and counted. Without an access log there is neither thread nor queue,
//! and an entry is empty.
//!
//! A log changes in two steps, so that a reload that fails changes nothing: [`AccessLog::prepare`] opens what is wanted,
//! and [`AccessLog::adopt`] uses it. [`AccessLog::stop`] writes down what is in the queue.
//!
//! The thread is its own: a write to a file waits for the disk when the kernel has too many pages to write, and nothing
//! else may wait for that.
//!
//! The crate knows nothing of TLS: the server gives names and numbers. Text of clients is quoted, so that it stays within
//! its value and within its line.

#![forbid(unsafe_code)]

mod entry;
mod line;
mod options;
mod output;
mod writer;

use std::io;
use std::mem;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use entry::Fields;
use output::Output;
use writer::Writer;

pub use entry::{Agreed, Alert, Complete, LogEntry, Side};
pub use options::{LogFormat, LogTarget};

/// The access log of a server.
#[derive(Debug)]
pub struct AccessLog {
    counts: Arc<Counts>,
    running: Mutex<Option<Running>>,
    /// Lines that may wait.
    room: usize,
    /// For how long a stop waits for a file that takes nothing.
    last_writes: Duration,
}

/// The queue into which workers put the entries of connections that have ended.
#[derive(Debug)]
pub struct Sink {
    queue: SyncSender<Message>,
    counts: Arc<Counts>,
    /// Until when to wait for room in the queue, when the server stops.
    patient_until: OnceLock<Instant>,
}

/// A log that is open, and not used before [`AccessLog::adopt`].
#[derive(Debug)]
pub struct Prepared {
    destination: Destination,
    target: LogTarget,
    format: LogFormat,
    /// Where entries go. `None`: connections are not logged.
    pub sink: Option<Arc<Sink>>,
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{problem}; {remedy}")]
pub struct LogError {
    /// What is wrong.
    pub problem: String,
    /// What the operator can do.
    pub remedy: String,
    /// What the system said, if it was asked.
    pub source: Option<io::Error>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
enum Message {
    Ended(Box<Fields>),
    /// There is an order.
    Look,
}

/// The thread that writes.
#[derive(Debug)]
struct Running {
    sink: Arc<Sink>,
    orders: Arc<Orders>,
    target: LogTarget,
    format: LogFormat,
    thread: JoinHandle<()>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

/// Messages to the thread that writes.
#[derive(Debug)]
struct Orders {
    given: Mutex<Given>,
    changed: Condvar,
    /// Whether this process can tell of the log's troubles: not where the log itself goes.
    may_tell: AtomicBool,
}

#[derive(Debug, Default)]
struct Given {
    /// The last one counts.
    destination: Option<Destination>,
    reopen: bool,
    /// Not to gather lines any more.
    hurry: bool,
    /// When to give up what cannot be written.
    stop: Option<Instant>,
}

/// The destination of lines from now on.
#[derive(Debug)]
enum Destination {
    /// As before.
    Same,
    /// Into the same file, opened anew, in this format.
    Reopened(LogFormat),
    /// Here.
    Opened(Output, LogFormat),
    /// Nowhere.
    Off,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self {
            counts: Arc::default(),
            running: Mutex::default(),
            room: QUEUED_LINES,
            last_writes: LAST_WRITES,
        }
    }
}

impl AccessLog {
    /// Opens a log, with the rights that the process has now. Starts the thread if there is none yet.
    pub fn prepare(&self, target: &LogTarget, format: LogFormat) -> Result<Prepared, LogError> {
        let mut running = lock(&self.running);
        if *target == LogTarget::Off {
            let destination = match *running {
                Some(_) => Destination::Off,
                None => Destination::Same,
            };
            return Ok(Prepared {
                destination,
                target: LogTarget::Off,
                format,
                sink: None,
            });
        }
        let destination = match &*running {
            Some(before) if before.target == *target => Destination::Reopened(format),
            _ => Destination::Opened(open(target)?, format),
        };
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(self.start()?),
        };
        Ok(Prepared {
            destination,
            target: target.clone(),
            format,
            sink: Some(running.sink.clone()),
        })
    }

    /// The log as it is.
    pub fn same(&self) -> Prepared {
        let running = lock(&self.running);
        let running = running.as_ref().filter(|running| running.target != LogTarget::Off);
        Prepared {
            destination: Destination::Same,
            target: LogTarget::Off,
            format: LogFormat::default(),
            sink: running.map(|running| running.sink.clone()),
        }
    }

    /// Uses a log for all lines that come from now on.
    pub fn adopt(&self, prepared: Prepared) {
        if let Some(running) = &mut *lock(&self.running) {
            if matches!(prepared.destination, Destination::Same) {
                return;
            }
            (running.target, running.format) = (prepared.target, prepared.format);
            running.order(|given| {
                let destination = match (given.destination.take(), prepared.destination) {
                    // The thread has not taken it yet.
                    (Some(Destination::Opened(output, _)), Destination::Reopened(format)) => {
                        Destination::Opened(output, format)
                    }
                    (_, destination) => destination,
                };
                given.destination = Some(destination);
            });
        }
    }

    /// Has the file opened anew, because it was renamed. `false`: there is no log.
    pub fn reopen(&self) -> bool {
        let running = lock(&self.running);
        let running = running.as_ref().filter(|running| running.target != LogTarget::Off);
        if let Some(running) = running {
            running.order(|given| given.reopen = true);
        }
        running.is_some()
    }

    /// Lets workers wait for room in the queue from now on, and the thread make it at once: many connections
    /// are about to be cut off together.
    pub fn hurry(&self) {
        if let Some(running) = &*lock(&self.running) {
            let until = Instant::now() + self.last_writes;
            let _ = running.sink.patient_until.set(until);
            running.order(|given| given.hurry = true);
        }
    }

    /// Writes down what is in the queue and ends the thread, but does not wait long for a file that
    /// takes nothing.
    pub fn stop(&self) {
        let Some(running) = lock(&self.running).take() else {
            return;
        };
        running.order(|given| given.stop = Some(Instant::now() + self.last_writes));
        // A system call that does not return, like one to a file server that is gone, must not keep the
        // process from ending.
        let limit = self.last_writes + Duration::from_secs(1);
        match running.ended.recv_timeout(limit) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                if running.orders.may_tell.load(Relaxed) {
                    tracing::error!("the access log is stuck in a system call; its last lines are lost");
                }
            }
            _ => drop(running.thread.join()),
        }
    }

    /// Lines that were written, and lines that were lost.
    pub fn counts(&self) -> [u64; 2] {
        [self.counts.written.load(Relaxed), self.counts.lost.load(Relaxed)]
    }

    fn start(&self) -> Result<Running, LogError> {
        let (queue, inbox) = sync_channel(self.room);
        let (alive, ended) = sync_channel(0);
        let sink = Sink {
            queue,
            counts: self.counts.clone(),
            patient_until: OnceLock::new(),
        };
        let orders = Arc::<Orders>::default();
        let writer = Writer::new(inbox, orders.clone(), self.counts.clone());
        let thread = std::thread::Builder::new().name("widelane-log".into()).spawn(move || {
            let _alive: SyncSender<()> = alive;
            writer.run();
        });
        let thread = thread.map_err(|error| LogError {
            problem: format!("cannot start a thread: {error}"),
            remedy: "raise the limit of threads".into(),
            source: Some(error),
        })?;
        Ok(Running {
            sink: Arc::new(sink),
            orders,
            target: LogTarget::Off,
            format: LogFormat::default(),
            thread,
            ended,
        })
    }
}

impl Sink {
    /// Takes the entry of a connection that has ended. Never waits, but when the server stops.
    fn offer(&self, fields: Box<Fields>) {
        let mut message = Message::Ended(fields);
        loop {
            match self.queue.try_send(message) {
                Ok(()) => return,
                Err(TrySendError::Full(back)) if self.is_patient() => message = back,
                Err(_) => break,
            }
            std::thread::sleep(ROOM_LOOK);
        }
        self.counts.lost.fetch_add(1, Relaxed);
    }

    fn is_patient(&self) -> bool {
        let until = self.patient_until.get();
        until.is_some_and(|until| Instant::now() < *until)
    }
}

impl Running {
    fn order(&self, give: impl FnOnce(&mut Given)) {
        give(&mut lock(&self.orders.given));
        self.orders.changed.notify_one();
        // If the queue is full, the thread is not idle, and looks at its orders before it is.
        let _ = self.sink.queue.try_send(Message::Look);
    }
}

impl Default for Orders {
    fn default() -> Self {
        Self {
            given: Mutex::default(),
            changed: Condvar::new(),
            may_tell: AtomicBool::new(true),
        }
    }
}

impl Orders {
    /// Takes what was ordered, and waits for an order for at most `patience`.
    fn take(&self, patience: Duration) -> Given {
        let given = lock(&self.given);
        let waited = self
            .changed
            .wait_timeout_while(given, patience, |given| given.is_empty());
        let (mut given, _) = waited.unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut given)
    }
}

impl Given {
    fn is_empty(&self) -> bool {
        self.destination.is_none() && !self.reopen && !self.hurry && self.stop.is_none()
    }
}

/// Checks whether a start could open a log, without opening it: a check must not make files that belong to another user
/// than the server's. `is_final`: this process has that user already.
pub fn check(target: &LogTarget, is_final: bool) -> Result<(), LogError> {
    let LogTarget::File(path) = target else {
        return Ok(());
    };
    let place = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => ".".as_ref(),
        Some(parent) => parent,
        None => path,
    };
    let found = std::fs::metadata(place);
    let problem = match found {
        Ok(found) if !found.is_dir() => format!("{} is no directory", place.display()),
        Err(error) => format!("cannot find {}: {error}", place.display()),
        Ok(_) if path.is_dir() => format!("{} is a directory", path.display()),
        Ok(_) if is_socket(path) => format!("{} is a socket", path.display()),
        Ok(_) if is_final => return may_write(path, place),
        Ok(_) => return Ok(()),
    };
    let remedy = match is_socket(path) {
        true => NO_SOCKET,
        false => "make the directory, and name a file in it",
    };
    Err(LogError {
        problem,
        remedy: remedy.into(),
        source: None,
    })
}

/// With the rights that this process has.
fn may_write(path: &Path, place: &Path) -> Result<(), LogError> {
    let may = |path: &Path, access: Access| accessat(CWD, path, access, AtFlags::EACCESS);
    let (looked_at, result) = match path.try_exists() {
        Ok(false) => (place, may(place, Access::WRITE_OK | Access::EXEC_OK)),
        _ => (path, may(path, Access::WRITE_OK)),
    };
    result.map_err(|error| LogError {
        problem: format!("cannot write to {}: {error}", looked_at.display()),
        remedy: let_write(),
        source: Some(error.into()),
    })
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

fn open(target: &LogTarget) -> Result<Output, LogError> {
    Output::open(target).map_err(|error| {
        let is_without_reader = error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error());
        let remedy = match target {
            LogTarget::File(path) if is_socket(path) => NO_SOCKET.to_owned(),
            _ if is_without_reader => "start the program that reads this FIFO first".to_owned(),
            _ => let_write(),
        };
        LogError {
            problem: format!("cannot open {target}: {error}"),
            remedy,
            source: Some(error),
        }
    })
}

fn let_write() -> String {
    format!(
        "let the user of this process write there ({}); the log is opened after root privileges were dropped, so that \
         it can be opened again later",
        widelane_files::this_user()
    )
}

const NO_SOCKET: &str = "a socket cannot be opened by its path; for standard output write `-`, and \
                         `stderr` for standard error";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lines that may wait: with the time for which lines are gathered, those of 160,000 connections a
/// second.
const QUEUED_LINES: usize = 8192;
/// For how long a stop waits for a file that takes nothing.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// How often to look for room in the queue meanwhile.
const ROOM_LOOK: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::Uid;

    use super::*;

    fn to_file(path: &Path) -> LogTarget {
        LogTarget::File(path.to_owned())
    }

    /// In a thread that is not root's.
    fn without_root<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if rustix::process::geteuid().is_root() {
                    let user = Uid::from_raw(65_534);
                    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                }
                work()
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn a_check_by_the_final_user_finds_what_it_may_not_write() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        let place = directory.path();
        let [old, new] = ["old", "new"].map(|name| place.join(name));
        fs::write(&old, "").unwrap();
        let check = |path: &Path, is_final| {
            without_root(|| check(&to_file(path), is_final)).map_err(|fault| format!("{fault:?}"))
        };
        mode(&old, 0o444);
        mode(place, 0o555);
        for path in [&old, &new] {
            let error = check(path, true).unwrap_err();
            assert!(error.contains("cannot write to"), "{error}");
            assert!(error.contains("let the user of this process"), "{error}");
            // Another user will open it.
            check(path, false).unwrap();
        }
        mode(&old, 0o666);
        check(&old, true).unwrap();
        mode(place, 0o777);
        check(&new, true).unwrap();
        assert!(!new.exists());
    }

    #[test]
    fn a_socket_is_refused_with_what_to_write_instead() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let target = to_file(&path);
        let checked = check(&target, true).unwrap_err();
        let opened = open(&target).unwrap_err();
        for error in [checked, opened].map(|fault| format!("{fault:?}")) {
            assert!(error.contains("write `-`"), "{error}");
        }
    }

    fn entry(sink: &Arc<Sink>) -> LogEntry {
        let address = "192.0.2.1:1000".parse().unwrap();
        LogEntry::new(Some(sink), address, address)
    }

    /// Uses a log, and waits until the thread does. Returns where notes go then.
    fn adopt(log: &AccessLog, target: &LogTarget) -> Option<Arc<Sink>> {
        let prepared = log.prepare(target, LogFormat::Json).unwrap();
        let sink = prepared.sink.clone();
        log.adopt(prepared);
        let orders = lock(&log.running).as_ref().unwrap().orders.clone();
        while !lock(&orders.given).is_empty() {
            std::thread::yield_now();
        }
        sink
    }

    #[test]
    fn lines_that_a_full_disk_did_not_take_are_lost_when_the_log_is_turned_off() {
        // More and less than is taken from the queue at once.
        for lines in [10, 1000] {
            let log = AccessLog::default();
            let sink = adopt(&log, &to_file("/dev/full".as_ref())).unwrap();
            for _ in 0..lines {
                drop(entry(&sink));
            }
            assert!(adopt(&log, &LogTarget::Off).is_none());
            log.stop();
            assert_eq!(log.counts(), [0, lines]);
        }
    }

    #[test]
    fn lines_from_before_the_log_is_turned_off_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = AccessLog::default();
        let sink = adopt(&log, &to_file(&path)).unwrap();
        for _ in 0..1000 {
            drop(entry(&sink));
        }
        adopt(&log, &LogTarget::Off);
        log.stop();
        assert_eq!(log.counts(), [1000, 0]);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1000);
    }

    /// Many connections that are cut off together, more than the queue has room for.
    #[test]
    fn a_stop_writes_the_lines_of_all_connections_that_it_cuts_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = AccessLog {
            room: 4,
            ..AccessLog::default()
        };
        let sink = adopt(&log, &to_file(&path)).unwrap();
        let entries: Vec<LogEntry> = (0..1000).map(|_| entry(&sink)).collect();
        log.hurry();
        drop(entries);
        log.stop();
        assert_eq!(log.counts(), [1000, 0]);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1000);
    }

    #[test]
    fn a_stop_does_not_wait_long_for_a_full_disk_and_counts_what_is_lost() {
        let log = AccessLog {
            room: 4,
            last_writes: Duration::from_millis(20),
            ..AccessLog::default()
        };
        let sink = adopt(&log, &to_file("/dev/full".as_ref())).unwrap();
        let entries: Vec<LogEntry> = (0..5000).map(|_| entry(&sink)).collect();
        log.hurry();
        drop(entries);
        log.stop();
        // A line that tells of lost ones is one itself.
        let [written, lost] = log.counts();
        assert!(written == 0 && (5000..5100).contains(&lost), "{lost}");
    }

    /// As many connections as fit into the queue, so that the worker's part and the thread's part are
    /// measured one after the other.
    #[test]
    #[ignore = "prints what a line costs on this machine; nothing can fail"]
    fn cost_of_a_line() {
        const LINES: u32 = QUEUED_LINES as u32;
        let (queue, inbox) = sync_channel(QUEUED_LINES);
        let counts = Arc::<Counts>::default();
        let sink = Arc::new(Sink {
            queue,
            counts: counts.clone(),
            patient_until: OnceLock::new(),
        });
        let [client, listener] = ["192.0.2.1:1000", "192.0.2.2:443"].map(|text| text.parse().unwrap());
        let backend: std::net::SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let begin = Instant::now();
        for _ in 0..LINES {
            let mut entry = LogEntry::new(Some(&sink), client, listener);
            entry.backend(&backend);
            entry.received(1000);
            entry.sent(10_000);
            entry.closed(Side::Client);
            entry.ended("clean");
        }
        let worker = begin.elapsed() / LINES;
        let mut bytes = Vec::new();
        let begin = Instant::now();
        for message in inbox.try_iter() {
            let Message::Ended(fields) = message else {
                continue;
            };
            line::connection(&mut bytes, LogFormat::Json, &fields);
        }
        let writer = begin.elapsed() / LINES;
        println!("{worker:?} of a worker, {writer:?} of the thread for a line, without its write");
        assert_eq!(counts.lost.load(Relaxed), 0);
    }
}
