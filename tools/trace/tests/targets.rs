//! Tests what is probed in running processes.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use widelane_threads::Proc;
use widelane_trace::{Exits, Filter, Role, Table, Target, TargetError, Targets, Want};

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libssl.so.3";
const ALL: [Role; 13] = [
    Role::Handshake,
    Role::Error,
    Role::Free,
    Role::Read,
    Role::Write,
    Role::Sign,
    Role::Verify,
    Role::Generate,
    Role::Derive,
    Role::Encapsulate,
    Role::Decapsulate,
    Role::Pass,
    Role::Poll,
];

fn with(roles: &[Role]) -> Want {
    Want {
        roles: roles.to_owned(),
        ..Want::default()
    }
}

/// A program that waits until its input ends.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Compiles C with these options; `None`, after a line that says so, if that takes what is not here.
fn compiled(folder: &Path, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    if !Path::new(LIBRARY).exists() {
        println!("SKIP: it takes {LIBRARY}");
        return None;
    }
    let (code, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&code, source).unwrap();
    let output = Command::new("gcc")
        .arg("-O2")
        .arg(&code)
        .arg("-o")
        .arg(&program)
        .args(options)
        .output();
    match output {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            println!("SKIP: gcc builds no program: {why}");
            None
        }
        Err(_) => {
            println!("SKIP: it takes gcc");
            None
        }
    }
}

fn start(program: &Path) -> Waiting {
    let child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut waiting = Waiting(child.unwrap());
    let mut said = [0];
    // The process has loaded its libraries.
    let from = waiting.0.stdout.as_mut().unwrap();
    from.read_exact(&mut said).unwrap();
    waiting
}

fn target(targets: &mut Targets, waiting: &Waiting) -> Target {
    targets.of(&Proc::here(), waiting.0.id()).unwrap()
}

fn exits<'a>(target: &'a Target, symbol: &str) -> &'a Exits {
    let mut probes = target.probes.iter();
    let probe = probes.find(|probe| &*probe.symbol == symbol);
    let probe = probe.unwrap_or_else(|| panic!("{symbol}: {:?}", target.notes));
    // The path leads to the file in which it is.
    let entry = usize::try_from(probe.entry).unwrap();
    assert!(std::fs::read(probe.file.link()).unwrap().len() > entry);
    &probe.returns
}

#[test]
fn processes_share_the_files_that_are_probed() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-l:libssl.so.3", "-l:libcrypto.so.3"];
    let Some(program) = compiled(folder.path(), "plain", PLAIN, &options) else {
        return;
    };
    let (one, other) = (start(&program), start(&program));
    let mut targets = Targets::new(Table::builtin(), &with(&ALL));
    let (first, second) = (target(&mut targets, &one), target(&mut targets, &other));
    assert!(first.notes.is_empty(), "{:?}", first.notes);
    // One file for both processes.
    for (one, other) in first.probes.iter().zip(&second.probes) {
        assert!(std::sync::Arc::ptr_eq(&one.file, &other.file));
    }
    assert_eq!(first.probes.len(), second.probes.len());

    let mut handshakes = Targets::new(Table::builtin(), &with(&[Role::Handshake]));
    let few = target(&mut handshakes, &one);
    let roles = few.probes.iter().map(|probe| probe.function.role);
    let roles = roles.filter(|role| *role != Role::Load);
    assert!(roles.clone().count() == 3 && roles.into_iter().all(|role| role == Role::Handshake));
}

#[test]
fn for_handshakes_the_same_work_is_probed_once() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-l:libssl.so.3", "-l:libcrypto.so.3"];
    let Some(program) = compiled(folder.path(), "plain", PLAIN, &options) else {
        return;
    };
    let waiting = start(&program);
    let has = |target: &Target, symbol| {
        let mut probes = target.probes.iter();
        probes.any(|probe| &*probe.symbol == symbol)
    };
    let every = target(&mut Targets::new(Table::builtin(), &with(&ALL)), &waiting);
    let few = Want {
        handshakes_only: true,
        ..with(&ALL)
    };
    let few = target(&mut Targets::new(Table::builtin(), &few), &waiting);
    for symbol in [
        "EVP_DigestSignFinal",
        "EVP_PKEY_sign",
        "EVP_DigestVerifyFinal",
        "EVP_PKEY_keygen",
    ] {
        assert!(has(&every, symbol) && !has(&few, symbol), "{symbol}");
    }
    for symbol in ["EVP_DigestSign", "EVP_DigestVerify", "EVP_PKEY_generate"] {
        assert!(has(&every, symbol) && has(&few, symbol), "{symbol}");
    }
    assert_ne!(exits(&every, "SSL_free"), &Exits::At(Vec::new()));
    assert_eq!(exits(&few, "SSL_free"), &Exits::At(Vec::new()));
}

/// Reads and writes matter to handshakes only as long as these last.
#[test]
fn reads_and_writes_are_probed_for_the_handshakes_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-l:libssl.so.3", "-l:libcrypto.so.3"];
    let Some(program) = compiled(folder.path(), "plain", PLAIN, &options) else {
        return;
    };
    let waiting = start(&program);
    let states = |want: &Want| {
        let target = target(&mut Targets::new(Table::builtin(), want), &waiting);
        let probes = target.probes.into_iter();
        let reads = probes.filter(|probe| probe.function.role == Role::Read);
        reads.map(|probe| probe.state).collect::<Vec<_>>()
    };
    let handshakes = states(&Want::handshakes());
    assert!(
        handshakes.len() == 2 && handshakes.iter().all(Option::is_some),
        "{handshakes:?}"
    );
    let counted = Want {
        calls: false,
        ..Want::handshakes()
    };
    assert_eq!(states(&counted), []);
    assert_eq!(states(&with(&[Role::Read])), [None, None]);
}

#[test]
fn returns_are_seen_at_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-l:libssl.so.3", "-l:libcrypto.so.3"];
    let Some(program) = compiled(folder.path(), "plain", PLAIN, &options) else {
        return;
    };
    let waiting = start(&program);
    let mut targets = Targets::new(Table::builtin(), &with(&ALL));
    let target = target(&mut targets, &waiting);
    assert!(matches!(exits(&target, "SSL_read"), Exits::At(places) if !places.is_empty()));
    // Debian's SSL_do_handshake ends in an indirect jump. The program calls it in one place, and
    // SSL_connect in another, which ends in a jump to it.
    let own = std::fs::canonicalize(&program).unwrap();
    let length = std::fs::metadata(&own).unwrap().len();
    let in_program = |symbol| match exits(&target, symbol) {
        Exits::After(sites) => {
            let own = sites.iter().filter(|site| site.file.identity().length == length);
            own.map(|site| site.offset).collect::<Vec<_>>()
        }
        other => panic!("{symbol}: {other:?}"),
    };
    let (handshake, connect) = (in_program("SSL_do_handshake"), in_program("SSL_connect"));
    assert_eq!((handshake.len(), connect.len()), (2, 1));
    assert!(handshake.contains(&connect[0]));
    // A call is shortly before each of them. The first instruction there that the kernel computes itself is
    // the next call.
    let bytes = std::fs::read(&own).unwrap();
    for at in handshake {
        let at = usize::try_from(at).unwrap();
        let before = &bytes[at - 24..at];
        let called = before.contains(&0xe8) || before.windows(2).any(|two| two == [0xff, 0x15]);
        assert!(called, "{before:x?}");
        let computed = matches!(bytes[at], 0xe8 | 0xe9 | 0xeb | 0x70..=0x7f | 0x50..=0x57);
        assert!(computed || bytes[at] == 0x0f, "{:x?}", &bytes[at..at + 6]);
    }
}

#[test]
fn a_static_program_without_symbols_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path(), "still", STILL, &["-static", "-s"]) else {
        return;
    };
    let waiting = start(&program);
    let mut targets = Targets::new(Table::builtin(), &with(&ALL));
    let target = target(&mut targets, &waiting);
    assert!(target.probes.is_empty());
    let note = target.notes.join("\n");
    let expected = format!("PID {} still: ", waiting.0.id());
    assert!(
        note.starts_with(&expected) && note.contains("static and stripped"),
        "{note}"
    );
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let mut targets = Targets::new(Table::builtin(), &with(&ALL));
    let error = targets.of(&Proc::here(), u32::MAX).unwrap_err();
    assert!(matches!(error, TargetError::NoProcess { pid: u32::MAX }));
}

#[test]
fn a_filter_finds_a_process_by_each_of_its_properties() {
    let mut child = Command::new("cat");
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut waiting = Waiting(child.spawn().unwrap());
    let pid = waiting.0.id();
    let (to, from) = (waiting.0.stdin.as_mut(), waiting.0.stdout.as_mut());
    to.unwrap().write_all(b"x").unwrap();
    from.unwrap().read_exact(&mut [0]).unwrap();
    let proc = Proc::here();
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let name = path.file_name().unwrap();
    let finds = |filter: Filter| {
        let found = filter.processes(&proc).unwrap().contains(&pid);
        assert_eq!(found, filter.matches(&proc, pid), "{filter:?}");
        found
    };
    let comms = |comm: &str| Filter {
        comms: vec![comm.to_owned()],
        ..Filter::default()
    };
    let exes = |exe: &Path| Filter {
        exes: vec!["/other".into(), exe.to_owned()],
        ..Filter::default()
    };
    assert!(Filter::default().is_empty() && finds(Filter::default()));
    assert!(finds(comms("cat")) && !finds(comms("ca")) && !finds(comms("")));
    assert!(finds(exes(&path)) && finds(exes(Path::new(name))) && !finds(exes(Path::new("/cat"))));
    let pids = |pid| Filter {
        pids: vec![pid],
        ..comms("cat")
    };
    assert!(finds(pids(pid)) && !finds(pids(1)));
}

const PLAIN: &str = r#"
#include <unistd.h>
int SSL_do_handshake(void *); int SSL_connect(void *); void SSL_free(void *); int EVP_DigestSign();
int main(int count, char **arguments) {
    char byte = 'x';
    if (count > 1) {
        int result = SSL_do_handshake(arguments);
        result += SSL_connect(arguments);
        SSL_free(arguments);
        return result + EVP_DigestSign() + 1;
    }
    write(1, &byte, 1);
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
"#;
const STILL: &str = r#"
#include <unistd.h>
int main(void) {
    char byte = 'x';
    write(1, &byte, 1);
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
"#;
