//! `widelane serve` as a process: flags, files, signals, privileges, the service manager.

mod serving;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit, setrlimit};
use serving::*;

#[test]
fn the_demonstration_needs_nothing_and_leaves_nothing() {
    let places = tempfile::tempdir().expect("a directory");
    let mut command = widelane();
    command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--workers", "1"]);
    let mut server = Process::start(command.env("TMPDIR", places.path()));
    let address = server.listening();
    let made: Vec<PathBuf> = entries(places.path());
    let [directory] = &made[..] else {
        panic!("one directory, not {made:?}")
    };
    let mode = fs::metadata(directory).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "only the owner may read the key");
    let mut stream = connect(address, &directory.join("ecdsa-p256.pem")).expect("TLS");
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut page = [0; 15];
    stream.read_exact(&mut page).expect("a page");
    assert_eq!(&page, b"HTTP/1.1 200 OK");
    drop(stream);
    server.stop();
    assert!(entries(places.path()).is_empty());
}

#[test]
fn wrong_usage_is_told_apart_from_failure() {
    let site = Site::new();
    for (arguments, status, message) in [
        (&["serve"][..], 2, "nothing to serve"),
        (&["serve", "--listen", "nowhere"], 2, "--listen"),
        (&["serve", "--backend", "localhost"], 2, "127.0.0.1:8080"),
        (&["serve", "--demo", "--config", "x"], 2, "cannot be used with"),
        (&["serve", "--backend", "127.0.0.1:1"], 2, "give --listen"),
        (&["serve", "--demo", "--placement", "vector-cores"], 2, "--vector-cpus"),
        (&["serve", "--demo", "--ocsp", "https://a.example"], 2, "plain HTTP"),
        (
            &[
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--cert",
                "/no.pem",
                "--key",
                "/no.key",
                "--ocsp",
                "fetch",
                "--ocsp",
                "fetch",
                "--backend",
                "127.0.0.1:1",
            ],
            2,
            "give --ocsp for every --cert",
        ),
        (
            &["serve", "--config", "/nonexistent.toml"],
            1,
            "/nonexistent.toml: cannot read",
        ),
        (
            &[
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--cert",
                "/no.pem",
                "--key",
                "/no.key",
                "--backend",
                "127.0.0.1:1",
            ],
            1,
            "command line: --cert: cannot read /no.pem",
        ),
    ] {
        let output = widelane().args(arguments).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
        assert!(text.contains(message), "{arguments:?}: {text}");
    }

    let config = site.config("127.0.0.1:0", "");
    let good = widelane().args(["serve", "--check", "--config"]).arg(&config).output();
    let good = good.expect("it runs");
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    // A pipe can be read only once.
    let mut cat = Command::new("cat");
    let mut cat = cat.arg(&config).stdout(Stdio::piped()).spawn().expect("cat");
    let piped = widelane()
        .args(["serve", "--check", "--config", "/dev/stdin"])
        .stdin(cat.stdout.take().expect("a pipe"))
        .output();
    cat.wait().expect("cat ends");
    let piped = piped.expect("it runs");
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    for (from, to, message) in [
        (
            "backend",
            "bakend",
            "w.toml:4: listener[0].bakend: unknown field `bakend`",
        ),
        (
            "127.0.0.1:9",
            "example",
            "w.toml:4: listener[0].backend: `example` is no backend",
        ),
        (
            "a.key",
            "b.key",
            "w.toml:7: listener[0].certificate[0].key: cannot read",
        ),
        ("a.key", "a.pem", "a.pem has no private key; give a PEM file with"),
    ] {
        let text = fs::read_to_string(&config).expect("readable").replace(from, to);
        let bad = site.path("w.toml.d");
        fs::create_dir_all(&bad).expect("a directory");
        let bad = bad.join("w.toml");
        fs::write(&bad, text).expect("written");
        let output = widelane().args(["serve", "--check", "--config"]).arg(&bad).output();
        let output = output.expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(message), "{text}");
    }
}

#[test]
fn hangup_takes_the_new_configuration_or_keeps_the_old_and_the_manager_is_told() {
    let site = Site::new();
    let notices = Notices::new(&site);
    let config = site.config("127.0.0.1:0", "");
    let mut command = widelane();
    command
        .args(["serve", "--config"])
        .arg(&config)
        .env("NOTIFY_SOCKET", &notices.path);
    let mut server = Process::start(&mut command);
    let address = server.listening();
    assert_eq!(notices.next(), "READY=1");
    connect(address, &site.path("a.pem")).expect("the first certificate");

    site.certificate("b");
    let text = fs::read_to_string(&config).expect("readable");
    fs::write(&config, text.replace("a.pem", "b.pem").replace("a.key", "b.key")).expect("written");
    server.signal(Signal::HUP);
    assert!(notices.next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(notices.next(), "READY=1");
    connect(address, &site.path("b.pem")).expect("the second certificate");

    fs::write(&config, "[[listener]]\nlisten = 5\n").expect("written");
    server.signal(Signal::HUP);
    let line = server.line_with("kept the old configuration");
    assert!(line.contains("w.toml:2: listener[0].listen"), "{line}");
    assert!(notices.next().starts_with("RELOADING=1"));
    assert_eq!(notices.next(), "READY=1");
    connect(address, &site.path("b.pem")).expect("the second certificate, still");

    server.signal(Signal::TERM);
    assert_eq!(notices.next(), "STOPPING=1");
    assert!(server.wait().success());
}

/// The files of the old configuration are good and change: that does not make the new one good.
#[test]
fn a_refused_configuration_stays_refused_until_a_good_one_comes() {
    let site = Site::new();
    let metrics = free_address();
    let config = site.config("127.0.0.1:0", &format!("metrics.listen = \"{metrics}\"\n"));
    let good = fs::read_to_string(&config).expect("readable");
    let mut command = widelane();
    command.env("RUST_LOG", "debug");
    let mut server = Process::start(command.args(["serve", "--config"]).arg(&config));
    let address = server.listening();
    let renew = |server: &mut Process| {
        site.certificate("a");
        server.line_with("is still refused");
        connect(address, &site.path("a.pem")).expect("the renewed certificate");
    };
    let current = |value: u8| {
        let page = page(metrics);
        assert!(page.contains(&format!("\nwidelane_reload_current {value}\n")), "{page}");
    };
    current(1);

    site.certificate("b");
    let (cert, key) = (site.path("b.pem"), site.path("a.key"));
    let second = format!("[[listener.certificate]]\ncert = {cert:?}\nkey = {key:?}\n");
    fs::write(&config, format!("{good}{second}")).expect("written");
    server.signal(Signal::HUP);
    let line = server.line_with("kept the old configuration");
    assert!(line.contains("does not belong to"), "{line}");
    // The server looks at the files of the configuration in use, which have not changed.
    server.line_with("files are as they were");
    current(0);
    assert!(page(metrics).contains("\nwidelane_reloads_ok_total 0\n"));
    renew(&mut server);
    current(0);

    fs::write(&config, good.clone()).expect("written");
    server.signal(Signal::HUP);
    server.line_with("reloaded");
    current(1);

    fs::write(&config, format!("{good}listen = 5\n")).expect("written");
    server.signal(Signal::HUP);
    server.line_with("kept the old configuration");
    current(0);
    renew(&mut server);
    current(0);
    fs::write(&config, good).expect("written");
    server.signal(Signal::HUP);
    server.line_with("reloaded");
    current(1);
}

#[test]
fn what_could_not_be_read_for_a_passing_reason_is_read_again() {
    let site = Site::new();
    let config = site.config("127.0.0.1:0", "");
    let mut server = serve(&config);
    let address = server.listening();
    site.certificate("b");
    let text = fs::read_to_string(&config).expect("readable");
    let [good, bad] = ["b.pem", "bad.pem"].map(|name| site.path(name));
    // A read at address 0 of a process is an error of input and output.
    symlink("/proc/self/mem", &bad).expect("a link");
    let text = text.replace("a.pem", "bad.pem").replace("a.key", "b.key");
    fs::write(&config, text).expect("written");
    server.signal(Signal::HUP);
    let line = server.line_with("will try again by itself");
    assert!(line.contains("bad.pem"), "{line}");
    fs::remove_file(&bad).expect("removed");
    fs::copy(&good, &bad).expect("copied");
    server.line_with("reloaded");
    connect(address, &good).expect("the second certificate");
}

#[test]
fn the_first_term_waits_for_live_connections_and_the_second_does_not() {
    let site = Site::new();
    let echo = TcpListener::bind("127.0.0.1:0").expect("a port");
    let backend = echo.local_addr().expect("an address");
    std::thread::spawn(move || {
        for client in echo.incoming().map_while(Result::ok) {
            std::thread::spawn(move || io::copy(&mut &client, &mut &client));
        }
    });
    for patient in [true, false] {
        let config = site.config("127.0.0.1:0", "");
        let text = fs::read_to_string(&config).expect("readable");
        fs::write(&config, text.replace("127.0.0.1:9", &backend.to_string())).expect("written");
        let mut server = serve(&config);
        let address = server.listening();
        let mut live = connect(address, &site.path("a.pem")).expect("TLS");
        let mut answer = [0; 4];
        live.write_all(b"ping").expect("sent");
        live.read_exact(&mut answer).expect("an answer");
        server.signal(Signal::TERM);
        server.line_with("stopping");
        eventually("no socket listens", || TcpStream::connect(address).is_err());
        live.write_all(b"ping").expect("sent");
        live.read_exact(&mut answer).expect("the live connection is served");
        if patient {
            drop(live);
            server.line_with("stopped");
        } else {
            server.signal(Signal::TERM);
            server.line_with("cut off");
            assert!(live.read_exact(&mut answer).is_err());
        }
        assert!(server.wait().success());
    }
}

#[test]
fn root_is_left_behind_by_every_thread() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: only root can drop root");
        return;
    }
    let site = Site::new();
    // All users can read the certificate, only root the key: it must be read before the drop.
    fs::set_permissions(&site.directory, fs::Permissions::from_mode(0o755)).expect("allowed");
    fs::set_permissions(site.path("a.key"), fs::Permissions::from_mode(0o600)).expect("allowed");
    let config = site.config("127.0.0.1:0", "user = \"nobody\"\nworkers = 2\n");
    let mut server = serve(&config);
    let address = server.listening();
    connect(address, &site.path("a.pem")).expect("the key was read");
    let users = fs::read_to_string("/etc/passwd").expect("readable");
    let user: Vec<&str> = users
        .lines()
        .find(|line| line.starts_with("nobody:"))
        .expect("the user `nobody`")
        .split(':')
        .collect();
    let mut threads = 0;
    for task in entries(Path::new(&format!("/proc/{}/task", server.child.id()))) {
        let status = fs::read_to_string(task.join("status")).expect("readable");
        for (field, id) in [("Uid:", user[2]), ("Gid:", user[3])] {
            let line = status.lines().find(|line| line.starts_with(field)).expect("the field");
            let ids: Vec<&str> = line.split_whitespace().skip(1).collect();
            assert_eq!(ids, [id; 4], "{status}");
        }
        let groups = status.lines().find(|line| line.starts_with("Groups:")).expect("Groups");
        assert!(
            groups.split_whitespace().skip(1).all(|group| group == user[3]),
            "{groups}"
        );
        threads += 1;
    }
    assert!(threads >= 3, "two workers and the main thread");
    server.signal(Signal::HUP);
    let line = server.line_with("kept the old configuration");
    assert!(line.contains("certificate[0].key: cannot read"), "{line}");
    assert!(line.contains("after root privileges were dropped"), "{line}");
    connect(address, &site.path("a.pem")).expect("still served");
    server.stop();
}

#[test]
fn a_crash_leaves_no_core_file_unless_it_is_asked_for() {
    let site = Site::new();
    for (setting, is_kept) in [("", false), ("core_files = true\n", true)] {
        let config = site.config("127.0.0.1:0", setting);
        let mut server = serve(&config);
        server.listening();
        // What it had is what this process has, whose children inherit it.
        let own = getrlimit(Resource::Core);
        let server_is = Some(Pid::from_child(&server.child));
        let had = prlimit(server_is, Resource::Core, own).expect("allowed");
        let expected = if is_kept { own.current } else { Some(1) };
        assert_eq!(had.current, expected, "{setting}");
        server.stop();
    }
}

#[test]
fn a_signal_opens_the_access_log_anew() {
    let site = Site::new();
    let (log, old) = (site.path("access.log"), site.path("access.log.1"));
    let config = site.config("127.0.0.1:0", &format!("access_log = {log:?}\n"));
    let mut server = serve(&config);
    let address = server.listening();
    let lines = |path: &Path| fs::read_to_string(path).map_or(0, |text| text.lines().count());
    connect(address, &site.path("a.pem")).expect("TLS");
    eventually("the first line", || lines(&log) == 1);
    fs::rename(&log, &old).expect("renamed");
    server.signal(Signal::USR1);
    eventually("a new file", || log.exists());
    connect(address, &site.path("a.pem")).expect("TLS");
    eventually("the second line", || lines(&log) == 1);
    server.stop();
    assert_eq!(lines(&old), 1);
    let text = fs::read_to_string(&log).expect("the log");
    let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(line["server_name"], "localhost");
}

#[test]
fn the_access_log_may_be_standard_error() {
    let site = Site::new();
    let mut command = serve_by_flags(&site.path("a.pem"), &site.path("a.key"));
    command.args(["--access-log", "stderr", "--access-log-format", "text"]);
    let mut server = Process::start(&mut command);
    let address = server.listening();
    connect(address, &site.path("a.pem")).expect("TLS");
    let line = server.line_with("outcome=");
    assert!(
        line.starts_with("time=") && line.contains(" server_name=\"localhost\""),
        "{line}"
    );
}

/// A limit of the file's size stands for a full disk: it lets a part of a line in, too.
#[test]
fn a_full_disk_stops_no_client_and_tears_no_line() {
    let site = Site::new();
    let log = site.path("access.log");
    let config = site.config("127.0.0.1:0", &format!("access_log = {log:?}\nworkers = 1\n"));
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", under_test::PROGRAM])
        .args(["serve", "--config"])
        .arg(&config);
    let mut server = Process::start(&mut under_test::apart(command));
    let address = server.listening();
    let process = Some(rustix::process::Pid::from_child(&server.child));
    let limit = |bytes: Option<u64>| {
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        rustix::process::prlimit(process, Resource::Fsize, limit).expect("a limit");
    };
    limit(Some(1000));
    const CONNECTIONS: usize = 8;
    for _ in 0..CONNECTIONS {
        connect(address, &site.path("a.pem")).expect("served with a full disk");
    }
    server.line_with("cannot write the access log");
    let size = || fs::metadata(&log).expect("the log").len();
    eventually("the file is full", || size() == 1000);
    limit(None);
    server.line_with("takes lines again");
    server.stop();
    let text = fs::read_to_string(&log).expect("the log");
    let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
    let lines: Result<Vec<_>, _> = lines.collect();
    assert_eq!(lines.expect("whole lines").len(), CONNECTIONS);
}

#[test]
fn responses_are_fetched_and_kept_after_root_is_left_behind_and_files_of_them_are_watched() {
    let site = Site::new();
    let Some(response) = site.ocsp_response() else {
        return;
    };
    // A responder for this one question.
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let responder = socket.local_addr().expect("an address");
    let body = response.clone();
    std::thread::spawn(move || {
        for mut client in socket.incoming().map_while(Result::ok) {
            let mut request = [0; 4096];
            let _ = client.read(&mut request);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = client.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    fs::set_permissions(&site.directory, fs::Permissions::from_mode(0o755)).expect("allowed");
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { "user = \"nobody\"\n" } else { "" };
    let metrics = free_address();
    let top = format!("workers = 1\n{user}batching.enabled = false\n[metrics]\nlisten = \"{metrics}\"\n");
    let config = site.config("127.0.0.1:0", &top);
    let text = fs::read_to_string(&config).expect("readable");
    fs::write(&config, format!("{text}ocsp = \"http://{responder}\"\n")).expect("written");
    let start = || {
        let mut command = widelane();
        command.env("STATE_DIRECTORY", site.path("state"));
        Process::start(command.args(["serve", "--config"]).arg(&config))
    };
    let mut server = start();
    server.line_with("has a new OCSP response");
    let kept = || {
        let files = entries(&site.path("state/ocsp")).into_iter();
        let whole = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "ocsp");
        files.filter(whole).collect::<Vec<_>>()
    };
    eventually("it is kept", || !kept().is_empty());
    let kept = &kept()[0];
    let metadata = fs::metadata(kept).expect("metadata");
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert_ne!(metadata.uid(), 0, "root has written it");
    assert_eq!(fs::read(kept).expect("readable"), response);
    drop(server);

    let path = site.path("a.ocsp");
    fs::write(&config, format!("{text}ocsp = {path:?}\n")).expect("written");
    let mut server = start();
    server.line_with("clients get no OCSP response");
    server.line_with("listening");
    // Half of it, which its program has not closed, and then all.
    let (half, rest) = response.split_at(response.len() / 2);
    let mut file = fs::File::create(&path).expect("a file");
    file.write_all(half).expect("written");
    std::thread::sleep(Duration::from_millis(100));
    file.write_all(rest).expect("written");
    drop(file);
    server.line_with("reloaded");
    let stapled = format!("widelane_ocsp_stapled{{file={:?}}} 1", site.path("a.pem"));
    assert!(page(metrics).contains(&stapled), "{}", page(metrics));
}

#[test]
fn sockets_of_the_service_manager_are_taken_over() {
    let site = Site::new();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    let all_are_served = |early: TcpStream| {
        handshake(early, &site.path("a.pem")).expect("the one that waited");
        for _ in 0..8 {
            connect(address, &site.path("a.pem")).expect("all others");
        }
    };
    // Waits in the queue since before the server exists.
    let early = TcpStream::connect(address).expect("a connection");
    let config = site.config(&address.to_string(), "workers = 2\n");
    let mut server = Process::start(&mut passed(&socket, &config));
    assert_eq!(server.listening(), address);
    all_are_served(early);

    // The service manager, here this process, holds the socket while no listener uses it.
    let with = fs::read_to_string(&config).expect("readable");
    let without = with.replace(&address.to_string(), "127.0.0.1:0");
    fs::write(&config, without).expect("written");
    server.signal(Signal::HUP);
    server.line_with("the service manager holds this socket");
    let early = TcpStream::connect(address).expect("a connection");
    fs::write(&config, with).expect("written");
    server.signal(Signal::HUP);
    server.line_with("reloaded");
    all_are_served(early);
    server.stop();
}

#[test]
fn a_socket_of_the_service_manager_in_the_way_is_named() {
    let site = Site::new();
    let socket = TcpListener::bind("0.0.0.0:0").expect("a port");
    let passed_to = socket.local_addr().expect("an address");
    let other = format!("127.0.0.1:{}", passed_to.port());
    let config = site.config(&other, "");
    let mut server = Process::start(&mut passed(&socket, &config));
    let line = server.line_with("cannot listen on");
    assert!(line.contains(&format!("write {passed_to} here")), "{line}");
    assert!(!server.wait().success());
}

/// A server that has a socket from a service manager. The protocol wants it as descriptor 3, and the server's
/// process number in a variable.
fn passed(socket: &TcpListener, config: &Path) -> Command {
    let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, under_test::PROGRAM]);
    command.args(["serve", "--config"]).arg(config);
    let socket = socket.try_clone().expect("a descriptor");
    command.stdin(Stdio::from(OwnedFd::from(socket)));
    under_test::apart(command)
}

#[test]
fn memory_of_connections_that_have_gone_goes_back_to_the_system() {
    let descriptors = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: descriptors.maximum,
        ..descriptors
    };
    setrlimit(Resource::Nofile, raised).expect("the hard limit");
    if descriptors.maximum.is_some_and(|most| most < 4 * CROWD) {
        println!("SKIP: this user may not have {} descriptors", 4 * CROWD);
        return;
    }
    let site = Site::new();
    let limits = "workers = 1\n[limits]\nhandshakes = 4096\nsource.handshakes = 4096\n\
                  first_byte_seconds = 600\nhandshake_seconds = 600\n";
    let config = site.config("127.0.0.1:0", limits);
    let mut server = serve(&config);
    let address = server.listening();
    connect(address, &site.path("a.pem")).expect("TLS");
    // A record and a message that say that more is to come: until then the server keeps what it has.
    let mut part = b"\x16\x03\x01\x40\x00\x01\x00\xea\x60".to_vec();
    part.resize(16_000, 0);
    // What a server takes when it starts, such as the code of its kernels, it keeps.
    let (mut before, mut same) = (0, 0);
    eventually("the server has started", || {
        let last = std::mem::replace(&mut before, server.resident_kilobytes());
        same = if last == before { same + 1 } else { 0 };
        same == 50
    });
    let crowd: Vec<TcpStream> = (0..CROWD)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("a connection");
            stream.write_all(&part).expect("sent");
            stream
        })
        .collect();
    let mut with = 0;
    eventually("all have what they keep", || {
        let last = std::mem::replace(&mut with, server.resident_kilobytes());
        last == with && with > before + 16 * CROWD
    });
    drop(crowd);
    eventually("half of the memory is given back", || {
        server.resident_kilobytes() < before + (with - before) / 2
    });
}

/// Connections that need some ten megabytes.
const CROWD: u64 = 1500;

/// Bytes that the service manager would read.
struct Notices {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Notices {
    fn new(site: &Site) -> Self {
        let path = site.path("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { socket, path }
    }

    fn next(&self) -> String {
        let mut bytes = [0; 256];
        let length = self.socket.recv(&mut bytes).expect("a notice");
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    }
}

/// A name that is misspelt in an alert makes an alert that never fires.
#[test]
fn alerts_and_the_dashboard_are_about_metrics_that_exist() {
    let site = Site::new();
    let metrics = free_address();
    let config = site.config("127.0.0.1:0", &format!("metrics.listen = \"{metrics}\"\n"));
    let mut server = serve(&config);
    server.listening();
    // The agent for etcd writes them into a file, also when it finds no etcd.
    let [key, keys, file] = ["etcd.key", "keys", "metrics"].map(|name| site.path(name));
    let made = widelane().args(["tickets", "etcd-key"]).arg(&key).status();
    assert!(made.expect("it runs").success());
    let mut agent = widelane();
    agent.args(["tickets", "follow-etcd", "--once", "--endpoint"]);
    agent.args(["http://127.0.0.1:9", "--key-file"]).arg(&key);
    agent.arg("--metrics").arg(&file).arg(&keys);
    assert!(!agent.output().expect("it runs").status.success());
    let page = page(metrics) + &fs::read_to_string(&file).expect("metrics");
    let described = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let described: Vec<&str> = described.filter_map(|line| line.split(' ').next()).collect();
    for file in ["alerts.yaml", "alerts-test.yaml", "grafana.json"] {
        let text = fs::read_to_string(monitoring(file)).expect("readable");
        let words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        let names = words.filter(|word| word.starts_with("widelane_"));
        let names: std::collections::BTreeSet<&str> = names.collect();
        assert!(names.len() >= 10, "{file}: {names:?}");
        for name in names {
            let family = ["_total", "_bucket"].iter().find_map(|end| name.strip_suffix(end));
            let family = family.unwrap_or(name);
            // The text format names a counter as its samples.
            assert!(
                described.contains(&family) || described.contains(&name),
                "{file}: {name} is none of {described:?}"
            );
        }
    }
}

/// By Prometheus' own tool: the rules are correct, and fire when they should and no sooner.
#[test]
fn alerts_fire_when_they_should() {
    let mut tool = Command::new("promtool");
    let tool = tool.args(["test", "rules"]).arg(monitoring("alerts-test.yaml"));
    let Ok(output) = tool.output() else {
        println!("SKIP: no promtool; install prometheus");
        return;
    };
    assert!(output.status.success(), "{output:?}");
}

fn monitoring(file: &str) -> PathBuf {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring");
    packaging.join(file)
}
