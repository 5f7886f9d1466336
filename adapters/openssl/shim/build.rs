//! Linker options of the library.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Handshakes may be suspended in its code while the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Its own stand-ins are what it puts into imports, even where it comes behind OpenSSL.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // A mistake that the tests of the library must find (`tests/uses.rs`); no package sets it.
    println!("cargo::rerun-if-env-changed=WIDELANE_PLANTED_FAULT");
    println!("cargo::rustc-check-cfg=cfg(planted_fault, values(\"handshake\", \"connection\"))");
    if let Ok(fault) = std::env::var("WIDELANE_PLANTED_FAULT") {
        println!("cargo::rustc-cfg=planted_fault=\"{fault}\"");
    }
}
