//! Servers that suspend handshakes on stacks of their own, beside others with the same libraries.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::support::{Nginx, Running, Tracer, alone, compile, load, make_certificate};

/// A probe of the kernel for the returns of a plain server's functions would change the stacks of all processes that
/// meet a probe of the same function.
#[test]
fn suspended_handshakes_end_beside_a_plain_server() {
    let _alone = alone();
    let nginx = match Nginx::start() {
        Ok(nginx) => nginx,
        Err(why) => return println!("SKIP: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let libraries = ["-l:libssl.so.3", "-l:libcrypto.so.3"];
    let made = make_certificate(folder.path());
    let program = match made.and_then(|()| compile(SUSPENDING, folder.path(), &libraries)) {
        Ok(program) => program,
        Err(why) => return println!("SKIP: {why}"),
    };
    let mut child = Command::new(program)
        .args(["certificate", "key"].map(|name| folder.path().join(name)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut suspending = Running(child);
    from.read_exact(&mut [0]).expect("it has loaded its libraries");
    let pid = suspending.id();
    let pids = format!("{},{pid}", nginx.pids());
    let tracer = match Tracer::start(&["handshakes", "--json", "--pid", &pids]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    let worker = nginx.worker();
    load(nginx.port, 20);
    to.write_all(b"x").unwrap();
    load(nginx.port, 20);
    let ended = suspending.0.wait().unwrap();
    assert!(ended.success(), "the server that suspends handshakes: {ended}");
    assert_eq!(nginx.worker(), worker, "the plain server's worker has died");
    let told = tracer.objects();
    let complete = |pid: u32| {
        let is_so = |line: &&serde_json::Value| line["pid"] == pid && line["result"] == "ok";
        told.iter().filter(is_so).count()
    };
    assert_eq!(complete(worker), 40);
    // Eight in each of 25 rounds, and both of their sides.
    assert_eq!(complete(pid), 400);
}

const SUSPENDING: &str = include_str!("stacks.c");
