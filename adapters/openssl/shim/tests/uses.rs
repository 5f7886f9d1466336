//! Programs in C that use libssl in ways that are allowed and unusual, with and without the library: both see
//! the same. A stand-in for the provider suspends handshakes on any CPU, as a last plan in every call of libssl's to
//! libcrypto in which a provider could wait, and in more.

#![forbid(unsafe_code)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use common::{Files, libraries, sanitizer};
use widelane_testkit::c::compile_by;

/// Places where handshakes are suspended, and the version of TLS.
const PLANS: [(&str, &str); 5] = [
    ("cert", "1.3"),
    ("all", "1.3"),
    ("all", "1.2"),
    ("every", "1.3"),
    ("every", "1.2"),
];

#[test]
fn programs_see_the_same_with_and_without_the_library() {
    let files = Files::new();
    let Some(program) = build(&files) else { return };
    let listed = run(&files, &program, &[], None);
    let names = listed.lines().skip(1);
    let names: Vec<_> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 80, "{names:?}");
    let runs: Vec<_> = names
        .iter()
        .flat_map(|name| PLANS.map(|(points, version)| [*name, points, version]))
        .collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        // They mostly wait.
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(arguments) = runs.get(next.fetch_add(1, Relaxed)) {
                    let plain = run(&files, &program, arguments, None);
                    let with = run(&files, &program, arguments, Some(&libraries().shim));
                    if plain != with || !plain.starts_with("exit status: 0\n") {
                        let line = format!("{arguments:?}\nwithout: {plain}\nwith: {with}");
                        wrong.lock().expect("no panic").push(line);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Libraries that are built with a mistake each: one uses its own memory after it is freed, the other one goes on with
/// connections that OpenSSL has freed.
#[test]
fn mistakes_are_found() {
    let Some(folder) = std::env::var_os("WIDELANE_ASAN_PLANTED") else {
        return println!("SKIP: only a sanitizer finds them (.ci/scripts/sanitized-shim)");
    };
    let files = Files::new();
    let Some(program) = build(&files) else { return };
    let (of_a_sanitizer, of_the_program) = ("heap-use-after-free", "not so: epoll_wait");
    for (fault, name, finding) in [
        ("handshake", "plain", of_a_sanitizer),
        ("connection", "freed_past_the_library", of_the_program),
    ] {
        let library = Path::new(&folder).join(format!("{fault}.so"));
        for (points, version) in PLANS {
            let said = run(&files, &program, &[name, points, version], Some(&library));
            let is_found = !said.starts_with("exit status: 0\n") && said.contains(finding);
            assert!(is_found, "{fault} at {points} with {version}: {said}");
        }
    }
}

fn build(files: &Files) -> Option<PathBuf> {
    let program = files.path("uses");
    let (compiler, more) = match sanitizer() {
        Some(_) => ("clang", &["-fsanitize=address", "-shared-libasan"][..]),
        None => ("cc", &[][..]),
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/uses/uses.c");
    let arguments = [more, &["-lssl", "-lcrypto", "-ldl"]].concat();
    compile_by(compiler, source, &program, &arguments)?;
    // By its name alone it is a language's runtime.
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/uses/late.c");
    let library = files.path("libguile-0.so");
    compile_by(compiler, source, &library, &["-shared", "-fPIC"])?;
    Some(program)
}

/// Runs the program; returns how it ends, and its whole output.
fn run(files: &Files, program: &Path, arguments: &[&str], library: Option<&Path>) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("OPENSSL_CONF");
    let mut preloaded = Vec::from_iter(sanitizer());
    preloaded.extend(library.map(Path::to_path_buf));
    let preloaded = preloaded.iter().map(|path| path.display().to_string());
    command.env("LD_PRELOAD", Vec::from_iter(preloaded).join(" "));
    if sanitizer().is_some() {
        // OpenSSL is not instrumented: pointers in memory that is freed lead nowhere.
        command.env(
            "ASAN_OPTIONS",
            "detect_leaks=0:max_free_fill_size=65536:free_fill_byte=219",
        );
    }
    let ended = command.current_dir(files.path("")).output();
    let ended = ended.expect("the program starts");
    // The sanitizer says, with the number of the process, that it does not know OpenSSL's own stacks.
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines = said.lines().filter(|line| !line.contains("__asan_handle_no_return"));
    format!("{}\n{}", ended.status, Vec::from_iter(lines).join("\n"))
}
