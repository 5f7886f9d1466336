//! Child processes that cannot outlive us by accident.

use crate::error::TrialError;
use crate::interrupt::Interrupt;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use widelane_threads::{Proc, Thread, Times};

/// A server as a child process. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `command` on `cpu` or wherever this process may run, with its output in a file of
    /// `folder`.
    ///
    /// # Errors
    ///
    /// [`TrialError::Start`] if it cannot be started.
    pub fn start(
        name: &str,
        command: &mut Command,
        cpu: impl Into<Option<usize>>,
        folder: &Path,
    ) -> Result<Self, TrialError> {
        let failed = |error: io::Error| TrialError::Start {
            name: name.to_owned(),
            reason: error.to_string(),
        };
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log).map_err(failed)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output);
        let child = spawn(command, cpu.into()).map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Waits until the server has taken a connection on `address`, and has measured what passes cost:
    /// a new program does so while it serves already.
    ///
    /// # Errors
    ///
    /// [`TrialError::Start`] with what it said, if it ends or takes none for long.
    pub fn ready(&mut self, address: SocketAddr, interrupt: &Interrupt) -> Result<(), TrialError> {
        let up = interrupt.wait_for(START_PATIENCE, || {
            self.alive()?;
            Ok(takes_connections(address).then_some(()))
        })?;
        up.ok_or_else(|| self.failed("does not take connections"))?;
        let measured = interrupt.wait_for(START_PATIENCE, || {
            self.alive()?;
            Ok((!self.has_thread(CALIBRATION)).then_some(()))
        })?;
        measured.ok_or_else(|| self.failed("does not end its measurement"))
    }

    /// Returns whether a thread of the server's processes has this name.
    fn has_thread(&self, name: &str) -> bool {
        let proc = Proc::here();
        let mut threads = self.family().into_iter().flat_map(|process| proc.threads_of(process));
        threads.any(|thread| proc.name(thread) == name)
    }

    /// Waits until it has written `text`.
    pub(crate) fn says(&mut self, text: &str, interrupt: &Interrupt) -> Result<(), TrialError> {
        let said = interrupt.wait_for(START_PATIENCE, || {
            self.alive()?;
            Ok(self.said().contains(text).then_some(()))
        })?;
        said.ok_or_else(|| self.failed(&format!("does not say {text:?}")))
    }

    /// An error with what the server said, if it has ended.
    ///
    /// # Errors
    ///
    /// That one.
    pub fn alive(&mut self) -> Result<(), TrialError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failed(&format!("ended with {status}"))),
            Err(error) => Err(self.failed(&error.to_string())),
        }
    }

    /// Process of the server, and all that descend from it.
    pub(crate) fn family(&self) -> Vec<u32> {
        let mut family = vec![self.child.id()];
        let mut next = 0;
        while let Some(&parent) = family.get(next) {
            family.extend(children_of(parent));
            next += 1;
        }
        family
    }

    /// Time that its processes have had on a CPU so far; `None` where the kernel keeps no such
    /// account.
    ///
    /// The account of threads is exact. Where some have ended, that of their process is greater, in ticks.
    pub fn cpu_time(&self) -> Option<Duration> {
        let proc = Proc::here();
        let mut all = Duration::ZERO;
        for process in self.family() {
            let mut sum = Duration::ZERO;
            for Thread { tid, .. } in proc.threads_of(process) {
                let account = fs::read(format!("/proc/{process}/task/{tid}/schedstat")).ok()?;
                sum += Duration::from_nanos(Times::parse(&account)?.ran);
            }
            let ticks = proc.stat_of(process)?.ticks;
            all += sum.max(TICK * u32::try_from(ticks).ok()?);
        }
        Some(all)
    }

    /// Output of the server and its processes so far.
    pub fn said(&self) -> String {
        written(&self.log)
    }

    /// Stops it, and gives what it has written until its end.
    pub fn stop(self) -> String {
        let log = self.log.clone();
        drop(self);
        written(&log)
    }

    /// An error with the last of what it said.
    pub(crate) fn failed(&self, what: &str) -> TrialError {
        let said = self.said();
        let last: Vec<_> = said.lines().rev().take(LINES_OF_LOG).collect();
        let last: Vec<_> = last.into_iter().rev().collect();
        TrialError::Start {
            name: self.name.clone(),
            reason: format!("{what}; it said: {}", last.join("\n")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child, STOP_PATIENCE);
    }
}

/// Runs `command` to its end, on `cpu` or wherever this process may run, and gives what it printed.
///
/// # Errors
///
/// [`TrialError::Run`] with what it said, if it fails; [`TrialError::Interrupted`].
pub fn output(
    command: &mut Command,
    cpu: impl Into<Option<usize>>,
    interrupt: &Interrupt,
) -> Result<Vec<u8>, TrialError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |reason: String| TrialError::Run {
        command: name.clone(),
        reason,
    };
    let unreadable = |error: io::Error| failed(error.to_string());
    // Files, not pipes: we need not read while we wait.
    let stdout = tempfile::NamedTempFile::new().map_err(unreadable)?;
    let stderr = tempfile::NamedTempFile::new().map_err(unreadable)?;
    command
        .stdin(Stdio::null())
        .stdout(stdout.reopen().map_err(unreadable)?)
        .stderr(stderr.reopen().map_err(unreadable)?);
    let mut child = Ending(spawn(command, cpu.into()).map_err(unreadable)?);
    let status = interrupt
        .wait_for(RUN_PATIENCE, || child.0.try_wait().map_err(unreadable))?
        .ok_or_else(|| failed("did not end".into()))?;
    if !status.success() {
        let said = fs::read_to_string(stderr.path()).unwrap_or_default();
        return Err(failed(format!("{status}: {}", said.trim())));
    }
    fs::read(stdout.path()).map_err(unreadable)
}

/// Starts a program while this thread is bound to `cpu`: a child starts with its parent's binding.
fn spawn(command: &mut Command, cpu: Option<usize>) -> io::Result<Child> {
    let Some(cpu) = cpu else {
        return command.spawn();
    };
    let before = widelane_affinity::allowed(None)?;
    widelane_affinity::pin(cpu)?;
    let result = command.spawn();
    widelane_affinity::allow(None, &before)?;
    result
}

fn written(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}

/// Returns whether a server ends a connection whose client has ended it. The kernel alone would connect, as soon as
/// there is a socket: before there are threads that serve, or that measure.
fn takes_connections(address: SocketAddr) -> bool {
    let ended = || {
        let mut client = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
        client.shutdown(Shutdown::Write)?;
        client.set_read_timeout(Some(ANSWER_PATIENCE))?;
        client.read(&mut [0; 64])
    };
    match ended() {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        end(&mut self.0, STOP_PATIENCE);
    }
}

/// Asks politely, waits, then insists.
fn end(child: &mut Child, patience: Duration) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn children_of(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for Thread { tid, .. } in Proc::here().threads_of(pid) {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    all
}

/// The engine's name for the thread that measures.
const CALIBRATION: &str = "calibration";
/// Unit of CPU time in `/proc/PID/stat`, which is the same for all kernels.
const TICK: Duration = Duration::from_millis(10);
const START_PATIENCE: Duration = Duration::from_secs(15);
const CONNECT_PATIENCE: Duration = Duration::from_millis(200);
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Longer than anything that is run here.
const RUN_PATIENCE: Duration = Duration::from_secs(600);
const LINES_OF_LOG: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_socket_without_accepts_is_no_server() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert!(!takes_connections(address), "the kernel connects all the same");
        let server = thread::spawn(move || {
            // The one of before, and that which is asked for now.
            for _ in 0..2 {
                drop(socket.accept().unwrap());
            }
        });
        assert!(takes_connections(address));
        server.join().unwrap();
    }
}
