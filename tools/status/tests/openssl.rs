//! Real processes with the provider: OpenSSL's test server, and nginx for a fork.

mod server;

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use server::{folder, shake_hands, start, with_provider};
use widelane_status_tool::proof::World;
use widelane_status_tool::{Asked, BadPage, InProof, Living, Proved, Report, State, StatusError, now, process, survey};
use widelane_testkit::process::{Process, Running};
use widelane_testkit::wait::until;
use widelane_testkit::{servers, skip};

#[test]
fn a_server_counts_and_its_figures_are_read_while_it_runs() {
    let Some(folder) = folder() else { return };
    let server = start(&folder);
    let pid = server.running.id();
    for _ in 0..3 {
        shake_hands(server.address);
    }
    let Some(report) = counts(pid) else { return };
    assert_eq!(report.facts.provider, env!("CARGO_PKG_VERSION"));
    assert!(report.facts.openssl.starts_with('3'), "{report:?}");
    assert!(!report.facts.suspends);
    if report.facts.backend == "aws-lc" {
        println!("SKIP: this CPU has no lanes, so that OpenSSL signs by itself");
    } else {
        // OpenSSL makes the first signature with a key.
        for (name, jobs) in [("rsa2048-sign", 2), ("x25519", 3)] {
            let rows = report.operations.iter().filter(|row| row.name.contains(name));
            let done: u64 = rows.map(|row| row.totals.jobs).sum();
            assert!(done >= jobs, "{name}: {report:#?}");
        }
    }
    let found = survey().unwrap();
    assert!(found.processes.iter().any(|process| process.pid == pid));

    // What another process would do with the page.
    let page = Page::of(pid);
    let layout = page.read(8);
    page.write(8, &2_u32.to_ne_bytes());
    let older = widelane_status_tool::Server::of(pid).unwrap_err();
    assert!(older.to_string().contains("layout 2"), "{older}");
    page.write(8, &layout);
    page.write(12, &u32::MAX.to_ne_bytes());
    assert!(matches!(state(pid), State::Inherited(_)));
    page.write(0, b"?");
    assert_eq!(state(pid), State::Damaged(BadPage::NoPage));
}

/// An operator takes lanes from a living server and gives them back.
#[test]
fn a_server_is_switched_off_and_on() {
    let Some(folder) = folder() else { return };
    let running = start(&folder);
    let pid = running.running.id();
    for _ in 0..3 {
        shake_hands(running.address);
    }
    let Some(before) = counts(pid) else { return };
    if before.facts.backend == "aws-lc" {
        println!("SKIP: this CPU has no lanes, so that there is nothing to switch off");
        return;
    }
    let switch = widelane_status_tool::Server::of(pid).unwrap();
    assert_eq!(switch.processes(), (vec![pid], "openssl"));
    switch.can_be_proved().unwrap();
    // Handshakes, and what lanes and their code for one did of them.
    let done = || {
        let before = counts(pid).unwrap();
        for _ in 0..2 {
            shake_hands(running.address);
        }
        let after = counts(pid).unwrap();
        assert_eq!(after.signed_times.total(), after.signed);
        assert_eq!(after.agreed_times.total(), after.agreed);
        let jobs = |report: &Report| -> u64 {
            let jobs = report.operations.iter().map(|one| one.totals.jobs);
            jobs.sum()
        };
        assert_eq!(after.agreed - before.agreed, 2);
        (after.signed - before.signed, jobs(&after) - jobs(&before))
    };
    let is_busy = || {
        let server = widelane_status_tool::Server::of(pid).unwrap();
        let busy = server.can_be_proved().err();
        busy.is_some_and(|busy| busy.to_string().contains("being proved"))
    };
    // A key, an agreement and a signature each; or OpenSSL does all of it.
    let jobs = |asked| match asked {
        Asked::On => (2, 6),
        Asked::Off => (2, 0),
    };
    for operator in [Asked::On, Asked::Off, Asked::On] {
        switch.ask(operator).unwrap();
        assert_eq!(counts(pid).unwrap().operator, operator);
        assert_eq!((done(), is_busy()), (jobs(operator), false));
        for asked in [Asked::Off, Asked::On] {
            let living = || Living {
                server: widelane_status_tool::Server::of(pid).unwrap(),
                ended_before: |_| false,
            };
            let mut proof = living();
            let until = now() + Duration::from_secs(300);
            proof.ask(InProof { asked, until }).unwrap();
            assert_eq!((done(), is_busy()), (jobs(asked), true));
            proof.restore();
            assert_eq!((done(), is_busy()), (jobs(operator), false));
            // Left behind by a program that was killed.
            living().ask(InProof { asked, until: now() }).unwrap();
            assert_eq!((done(), is_busy()), (jobs(operator), false));
        }
    }
    let proved = Proved {
        ended: now(),
        ..Proved::default()
    };
    switch.note(proved).unwrap();
    assert_eq!(counts(pid).unwrap().proved, proved);
    assert!(!switch.tells_kinds());
}

#[test]
fn who_cannot_be_switched_is_named_with_the_reason() {
    let said = |pid| {
        let server = widelane_status_tool::Server::of(pid);
        server.unwrap_err().to_string()
    };
    assert_eq!(said(u32::MAX), "there is no process 4294967295");
    // Not this process, whose children are the servers of other tests.
    let other = Running::start(Command::new("sleep").arg("60"));
    let none = said(other.id());
    assert!(none.contains("has not loaded the provider"), "{none}");
}

#[test]
fn a_worker_that_did_nothing_has_the_page_of_its_parent() {
    let Some(folder) = folder() else { return };
    if skip::installed("nginx").is_none() {
        return;
    }
    let path = folder.path("").display().to_string();
    let server = format!(
        "server {{ listen unix:{path}/socket ssl;\n\
         ssl_certificate {path}/certificate; ssl_certificate_key {path}/key; }}"
    );
    let main = "env OPENSSL_CONF; env STATE_DIRECTORY;";
    let config = servers::nginx(folder.as_ref(), main, &server);
    let mut command = with_provider("nginx", &folder);
    let nginx = Running::start(command.args(["-e", "stderr", "-c"]).arg(config));
    let master = nginx.id();
    let worker = nginx.process().only_child().0.cast_unsigned();
    let Some(of_master) = counts(master) else {
        return;
    };
    assert_eq!(of_master.process, master);
    match process(worker).map(|found| found.map(|found| found.state)) {
        Ok(Some(State::Inherited(report))) => {
            assert_eq!(report, of_master);
            let alone = widelane_status_tool::Server::of(worker).unwrap_err().to_string();
            assert!(alone.contains("it follows its parent"), "{alone}");
            let both = widelane_status_tool::Server::of(master).unwrap();
            assert_eq!(both.processes().0, [master]);
        }
        // As root, nginx gives its workers another user.
        Err(StatusError::NotAllowed { .. }) | Ok(Some(State::NotAllowed)) => {
            println!("SKIP: root may not look at processes of other users here");
        }
        other => panic!("{other:?}"),
    }
}

/// What counts in a process once it does; `None` if this user may not see it.
fn counts(pid: u32) -> Option<Report> {
    // Counters are written after the answers.
    sleep(Duration::from_millis(50));
    let found = until("its page", || process(pid).ok().flatten());
    match found.state {
        State::Counts(report) => Some(report),
        State::NotAllowed => {
            println!("SKIP: this user may not read the memory of other processes");
            None
        }
        other => panic!("{other:?}"),
    }
}

fn state(pid: u32) -> State {
    process(pid).unwrap().unwrap().state
}

/// Where a process has its page.
struct Page(fs::File, u64);

impl Page {
    fn of(pid: u32) -> Self {
        let (memory, start) = Process(pid.cast_signed()).page().unwrap();
        Self(memory, start)
    }

    fn read(&self, at: u64) -> [u8; 4] {
        let mut word = [0; 4];
        self.0.read_exact_at(&mut word, self.1 + at).unwrap();
        word
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.0.write_all_at(bytes, self.1 + at).unwrap();
    }
}
