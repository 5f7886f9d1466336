//! A program that runs: whether it can load the provider, how it waits, and what follows.

use crate::elf::{Elf, Unfit};
use crate::plan::{LD_PRELOAD, OPENSSL_CONF};
use crate::running::{Running, file_name};
use crate::server::Waits;
use crate::tls::{MOST_BYTES, Tls};
use std::collections::HashSet;
use std::io;
use std::path::Path;
use widelane_threads::{Code, Proc, Thread};

/// A process, as far as it decides what Widelane can do for it.
#[derive(Clone, Debug)]
pub struct Process {
    pid: u32,
    program: Running,
    tls: Tls,
    provider: bool,
    shim: bool,
    waits: Vec<Wait>,
    epolls: usize,
    rings: usize,
    /// Sockets for TCP that listen, and connections.
    listens: usize,
    connections: usize,
    /// Processes of the same program that it has started.
    children: Vec<u32>,
    /// True if a process of the same program has started it.
    is_child: bool,
    /// Variables of the server's environment that `setup` would set.
    variables: Vec<(&'static str, String)>,
}

/// Reason why a process cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is no such process.
    #[error("there is no process {0}")]
    None(u32),
    /// The process has ended, and its parent has not taken notice yet.
    #[error("process {0} has ended")]
    Ended(u32),
    /// The process is a thread of the kernel.
    #[error("process {pid} ({name}) belongs to the kernel and has no program")]
    Kernel {
        /// Number of the process.
        pid: u32,
        /// Name of the process.
        name: String,
    },
    /// This user may not look at it.
    #[error(
        "process {0} may not be looked at by this user: run this with sudo; in a container, root needs CAP_SYS_PTRACE"
    )]
    NotAllowed(u32),
    /// The system refuses.
    #[error("cannot look at process {pid}: {cause}")]
    Read {
        /// Number of the process.
        pid: u32,
        /// Error of the system.
        cause: io::Error,
    },
}

/// System call in which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Epoll,
    Poll,
    Select,
    Ring,
    Accept,
    Child,
    Other,
}

impl Wait {
    /// Chooses by the number of the call on x86-64.
    fn of(call: Option<u32>) -> Self {
        match call {
            Some(232 | 281 | 441) => Self::Epoll,
            Some(7 | 271) => Self::Poll,
            Some(23 | 270) => Self::Select,
            Some(426) => Self::Ring,
            Some(43 | 288) => Self::Accept,
            // wait4, waitid, pause, rt_sigsuspend, rt_sigtimedwait.
            Some(61 | 247 | 34 | 130 | 128) => Self::Child,
            _ => Self::Other,
        }
    }
}

impl Process {
    /// Looks at a process. Nothing in it is changed or stopped.
    ///
    /// # Errors
    ///
    /// When there is no such process, it has no program, or this user may not look at it.
    pub fn inspect(proc: &Proc, pid: u32) -> Result<Self, InspectError> {
        let stat = proc.stat(Thread::first_of(pid));
        let stat = stat.ok_or(InspectError::None(pid))?;
        let name = stat.name.clone();
        if stat.flags & KERNEL_THREAD != 0 {
            return Err(InspectError::Kernel { pid, name });
        }
        if stat.dead {
            return Err(InspectError::Ended(pid));
        }
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::NotFound => InspectError::None(pid),
            io::ErrorKind::PermissionDenied => InspectError::NotAllowed(pid),
            _ => InspectError::Read { pid, cause },
        };
        let descriptors = proc.descriptors(pid).map_err(failed)?;
        let code = Code::of(pid).map_err(failed)?;
        let exe = std::fs::read_link(proc.program(pid)).map_err(failed)?;
        let files: Vec<String> = code
            .files()
            .iter()
            .filter_map(|one| one.path.as_deref())
            .map(file_name)
            .collect();
        let has = |wanted: &[&str]| files.iter().any(|file| wanted.contains(&&**file));
        let own = code.program().and_then(|file| file.read(MOST_BYTES)).ok();
        let own = own.map(|content| Elf::parse(&content));
        let is_same = |other: u32| std::fs::read_link(proc.program(other)).is_ok_and(|other| other == exe);
        let others = proc.processes().map_err(failed)?.into_iter();
        let children = others.filter(|&other| {
            let stat = proc.stat(Thread::first_of(other));
            stat.is_some_and(|stat| u32::try_from(stat.parent) == Ok(pid)) && is_same(other)
        });
        let open = |kind: &str| descriptors.iter().filter(|target| *target == Path::new(kind)).count();
        let variable = |name| Some((name, proc.variable(pid, name)?.to_string_lossy().into_owned()));
        let found = proc.sockets(pid).unwrap_or_default();
        let own_sockets: HashSet<u64> = descriptors.iter().filter_map(|one| socket(one)).collect();
        let sockets = |listen| {
            let found = found.iter().filter(|one| one.listens == listen);
            found.filter(|one| own_sockets.contains(&one.inode)).count()
        };
        Ok(Self {
            pid,
            program: Running::of(proc, pid),
            tls: tls_of(&files, own),
            provider: has(&["widelane.so", "libwidelane_openssl.so"]),
            shim: has(&["libwidelane_openssl_shim.so"]),
            waits: proc
                .threads_of(pid)
                .into_iter()
                .map(|thread| Wait::of(proc.system_call(thread)))
                .collect(),
            epolls: open("anon_inode:[eventpoll]"),
            rings: open("anon_inode:[io_uring]"),
            listens: sockets(true),
            connections: sockets(false),
            children: children.collect(),
            is_child: u32::try_from(stat.parent).is_ok_and(is_same),
            variables: [OPENSSL_CONF, LD_PRELOAD].into_iter().filter_map(variable).collect(),
        })
    }

    /// Returns whether Widelane can be put into it, as far as is known.
    pub fn is_suitable(&self) -> bool {
        self.tls.takes_providers() != Some(false)
    }

    /// Sentences on what was found and what follows. Names in them are those of the process's owner.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = vec![self.title(), format!("It {}.", self.tls)];
        if !self.is_suitable() {
            said.push("Widelane cannot be put into it. `widelane serve` can stand in front of it.".to_owned());
            return said;
        }
        said.push(self.waiting());
        match self.program.waits() {
            Some(waits) => {
                said.extend(self.program.expectations());
                let other = self.seen().filter(|seen| seen != waits.expectation());
                said.extend(other.map(|seen| format!("Seen now: {seen}.")));
            }
            None => {
                let seen = self.seen().unwrap_or_else(|| IDLE.to_owned());
                said.push(format!("To expect: {seen}."));
                said.push(NOT_TRIED.to_owned());
            }
        }
        if self.tls == Tls::NotSeen {
            said.push("Ask again when a client has connected with TLS: the library may be loaded then.".to_owned());
        }
        for (name, value) in &self.variables {
            let ours = value.contains("widelane");
            said.push(match ours {
                true => format!("{name}={value} is in its environment."),
                false => format!(
                    "{name}={value} is in its environment already. Only one value has an effect: `setup` refuses where \
                     the unit sets it."
                ),
            });
        }
        said.push(match (self.provider, self.shim) {
            (true, _) => format!(
                "The provider is loaded. `sudo widelane status {0}` shows what it does, `sudo widelane status --prove \
                 {0}` what it saves.",
                self.pid
            ),
            (false, true) => "The library that suspends handshakes is loaded, the provider is not: OPENSSL_CONF does \
                not reach OpenSSL in it."
                .to_owned(),
            (false, false) => format!(
                "To find out: {}, let clients connect, and run `sudo widelane status --prove`.",
                self.program.way_in(self.has_one_loop())
            ),
        });
        said
    }

    fn title(&self) -> String {
        let Running { name, unit, .. } = &self.program;
        let unit = unit.as_ref().map(|unit| format!(", unit {unit}.service"));
        format!("Process {}: {name}{}.", self.pid, unit.unwrap_or_default())
    }

    /// Describes the calls in which its threads wait now.
    fn waiting(&self) -> String {
        let threads = self.waits.len();
        let kinds = [
            (Wait::Epoll, "in epoll_wait"),
            (Wait::Poll, "in poll"),
            (Wait::Select, "in select"),
            (Wait::Ring, "in io_uring_enter"),
            (Wait::Accept, "in accept"),
            (Wait::Child, "waiting for signals or children"),
        ];
        let parts = kinds.iter().filter_map(|(kind, name)| {
            let count = self.count(*kind);
            (count > 0).then(|| format!("{count} {name}"))
        });
        let mut parts: Vec<String> = parts.collect();
        let other = self.count(Wait::Other);
        if other > 0 {
            parts.push(format!("{other} elsewhere or running"));
        }
        let mut text = format!("Threads: {threads} ({}).", parts.join(", "));
        text += &format!(
            " Epoll instances: {}, io_uring: {}. TCP sockets that listen: {}, connections: {}.",
            self.epolls, self.rings, self.listens, self.connections
        );
        match self.children.len() {
            0 => {}
            count => text += &format!(" Processes of the same program below it: {count}."),
        }
        text
    }

    /// Returns whether others that it has started serve the clients.
    fn only_starts_others(&self) -> bool {
        !self.children.is_empty() && self.connections == 0
    }

    /// Returns whether it waits in io_uring.
    fn has_ring(&self) -> bool {
        self.count(Wait::Ring) > 0 || (self.rings > 0 && self.epolls == 0)
    }

    /// Returns whether it serves one connection. So does one that has an event loop for that, as in PostgreSQL.
    fn serves_one(&self) -> bool {
        self.is_child && self.waits.len() == 1 && self.listens == 0 && self.connections <= 1
    }

    /// Returns whether one of its threads waits for many clients, and no other does.
    fn has_one_loop(&self) -> bool {
        if self.only_starts_others() || self.has_ring() || self.serves_one() {
            return false;
        }
        match self.count(Wait::Epoll) {
            0 => self.epolls == 0 && self.waits.len() == 1 && self.polls() == 1,
            loops => loops == 1,
        }
    }

    /// Threads in poll or select.
    fn polls(&self) -> usize {
        self.count(Wait::Poll) + self.count(Wait::Select)
    }

    /// Way in which it waits, as far as that can be seen: a part of a sentence.
    fn seen(&self) -> Option<String> {
        let loops = self.count(Wait::Epoll);
        let threads = self.waits.len();
        let text = match (self.children.first(), loops) {
            (Some(child), _) if self.only_starts_others() => format!(
                "it waits for the processes that it has started, which serve the clients; look at one of them: `sudo \
                 widelane setup --inspect {child}`"
            ),
            _ if self.has_ring() => "io_uring: handshakes are not suspended there, provider only".to_owned(),
            _ if self.serves_one() => Waits::Alone.expectation().to_owned(),
            (_, 1) => Waits::EventLoop.expectation().to_owned(),
            (_, 0) if self.has_one_loop() => {
                "single event loop, poll or select: the preloaded library suspends handshakes, and lanes fill"
                    .to_owned()
            }
            (_, 2..) => format!(
                "{loops} threads with epoll: each with an event loop of its own fills lanes of its own, if handshakes are \
                 in these threads"
            ),
            (_, 0) if self.epolls == 0 && threads > 1 => Waits::Threads.expectation().to_owned(),
            _ => return None,
        };
        Some(text)
    }

    fn count(&self, kind: Wait) -> usize {
        self.waits.iter().filter(|wait| **wait == kind).count()
    }
}

/// Source of the TLS of a process, by the names of the files that it has mapped and by its program's file.
fn tls_of(mapped: &[String], program: Option<Result<Elf, Unfit>>) -> Tls {
    let program = match program {
        // Its libraries are of its own kind, whatever they are called.
        Some(Err(unfit)) if unfit.is_of_other_kind() => return Tls::OtherKind(unfit),
        program => program.and_then(Result::ok).unwrap_or_default(),
    };
    match Tls::of(mapped.iter().map(|file| &**file)) {
        found @ Tls::OpenSsl(_) => found,
        found => match Tls::inside(&program) {
            // The file names none; its loader has none to load either.
            Tls::Static if mapped.iter().any(|file| is_loader(file)) => found,
            inside => inside,
        },
    }
}

/// Number of the socket behind a descriptor.
fn socket(target: &Path) -> Option<u64> {
    let number = target.to_str()?.strip_prefix("socket:[")?;
    number.strip_suffix(']')?.parse().ok()
}

/// Returns whether a file is the loader of shared libraries, which every dynamic program has mapped.
fn is_loader(file: &str) -> bool {
    ["ld-linux", "ld-musl", "ld-2."]
        .iter()
        .any(|prefix| file.starts_with(prefix))
}

const NOT_TRIED: &str = "This program was not tried with Widelane: its own figures decide, as `sudo widelane status --prove` \
                         tells them.";
const IDLE: &str = "not known: it was not seen waiting for clients. Ask again while clients connect";
/// `PF_KTHREAD` of the kernel.
const KERNEL_THREAD: u32 = 0x0020_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll;
    use std::fs::Permissions;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    fn running(unit: Option<&str>) -> Running {
        Running {
            unit: unit.map(str::to_owned),
            ..Running::named(None, "own".to_owned())
        }
    }

    fn process(waits: &[Wait]) -> Process {
        Process {
            pid: 7,
            program: running(Some("own")),
            tls: Tls::OpenSsl("libssl.so.3".to_owned()),
            provider: false,
            shim: false,
            waits: waits.to_vec(),
            epolls: 0,
            rings: 0,
            listens: 1,
            connections: 0,
            children: Vec::new(),
            is_child: false,
            variables: Vec::new(),
        }
    }

    fn text(process: &Process) -> String {
        process.sentences().join("\n")
    }

    #[test]
    fn what_to_expect_follows_from_the_way_of_waiting() {
        let epolls = |process: Process| Process { epolls: 1, ..process };
        for (process, expected) in [
            (
                epolls(process(&[Wait::Epoll, Wait::Other])),
                "single event loop, epoll: the preloaded",
            ),
            (epolls(process(&[Wait::Epoll, Wait::Epoll])), "2 threads with epoll"),
            (epolls(process(&[Wait::Other])), "not known: it was not seen waiting"),
            (
                process(&[Wait::Poll]),
                "single event loop, poll or select: the preloaded",
            ),
            (
                epolls(Process {
                    is_child: true,
                    listens: 0,
                    connections: 1,
                    ..process(&[Wait::Epoll])
                }),
                "a process for each connection: provider only",
            ),
            // A worker of nginx.
            (
                epolls(Process {
                    is_child: true,
                    ..process(&[Wait::Epoll])
                }),
                "single event loop, epoll",
            ),
            (
                Process {
                    children: vec![9],
                    ..process(&[Wait::Child])
                },
                "it waits for the processes that it has started, which serve the clients; look at one of them: `sudo \
                 widelane setup --inspect 9`",
            ),
            (
                process(&[Wait::Poll, Wait::Poll, Wait::Accept]),
                "threads that wait for their handshakes",
            ),
            (
                Process {
                    rings: 1,
                    ..process(&[Wait::Ring])
                },
                "io_uring: handshakes are not suspended",
            ),
        ] {
            let text = text(&process);
            assert!(text.contains(&format!("\nTo expect: {expected}")), "{text}");
            assert!(text.contains("was not tried with Widelane"), "{text}");
            let suspends = text.contains("`sudo widelane setup --unit own --suspend`");
            assert_eq!(suspends, expected.starts_with("single event loop"), "{text}");
            assert!(suspends || text.contains("`sudo widelane setup --unit own`"), "{text}");
            assert!(text.contains("status --prove"), "{text}");
        }
    }

    #[test]
    fn programs_that_cannot_load_it_are_told_the_other_way() {
        for tls in [
            Tls::Static,
            Tls::Inside,
            Tls::Other("GnuTLS"),
            Tls::OtherLibssl("libssl.so.1.1".into()),
            Tls::OtherKind(Unfit::Bits32),
            Tls::OtherKind(Unfit::OtherMachine),
        ] {
            let process = Process {
                tls,
                ..process(&[Wait::Epoll])
            };
            assert!(!process.is_suitable());
            let text = text(&process);
            assert!(
                text.contains("`widelane serve`") && !text.contains("To find out"),
                "{text}"
            );
        }
        let unseen = Process {
            tls: Tls::NotSeen,
            ..process(&[Wait::Epoll])
        };
        assert!(unseen.is_suitable() && text(&unseen).contains("Ask again when a client"));
    }

    #[test]
    fn what_is_there_already_is_told() {
        let there = Process {
            program: Running {
                unit: Some("redis-server".to_owned()),
                ..Running::named(Some("redis-server".to_owned()), String::new())
            },
            variables: vec![(LD_PRELOAD, "/lib/jemalloc.so".to_owned())],
            ..process(&[Wait::Epoll, Wait::Epoll])
        };
        let said = text(&there);
        for part in [
            "Process 7: redis-server, unit redis-server.service.",
            "To expect of Redis: single event loop",
            "Seen now: 2 threads with epoll",
            "LD_PRELOAD=/lib/jemalloc.so is in its environment already",
            "`sudo widelane setup redis`",
        ] {
            assert!(said.contains(part), "{part}\n{said}");
        }
        let loaded = text(&Process {
            provider: true,
            ..there.clone()
        });
        assert!(loaded.contains("`sudo widelane status 7`"), "{loaded}");
        let half = text(&Process { shim: true, ..there });
        assert!(half.contains("OPENSSL_CONF does"), "{half}");
        let by_hand = text(&Process {
            program: running(None),
            ..process(&[])
        });
        assert!(
            by_hand.contains("`env $(widelane setup --unit NAME --env) own`"),
            "{by_hand}"
        );
        let contained = text(&Process {
            program: Running {
                is_contained: true,
                ..running(None)
            },
            ..process(&[])
        });
        assert!(contained.contains("the image of its container") && !contained.contains("setup --unit"));
    }

    #[test]
    fn this_process_is_seen_with_its_event_loop_and_its_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let found = Process::inspect(&Proc::here(), std::process::id()).unwrap();
        drop((poll, listener));
        assert!(found.listens >= 1, "{found:?}");
        assert_eq!(found.tls, Tls::NotSeen);
        assert!(
            found.epolls >= 1 && !found.waits.is_empty() && !found.provider,
            "{found:?}"
        );
        let own = std::env::current_exe().unwrap();
        assert_eq!(found.program.name, file_name(&own));
    }

    /// A server of OpenSSL's own, which waits with select.
    #[test]
    fn a_server_with_openssl_is_recognised_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let server = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-nocert"])
            .current_dir(folder.path())
            .env("OPENSSL_CONF", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut server) = server else {
            return println!("SKIP: no openssl");
        };
        // The server says so when it listens.
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let listens = lines.map_while(Result::ok).any(|line| line.starts_with("ACCEPT"));
        let found = Process::inspect(&Proc::here(), server.id());
        server.kill().unwrap();
        server.wait().unwrap();
        if !listens {
            return println!("SKIP: this openssl has no s_server without a certificate");
        }
        let found = found.unwrap();
        assert!(
            matches!(&found.tls, Tls::OpenSsl(name) if name.starts_with("libssl.so.")),
            "{found:?}"
        );
        assert_eq!(found.variables, [(OPENSSL_CONF, "/dev/null".to_owned())]);
        assert!(found.is_suitable() && text(&found).contains("Process "), "{found:?}");
    }

    /// A static 32-bit program that waits until it is killed.
    fn waiting_in_32_bits() -> Vec<u8> {
        const BASE: u32 = 0x0804_8000;
        const CODE_AT: u32 = 52 + 32;
        // mov eax, 29 (pause); int 0x80; jmp to the begin.
        let code = [0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];
        let length = CODE_AT + code.len() as u32;
        let mut file = b"\x7fELF\x01\x01\x01".to_vec();
        file.resize(16, 0);
        // Kind, machine, version; entry, program headers, section headers, flags; sizes and numbers of headers.
        file.extend([2_u16, 3].map(u16::to_le_bytes).concat());
        file.extend([1, BASE + CODE_AT, 52, 0, 0].map(u32::to_le_bytes).concat());
        file.extend([52_u16, 32, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
        // Kind, offset, addresses, sizes, right to read and execute, alignment.
        let header = [1, 0, BASE, BASE, length, length, 5, 0x1000];
        file.extend(header.map(u32::to_le_bytes).concat());
        file.extend(code);
        file
    }

    /// Its libssl has the same name as that of a 64-bit program.
    #[test]
    fn a_32_bit_process_is_refused_whatever_its_libraries_are_called() {
        let folder = tempfile::tempdir().unwrap();
        // The only file that it has mapped.
        let program = folder.path().canonicalize().unwrap().join("libssl.so.3");
        std::fs::write(&program, waiting_in_32_bits()).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let mut child = loop {
            match Command::new(&program).spawn() {
                // Another test starts a program while the file is written, and holds it for a moment.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                Err(error) => return println!("SKIP: this machine runs no 32-bit programs: {error}"),
                Ok(child) => break child,
            }
        };
        // It counts as started a moment before its file is mapped.
        let has_mapped = |code: Code| code.files().iter().any(|one| one.path.as_deref() == Some(&*program));
        while child.try_wait().unwrap().is_none() && !Code::of(child.id()).is_ok_and(has_mapped) {
            std::thread::yield_now();
        }
        let found = Process::inspect(&Proc::here(), child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        assert_eq!(found.tls, Tls::OtherKind(Unfit::Bits32));
        let said = text(&found);
        assert!(
            said.contains("It is a 32-bit program, which cannot load the provider") && !found.is_suitable(),
            "{said}"
        );
    }

    #[test]
    fn what_is_no_program_or_is_gone_is_named() {
        let error = |pid| Process::inspect(&Proc::here(), pid).unwrap_err().to_string();
        assert_eq!(error(u32::MAX), format!("there is no process {}", u32::MAX));
        let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        // Its output ends with it.
        let mut end = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut end)
            .unwrap();
        let message = loop {
            match Process::inspect(&Proc::here(), child.id()) {
                Err(error @ InspectError::Ended(_)) => break error.to_string(),
                _ => std::thread::yield_now(),
            }
        };
        assert!(message.ends_with("has ended"), "{message}");
        child.wait().unwrap();
        let is_kernel = |stat: widelane_threads::Stat| stat.flags & KERNEL_THREAD != 0;
        let threads = Proc::here().processes().unwrap();
        let kernel = threads
            .into_iter()
            .find(|&pid| Proc::here().stat_of(pid).is_some_and(is_kernel));
        match kernel {
            Some(pid) => assert!(error(pid).contains("belongs to the kernel"), "{}", error(pid)),
            None => println!("SKIP: no thread of the kernel is visible here"),
        }
    }

    #[test]
    fn a_folder_like_proc_with_nonsense_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("7/task/7")).unwrap();
        std::fs::write(folder.path().join("7/task/7/stat"), "\u{fffd}").unwrap();
        let found = Process::inspect(&Proc::at(folder.path()), 7);
        assert!(matches!(found, Err(InspectError::None(7))));
    }
}
