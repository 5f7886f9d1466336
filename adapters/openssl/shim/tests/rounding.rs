//! nginx that rounds in its own way and takes signals at floating-point exceptions, with lanes that multiply by
//! floating-point numbers.

#![forbid(unsafe_code)]

mod common;

use common::client::Wish;
use common::nginx::{BAD, KINDS, nginx_after, nginx_files, servers_of_each_kind};
use common::sanitizer;
use widelane_testkit::c::compile;

#[test]
fn handshakes_leave_the_rounding_of_the_worker_alone() {
    let Some(files) = nginx_files() else { return };
    if sanitizer().is_some() {
        return println!("SKIP: the sanitizer's own library computes with floating-point numbers");
    }
    let library = files.path("rounding.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rounding.c");
    if compile(source, &library, &["-shared", "-fPIC", "-ldl", "-lm"]).is_none() {
        return;
    }
    let blocks = servers_of_each_kind(&files);
    let http = format!("ssl_session_cache off; ssl_session_tickets off; {blocks}");
    let library = library.display();
    let before = format!("export WIDELANE_CPU_DISABLE=avx512f LD_PRELOAD=\"$LD_PRELOAD {library}\"");
    let server = nginx_after(files, &before, &http);
    assert!(server.log().contains("rounds upwards"), "{}", server.log());
    if !server.log().contains("backend avx2") {
        return println!("SKIP: this CPU has no AVX2 and FMA");
    }
    let worker = server.process().only_child();
    let client = Wish::default().client(&server.files);
    common::load(32, 400, |i| {
        let (_, name) = KINDS[i % KINDS.len()];
        client.expect(server.address, name, "/", name).map(drop)
    });
    // The same worker, which no signal has ended.
    assert_eq!(server.process().only_child().0, worker.0);
    server.assert_log_without(BAD);
    server.assert_log_without(&["MXCSR", "signal 8"]);
}
