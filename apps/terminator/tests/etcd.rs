//! Ticket keys from a real etcd, of one member: three servers resume each other's sessions, while the value is
//! damaged and etcd is away.

#![cfg(feature = "etcd")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use rustls::{ClientConfig, HandshakeKind};
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};
use widelane_terminator::{Config, Etcd, SecretFile, Server, make_etcd_key};

/// An etcd of one member, which ends with the test.
struct Member {
    directory: TempDir,
    ports: [u16; 2],
    /// Files of its certificate and key, and of the authority: it speaks TLS.
    tls: Option<[PathBuf; 3]>,
    running: Option<Child>,
}

impl Member {
    fn new() -> Option<Self> {
        Self::with(None)
    }

    fn with(tls: Option<[PathBuf; 3]>) -> Option<Self> {
        for program in ["etcd", "etcdctl"] {
            if !installed(program) {
                println!("SKIP: {program} is not installed");
                return None;
            }
        }
        let mut member = Self {
            directory: tempfile::tempdir().expect("a directory"),
            ports: [free_port(), free_port()],
            tls,
            running: None,
        };
        member.start();
        Some(member)
    }

    fn endpoint(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
    }

    fn start(&mut self) {
        let peer = format!("http://127.0.0.1:{}", self.ports[1]);
        let mut command = Command::new("etcd");
        command
            .args(["--name", "one", "--data-dir"])
            .arg(self.directory.path())
            .args(["--listen-client-urls", &self.endpoint()])
            .args(["--advertise-client-urls", &self.endpoint()])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some([cert, key, _]) = &self.tls {
            command.arg("--cert-file").arg(cert);
            command.arg("--key-file").arg(key);
        }
        self.running = Some(command.spawn().expect("it starts"));
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn is_healthy(&self) -> bool {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3");
        command.args(["--endpoints", &self.endpoint()]);
        if let Some([_, _, authority]) = &self.tls {
            command.arg("--cacert").arg(authority);
        }
        let output = command.args(["endpoint", "health"]).output();
        output.expect("it starts").status.success()
    }

    fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3");
        command.args(["--endpoints", &self.endpoint()]);
        let output = command.args(arguments).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// One of its metrics.
    fn count(&self, name: &str) -> u64 {
        let mut client = TcpStream::connect(("127.0.0.1", self.ports[0])).expect("a connection");
        // It closes at the end of an answer of this version.
        write!(client, "GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
        let mut page = String::new();
        client.read_to_string(&mut page).expect("a page");
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|value| value.trim().parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{page}")) as u64
    }
}

/// A port that no other member has, below those that the kernel gives to sockets that ask for any: no other
/// socket takes it while the member is away.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(23_790);
    loop {
        let port = NEXT.fetch_add(1, Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop();
    }
}

fn with_keys_of(etcd: Etcd, files: &Files) -> Config {
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    one.tickets.rotation = Duration::from_secs(30);
    one.tickets.etcd = Some(etcd);
    config(vec![one])
}

fn kind(address: SocketAddr, client: &Arc<ClientConfig>) -> HandshakeKind {
    let mut stream = connect(address, "a.example", client).expect("TLS");
    ping(&mut stream).expect("an answer");
    let kind = stream.conn.handshake_kind().expect("a handshake");
    finish(&mut stream).expect("an orderly end");
    kind
}

/// A session of each server resumes on each.
fn all_resume(servers: &[Server]) -> bool {
    servers.iter().all(|first| {
        let client = Wish::default().config();
        kind(first.addresses()[0], &client);
        servers
            .iter()
            .all(|other| kind(other.addresses()[0], &client) == HandshakeKind::Resumed)
    })
}

fn gauge(server: &Server, name: &str) -> u64 {
    metric(server, &format!("{name}{{prefix=\"/widelane/tickets\"}}"))
}

#[test]
fn servers_resume_each_others_sessions_whatever_happens_to_etcd() {
    let Some(mut member) = Member::new() else {
        return;
    };
    let files = Files::new();
    let key = etcd_key(&files);
    let etcd = || Etcd::new(vec![member.endpoint()], SecretFile::File(key.clone()));
    let servers: Vec<_> = (0..3)
        .map(|_| start(&with_keys_of(etcd(), &files)))
        .collect();
    eventually("keys of etcd encrypt", || {
        servers
            .iter()
            .all(|one| gauge(one, "widelane_tickets_etcd_own") == 0)
    });
    eventually("all resume", || all_resume(&servers));
    let holders: u64 = servers
        .iter()
        .map(|one| gauge(one, "widelane_tickets_etcd_holder"))
        .sum();
    assert_eq!(holders, 1);

    // A damaged value: all go on, and the one that writes puts it right.
    member.ctl(&["put", "/widelane/tickets/keys", "damaged"]);
    assert!(all_resume(&servers));
    eventually("the value is right again", || {
        member
            .ctl(&["get", "/widelane/tickets/keys", "-w", "json"])
            .len()
            > 300
    });
    assert!(all_resume(&servers));

    // Another key file: it is not written over, and serves with keys of its own.
    let other = files.path("other.key");
    make_etcd_key(&other).expect("a key");
    let wrong = Etcd::new(vec![member.endpoint()], SecretFile::File(other));
    let stranger = start(&with_keys_of(wrong, &files));
    assert_eq!(gauge(&stranger, "widelane_tickets_etcd_current"), 0);
    assert_eq!(gauge(&stranger, "widelane_tickets_etcd_own"), 1);
    let client = Wish::default().config();
    kind(stranger.addresses()[0], &client);
    assert_eq!(
        kind(stranger.addresses()[0], &client),
        HandshakeKind::Resumed
    );
    drop(stranger);

    // No etcd: it is told, and nothing else changes.
    member.stop();
    eventually("it is noticed", || {
        servers
            .iter()
            .all(|one| gauge(one, "widelane_tickets_etcd_current") == 0)
    });
    assert!(all_resume(&servers));
    member.start();
    eventually("it is there again", || {
        servers
            .iter()
            .all(|one| gauge(one, "widelane_tickets_etcd_current") == 1)
    });
    assert!(all_resume(&servers));

    // The one that writes gives its lease back when it ends, so that another writes at once.
    drop(servers);
    assert_eq!(member.ctl(&["get", "/widelane/tickets/holder"]), "");
}

/// The messages of this thread's log.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<String>>);

impl Visit for Told {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        let mut text = self.0.lock().expect("no panic");
        text.push_str(&format!("{value:?}\n"));
    }
}

impl tracing::Subscriber for Told {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What a check says of this etcd must have all of these parts.
fn is_told(what: &str, etcd: Etcd, files: &Files, parts: &[&str]) {
    let told = Told::default();
    let config = with_keys_of(etcd, files);
    tracing::subscriber::with_default(told.clone(), || {
        Server::check(&document(&config)).expect("only a warning");
    });
    let told = told.0.lock().expect("no panic");
    for part in parts {
        assert!(told.contains(part), "{what}: no {part:?} in {told}");
    }
}

#[test]
fn what_a_real_etcd_answers_is_told_with_its_remedy() {
    let files = Files::new();
    let key = etcd_key(&files);
    let at = |endpoint: String| Etcd::new(vec![endpoint], SecretFile::File(key.clone()));
    let (right, wrong) = (files.path("ca.pem"), files.path("other.pem"));
    let authority = Authority::new("authority", &right);
    Authority::new("another authority", &wrong);
    let server = authority.server(&["127.0.0.1"], 10);
    let tls = [files.path("e.pem"), files.path("e.key")];
    std::fs::write(&tls[0], server.pem).expect("written");
    std::fs::write(&tls[1], server.key_pem).expect("written");
    let [cert, own] = tls;
    let Some(plain) = Member::new() else { return };
    let secure = Member::with(Some([cert, own, right.clone()])).expect("it is installed");
    eventually("both serve", || plain.is_healthy() && secure.is_healthy());

    let with_user = |user: &str, password: &str| {
        let file = files.path("password");
        write_secret(&file, password);
        let mut etcd = at(plain.endpoint());
        etcd.user = Some(user.into());
        etcd.password_file = Some(SecretFile::File(file));
        etcd
    };
    let no_users = ["has no users", "etcdctl auth enable"];
    is_told("no users", with_user("app", "right"), &files, &no_users);
    for arguments in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "app:right"],
        &["auth", "enable"],
    ] {
        plain.ctl(arguments);
    }
    let parts = ["refuses the password of user `app`", "`password_file`"];
    is_told(
        "a wrong password",
        with_user("app", "wrong"),
        &files,
        &parts,
    );
    is_told(
        "an unknown user",
        with_user("none", "right"),
        &files,
        &["user `none`"],
    );
    let parts = [
        "gives user `app` too few rights",
        "etcdctl role grant-permission",
    ];
    is_told("no rights", with_user("app", "right"), &files, &parts);
    is_told(
        "no user",
        at(plain.endpoint()),
        &files,
        &["wants a user", "set `user`"],
    );

    let with_ca = |endpoint: String, ca: &PathBuf| {
        let mut etcd = at(endpoint);
        etcd.ca = Some(ca.clone());
        etcd
    };
    let parts = [
        "an authority that is not in the file `ca`",
        "put the authority",
    ];
    is_told(
        "a wrong CA",
        with_ca(secure.endpoint(), &wrong),
        &files,
        &parts,
    );
    let parts = ["does not speak TLS", "write http://"];
    let as_tls = plain.endpoint().replace("http:", "https:");
    is_told("TLS to plaintext", with_ca(as_tls, &right), &files, &parts);
    let parts = ["if it speaks TLS", "write https://"];
    let as_plain = secure.endpoint().replace("https:", "http:");
    is_told("plaintext to TLS", at(as_plain), &files, &parts);
}

#[test]
fn names_of_others_below_the_prefix_do_not_matter() {
    let Some(member) = Member::new() else { return };
    eventually("it serves", || member.is_healthy());
    let others = || {
        for number in 0..20 {
            member.ctl(&["put", &format!("/widelane/tickets/app/{number}"), "other"]);
        }
    };
    others();
    let files = Files::new();
    let etcd = Etcd::new(vec![member.endpoint()], SecretFile::File(etcd_key(&files)));
    let server = start(&with_keys_of(etcd, &files));
    eventually("its names are found behind those of others", || {
        gauge(&server, "widelane_tickets_etcd_holder") == 1
    });
    assert_eq!(gauge(&server, "widelane_tickets_etcd_current"), 1);
    let told = "etcd_debugging_mvcc_events_total";
    let before = member.count(told);
    others();
    let after = member.count(told);
    assert!(after - before < 20, "it is told of changes of others");
}

#[test]
fn an_instance_that_may_not_write_has_one_fault_and_leaves_no_leases() {
    may_not_write(&[], 1);
}

/// It holds what only one may hold, with a lease, and each lease of a refused write is given back.
#[test]
fn an_instance_that_may_only_claim_leaves_no_leases() {
    may_not_write(&["holder"], 2);
}

/// An instance may write these entries only, and there are so many leases at most.
fn may_not_write(but: &[&str], most: usize) {
    let Some(member) = Member::new() else { return };
    let files = Files::new();
    eventually("it serves", || member.is_healthy());
    for arguments in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "reads"],
        &[
            "role",
            "grant-permission",
            "reads",
            "read",
            "--prefix=true",
            "/",
        ],
        &["user", "add", "app:right"],
        &["user", "grant-role", "app", "reads"],
    ] {
        member.ctl(arguments);
    }
    let prefix = Etcd::new(vec![member.endpoint()], SecretFile::File(PathBuf::new())).prefix;
    for name in but {
        let entry = format!("{prefix}/{name}");
        member.ctl(&["role", "grant-permission", "reads", "readwrite", &entry]);
    }
    member.ctl(&["auth", "enable"]);
    let password = files.path("password");
    write_secret(&password, "right");
    let mut etcd = Etcd::new(vec![member.endpoint()], SecretFile::File(etcd_key(&files)));
    etcd.user = Some("app".into());
    etcd.password_file = Some(SecretFile::File(password));
    let mut config = with_keys_of(etcd, &files);
    config.listeners[0].tickets.rotation = Duration::from_secs(10);
    let server = start(&config);
    let is_current = || gauge(&server, "widelane_tickets_etcd_current") == 1;
    eventually("it is refused", || !is_current());
    eventually("it has claimed several times", || {
        assert!(!is_current(), "it is refused each time");
        member.count("etcd_debugging_lease_granted_total") > 4
    });
    let leases = member.ctl(&["--user", "root:root", "lease", "list"]);
    // One may be that of a claim or a write that runs just now.
    let found = (0..=most).any(|count| leases.contains(&format!("found {count} leases")));
    assert!(found, "{leases}");
}

fn etcd_key(files: &Files) -> PathBuf {
    let key = files.path("etcd.key");
    make_etcd_key(&key).expect("a key");
    key
}

fn write_secret(path: &PathBuf, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}
