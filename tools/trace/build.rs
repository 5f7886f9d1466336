//! Compiles the programs for the kernel, if there is a compiler for BPF. Without one, everything else
//! builds, and `trace` says what is missing.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../bpf/programs");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rustc-check-cfg=cfg(programs)");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let reason = match compile(&out.join("trace.o")) {
        Ok(()) => {
            println!("cargo::rustc-cfg=programs");
            String::new()
        }
        Err(reason) => reason,
    };
    fs::write(out.join("reason"), reason).expect("OUT_DIR can be written");
}

/// Compiles the programs, or tells why not.
fn compile(object: &PathBuf) -> Result<(), String> {
    if env::var_os("CARGO_FEATURE_EBPF").is_none() {
        return Err("the feature `ebpf` was left out".to_owned());
    }
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
    let output = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        // Paths of the machine that builds stay out of the program.
        .args(["-fdebug-compilation-dir=.", "-c", "../bpf/programs/trace.bpf.c", "-o"])
        .arg(object)
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", clang.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    println!("cargo::warning=the programs of `trace` are not compiled, so that it will not work");
    for line in said.lines().take(5) {
        println!("cargo::warning={line}");
    }
    Err(format!("{} cannot compile for BPF", clang.display()))
}
