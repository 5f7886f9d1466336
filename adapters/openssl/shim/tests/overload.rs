//! A server whose queue of connections overflows, as a small program in C, with a clock of its own. A stand-in for
//! the provider attaches to the library on any CPU.

#![forbid(unsafe_code)]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Files, libraries};

#[test]
fn an_overloaded_server_gets_clients_that_are_still_there() {
    if !Path::new("/usr/include/openssl/ssl.h").exists() {
        return println!("SKIP: OpenSSL's headers are not installed (Debian: libssl-dev)");
    }
    let files = Files::new();
    let program = files.path("overload");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/overload.c");
    let built = Command::new("cc")
        // The library calls the program's own functions.
        .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic", "-o"])
        .arg(&program)
        .args([source, "-lssl", "-lcrypto", "-ldl"])
        .output()
        .expect("a C compiler");
    assert!(built.status.success(), "{built:?}");
    let mut command = Command::new(&program);
    command.env_remove("OPENSSL_CONF");
    command.env("LD_PRELOAD", &libraries().shim);
    let ended = command.output().expect("the program starts");
    assert!(ended.status.success(), "{ended:?}");
}
