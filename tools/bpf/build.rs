//! Compiles the programs for the kernel, if there is a compiler for BPF. Without one, everything else
//! builds, and the tools that need the programs say what was missing.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=programs");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let files = ["trace", "usage"].map(|name| (name, out.join(name).with_extension("o")));
    let compiled = files.iter().try_for_each(|(name, object)| compile(name, object));
    if compiled.is_err() {
        for (_, object) in &files {
            fs::write(object, "").expect("OUT_DIR can be written");
        }
    }
    let reason = compiled.err().unwrap_or_default();
    fs::write(out.join("reason"), reason).expect("OUT_DIR can be written");
}

/// Compiles programs, or says why not.
fn compile(name: &str, object: &Path) -> Result<(), String> {
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
    let output = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"])
        // Paths of the machine that builds stay out of the program.
        .args(["-fdebug-compilation-dir=.", "-c", "-o"])
        .arg(object)
        .arg(format!("programs/{name}.bpf.c"))
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", clang.display()))?;
    if output.status.success() {
        return Ok(());
    }
    println!("cargo::warning=`trace` and eBPF in `usage` will not work: {name}.bpf.c is not compiled");
    let said = String::from_utf8_lossy(&output.stderr);
    for line in said.lines().take(5) {
        println!("cargo::warning={line}");
    }
    Err(format!("{} cannot compile for BPF", clang.display()))
}
