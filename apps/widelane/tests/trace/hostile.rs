//! Programs and files that may try to harm the tracer.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Client, Running, Tracer, alone, compile, eventually, kernels, make_certificate, openssl_server};

/// A name that would erase the screen stays a name: in the table and in JSON.
#[test]
fn names_with_control_characters_steer_no_terminal() {
    let _alone = alone();
    const NAME: &str = "\u{1b}[2J\"evil\n";
    let folder = tempfile::tempdir().unwrap();
    let (server, port) = match named_server(folder.path(), NAME) {
        Ok(server) => server,
        Err(why) => return println!("SKIP: {why}"),
    };
    for view in [
        &["handshakes"][..],
        &["handshakes", "--json"],
        &["snoop"],
        &["snoop", "--json"],
    ] {
        let pid = server.pid();
        let tracer = match Tracer::start(&[view, &["--pid", &pid]].concat()) {
            Ok(tracer) => tracer,
            Err(why) => return println!("SKIP: {why}"),
        };
        Client::to(port).run(&[]);
        let lines = tracer.lines();
        assert!(lines.iter().any(|line| line.contains("evil")), "{view:?}: {lines:#?}");
        let control = |line: &String| line.chars().any(char::is_control);
        assert!(!lines.iter().any(control), "{view:?}: {lines:#?}");
    }
}

/// A library that is replaced while it is traced: the process keeps the old one, and a new process has the
/// new one.
#[test]
fn a_program_that_is_replaced_goes_on_being_traced() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (server, port) = match named_server(folder.path(), "replaced") {
        Ok(server) => server,
        Err(why) => return println!("SKIP: {why}"),
    };
    let program = folder.path().join("replaced");
    let mut tracer = match Tracer::start(&["handshakes", "--json", "--comm", "replaced"]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    Client::to(port).run(&[]);
    let new = folder.path().join("new");
    fs::write(&new, b"\x7fELF and nothing else").unwrap();
    fs::rename(&new, &program).unwrap();
    Client::to(port).run(&[]);
    copy_openssl(&new).unwrap();
    fs::rename(&new, &program).unwrap();
    let (second, other) = openssl_server(&program, folder.path());
    eventually("the new process is traced", || {
        Client::to(other).run(&[]);
        tracer.has_told(|line| line["pid"] == second.id())
    });
    Client::to(port).run(&[]);
    let lines = tracer.objects();
    let of_first = lines.iter().filter(|line| line["pid"] == server.id());
    assert_eq!(of_first.count(), 3, "{lines:#?}");
}

/// Without a file or number of processes that the tracer keeps, it would need memory for each.
#[test]
fn thousands_of_processes_come_and_go() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (server, port) = match kernels().and_then(|()| named_server(folder.path(), "openssl")) {
        Ok(server) => server,
        Err(why) => return println!("SKIP: {why}"),
    };
    let many = match compile(MANY, folder.path(), &[]) {
        Ok(program) => program,
        Err(why) => return println!("SKIP: {why}"),
    };
    let chosen = ["--comm", "openssl", "--comm", "program"];
    let mut tracer = match Tracer::start(&[&["handshakes", "--json"], &chosen[..]].concat()) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    let come_and_go = || {
        let status = Command::new(&many).arg("2000").status().unwrap();
        assert!(status.success(), "{status}");
    };
    come_and_go();
    let before = tracer.memory();
    for _ in 0..4 {
        come_and_go();
    }
    let after = tracer.memory();
    assert!(after < before + 4096, "{before} KiB, then {after} KiB");
    eventually("the server is still traced", || {
        Client::to(port).run(&[]);
        tracer.has_told(|line| line["pid"] == server.id() && line["result"] == "ok")
    });
}

/// `openssl s_server` under a name of its own.
fn named_server(folder: &Path, name: &str) -> Result<(Running, u16), String> {
    make_certificate(folder)?;
    let program = folder.join(name);
    copy_openssl(&program).map_err(|error| format!("/usr/bin/openssl: {error}"))?;
    Ok(openssl_server(&program, folder))
}

fn copy_openssl(to: &Path) -> std::io::Result<()> {
    fs::copy("/usr/bin/openssl", to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))
}

/// Starts so many processes, each of which ends at once; forty live at a time.
const MANY: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments)
{
    int left = atoi(arguments[1]);
    for (int alive = 0; left > 0 || alive > 0;) {
        if (left > 0 && alive < 40) {
            if (!fork()) {
                usleep(10000);
                _exit(0);
            }
            left--;
            alive++;
        } else if (wait(0) > 0) {
            alive--;
        }
    }
}
"#;
