//! `widelane status` as its users see it: where no process has the provider, and with a terminator.

mod serving;

use rustix::process::Signal;
use serving::{Process, Site, connect, eventually, serve, widelane};
use std::process::{Output, Stdio};

fn status(arguments: &[&str]) -> Output {
    let mut command = widelane();
    command.arg("status").args(arguments);
    command.output().expect("it starts")
}

#[test]
fn the_exit_status_tells_what_was_found() {
    let own = std::process::id().to_string();
    let none = status(&[&own]);
    let complaint = String::from_utf8_lossy(&none.stderr);
    assert_eq!(none.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("has not loaded the provider"), "{complaint}");
    assert!(complaint.contains("widelane setup"), "{complaint}");
    assert!(none.stdout.is_empty());

    // A process without children that count.
    let other = Process::start(std::process::Command::new("sleep").arg("60"));
    let pid = other.child.id().to_string();
    for option in ["--on", "--off", "--prove"] {
        let none = status(&[option, &pid]);
        let complaint = String::from_utf8_lossy(&none.stderr);
        assert_eq!(none.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains("has no page of counters"), "{complaint}");
    }

    let missing = status(&["4294967295", "--json"]);
    let complaint = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1));
    assert!(complaint.contains("no process 4294967295"), "{complaint}");

    for wrong in [
        &["nginx"][..],
        &["0"],
        &["--json", "--prometheus"],
        &["--output", "x"],
        &["--off"],
        &["--off", "--on", "1"],
        &["--prove", "--share", "1"],
        &["--prove", "--for", "5"],
        &["--for", "60"],
        &["--share", "0.5"],
    ] {
        assert_eq!(status(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_file_for_prometheus_is_replaced_also_when_no_process_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("widelane.prom");
    std::fs::write(&file, "widelane_status_process{pid=\"1\"} 1\n").expect("writable");
    let own = std::process::id().to_string();
    let path = file.to_str().expect("text");
    let none = status(&[&own, "--prometheus", "--output", path]);
    assert_eq!(none.status.code(), Some(1));
    assert!(none.stdout.is_empty());
    let text = std::fs::read_to_string(&file).expect("it is there");
    assert!(text.ends_with("# EOF\n") && !text.contains("pid="), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 1);
    let nowhere = folder.path().join("missing/x");
    let path = nowhere.to_str().expect("text");
    let failed = status(&[&own, "--prometheus", "--output", path]);
    let complaint = String::from_utf8_lossy(&failed.stderr);
    assert!(complaint.contains("cannot write"), "{complaint}");
}

/// The terminator counts on the same page, and heeds the same switch.
#[test]
fn a_terminator_is_shown_and_switched_off_and_on() {
    let Some(target) = widelane_cpu::lanes().targets().next() else {
        println!("SKIP: this CPU has no lanes, so that there is nothing to switch off");
        return;
    };
    let site = Site::new();
    // Lanes that are named answer every request, also that of a lone handshake.
    let top = format!("[batching]\nbackend = \"{target}\"\nplacement = \"inline\"");
    let config = site.config("127.0.0.1:0", &top);
    let mut server = Process::start(widelane().arg("serve").arg("--config").arg(config));
    let address = server.listening();
    let pid = server.child.id().to_string();
    let jobs_of_a_handshake = |option: &str| {
        let before = counters(&pid);
        assert_eq!(before.proof, None);
        let switched = status(&[option, &pid]);
        assert!(switched.status.success(), "{switched:?}");
        // The counters of a terminator are copied as handshakes end, and no more than a hundred times a second.
        let mut since = before.clone();
        eventually("its counters follow", || {
            connect(address, &site.path("a.pem")).expect("a handshake");
            since = counters(&pid);
            since.jobs > before.jobs
        });
        let is_off = since.is_off;
        let (alone, in_lanes) = (since.alone - before.alone, since.in_lanes - before.in_lanes);
        assert!(since.handshakes > before.handshakes);
        (is_off, alone > 0, in_lanes > 0)
    };
    connect(address, &site.path("a.pem")).expect("a handshake");
    eventually("it counts", || counters(&pid).handshakes > 0);
    assert_eq!(jobs_of_a_handshake("--on"), (false, false, true));
    assert_eq!(jobs_of_a_handshake("--off"), (true, true, false));
    let table = String::from_utf8(status(&[&pid]).stdout).expect("text");
    assert!(table.contains(&format!("widelane serve {}", env!("CARGO_PKG_VERSION"))));
    assert!(table.contains(&format!("`widelane status --on {pid}`")), "{table}");
    assert_eq!(jobs_of_a_handshake("--on"), (false, false, true));
}

/// A signal ends a proof in the middle of a block.
#[test]
fn a_proof_that_a_signal_ends_leaves_the_switch_as_it_was() {
    if widelane_cpu::lanes().targets().next().is_none() {
        println!("SKIP: this CPU has no lanes, so that there is nothing to prove");
        return;
    }
    let site = Site::new();
    let mut server = serve(&site.config("127.0.0.1:0", ""));
    server.listening();
    let pid = server.child.id().to_string();
    for (option, is_off) in [("--off", true), ("--on", false)] {
        eventually("it has a page", || status(&[option, &pid]).status.success());
        let mut prove = widelane();
        let mut proof = Process::start(prove.args(["status", "--prove", &pid]).stdout(Stdio::null()));
        let at_work = Some("a proof is at work");
        eventually("it begins", || counters(&pid).proof.as_deref() == at_work);
        proof.signal(Signal::TERM);
        assert!(proof.wait().success());
        let after = counters(&pid);
        assert_eq!((after.is_off, after.proof.as_deref() == at_work), (is_off, false));
    }
}

#[derive(Clone)]
struct Counters {
    is_off: bool,
    proof: Option<String>,
    handshakes: u64,
    jobs: u64,
    alone: u64,
    in_lanes: u64,
}

fn counters(pid: &str) -> Counters {
    let output = status(&[pid, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let operations = json["operations"].as_array().expect("it counts");
    let sum = |name: &str| {
        let values = operations.iter().map(|one| one[name].as_u64());
        values.map(|value| value.expect("a number")).sum()
    };
    Counters {
        is_off: json["switched_off"] == true,
        proof: json["proof"].as_str().map(str::to_owned),
        handshakes: json["signatures_of_handshakes"].as_u64().expect("a number"),
        jobs: sum("jobs"),
        alone: sum("alone"),
        in_lanes: sum("lanes_filled"),
    }
}
