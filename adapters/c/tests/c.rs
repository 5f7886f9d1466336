//! A C program, compiled against the installed header and libraries as pkg-config names them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn a_c_program_runs_wide_code() {
    for tool in ["cc", "pkg-config"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return println!("SKIP: there is no {tool}");
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let root = root.expect("two levels up");
    let installed = tempfile::tempdir().expect("a temporary folder");
    let prefix = installed.path();
    let libraries = built(root);
    succeed(Command::new(root.join("packaging/install-c")).args([&libraries, prefix]));

    let flags = |more: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(["--cflags", "--libs"]).args(more).arg("widelane");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        let flags = String::from_utf8(succeed(&mut command).stdout).expect("flags are text");
        flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let archive = prefix.join("lib/libwidelane.a").display().to_string();
    let fixed = |flag: String| match flag.as_str() {
        "-lwidelane" => archive.clone(),
        _ => flag,
    };
    let shared = flags(&[]);
    let fixed: Vec<_> = flags(&["--static"]).into_iter().map(fixed).collect();
    for (name, flags) in [("shared", shared), ("static", fixed)] {
        let program = prefix.join(name);
        let source = root.join("adapters/c/tests/program.c");
        let strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"];
        succeed(
            Command::new("cc")
                .args(strict)
                .arg("-o")
                .args([&program, &source])
                .args(flags),
        );
        let cpu = last_cpu().to_string();
        for form in ["inline", "pool", "migrate"] {
            let placement = match form {
                "inline" => form.to_owned(),
                _ if only_one_cpu() => {
                    println!("SKIP: this process may use one CPU only");
                    continue;
                }
                _ => format!("{form}:{cpu}"),
            };
            let run = |configured: &str, variable: &str| {
                let mut command = Command::new(&program);
                command
                    .args([form, &cpu, configured])
                    .env("WIDELANE_RUN_WIDE", variable);
                command.env("LD_LIBRARY_PATH", prefix.join("lib"));
                assert_eq!(succeed(&mut command).stdout, b"all well\n");
            };
            run("explicit", &placement);
            run("variable", &placement);
            if form == "inline" {
                run("mistake", "everywhere");
            }
        }
    }
}

/// The folder with the libraries. Testing them does not build them. What shows the times of tests is not for
/// the compiler: it would compile all anew.
fn built(root: &Path) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let target = target.expect("it is in the target folder");
    let mut build = Command::new(env!("CARGO"));
    build.env_remove("RUSTC_BOOTSTRAP");
    build.args(["build", "--locked", "-p", "widelane-c", "--target-dir"]);
    succeed(build.arg(target).current_dir(root));
    target.join("debug")
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

fn only_one_cpu() -> bool {
    rustix::thread::sched_getaffinity(None).is_ok_and(|allowed| allowed.count() < 2)
}

fn last_cpu() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None).expect("always there");
    let mut cpus = 0..rustix::thread::CpuSet::MAX_CPU;
    cpus.rfind(|&cpu| allowed.is_set(cpu)).expect("we are somewhere")
}
