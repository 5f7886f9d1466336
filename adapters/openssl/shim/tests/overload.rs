//! A server whose queue of connections overflows, as a small program in C, with a clock of its own. A stand-in for
//! the provider attaches to the library on any CPU.

#![forbid(unsafe_code)]

mod common;

use std::process::Command;

use common::{Files, libraries};
use widelane_testkit::c::compile;

#[test]
fn an_overloaded_server_gets_clients_that_are_still_there() {
    let files = Files::new();
    let program = files.path("overload");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/overload.c");
    // The library calls the program's own functions.
    let arguments = ["-rdynamic", "-lssl", "-lcrypto", "-ldl"];
    if compile(source, &program, &arguments).is_none() {
        return;
    }
    let mut command = Command::new(&program);
    command.env_remove("OPENSSL_CONF");
    command.env("LD_PRELOAD", &libraries().shim);
    let ended = command.output().expect("the program starts");
    assert!(ended.status.success(), "{ended:?}");
}
