//! Two ways to make probes: many by one call of the system, or one by one on older kernels.

use std::collections::HashSet;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Client, Nginx, Tracer, alone, eventually, installed, kernels, probed_bytes};

/// Kernels before Linux 6.6 have no multi-probes. This sees in short what the other tests see of them.
#[test]
fn probes_that_are_made_one_by_one_tell_the_same() {
    let _alone = alone();
    let nginx = match kernels().and_then(|()| Nginx::start()) {
        Ok(nginx) => nginx,
        Err(why) => return println!("SKIP: {why}"),
    };
    let mut command = crate::under_test::widelane();
    command.env("WIDELANE_TRACE_PROBES", "single");
    command.args(["trace", "handshakes", "--json", "--pid", &nginx.pids()]);
    let mut tracer = match Tracer::run(&mut command) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    assert_eq!(multi_probes(&tracer), 0);
    let worker = nginx.worker();
    assert!(probed_bytes(worker) > 0, "it is not traced");
    Client::to(nginx.port).run(&["-groups", "X25519"]);
    eventually("the handshake is printed", || {
        tracer.has_told(|line| {
            let functions = line["functions"].as_array().unwrap();
            let signed = functions.iter().any(|one| one["name"] == "rsa-2048 sign");
            line["pid"] == worker && line["group"] == "x25519" && signed
        })
    });
    tracer.end(Signal::KILL);
    Client::to(nginx.port).run(&[]);
    assert_eq!(probed_bytes(worker), 0);
}

/// A client that is done ten milliseconds after its start gets its probes before it has loaded what they
/// stand in: what others with its program had is known.
#[test]
fn clients_that_end_at_once_are_told() {
    let _alone = alone();
    let can = kernels().and_then(|()| multi_probes_are_known());
    let can = can.and_then(|()| installed(&["/usr/bin/curl"]));
    let nginx = match can.and_then(|()| Nginx::start()) {
        Ok(nginx) => nginx,
        Err(why) => return println!("SKIP: {why}"),
    };
    let both = ["--comm", "nginx", "--comm", "curl"];
    let mut tracer = match Tracer::start(&[&["handshakes", "--json"], &both[..]].concat()) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    assert!(multi_probes(&tracer) > 0, "nginx is traced in the old way");
    // Machines that test much at the same time keep the tracer waiting. Of probes that are made one by
    // one, none is there in time.
    eventually("at least eight clients of ten in a row are printed", || {
        let clients: HashSet<u32> = (0..10).map(|_| curl(nginx.port)).collect();
        // They are printed within the pause of the tracer.
        thread::sleep(Duration::from_millis(500));
        let is_told = |pid: &&u32| tracer.has_told(|line| is_of_client(line, **pid));
        clients.iter().filter(is_told).count() >= 8
    });
    tracer.end(Signal::INT);
}

/// Its number, when it has ended.
fn curl(port: u16) -> u32 {
    let mut client = Command::new("/usr/bin/curl")
        .args(["-sk", &format!("https://127.0.0.1:{port}/")])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(client.wait().unwrap().success());
    client.id()
}

fn is_of_client(line: &Value, pid: u32) -> bool {
    line["pid"] == pid && line["side"] == "client" && line["result"] == "ok"
}

/// The error says that the kernel has none, or none that see all threads of a process.
fn multi_probes_are_known() -> Result<(), String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|one| one.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    match version >= (6, 10) {
        true => Ok(()),
        false => Err(format!("Linux {} is older than 6.10", release.trim())),
    }
}

/// Number of links of multi-probes that a tracer has.
fn multi_probes(tracer: &Tracer) -> usize {
    let folder = fs::read_dir(format!("/proc/{}/fdinfo", tracer.id())).unwrap();
    let infos = folder.flatten().map(|file| fs::read_to_string(file.path()));
    let infos = infos.map(Result::unwrap_or_default);
    infos.filter(|info| info.contains("uprobe_multi")).count()
}
