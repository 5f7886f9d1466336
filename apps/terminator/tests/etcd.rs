//! Ticket keys from a real etcd, of one member: three servers, each with an agent, resume each other's sessions, while
//! the value is damaged and etcd is away.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use common::*;
use rustls::{ClientConfig, HandshakeKind};
use tempfile::TempDir;
use widelane_terminator::{Config, Server};
use widelane_ticket_etcd::{Agent, Options, make_key_file};

/// An etcd of one member, which ends with the test.
struct Member {
    directory: TempDir,
    ports: [u16; 2],
    /// Files of its certificate and key, and of the authority: it speaks TLS.
    tls: Option<[PathBuf; 3]>,
    running: Option<Running>,
}

impl Member {
    fn new() -> Option<Self> {
        Self::with(None)
    }

    fn with(tls: Option<[PathBuf; 3]>) -> Option<Self> {
        for program in ["etcd", "etcdctl"] {
            installed(program)?;
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
            .args(["--initial-cluster", &format!("one={peer}")]);
        if let Some([cert, key, _]) = &self.tls {
            command.arg("--cert-file").arg(cert);
            command.arg("--key-file").arg(key);
        }
        self.running = Some(Running::start(&mut command));
    }

    fn stop(&mut self) {
        self.running = None;
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

/// An agent and its directory. It ends, and gives its lease back, when this is dropped.
struct Following {
    directory: TempDir,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Following {
    /// Starts an agent, which has looked once.
    fn start(mut options: Options) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        options.metrics = Some(directory.path().join("metrics"));
        let agent = Agent::new(options, &directory.path().join("keys")).expect("right options");
        let (stop, stopped) = mpsc::channel();
        let following = Self {
            directory,
            stop: Some(stop),
            thread: Some(std::thread::spawn(move || agent.follow(&stopped))),
        };
        eventually("it has looked", || following.gauge("current").is_some());
        following
    }

    fn keys(&self) -> PathBuf {
        self.directory.path().join("keys")
    }

    /// One of its metrics.
    fn gauge(&self, name: &str) -> Option<u64> {
        let page = std::fs::read_to_string(self.directory.path().join("metrics")).ok()?;
        let start = format!("widelane_tickets_etcd_{name}{{prefix=\"/widelane/tickets\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&start));
        line?.parse().ok()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

fn options(endpoint: String, key_file: PathBuf) -> Options {
    Options {
        endpoints: vec![endpoint],
        prefix: "/widelane/tickets".into(),
        rotation: Duration::from_secs(30),
        key_file,
        ..Options::default()
    }
}

fn with_keys_in(directory: PathBuf, files: &Files) -> Config {
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    one.tickets.keys = vec![directory];
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

#[test]
fn servers_resume_each_others_sessions_whatever_happens_to_etcd() {
    let Some(mut member) = Member::new() else {
        return;
    };
    let files = Files::new();
    let key = etcd_key(&files);
    let agents: Vec<_> = (0..3)
        .map(|_| Following::start(options(member.endpoint(), key.clone())))
        .collect();
    let configs: Vec<_> = agents.iter().map(|agent| with_keys_in(agent.keys(), &files)).collect();
    let servers: Vec<_> = configs.iter().map(start).collect();
    let all_are = |name: &str, value| agents.iter().all(|one| one.gauge(name) == Some(value));
    // As the program does when the files have changed.
    let all_resume = || {
        for (server, config) in servers.iter().zip(&configs) {
            server.reload(&document(config)).expect("good keys");
        }
        all_resume(&servers)
    };
    eventually("keys of etcd encrypt", || all_are("own", 0));
    eventually("all resume", all_resume);
    let holders: u64 = agents.iter().filter_map(|one| one.gauge("holder")).sum();
    assert_eq!(holders, 1);

    // A damaged value: all go on, and the one that writes puts it right.
    member.ctl(&["put", "/widelane/tickets/keys", "damaged"]);
    assert!(all_resume());
    eventually("the value is right again", || {
        member.ctl(&["get", "/widelane/tickets/keys", "-w", "json"]).len() > 300
    });
    assert!(all_resume());

    // Another key file: it is not written over, and there are keys of this machine alone.
    let other = files.path("other.key");
    make_key_file(&other).expect("a key");
    let alone = Following::start(options(member.endpoint(), other));
    assert_eq!(alone.gauge("current"), Some(0));
    assert_eq!(alone.gauge("own"), Some(1));
    let stranger = start(&with_keys_in(alone.keys(), &files));
    let client = Wish::default().config();
    kind(stranger.addresses()[0], &client);
    assert_eq!(kind(stranger.addresses()[0], &client), HandshakeKind::Resumed);
    drop((stranger, alone));

    // No etcd: a message says so, and nothing else changes.
    member.stop();
    eventually("it is noticed", || all_are("current", 0));
    assert!(all_resume());
    member.start();
    eventually("it is there again", || all_are("current", 1));
    assert!(all_resume());

    // The one that writes gives its lease back when it ends, so that another writes at once.
    drop(agents);
    assert_eq!(member.ctl(&["get", "/widelane/tickets/holder"]), "");
}

/// Checks that the error of a look at this etcd has all of these parts.
fn is_told(what: &str, options: Options, parts: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let agent = Agent::new(options, &directory.path().join("keys")).expect("right options");
    let told = agent.once().expect_err("a fault");
    for part in parts {
        assert!(told.contains(part), "{what}: no {part:?} in {told}");
    }
}

#[test]
fn what_a_real_etcd_answers_is_told_with_its_remedy() {
    let files = Files::new();
    let key = etcd_key(&files);
    let at = |endpoint: String| options(endpoint, key.clone());
    let (right, wrong) = (files.path("ca.pem"), files.path("other.pem"));
    let authority = Authority::in_file("authority", &right);
    Authority::in_file("another authority", &wrong);
    let server = authority.server(&["127.0.0.1"], 10);
    let [cert, own] = server.write(&*files, "e");
    let Some(plain) = Member::new() else { return };
    let secure = Member::with(Some([cert, own, right.clone()])).expect("it is installed");
    eventually("both serve", || plain.is_healthy() && secure.is_healthy());

    let with_user = |user: &str, password: &str| {
        let file = files.path("password");
        write_secret(&file, password);
        let mut etcd = at(plain.endpoint());
        etcd.user = Some(user.into());
        etcd.password_file = Some(file);
        etcd
    };
    let no_users = ["has no users", "etcdctl auth enable"];
    is_told("no users", with_user("app", "right"), &no_users);
    for arguments in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "app:right"],
        &["auth", "enable"],
    ] {
        plain.ctl(arguments);
    }
    let parts = ["refuses the password of user `app`", "--password-file"];
    is_told("a wrong password", with_user("app", "wrong"), &parts);
    is_told("an unknown user", with_user("none", "right"), &["user `none`"]);
    let parts = ["gives user `app` too few rights", "etcdctl role grant-permission"];
    is_told("no rights", with_user("app", "right"), &parts);
    is_told("no user", at(plain.endpoint()), &["wants a user", "give --user"]);

    let with_ca = |endpoint: String, ca: &PathBuf| {
        let mut etcd = at(endpoint);
        etcd.ca = Some(ca.clone());
        etcd
    };
    let parts = ["an authority that is not in the file of --ca", "put the authority"];
    is_told("a wrong CA", with_ca(secure.endpoint(), &wrong), &parts);
    let parts = ["does not speak TLS", "write http://"];
    let as_tls = plain.endpoint().replace("http:", "https:");
    is_told("TLS to plaintext", with_ca(as_tls, &right), &parts);
    let parts = ["if it speaks TLS", "write https://"];
    let as_plain = secure.endpoint().replace("https:", "http:");
    is_told("plaintext to TLS", at(as_plain), &parts);
}

#[test]
fn names_of_others_below_the_prefix_do_not_matter() {
    let Some(member) = Member::new() else { return };
    eventually("it serves", || member.is_healthy());
    for number in 0..20 {
        member.ctl(&["put", &format!("/widelane/tickets/app/{number}"), "other"]);
    }
    let files = Files::new();
    let agent = Following::start(options(member.endpoint(), etcd_key(&files)));
    eventually("its names are found behind those of others", || {
        agent.gauge("holder") == Some(1)
    });
    assert_eq!(agent.gauge("current"), Some(1));
}

#[test]
fn an_instance_that_may_not_write_has_one_fault_and_leaves_no_leases() {
    may_not_write(&[], 1);
}

/// The instance holds what only one may hold, with a lease, and gives each lease of a refused write back.
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
        &["role", "grant-permission", "reads", "read", "--prefix=true", "/"],
        &["user", "add", "app:right"],
        &["user", "grant-role", "app", "reads"],
    ] {
        member.ctl(arguments);
    }
    for name in but {
        let entry = format!("/widelane/tickets/{name}");
        member.ctl(&["role", "grant-permission", "reads", "readwrite", &entry]);
    }
    member.ctl(&["auth", "enable"]);
    let password = files.path("password");
    write_secret(&password, "right");
    let mut options = options(member.endpoint(), etcd_key(&files));
    options.user = Some("app".into());
    options.password_file = Some(password);
    options.rotation = Duration::from_secs(10);
    let agent = Following::start(options);
    let is_current = || agent.gauge("current") == Some(1);
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
    make_key_file(&key).expect("a key");
    key
}

fn write_secret(path: &PathBuf, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}
