//! `widelane top` and `usage` on a terminal: what is shown at which size, and that the terminal is
//! given back however the program ends.

#![cfg(feature = "terminal")]

mod under_test;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use widelane_top::Screen;

#[test]
fn a_picture_follows_the_size_and_sigterm_ends_it() {
    let Some(mut terminal) = Terminal::new(100, 30) else {
        return;
    };
    let mut top = terminal.run(&mut top(&["--interval", "0.2"]));
    terminal.until("by class");
    assert!(terminal.seen().contains("left out with --no-users"));
    assert!(terminal.is_raw());
    terminal.resize(20, 6);
    terminal.until("by class");
    let small = terminal.seen();
    assert!(small.contains("handshakes"), "{small:?}");
    assert!(!small.contains("left out with"), "{small:?}");
    terminal.resize(1, 1);
    terminal.resize(100, 30);
    terminal.until("left out with --no-users");
    signal(&top, Signal::TERM);
    assert_eq!(terminal.end(&mut top).code(), Some(0));
    terminal.is_given_back();
}

#[test]
fn q_and_control_c_end_it() {
    for key in ["q", "\x1b", "\x03"] {
        let Some(mut terminal) = Terminal::new(80, 24) else {
            return;
        };
        let mut top = terminal.run(&mut top(&[]));
        terminal.until("by class");
        terminal.ours.write_all(key.as_bytes()).expect("a key");
        assert_eq!(terminal.end(&mut top).code(), Some(0), "{key:?}");
        terminal.is_given_back();
    }
}

#[test]
fn without_colours_there_are_none() {
    for (variable, option) in [("", ""), ("1", ""), ("", "--no-color")] {
        let Some(mut terminal) = Terminal::new(80, 24) else {
            return;
        };
        let options: Vec<_> = [option].into_iter().filter(|o| !o.is_empty()).collect();
        let mut top = terminal.run(top(&options).args(["--count", "1"]).env("NO_COLOR", variable));
        assert_eq!(terminal.end(&mut top).code(), Some(0));
        let seen = terminal.seen();
        assert!(seen.contains("handshakes"), "{seen:?}");
        let colours = seen.contains("\x1b[38;5;") || seen.contains("\x1b[33m");
        let wanted = variable.is_empty() && option.is_empty();
        assert_eq!(colours, wanted, "{variable} {option}: {seen:?}");
    }
}

#[test]
fn a_dumb_terminal_gets_plain_text() {
    let Some(mut terminal) = Terminal::new(80, 24) else {
        return;
    };
    let mut top = terminal.run(top(&["--count", "1"]).env("TERM", "dumb"));
    assert_eq!(terminal.end(&mut top).code(), Some(0));
    let seen = terminal.seen();
    assert!(seen.starts_with("handshakes ") && !seen.contains('\x1b'), "{seen:?}");
}

/// A table of users is renewed on a terminal that can do so, unless there will be no other.
#[test]
fn the_only_table_of_users_is_plain_text() {
    for (option, term) in [("--once", "xterm"), ("--count=1", "dumb")] {
        let Some(mut terminal) = Terminal::new(80, 24) else {
            return;
        };
        let mut usage = setsid(under_test::PROGRAM.as_ref());
        usage.args(["usage", "--method", "poll", "--interval", "0.1", option]);
        let mut usage = terminal.run(usage.env("TERM", term));
        let status = terminal.end(&mut usage);
        let seen = terminal.seen();
        if status.code() == Some(1) && seen.contains("AVX-512") {
            println!("SKIP: {}", seen.trim());
            return;
        }
        assert_eq!(status.code(), Some(0), "{seen:?}");
        assert!(seen.starts_with("512-bit") && !seen.contains('\x1b'), "{seen:?}");
    }
}

#[test]
fn it_ends_with_its_terminal() {
    let Some(mut terminal) = Terminal::new(80, 24) else {
        return;
    };
    let mut top = terminal.run(&mut top(&[]));
    terminal.until("by class");
    drop(terminal);
    let status = ended(&mut top, || {});
    // With a status of its own, and not by an abort because nothing can be written any more.
    assert!(status.code().is_some(), "{status}");
}

/// Runs [`panics_on_a_terminal_of_its_own`] with one.
#[test]
fn a_panic_gives_the_terminal_back_before_its_message() {
    let Some(mut terminal) = Terminal::new(80, 24) else {
        return;
    };
    let mut command = setsid(&std::env::current_exe().expect("it runs"));
    command.args(["--exact", "panics_on_a_terminal_of_its_own", "--nocapture"]);
    let mut panicking = terminal.run(command.env(TO_PANIC, "1"));
    assert_ne!(terminal.end(&mut panicking).code(), Some(0));
    terminal.is_given_back();
    let seen = terminal.seen();
    let left = seen.find(LEAVE).expect("it was given back");
    let message = seen.find("as it was told").expect("the message of the panic");
    assert!(left < message, "{seen:?}");
}

#[test]
fn panics_on_a_terminal_of_its_own() {
    if std::env::var_os(TO_PANIC).is_none() {
        return;
    }
    let _screen = Screen::open(true).expect("a terminal");
    panic!("as it was told");
}

/// A pseudo-terminal.
struct Terminal {
    /// The end that a person would look at.
    ours: File,
    theirs: File,
    seen: Vec<u8>,
}

impl Terminal {
    /// `None`, having said so, where there are none.
    fn new(columns: u16, rows: u16) -> Option<Self> {
        if !Command::new("setsid")
            .arg("--version")
            .output()
            .is_ok_and(|it| it.status.success())
        {
            eprintln!("SKIP: there is no program setsid");
            return None;
        }
        let ours = match openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC) {
            Ok(ours) => ours,
            Err(error) => {
                eprintln!("SKIP: no pseudo-terminals: {error}");
                return None;
            }
        };
        grantpt(&ours).expect("it is ours");
        unlockpt(&ours).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let name = name.to_str().expect("a path of ASCII");
        let mut options = File::options();
        // Without O_NOCTTY this would take it as the terminal of the tests, if they have none.
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            OpenptFlags::NOCTTY.bits().try_into().expect("a flag of open"),
        );
        let theirs = options.read(true).write(true).open(name).expect("the other end");
        let terminal = Self {
            ours: ours.into(),
            theirs,
            seen: Vec::new(),
        };
        terminal.resize(columns, rows);
        Some(terminal)
    }

    /// Starts a program on it.
    fn run(&self, command: &mut Command) -> Child {
        let end = || Stdio::from(self.theirs.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(end());
        command.spawn().expect("it starts")
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.ours, size).expect("a terminal");
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.theirs).expect("a terminal").local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Checks that the terminal is as it was before, and the other contents are back.
    fn is_given_back(&self) {
        assert!(!self.is_raw());
        let seen = self.seen();
        assert!(seen.contains(LEAVE), "{seen:?}");
        let after = &seen[seen.rfind(LEAVE).unwrap_or(0)..];
        assert!(!after.contains(ENTER) && !after.contains("handshakes"), "{seen:?}");
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Reads until this text comes, and forgets what was read before this call.
    fn until(&mut self, text: &str) {
        self.seen.clear();
        let began = Instant::now();
        while !self.seen().contains(text) {
            assert!(began.elapsed() < PATIENCE, "no {text:?} in {:?}", self.seen());
            self.read();
        }
    }

    /// Reads until the program has ended.
    fn end(&mut self, child: &mut Child) -> ExitStatus {
        let status = ended(child, || while self.read() {});
        // What it wrote last.
        while self.read() {}
        status
    }

    /// Reads what is there, and returns whether there was something.
    fn read(&mut self) -> bool {
        let a_moment = Timespec::try_from(Duration::from_millis(50)).expect("a short time");
        let mut waiting = [PollFd::new(&self.ours, PollFlags::IN)];
        if poll(&mut waiting, Some(&a_moment)).unwrap_or(0) == 0 {
            return false;
        }
        let mut part = [0; 4096];
        let read = self.ours.read(&mut part).unwrap_or(0);
        self.seen.extend_from_slice(&part[..read]);
        read > 0
    }
}

/// `widelane top` without what takes long.
fn top(arguments: &[&str]) -> Command {
    let mut command = setsid(under_test::PROGRAM.as_ref());
    command.args(["top", "--no-users"]).args(arguments);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
    command
}

/// A program whose terminal is its standard input, and no other that the tests may have.
fn setsid(program: &std::path::Path) -> Command {
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(program);
    under_test::apart(command)
}

/// Does something again and again until the program has ended.
fn ended(child: &mut Child, mut meanwhile: impl FnMut()) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return status;
        }
        meanwhile();
        thread::sleep(Duration::from_millis(20));
        if began.elapsed() > PATIENCE {
            child.kill().expect("it is ours");
            panic!("it does not end");
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .expect("a number");
    kill_process(pid, signal).expect("it runs");
}

/// Nothing of this takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const TO_PANIC: &str = "WIDELANE_TEST_TO_PANIC";
/// Sequences by which terminals put other contents aside, and bring them back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
