//! The access log: what its lines say, and that neither a rotation nor a reader who stands still is felt
//! by clients.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use common::*;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustls::ClientConnection;
use serde_json::{Value, json};
use widelane_terminator::{ClientAuth, ClientAuthMode, Config, LogFormat, LogTarget, Server, TlsVersion};

fn logging(files: &Files, path: &Path) -> Config {
    let mut config = simple(files, Kind::Ecdsa, echo());
    config.access_log = LogTarget::File(path.to_owned());
    config
}

/// The lines of a log, each of which is an object of JSON.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.is_empty() || text.ends_with('\n');
    assert!(whole, "the last line is not complete: {text}");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// The only line, once the log has one.
fn only_line(path: &Path) -> Value {
    eventually("a line is written", || !lines(path).is_empty());
    let mut lines = lines(path);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    lines.remove(0)
}

fn assert_has(line: &Value, expected: &Value) {
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(line.get(key), Some(value), "{key} of {line:#}");
    }
}

#[test]
fn a_line_tells_of_full_and_of_resumed_handshakes_in_both_versions() {
    let files = Files::new();
    let path = files.path("access.log");
    let (ca, identity) = files.client_authority("the device of a client");
    let hash = digest::digest(&digest::SHA256, &identity.chain[0]);
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let identity = Some(Arc::new(identity));
    let mut config = logging(&files, &path);
    config.listeners[0].client_auth = Some(ClientAuth::new(ClientAuthMode::Required, ca));
    config.listeners[0].alpn = vec!["h2".into()];
    let server = start(&config);
    let address = server.addresses()[0];
    let mut clients = Vec::new();
    let hybrid = Wish {
        groups: vec![rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768],
        ..Wish::default()
    };
    for wish in [hybrid, Wish::tls12()] {
        let wish = Wish {
            identity: identity.clone(),
            alpn: vec![b"h2".to_vec()],
            ..wish
        };
        let client = wish.config();
        clients.extend([serve_one(address, &client), serve_one(address, &client)]);
    }
    assert_eq!(server.stop(PATIENCE), 0);
    let mode = fs::metadata(&path).expect("the log").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let lines = lines(&path);
    assert_eq!(lines.len(), 4, "{lines:#?}");
    let (modern, old) = ("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
    // No key exchange in a session of TLS 1.2 that is resumed.
    let expected = [
        ("1.3", false, modern, json!("X25519MLKEM768")),
        ("1.3", true, modern, json!("X25519MLKEM768")),
        ("1.2", false, old, json!("X25519")),
        ("1.2", true, old, Value::Null),
    ];
    for (version, resumed, suite, group) in expected {
        let found = lines
            .iter()
            .position(|line| line["tls"] == version && line["resumed"] == resumed);
        let found = found.unwrap_or_else(|| panic!("no {version} {resumed} in {lines:#?}"));
        let line = &lines[found];
        assert_has(
            line,
            &json!({
                "listener": address.to_string(),
                "server_name": "a.example",
                "cipher_suite": suite,
                "group": group,
                "alpn": "h2",
                "client_certificate_sha256": hash,
                "backend": config.listeners[0].backend[0].to_string(),
                "received": 4,
                "sent": 4,
                "outcome": "served",
                "end": "clean",
                "closed_first": "client",
                "alert_sent": null,
                "alert_received": null,
            }),
        );
        let from = clients.iter().any(|client| line["client"] == client.to_string());
        assert!(from, "{line}");
        let [handshake, duration] = ["handshake_ms", "duration_ms"].map(|key| line[key].as_f64().expect("a number"));
        assert!(0.0 < handshake && handshake <= duration, "{line}");
        let time = line["time"].as_str().expect("a time");
        let shape: String = time
            .chars()
            .map(|letter| if letter.is_ascii_digit() { '0' } else { letter })
            .collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z");
    }
}

#[test]
fn handshakes_that_fail_say_why() {
    let files = Files::new();
    let path = files.path("access.log");
    let (ca, _) = files.client_authority("a client");
    let mut config = logging(&files, &path);
    config.listeners[0].versions = vec![TlsVersion::Tls13];
    config.limits.first_byte = Duration::from_millis(50);
    let mut server = start(&config);
    let next = |server: &mut Server, expected: Value| {
        assert_has(&only_line(&path), &expected);
        fs::remove_file(&path).expect("the log");
        server.reopen_access_log();
        eventually("there is a new file", || path.exists());
    };

    let address = server.addresses()[0];
    let mut garbage = TcpStream::connect(address).expect("a connection");
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    drop(garbage);
    let failed = |end: &str| json!({"outcome": "handshake_failed", "end": end, "backend": null});
    let with_reason = |end: &str, reason: &str| {
        let mut expected = failed(end);
        expected["reason"] = json!(reason);
        expected
    };
    next(
        &mut server,
        with_reason("protocol", "what it sends is no record of TLS"),
    );

    let silent = TcpStream::connect(address).expect("a connection");
    next(&mut server, failed("silent"));
    drop(silent);

    assert!(connect(address, "a.example", &Wish::tls12().config()).is_err());
    let mut expected = with_reason("protocol", "no version of TLS in common");
    expected["alert_sent"] = json!("protocol_version");
    next(&mut server, expected);

    // A client that trusts no certificate that it does not know.
    let roots = rustls::RootCertStore::empty();
    let strict = rustls::ClientConfig::builder_with_provider(provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    assert!(connect(address, "a.example", &Arc::new(strict)).is_err());
    let mut expected = failed("closed");
    expected["alert_received"] = json!("unknown_ca");
    expected["server_name"] = json!("a.example");
    expected["tls"] = json!("1.3");
    next(&mut server, expected);

    config.listeners[0].client_auth = Some(ClientAuth::new(ClientAuthMode::Required, ca));
    server.reload(&document(&config)).expect("a reload");
    let mut stream = connect(address, "a.example", &Wish::default().config()).expect("TLS");
    let error = ping(&mut stream).expect_err("no certificate").to_string();
    assert!(error.contains("CertificateRequired"), "{error}");
    drop(stream);
    let mut expected = with_reason("certificate", "it shows no certificate");
    expected["alert_sent"] = json!("certificate_required");
    next(&mut server, expected);

    config.limits.connections = Some(1);
    config.limits.first_byte = PATIENCE;
    config.listeners[0].client_auth = None;
    server.reload(&document(&config)).expect("a reload");
    let mut live = hello(address).expect("TLS");
    ping(&mut live).expect("an answer");
    assert!(hello(address).is_err());
    let refused = json!({"outcome": "refused", "end": "connections", "handshake_ms": null});
    next(&mut server, refused);
    // It is cut off, not finished.
    assert_eq!(server.stop(Duration::ZERO), 1);
    let stopped = json!({"outcome": "served", "end": "stopped", "received": 4, "sent": 4});
    assert_has(&only_line(&path), &stopped);
}

#[test]
fn a_server_name_cannot_break_out_of_its_line() {
    let files = Files::new();
    let path = files.path("access.log");
    for format in [LogFormat::Json, LogFormat::Text] {
        let mut config = logging(&files, &path);
        config.access_log_format = format;
        let server = start(&config);
        let hostile = b"\n{\"end\":\"\x1b[2J\\\0\r";
        let plain = "x".repeat(hostile.len());
        let name = plain.clone().try_into().expect("a name");
        let mut client = ClientConnection::new(Wish::default().config(), name).expect("a client");
        let mut hello = Vec::new();
        client.write_tls(&mut hello).expect("a ClientHello");
        let place = hello.windows(plain.len()).position(|part| part == plain.as_bytes());
        let place = place.expect("the name");
        hello[place..][..hostile.len()].copy_from_slice(hostile);
        let mut socket = TcpStream::connect(server.addresses()[0]).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("an option");
        socket.write_all(&hello).expect("sent");
        let _ = socket.read_to_end(&mut Vec::new());
        drop(socket);
        assert_eq!(server.stop(PATIENCE), 0);
        let text = fs::read(&path).expect("the log");
        let text = String::from_utf8(text).expect("text");
        assert!(
            text.chars()
                .all(|letter| letter == '\n' || (' '..='~').contains(&letter))
        );
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("handshake_failed"), "{text}");
        fs::remove_file(&path).expect("the log");
    }
}

#[test]
fn behind_a_balancer_the_line_names_the_real_client() {
    let files = Files::new();
    let path = files.path("access.log");
    let mut config = logging(&files, &path);
    config.listeners[0].proxy_protocol_from = vec!["127.0.0.1".parse().expect("a network")];
    let server = start(&config);
    let mut socket = TcpStream::connect(server.addresses()[0]).expect("a connection");
    socket
        .write_all(b"PROXY TCP4 192.0.2.1 192.0.2.200 1000 443\r\n")
        .expect("sent");
    let name = "a.example".try_into().expect("a name");
    let tls = ClientConnection::new(Wish::default().config(), name).expect("a client");
    let mut stream = rustls::StreamOwned::new(tls, socket);
    ping(&mut stream).expect("an answer");
    finish(&mut stream).expect("an orderly end");
    assert_has(&only_line(&path), &json!({"client": "192.0.2.1:1000", "end": "clean"}));
}

#[test]
fn a_backend_that_is_gone_or_ends_first_is_told() {
    let files = Files::new();
    let path = files.path("access.log");
    let mut config = logging(&files, &path);
    config.listeners[0].backend = vec![tcp_backend(drop)];
    let server = start(&config);
    let address = server.addresses()[0];
    let mut stream = hello(address).expect("TLS");
    let _ = stream.read(&mut [0; 8]);
    let _ = finish(&mut stream);
    assert_has(
        &only_line(&path),
        &json!({"closed_first": "backend", "outcome": "served"}),
    );
    fs::remove_file(&path).expect("the log");
    config.listeners[0].backend = vec!["127.0.0.1:9".parse().expect("an address")];
    server.reload(&document(&config)).expect("a reload");
    let mut stream = hello(address).expect("TLS");
    stream.write_all(b"ping").expect("sent");
    let _ = stream.read(&mut [0; 8]);
    drop(stream);
    assert_has(
        &only_line(&path),
        &json!({"end": "backend_unreachable", "backend": "127.0.0.1:9"}),
    );
}

#[test]
fn a_rotation_under_load_loses_no_line_and_no_connection() {
    const ROTATIONS: usize = 20;
    let files = Files::new();
    let path = files.path("access.log");
    let config = logging(&files, &path);
    let server = start(&config);
    let address = server.addresses()[0];
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let client = Wish::default().config();
                let mut served = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    served.push(serve_one(address, &client).to_string());
                }
                served
            })
        })
        .collect();
    for turn in 0..ROTATIONS {
        eventually("the file has lines", || {
            fs::metadata(&path).is_ok_and(|file| file.len() > 0)
        });
        fs::rename(&path, files.path(&format!("access.log.{turn}"))).expect("renamed");
        match turn % 2 {
            0 => server.reopen_access_log(),
            _ => server.reload(&document(&config)).expect("a reload"),
        }
    }
    stop.store(true, Ordering::Relaxed);
    let served = clients
        .into_iter()
        .flat_map(|client| client.join().expect("no client failed"));
    let mut served: Vec<String> = served.collect();
    assert_eq!(server.stop(PATIENCE), 0);
    let old = (0..ROTATIONS).map(|turn| files.path(&format!("access.log.{turn}")));
    let all = old.chain([path.clone()]).flat_map(|path| lines(&path));
    let mut written: Vec<String> = all
        .map(|line| {
            assert_has(&line, &json!({"end": "clean", "received": 4}));
            line["client"].as_str().expect("an address").to_owned()
        })
        .collect();
    served.sort();
    written.sort();
    assert_eq!(written, served);
}

#[test]
fn a_reload_turns_the_log_on_and_off_and_to_another_file() {
    let files = Files::new();
    let [first, second] = ["first.log", "second.log"].map(|name| files.path(name));
    let mut config = logging(&files, &first);
    config.access_log = LogTarget::Off;
    let server = start(&config);
    let address = server.addresses()[0];
    let client = Wish::default().config();
    let count = |path: &Path, expected: usize| {
        eventually("all lines are there", || {
            let found = fs::read_to_string(path).unwrap_or_default().lines().count();
            assert!(found <= expected);
            found == expected
        });
    };
    serve_one(address, &client);
    for (target, path, expected) in [
        (LogTarget::File(first.clone()), &first, 1),
        (LogTarget::File(second.clone()), &second, 1),
        (LogTarget::Off, &second, 1),
        (LogTarget::File(first.clone()), &first, 2),
    ] {
        config.access_log = target;
        server.reload(&document(&config)).expect("a reload");
        serve_one(address, &client);
        count(path, expected);
    }
    config.access_log = LogTarget::File(files.path("missing/access.log"));
    let error = server.reload(&document(&config)).expect_err("no directory").to_string();
    assert!(error.contains("--access-log: cannot open"), "{error}");
    serve_one(address, &client);
    count(&first, 3);
    config.access_log = LogTarget::File(first.clone());
    config.access_log_format = LogFormat::Text;
    server.reload(&document(&config)).expect("a reload");
    serve_one(address, &client);
    count(&first, 4);
    let text = fs::read_to_string(&first).expect("the log");
    let last = text.lines().last().expect("a line");
    assert!(
        last.starts_with("time=") && last.contains(" server_name=\"a.example\" "),
        "{last}"
    );
    assert_eq!(metric(&server, "widelane_access_log_lines_total"), 5);
    assert_eq!(metric(&server, "widelane_access_log_lost_total"), 0);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_the_start_and_kept_later() {
    let files = Files::new();
    let folder = files.path("log");
    let mut config = logging(&files, &folder.join("access.log"));
    for result in [
        Server::check(&document(&config)).map_err(|error| error.to_string()),
        Server::start(&document(&config))
            .map(drop)
            .map_err(|error| error.to_string()),
    ] {
        let error = result.expect_err("no directory");
        assert!(error.contains("--access-log: cannot"), "{error}");
    }
    fs::create_dir(&folder).expect("a directory");
    Server::check(&document(&config)).expect("a place for the log");
    assert!(!folder.join("access.log").exists(), "a check makes no files");
    let server = start(&config);
    let address = server.addresses()[0];
    // The file is still open, but its path is gone.
    let moved = files.path("moved");
    fs::rename(&folder, &moved).expect("renamed");
    server.reopen_access_log();
    serve_one(address, &Wish::default().config());
    config.limits.idle = Duration::from_secs(77);
    server.reload(&document(&config)).expect("a reload that keeps the file");
    serve_one(address, &Wish::default().config());
    let log = moved.join("access.log");
    eventually("lines go into the old file", || lines(&log).len() == 2);
    fs::create_dir(&folder).expect("a directory");
    server.reopen_access_log();
    serve_one(address, &Wish::default().config());
    eventually("lines go into the new file", || {
        lines(&folder.join("access.log")).len() == 1
    });
    server.stop(PATIENCE);
    assert_eq!(lines(&log).len(), 2);
}

/// Connects and vanishes: a line for little work.
fn vanish(address: SocketAddr) {
    let socket = TcpStream::connect(address).expect("a connection");
    let socket = socket2::SockRef::from(&socket);
    socket.set_linger(Some(Duration::ZERO)).expect("an option");
}

#[test]
fn a_reader_who_stands_still_stops_no_client() {
    let files = Files::new();
    let path = files.path("fifo");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a FIFO");
    let config = logging(&files, &path);
    let error = Server::start(&document(&config)).expect_err("no reader").to_string();
    assert!(
        error.contains("start the program that reads this FIFO first"),
        "{error}"
    );
    let open = || -> File {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let reader = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        reader.expect("the FIFO")
    };
    let reader = open();
    let server = start(&config);
    let address = server.addresses()[0];
    let accepted = || metric(&server, "widelane_connections_accepted_total");
    let lost = || metric(&server, "widelane_access_log_lost_total");
    let written = || metric(&server, "widelane_access_log_lines_total");
    let mut made = 0;
    while lost() == 0 {
        for _ in 0..500 {
            vanish(address);
        }
        made += 500;
        assert!(made < 50_000, "the queue has no end");
    }
    // Much is waiting, and the reader does not read.
    let client = Wish::default().config();
    serve_one(address, &client);
    made += 1;
    eventually("all have been accepted", || accepted() == made);
    rustix::fs::fcntl_setfl(&reader, OFlags::empty()).expect("a reader that waits");
    let reading = std::thread::spawn(move || {
        let lines = BufReader::new(reader).lines().map_while(Result::ok);
        lines.collect::<Vec<String>>()
    });
    // Lines that tell of lost ones are few; they count among those that are written.
    eventually("the queue has room", || written() + lost() >= made);
    serve_one(address, &client);
    made += 1;
    server.stop(PATIENCE);
    let lines = reading.join().expect("no panic");
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect("a whole line"))
        .collect();
    let told = |line: &Value| line["lost_lines"].as_u64();
    let lost: u64 = lines.iter().filter_map(told).sum();
    assert!(lost > 0, "a line says how many are missing");
    let connections = lines.iter().filter(|line| told(line).is_none()).count();
    assert_eq!(connections as u64 + lost, made);
    assert_eq!(lines.last().expect("lines")["end"], "clean");
}

#[test]
fn a_reader_may_go_and_another_one_come() {
    let files = Files::new();
    let path = files.path("fifo");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a FIFO");
    let open = || BufReader::new(File::open(&path).expect("the FIFO"));
    let opening = {
        let path = path.clone();
        std::thread::spawn(move || File::open(path).expect("the FIFO"))
    };
    let config = logging(&files, &path);
    let mut server = None;
    eventually("the reader is there", || {
        server = Server::start(&document(&config)).ok();
        server.is_some()
    });
    let server = server.expect("just started");
    let mut line = String::new();
    let client = Wish::default().config();
    let first = serve_one(server.addresses()[0], &client);
    let mut reader = BufReader::new(opening.join().expect("no panic"));
    reader.read_line(&mut line).expect("a line");
    assert!(line.contains(&first.to_string()), "{line}");
    drop(reader);
    // Nothing reads this line now.
    let second = serve_one(server.addresses()[0], &client);
    std::thread::sleep(Duration::from_millis(200));
    line.clear();
    open().read_line(&mut line).expect("a line");
    assert!(line.contains(&second.to_string()), "{line}");
}

#[test]
fn a_full_disk_stops_no_client_and_no_server() {
    let files = Files::new();
    let config = logging(&files, Path::new("/dev/full"));
    let server = start(&config);
    let client = Wish::default().config();
    for _ in 0..3 {
        serve_one(server.addresses()[0], &client);
    }
    assert_eq!(metric(&server, "widelane_access_log_lines_total"), 0);
    assert_eq!(server.stop(PATIENCE), 0);
}
