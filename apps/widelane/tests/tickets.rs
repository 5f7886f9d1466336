//! Ticket keys that several servers share, with OpenSSL's client: `widelane tickets` and
//! `widelane serve --ticket-keys`.

mod serving;

use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serving::*;
use widelane_testkit::openssl::converse;

const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

#[test]
fn servers_with_one_directory_resume_each_others_sessions_and_a_rotation_loses_none() {
    let Some(client) = openssl() else { return };
    let site = Site::new();
    let keys = site.path("tickets");
    run(&["tickets", "new"], &keys, &[]);
    let backend = echo();
    let servers = [(); 2].map(|()| Server::start(&site, backend, &keys));
    let session = site.path("session");
    for version in VERSIONS {
        let _ = fs::remove_file(&session);
        assert_eq!(client.connect(servers[0].address, version, &session), NEW);
        assert_eq!(client.connect(servers[1].address, version, &session), REUSED);
        assert_eq!(client.connect(servers[0].address, version, &session), REUSED);
        // Sessions from before a rotation, which each server takes over by itself.
        for _ in 0..2 {
            let old = site.path("old");
            let _ = fs::remove_file(&session);
            assert_eq!(client.connect(servers[0].address, version, &session), NEW);
            fs::copy(&session, &old).expect("a copy");
            let listed = run(&["tickets", "rotate"], &keys, &["--min-age", "0"]);
            let name = listed.split_whitespace().nth(1).expect("a name");
            for server in &servers {
                eventually("the server encrypts with the next key", || {
                    server.page().contains(&format!("{{name=\"{name}\",role=\"encrypts\""))
                });
                fs::copy(&old, &session).expect("a copy");
                assert_eq!(client.connect(server.address, version, &session), REUSED);
            }
        }
    }
    for server in &servers {
        let page = server.page();
        for why in ["key", "age", "certificate"] {
            let line = format!("widelane_tickets_refused_total{{why=\"{why}\"}} 0");
            assert!(page.contains(&line), "{page}");
        }
    }
}

#[test]
fn a_server_with_other_keys_takes_no_session_and_says_why() {
    let Some(client) = openssl() else { return };
    let site = Site::new();
    let backend = echo();
    let [one, other] = ["one", "other"].map(|name| {
        let keys = site.path(name);
        run(&["tickets", "new"], &keys, &[]);
        Server::start(&site, backend, &keys)
    });
    for version in VERSIONS {
        let session = site.path("session");
        let _ = fs::remove_file(&session);
        assert_eq!(client.connect(one.address, version, &session), NEW);
        assert_eq!(client.connect(other.address, version, &session), NEW);
    }
    let page = other.page();
    assert!(page.contains("widelane_tickets_refused_total{why=\"key\"} 2"), "{page}");
}

#[test]
fn files_of_nginx_and_haproxy_as_their_manuals_make_them() {
    let Some(client) = openssl() else { return };
    let site = Site::new();
    let keys = site.path("keys");
    let make = |script: &str| {
        let status = Command::new("sh").arg("-c").arg(script).arg("sh").arg(&keys).status();
        assert!(status.expect("sh").success(), "{script}");
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).expect("allowed");
    };
    for script in [
        "openssl rand 80 > \"$1\"",
        "openssl rand 48 > \"$1\"",
        "for i in 1 2 3; do openssl rand 80 | openssl base64 -A; echo; done > \"$1\"",
    ] {
        make(script);
        let backend = echo();
        let servers = [(); 2].map(|()| Server::start(&site, backend, &keys));
        for version in VERSIONS {
            let session = site.path("session");
            let _ = fs::remove_file(&session);
            assert_eq!(client.connect(servers[0].address, version, &session), NEW);
            assert_eq!(client.connect(servers[1].address, version, &session), REUSED);
        }
    }
}

#[test]
fn changed_files_are_taken_and_bad_ones_are_not() {
    let site = Site::new();
    let keys = site.path("tickets");
    run(&["tickets", "new"], &keys, &[]);
    let mut server = Server::start(&site, echo(), &keys);
    connect(server.address, &site.path("a.pem")).expect("the first certificate");

    // A certificate without its key, and then both.
    site.certificate("b");
    fs::rename(site.path("b.pem"), site.path("a.pem")).expect("renamed");
    let line = server.process.line_with("kept the old configuration");
    assert!(line.contains("does not belong to"), "{line}");
    assert!(server.page().contains("\nwidelane_reload_current 0\n"));
    fs::rename(site.path("b.key"), site.path("a.key")).expect("renamed");
    server.process.line_with("reloaded");
    connect(server.address, &site.path("a.pem")).expect("the second certificate");
    assert!(server.page().contains("\nwidelane_reload_current 1\n"));

    // Half of a key file, while it is written and when the writer has gone.
    let mut writer = fs::File::create(site.path("tickets/next.key")).expect("created");
    writer.write_all(&[7; 40]).expect("written");
    drop(writer);
    let line = server.process.line_with("kept the old configuration");
    assert!(line.contains("next.key: it has 40 bytes"), "{line}");
    connect(server.address, &site.path("a.pem")).expect("it goes on");
    let random = Command::new("openssl").args(["rand", "80"]).output();
    if let Ok(random) = random {
        fs::write(site.path("tickets/next.key"), random.stdout).expect("written");
        server.process.line_with("reloaded");
    }
    // A file that is still being written is waited for, however long that takes.
    let failed = |page: String| {
        let line = page
            .lines()
            .find(|line| line.starts_with("widelane_reloads_failed_total"));
        line.expect("the counter").to_owned()
    };
    let before = failed(server.page());
    let mut writer = fs::File::create(site.path("tickets/next.key")).expect("created");
    writer.write_all(&[1; 40]).expect("written");
    std::thread::sleep(Duration::from_secs(2));
    writer.write_all(&[2; 40]).expect("written");
    drop(writer);
    server.process.line_with("reloaded");
    assert_eq!(failed(server.page()), before);
    // Others must not read it.
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(site.path("tickets/current.key"), open).expect("allowed");
    let line = server.process.line_with("kept the old configuration");
    assert!(line.contains("has mode 0644") && line.contains("chmod 600"), "{line}");
    server.process.signal(Signal::TERM);
    assert!(server.process.wait().success());
}

#[test]
fn a_secret_that_kubernetes_swaps_is_taken() {
    let site = Site::new();
    let mount = site.path("mount");
    let version = |number: u8| {
        let directory = mount.join(format!("..{number}"));
        fs::create_dir_all(&directory).expect("a directory");
        site.certificate("b");
        fs::rename(site.path("b.pem"), directory.join("tls.crt")).expect("renamed");
        fs::rename(site.path("b.key"), directory.join("tls.key")).expect("renamed");
        // As the kubelet's atomic writer does it.
        symlink(format!("..{number}"), mount.join("..data_tmp")).expect("a link");
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).expect("renamed");
    };
    version(1);
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), mount.join(name)).expect("a link");
    }
    let mut command = serve_by_flags(&mount.join("tls.crt"), &mount.join("tls.key"));
    command.args(["--workers", "1"]);
    let mut server = Process::start(&mut command);
    let address = server.listening();
    connect(address, &mount.join("tls.crt")).expect("the first version");
    for number in 2..=3 {
        version(number);
        fs::remove_dir_all(mount.join(format!("..{}", number - 1))).expect("removed");
        server.line_with("reloaded");
        connect(address, &mount.join("tls.crt")).expect("the new version");
    }
}

/// `tests/etcd.rs` of the terminator has an etcd.
#[test]
fn an_agent_without_etcd_gives_a_server_keys_and_ends_when_it_is_told() {
    let site = Site::new();
    let [key, keys] = ["etcd.key", "keys"].map(|name| site.path(name));
    run(&["tickets", "etcd-key"], &key, &[]);
    let follow = || {
        let mut command = widelane();
        command.args(["tickets", "follow-etcd"]).arg(&keys);
        command.args(["--endpoint", "http://127.0.0.1:9"]);
        command.arg("--key-file").arg(&key);
        command
    };
    let output = follow().arg("--once").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("refuses the connection; start etcd"), "{text}");
    let listed = run(&["tickets", "list"], &keys, &[]);
    assert!(
        listed.starts_with("active.key ") && listed.lines().count() == 1,
        "{listed}"
    );

    let mut agent = Process::start(&mut follow());
    agent.line_with("refuses the connection");
    let server = Server::start(&site, echo(), &keys);
    assert!(server.page().contains("active.key"));
    let output = follow().output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("another agent writes keys here"), "{text}");
    agent.signal(Signal::TERM);
    agent.line_with("stopped");
    assert!(agent.wait().success());

    let wrong = follow().args(["--user", "u"]).output().expect("it runs");
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(1), "{text}");
    assert!(text.contains("--user: it and --password-file"), "{text}");
}

#[test]
fn the_command_names_mistakes_and_its_status_tells_them_apart() {
    let site = Site::new();
    let keys = site.path("tickets");
    let keys_text = keys.to_str().expect("UTF-8");
    for (arguments, status, message) in [
        (
            &["tickets", "rotate", keys_text][..],
            1,
            "the directory above must exist",
        ),
        (&["tickets", "list", "/dev/null"], 1, "/dev/null"),
        (&["tickets"], 2, "Usage"),
        (&["tickets", "new", keys_text], 0, ""),
        (&["tickets", "new", keys_text], 1, "widelane tickets rotate"),
        (&["tickets", "rotate", keys_text], 1, "--min-age 0"),
        (&["tickets", "list", keys_text, "--json"], 0, ""),
    ] {
        let output = widelane().args(arguments).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
        assert!(text.contains(message), "{arguments:?}: {text}");
    }
    let output = widelane().args(["tickets", "list", keys_text, "--json"]).output();
    let text = String::from_utf8(output.expect("it runs").stdout).expect("UTF-8");
    let keys: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(
        (&keys[0]["file"], &keys[0]["does"]),
        (&"current.key".into(), &"encrypts".into())
    );
    assert_eq!(keys[1]["name"].as_str().expect("a name").len(), 32);
    // An operator who starts the server without keys learns what to do.
    let output = serve_by_flags(&site.path("a.pem"), &site.path("a.key"))
        .args(["--check", "--ticket-keys", "/nonexistent"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("command line: --ticket-keys: cannot read"), "{text}");
    assert!(text.contains("mount the Secret"), "{text}");
}

/// A server on ticket keys, with metrics.
struct Server {
    process: Process,
    address: SocketAddr,
    metrics: SocketAddr,
}

impl Server {
    fn start(site: &Site, backend: SocketAddr, keys: &Path) -> Self {
        let metrics = free_address();
        let mut command = widelane();
        command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"]);
        command.args(["--backend", &backend.to_string()]);
        command.args(["--metrics", &metrics.to_string(), "--cert"]);
        command.arg(site.path("a.pem")).arg("--key").arg(site.path("a.key"));
        command.arg("--ticket-keys").arg(keys);
        let mut process = Process::start(&mut command);
        let address = process.listening();
        Self {
            process,
            address,
            metrics,
        }
    }

    fn page(&self) -> String {
        page(self.metrics)
    }
}

/// Runs `widelane` with a directory and gives what it prints.
fn run(command: &[&str], directory: &Path, more: &[&str]) -> String {
    let output = widelane().args(command).arg(directory).args(more).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn echo() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    std::thread::spawn(move || {
        for client in socket.incoming().map_while(Result::ok) {
            std::thread::spawn(move || io::copy(&mut &client, &mut &client));
        }
    });
    address
}

struct Openssl;

fn openssl() -> Option<Openssl> {
    installed("openssl").map(|_| Openssl)
}

impl Openssl {
    /// Connects with the session in the file if there is one, keeps the new one in it, and says
    /// whether the server has taken the old one.
    fn connect(&self, address: SocketAddr, version: &str, session: &Path) -> &'static str {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &address.to_string(), version]);
        command.args(["-servername", "localhost", "-sess_out"]).arg(session);
        if session.exists() {
            command.arg("-sess_in").arg(session);
        }
        // The tickets come before the answer.
        let (is_answered, text) = converse(&mut command, QUESTION);
        assert!(is_answered, "{text}");
        match (text.contains("\nNew, TLS"), text.contains("\nReused, TLS")) {
            (true, false) => NEW,
            (false, true) => REUSED,
            _ => panic!("{text}"),
        }
    }
}

const NEW: &str = "new";
const REUSED: &str = "reused";
/// Something that is in no other line of the output.
const QUESTION: &str = "are you there?\n";
