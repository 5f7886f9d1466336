//! Linker options of the library.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Handshakes may be suspended in its code while the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Its own stand-ins are what it puts into imports, even where it comes behind OpenSSL.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
