//! The program on CPUs that have less than AVX2: emulated by qemu, and played by `WIDELANE_CPU_DISABLE`.
//!
//! Emulation finds instructions that the compiler or a library uses without a look at CPUID. A Nehalem has
//! SSE4.2 and no AVX.

mod serving;

use std::net::SocketAddr;
use std::process::{Command, Output};

use serving::Process;
use serving::under_test::{PROGRAM, apart};

/// The feature that such a CPU lacks, in every message about it.
const LACKING: &str = "his CPU has no lanes that Widelane uses";

/// Ways to run the program as on an old CPU.
#[derive(Clone, Copy)]
enum Way {
    Emulated,
    Played,
}

/// The ways that are possible here.
fn ways() -> Vec<Way> {
    let emulator = Command::new(EMULATOR).arg("--version").output();
    match emulator.is_ok_and(|output| output.status.success()) {
        true => vec![Way::Played, Way::Emulated],
        false => {
            println!("SKIP: {EMULATOR} is not installed (Debian: qemu-user)");
            vec![Way::Played]
        }
    }
}

fn widelane(way: Way) -> Command {
    match way {
        Way::Played => {
            let mut command = serving::widelane();
            command.env("WIDELANE_CPU_DISABLE", "avx2");
            command
        }
        Way::Emulated => {
            let mut command = Command::new(EMULATOR);
            command.args(["-cpu", "Nehalem", PROGRAM]);
            command.env_remove("RUST_LOG");
            apart(command)
        }
    }
}

fn run(way: Way, arguments: &[&str]) -> Output {
    let mut command = widelane(way);
    command.args(arguments).output().expect("it starts")
}

/// Both outputs, and that it has ended by itself.
#[track_caller]
fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let said = format!("{out}{err}");
    assert!(output.status.code().is_some(), "{}: {said}", output.status);
    said
}

#[test]
fn handshakes_are_served_and_begun() {
    for way in ways() {
        let mut command = widelane(way);
        command.args(["serve", "--demo", "--listen", "127.0.0.1:0"]);
        let mut server = Process::start(&mut command);
        let line = server.line_with(LACKING);
        assert!(line.contains("AWS-LC does all public-key operations"), "{line}");
        let address: SocketAddr = server.listening();
        let address = address.to_string();
        let hybrid = ["--group", "x25519mlkem768"];
        for more in [&[][..], &hybrid] {
            let load = ["load", &address, "--insecure", "--count", "8"];
            let output = run(way, &[&load[..], more].concat());
            let said = said(&output);
            assert!(output.status.success(), "{said}");
            assert!(said.contains("errors                       0"), "{said}");
        }
        server.stop();
    }
}

#[test]
fn every_command_starts_and_says_what_is_lacking() {
    for way in ways() {
        for (arguments, expected) in [
            (&["kernels"][..], "amm52x20"),
            (&["kernels", "--measure"], LACKING),
            (&["probe", "--quick"], LACKING),
            (&["advise"], LACKING),
            (&["speed", "x25519-derive", "--seconds", "0.05"], LACKING),
            (&["status"], "no process has loaded the provider"),
            (&["setup", "nginx", "--print"], "provider"),
            (&["scan", "/bin/true"], ""),
        ] {
            let said = said(&run(way, arguments));
            assert!(said.contains(expected), "{arguments:?}: {said}");
        }
    }
}

const EMULATOR: &str = "qemu-x86_64";
