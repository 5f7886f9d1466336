//! How the preloaded library is linked.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Handshakes may be suspended in its code while the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
