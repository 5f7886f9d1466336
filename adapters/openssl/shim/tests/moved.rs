//! A server that moves a suspended handshake to another thread, as a small program in C.

#![forbid(unsafe_code)]

mod common;

use std::process::Command;

use common::{Files, Kind, With};
use widelane_testkit::c::compile;

#[test]
fn a_suspended_handshake_cannot_be_used_on_another_thread() {
    let files = Files::new();
    files.certificate(Kind::Rsa, "rsa.test");
    let program = files.path("moved");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/moved.c");
    if compile(source, &program, &["-lssl", "-lcrypto"]).is_none() {
        return;
    }
    for with in [With::Shim, With::Imports] {
        let mut command = Command::new(&program);
        command.args([files.path("rsa.test.pem"), files.path("rsa.test.key")]);
        let ended = files.environment(&mut command, with).output();
        let ended = ended.expect("the program starts");
        match ended.status.code() {
            Some(0) => {}
            Some(77) if String::from_utf8_lossy(&ended.stderr).contains("backend aws-lc") => {
                println!("SKIP: there are no lanes here, and so no handshake waits");
            }
            _ => panic!("{with:?}: {ended:?}"),
        }
    }
}
