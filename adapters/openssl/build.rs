//! Linker options of the provider.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // OpenSSL unloads providers while the process ends, when threads may still run their code.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
