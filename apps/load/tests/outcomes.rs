//! Tests what a run counts, against servers that behave and servers that do not.

mod common;

use common::{Identity, Server, answer, plan_for, shake, wait_for_close};
use rustls::server::ServerConnection;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use widelane_affinity::Cpus;
use widelane_load::{
    After, Arrivals, Close, LoadError, Plan, Report, Spacing, StartTls, Trust, Version, Watch, run, run_watched,
};
use widelane_testkit::certificates;
use widelane_testkit::clients::server_config;

#[test]
fn a_closed_loop_makes_as_many_as_it_says_and_the_server_agrees() {
    for close in [Close::Reset, Close::Fin] {
        for version in [Version::Tls12, Version::Tls13] {
            let server = Server::tls(Identity::new().config(&[]));
            let mut plan = server.plan();
            plan.arrivals = Arrivals::Concurrency(5);
            plan.threads = 2;
            plan.limit = Some(41);
            plan.close = close;
            plan.offer.version = Some(version);
            let report = run(&plan).expect("a run");
            assert_eq!((report.attempted, report.completed, report.errors), (41, 41, 0));
            assert_eq!(report.resumed, 0);
            assert_eq!(report.mode, "closed");
            assert_eq!(report.version, Some(version.to_string()).as_deref());
            assert!(report.handshakes_per_s.is_some_and(|rate| rate > 0.0));
            assert!(report.p50_us <= report.p99_us && report.p99_us <= report.max_us);
            assert!(report.cpu_us_per_handshake.is_some_and(|us| us > 0.0));
            let seen = server.finish();
            // The trial connection comes on top. Every Finished arrived, and no close
            // overtook what the server had still to read.
            assert_eq!(seen.shaken.load(Ordering::SeqCst), 42);
            assert_eq!(seen.closed_cleanly.load(Ordering::SeqCst), 42);
        }
    }
}

#[test]
fn a_client_asks_for_tls_in_plain_text_and_sends_its_message_through_tls() {
    let config = Arc::new(Identity::new().config(&[]));
    let server = Server::new(move |mut stream, seen| {
        for (says, hears) in [
            ("220 ready\r\n", "EHLO widelane-load\r\n"),
            ("250-mail.test\r\n250 STARTTLS\r\n", "STARTTLS\r\n"),
            ("220 go on\r\n", ""),
        ] {
            let mut heard = vec![0; hears.len()];
            let spoken = stream.write_all(says.as_bytes());
            if spoken.and_then(|()| stream.read_exact(&mut heard)).is_err() {
                return;
            }
            assert_eq!(heard, hears.as_bytes());
        }
        if let Some((connection, stream)) = shake(&config, stream, seen) {
            answer(connection, stream, "250 done\r\n");
        }
    });
    let mut plan = server.plan();
    plan.arrivals = Arrivals::Concurrency(5);
    plan.limit = Some(21);
    plan.starttls = Some(StartTls::Smtp);
    let exchange = |expect: &[u8]| After::Exchange {
        send: b"NOOP\r\n\r\n".to_vec(),
        expect: expect.to_vec(),
    };
    plan.after = exchange(b"done");
    let report = run(&plan).expect("a run");
    assert_eq!(
        (report.completed, report.errors),
        (21, 0),
        "{:?}",
        report.errors_by_kind
    );
    assert!(report.answer.is_some());
    plan.after = exchange(b"never");
    let report = run(&plan).expect("a run");
    assert_eq!(report.errors_by_kind.get("answer cut short"), Some(&21));
    plan.starttls = Some(StartTls::Imap);
    let refused = run(&plan).expect_err("another protocol").to_string();
    assert!(
        refused.contains("`220 ready`") && refused.contains("--starttls"),
        "{refused}"
    );
    drop(server);
}

#[test]
fn an_open_loop_charges_a_stall_to_all_who_should_have_started_in_it() {
    // One connection at a time, and one of them takes STALL: all that are due meanwhile wait.
    const STALL: Duration = Duration::from_millis(600);
    let config = Arc::new(Identity::new().config(&[]));
    let turn = std::sync::Mutex::new(0);
    let server = Server::new(move |stream, seen| {
        let mut turn = turn.lock().expect("no panic");
        *turn += 1;
        if *turn == 20 {
            thread::sleep(STALL);
        }
        if let Some((connection, stream)) = shake(&config, stream, seen) {
            wait_for_close(connection, stream, seen);
        }
    });
    let mut plan = server.plan();
    plan.arrivals = Arrivals::Rate {
        per_second: 100.0,
        spacing: Spacing::Even,
        storm: None,
    };
    plan.duration = Duration::from_secs(1);
    let report = run(&plan).expect("a run");
    assert_eq!(report.errors, 0, "{:?}", report.errors_by_kind);
    // 100 were due; those due within the first 300 ms of the stall waited 300 ms or more,
    // which is 30 of them. Lower bounds only: a slow machine makes it worse, never better.
    assert_eq!(report.completed + report.not_started, 100);
    assert!(report.max_us.expect("latencies") >= 590_000.0);
    assert!(report.p90_us.expect("latencies") >= 300_000.0);
    assert!(report.lateness.is_some());
    drop(server);
}

#[test]
fn clients_of_a_server_that_never_answers_try_again_and_give_up() {
    let server = Server::new(|mut stream, _| {
        // Reads to the end that the client makes.
        while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
    });
    for arrivals in [
        Arrivals::Concurrency(3),
        Arrivals::Rate {
            per_second: 1000.0,
            spacing: Spacing::Even,
            storm: None,
        },
    ] {
        let mut plan = server.plan();
        plan.preflight = false;
        plan.arrivals = arrivals;
        plan.limit = Some(3);
        plan.timeout = Duration::from_millis(50);
        plan.retries = 2;
        let report = run(&plan).expect("a run");
        // Each of three clients tries three times.
        assert_eq!((report.attempted, report.errors), (9, 9), "{report}");
        assert_eq!((report.retried, report.gave_up), (6, 3));
        assert_eq!((report.completed, report.goodput_per_s), (0, Some(0.0)));
    }
}

#[test]
fn a_client_that_is_served_at_last_counts_once() {
    // The first two connections are closed at once; the others are served.
    let config = Arc::new(Identity::new().config(&[]));
    let refused = AtomicUsize::new(0);
    let server = Server::new(move |stream, seen| {
        if refused.fetch_add(1, Ordering::SeqCst) < 2 {
            return;
        }
        if let Some((connection, stream)) = shake(&config, stream, seen) {
            wait_for_close(connection, stream, seen);
        }
    });
    let mut plan = server.plan();
    plan.preflight = false;
    plan.arrivals = Arrivals::Concurrency(1);
    plan.limit = Some(1);
    plan.retries = 2;
    let report = run(&plan).expect("a run");
    assert_eq!((report.attempted, report.retried), (3, 2), "{report}");
    assert_eq!((report.completed, report.gave_up), (1, 0));
    assert_eq!(report.goodput_per_s, report.handshakes_per_s);
}

#[test]
fn poisson_arrivals_are_an_open_loop_too() {
    let server = Server::tls(Identity::new().config(&[]));
    let mut plan = server.plan();
    plan.arrivals = Arrivals::Rate {
        per_second: 200.0,
        spacing: Spacing::Poisson,
        storm: None,
    };
    plan.limit = Some(30);
    let report = run(&plan).expect("a run");
    assert_eq!((report.completed, report.spacing), (30, Some("poisson")));
}

#[test]
fn groups_and_versions_are_what_was_asked_for() {
    let server = Server::tls(Identity::new().config_for_every_group());
    for (tls, group, suite, seen_suite) in [
        ("1.3", "x25519", None, "TLS_AES_256_GCM_SHA384"),
        ("1.3", "p256", Some("TLS_AES_128_GCM_SHA256"), "TLS_AES_128_GCM_SHA256"),
        (
            "1.3",
            "p384",
            Some("TLS_CHACHA20_POLY1305_SHA256"),
            "TLS_CHACHA20_POLY1305_SHA256",
        ),
        ("1.3", "x25519mlkem768", None, "TLS_AES_256_GCM_SHA384"),
        ("1.3", "secp256r1mlkem768", None, "TLS_AES_256_GCM_SHA384"),
        (
            "1.2",
            "p256",
            Some("ECDHE-ECDSA-AES128-GCM-SHA256"),
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        ),
    ] {
        for (batching, concurrency) in [(true, 16), (false, 16), (true, 1)] {
            let mut plan = server.plan();
            plan.limit = Some(20);
            plan.batching = batching;
            plan.arrivals = Arrivals::Concurrency(concurrency);
            plan.offer.version = Some(tls.parse().expect("a version"));
            plan.offer.groups = vec![group.parse().expect("a group")];
            plan.offer.suites = suite.into_iter().map(|s| s.parse().expect("a suite")).collect();
            let report = run(&plan).expect("a run");
            assert_eq!(report.completed, 20, "{report}");
            assert_eq!(report.batching, batching && concurrency > 1);
            assert_eq!(report.version, Some(tls));
            assert_eq!(report.group.as_deref(), Some(group));
            assert_eq!(report.cipher.as_deref(), Some(seen_suite));
            let signature = report.signature.as_deref();
            assert_eq!(signature, Some("ecdsa_secp256r1_sha256"));
        }
    }
}

#[test]
fn a_client_certificate_is_shown_to_servers_that_ask() {
    let identity = Identity::new();
    let certificate = write_pem(&identity.pem);
    let key = write_pem(&identity.key_pem);
    let server = Server::tls(identity.config_for_clients_with_certificates());
    for concurrency in [1, 16] {
        let mut plan = server.plan();
        plan.limit = Some(32);
        plan.arrivals = Arrivals::Concurrency(concurrency);
        plan.offer.identity = Some(widelane_load::Identity {
            certificate: certificate.path().to_owned(),
            key: key.path().to_owned(),
        });
        let report = run(&plan).expect("a run");
        assert_eq!((report.completed, report.errors), (32, 0), "{report}");
    }

    let other = write_pem(&Identity::new().key_pem);
    for (certificate, key, reason) in [
        (certificate.path(), other.path(), "does not belong to"),
        (key.path(), key.path(), "has no certificate"),
        (certificate.path(), certificate.path(), "has no private key"),
        (Path::new("/nowhere"), key.path(), "No such file"),
    ] {
        let mut plan = server.plan();
        plan.offer.identity = Some(widelane_load::Identity {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        });
        let error = run(&plan).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_wait_for_the_engine_loses_no_byte_and_no_close() {
    // Flights larger than rustls takes at once, and a server that hangs up in the middle.
    let identity = Identity::with_long_chain(24);
    let server = Server::tls(identity.config(&[]));
    let mut plan = server.plan();
    plan.limit = Some(64);
    plan.arrivals = Arrivals::Concurrency(32);
    let report = run(&plan).expect("a run");
    assert_eq!((report.completed, report.errors), (64, 0), "{report}");

    let server = Server::new(|mut stream, _| {
        let _ = stream.read(&mut [0; 16 * 1024]);
    });
    let mut plan = server.plan();
    plan.preflight = false;
    plan.limit = Some(64);
    plan.arrivals = Arrivals::Concurrency(32);
    let report = run(&plan).expect("a run");
    assert_eq!((report.completed, report.errors), (0, 64), "{report}");
}

#[test]
fn a_further_round_trip_is_reported() {
    let identity = Identity::new();
    let mut config = identity.config(&[]);
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups = vec![rustls::crypto::aws_lc_rs::kx_group::SECP384R1];
    let fresh = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(config.cert_resolver.clone());
    config = fresh;
    let server = Server::tls(config);
    let mut plan = server.plan();
    plan.limit = Some(4);
    let report = run(&plan).expect("a run");
    assert_eq!((report.completed, report.hello_retries), (4, 4));
    assert_eq!(report.group.as_deref(), Some("p384"));
    assert!(
        report.notes.iter().any(|note| note.contains("--group")),
        "{:?}",
        report.notes
    );
}

#[test]
fn sessions_are_resumed_when_asked_and_only_then() {
    for version in [Version::Tls12, Version::Tls13] {
        let server = Server::tls(Identity::new().config(&[]));
        let mut plan = server.plan();
        plan.arrivals = Arrivals::Concurrency(1);
        plan.limit = Some(12);
        plan.offer.version = Some(version);
        assert_eq!(run(&plan).expect("a run").resumed, 0);
        plan.offer.resume = true;
        let report = run(&plan).expect("a run");
        // The first has nothing to resume.
        assert_eq!((report.completed, report.resumed), (12, 11), "TLS {version}");
        assert!(report.resumed_share.is_some_and(|share| share > 0.9));
    }
}

#[test]
fn more_connections_than_tickets_of_one_still_resume() {
    let server = Server::tls(Identity::new().config(&[]));
    let mut plan = server.plan();
    plan.arrivals = Arrivals::Concurrency(24);
    plan.limit = Some(240);
    plan.offer.resume = true;
    let report = run(&plan).expect("a run");
    assert_eq!(report.completed, 240);
    assert_eq!(report.resumed, 240 - 24);
}

#[test]
fn a_request_is_answered_or_counted_by_status() {
    let config = Arc::new(Identity::new().config(&[]));
    for (text, kind) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", None),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", None),
        ("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", Some("http 503")),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi",
            Some("answer cut short"),
        ),
        ("what?\r\n\r\n", Some("http: malformed answer")),
    ] {
        let config = config.clone();
        let server = Server::new(move |stream, seen| {
            if let Some((connection, stream)) = shake(&config, stream, seen) {
                answer(connection, stream, text);
            }
        });
        let mut plan = server.plan();
        plan.limit = Some(6);
        plan.after = After::Get("/".into());
        let report = run(&plan).expect("a run");
        match kind {
            None => {
                assert_eq!((report.completed, report.errors), (6, 0), "{text:?}");
                let answer = report.answer.expect("answers were timed");
                assert!(report.p50_us.expect("handshakes") <= answer.max_us);
            }
            Some(kind) => assert_eq!(only_kind(&report), (kind, 6)),
        }
    }
}

#[test]
fn failures_are_told_apart() {
    let identity = Identity::new();

    let resets = Server::new(|stream, _| {
        // Closed with the hello unread: the kernel resets.
        let _ = stream.peek(&mut [0]);
    });
    assert_eq!(failing(resets.plan()), "reset during the handshake");

    let hangs_up = Server::new(|mut stream, _| {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer);
    });
    assert_eq!(failing(hangs_up.plan()), "closed during the handshake");

    // Sends its whole flight, and closes before our Finished can have come: not a handshake.
    let config = Arc::new(identity.config(&[&rustls::version::TLS13]));
    let leaves_early = Server::new(move |mut stream, _| {
        let mut connection = rustls::ServerConnection::new(config.clone()).expect("a connection");
        while !connection.wants_write() {
            connection.read_tls(&mut stream).expect("a hello");
            connection.process_new_packets().expect("a good one");
        }
        let mut flight = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut flight).expect("memory");
        }
        let corked = rustix::net::sockopt::set_tcp_cork(&stream, true);
        corked.expect("an option of Linux");
        stream.write_all(&flight).expect("a client");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
    });
    assert_eq!(failing(leaves_early.plan()), "closed during the handshake");

    let plain = Server::new(|mut stream, _| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = stream.read(&mut [0; 4096]);
    });
    let kind = failing(plain.plan());
    assert!(kind.starts_with("tls: "), "{kind}");

    let silent = Server::new(|mut stream, _| while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {});
    let mut plan = silent.plan();
    plan.timeout = Duration::from_millis(100);
    assert_eq!(failing(plan), "timeout: handshake");

    let old = Server::tls(identity.config(&[&rustls::version::TLS12]));
    let mut plan = old.plan();
    plan.offer.version = Some(Version::Tls13);
    assert_eq!(failing(plan), "tls alert: protocol_version");

    // In TLS 1.3 that alert comes after our Finished: such a handshake must not count.
    let choosy = Server::tls(identity.config_for_clients_with_certificates());
    assert_eq!(failing(choosy.plan()), "tls alert: certificate_required");

    let stranger = Identity::new();
    let file = write_pem(&stranger.pem);
    let server = Server::tls(identity.config(&[]));
    let mut plan = server.plan();
    plan.offer.trust = Trust::File(file.path().to_owned());
    // Both bear the name of the same issuer, and only the other one's key is trusted.
    assert_eq!(failing(plan), "certificate: a signature is wrong");

    // Other tests are on 127.0.0.1 and cannot be given its port.
    let unused = TcpListener::bind("127.0.0.2:0").expect("a port");
    let address = unused.local_addr().expect("an address");
    drop(unused);
    assert_eq!(failing(plan_for(address)), "connect: connection refused");
}

#[test]
fn a_server_too_busy_to_accept_is_a_timeout_of_the_connect() {
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, listen, socket};
    let new = || socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let listener = new();
    bind(&listener, &"127.0.0.1:0".parse::<SocketAddr>().expect("an address")).expect("a port");
    // Room for one, which is taken; the kernel drops the next ones.
    listen(&listener, 0).expect("a listener");
    let address: SocketAddr = getsockname(&listener)
        .expect("an address")
        .try_into()
        .expect("an IP address");
    let first = new();
    connect(&first, &address).expect("room for one");
    let mut plan = plan_for(address);
    plan.timeout = Duration::from_millis(100);
    assert_eq!(failing(plan.clone()), "timeout: connect");
    let text = run(&plan).expect_err("no answer").to_string();
    assert!(text.contains("no answer") && text.contains("--timeout"), "{text}");
}

#[test]
fn a_trusted_certificate_is_trusted_for_its_names_only() {
    let identity = Identity::new();
    let file = write_pem(&identity.pem);
    let server = Server::tls(identity.config(&[]));
    let mut plan = server.plan();
    plan.limit = Some(4);
    plan.offer.trust = Trust::File(file.path().to_owned());
    assert_eq!(run(&plan).expect("a run").completed, 4);
    plan.server_name = "localhost".into();
    assert_eq!(run(&plan).expect("a run").completed, 4);
    plan.server_name = "elsewhere.test".into();
    let error = run(&plan).expect_err("another name");
    assert!(matches!(error, LoadError::Certificate { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("elsewhere.test") && text.contains("--server-name"),
        "{text}"
    );
}

#[test]
fn a_self_signed_authority_may_be_its_own_server() {
    // Makes what `openssl req -x509` makes: CA:TRUE, and used as a server certificate.
    let identity = certificates::Identity::as_authority("127.0.0.1", 1, &[]);
    let server = Server::tls(server_config(&identity, rustls::ALL_VERSIONS));
    let file = write_pem(&identity.pem);
    let mut plan = server.plan();
    plan.limit = Some(2);
    plan.offer.trust = Trust::File(file.path().to_owned());
    assert_eq!(run(&plan).expect("a run").completed, 2);
    plan.server_name = "127.0.0.2".into();
    assert!(matches!(run(&plan), Err(LoadError::Certificate { .. })));
}

#[test]
fn what_fails_at_once_is_an_error_that_names_the_remedy() {
    let identity = Identity::new();
    let server = Server::tls(identity.config(&[&rustls::version::TLS13]));

    let mut plan = server.plan();
    plan.offer.version = Some(Version::Tls12);
    let text = run(&plan).expect_err("no common version").to_string();
    assert!(text.contains("protocol_version") && text.contains("--tls"), "{text}");

    let stranger = write_pem(&Identity::new().pem);
    let mut plan = server.plan();
    plan.offer.trust = Trust::File(stranger.path().to_owned());
    let text = run(&plan).expect_err("not trusted").to_string();
    assert!(text.contains("--ca") && text.contains("--insecure"), "{text}");

    let mut plan = server.plan();
    plan.cpus = Cpus::from_iter([1023]);
    let text = run(&plan).expect_err("no such CPU").to_string();
    assert!(text.contains("CPU 1023"), "{text}");

    // Other tests are on 127.0.0.1 and cannot be given its port.
    let unused = TcpListener::bind("127.0.0.2:0").expect("a port");
    let address = unused.local_addr().expect("an address");
    drop(unused);
    let text = run(&plan_for(address)).expect_err("no server is there").to_string();
    assert!(
        text.contains(&address.to_string()) && text.contains("refused"),
        "{text}"
    );
    assert!(text.contains("start the server"), "{text}");
}

#[test]
fn unusable_authorities_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing.pem");
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "nothing here\n").expect("a file");
    let broken = directory.path().join("broken.pem");
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&broken, pem).expect("a file");
    for (path, reason) in [
        (missing, "No such file"),
        (empty, "no certificate"),
        (broken, "does not hold DER"),
    ] {
        let mut plan = Plan::new("127.0.0.1:9").expect("an address");
        plan.offer.trust = Trust::File(path.clone());
        let error = run(&plan).expect_err("an unusable file");
        assert!(matches!(error, LoadError::CaFile { .. }));
        let text = error.to_string();
        assert!(
            text.contains(reason) && text.contains(&*path.to_string_lossy()),
            "{text}"
        );
    }
}

#[test]
fn servers_that_close_in_their_own_way_are_not_failures() {
    let config = Arc::new(Identity::new().config(&[]));

    // Closes right after the handshake, our close_notify perhaps unread: a reset.
    let hasty = Server::new({
        let config = config.clone();
        move |stream, seen| drop(shake(&config, stream, seen))
    });
    let mut plan = hasty.plan();
    plan.limit = Some(50);
    let report = run(&plan).expect("a run");
    assert_eq!(
        (report.completed, report.errors),
        (50, 0),
        "{:?}",
        report.errors_by_kind
    );

    // Never closes.
    let stubborn = Server::new(move |stream, seen| {
        if let Some((_connection, mut stream)) = shake(&config, stream, seen) {
            while matches!(stream.read(&mut [0; 512]), Ok(1..)) {}
        }
    });
    let mut plan = stubborn.plan();
    plan.limit = Some(4);
    plan.preflight = false;
    let report = run(&plan).expect("a run");
    assert_eq!((report.completed, report.unclosed), (4, 4));
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("not closed by the server"))
    );
}

#[test]
fn an_abrupt_end_brings_finished_and_then_a_reset() {
    for version in [Version::Tls12, Version::Tls13] {
        let mut config = Identity::new().config(&[]);
        // A write after the reset would take the error that the read below is to see.
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        let server = Server::new(move |mut stream, seen| {
            let mut tls = ServerConnection::new(config.clone()).expect("a connection");
            let mut wire = [0; 16 * 1024];
            while tls.is_handshaking() {
                let Ok(read @ 1..) = stream.read(&mut wire) else {
                    return;
                };
                let mut wire = &wire[..read];
                while !wire.is_empty() {
                    tls.read_tls(&mut wire).expect("room");
                    tls.process_new_packets().expect("good packets");
                }
                while tls.wants_write() && tls.write_tls(&mut stream).is_ok() {}
            }
            seen.shaken.fetch_add(1, Ordering::SeqCst);
            let after = stream.read(&mut wire).map_err(|error| error.kind());
            if after == Err(std::io::ErrorKind::ConnectionReset) {
                seen.closed_cleanly.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut plan = server.plan();
        plan.limit = Some(20);
        plan.close = Close::Abrupt;
        plan.offer.version = Some(version);
        let report = run(&plan).expect("a run");
        assert_eq!((report.completed, report.errors), (20, 0));
        let told = report.notes.iter().any(|note| note.contains("not seen"));
        assert!(told, "{:?}", report.notes);
        let seen = server.finish();
        // With the trial connection.
        assert_eq!(seen.shaken.load(Ordering::SeqCst), 21);
        assert_eq!(seen.closed_cleanly.load(Ordering::SeqCst), 21);
    }
}

#[test]
fn no_port_of_ours_is_left_in_time_wait() {
    for (close, leaves_some) in [(Close::Reset, false), (Close::Fin, true)] {
        let server = Server::tls(Identity::new().config(&[]));
        // The port may have been another program's until a moment ago.
        let before = in_time_wait();
        let mut plan = server.plan();
        plan.limit = Some(20);
        plan.close = close;
        assert_eq!(run(&plan).expect("a run").completed, 20);
        let after = in_time_wait();
        let new: Vec<_> = after.difference(&before).collect();
        let address = in_table(server.address);
        let ours = new.iter().filter(|pair| pair.peer == address).count();
        let theirs = new.iter().filter(|pair| pair.own == address).count();
        assert_eq!(ours, 0, "{close:?}: sockets of the client in TIME_WAIT");
        assert_eq!(theirs > 0, leaves_some, "{close:?}: {theirs} of the server");
    }
}

/// The addresses of a socket, as the kernel's table has them.
#[derive(PartialEq, Eq, Hash)]
struct Pair {
    own: String,
    peer: String,
}

/// All sockets in TIME_WAIT.
fn in_time_wait() -> HashSet<Pair> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let rows = table
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter(|columns| columns[3] == "06")
        .map(|columns| Pair {
            own: columns[1].to_owned(),
            peer: columns[2].to_owned(),
        })
        .collect()
}

/// An address as in /proc/net/tcp.
fn in_table(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else {
        panic!("the table is of IPv4");
    };
    let number = u32::from_ne_bytes(address.ip().octets());
    format!("{number:08X}:{:04X}", address.port())
}

#[test]
fn held_connections_are_open_at_once() {
    let server = Server::tls(Identity::new().config(&[]));
    let mut plan = server.plan();
    plan.arrivals = Arrivals::Concurrency(30);
    plan.after = After::Hold;
    plan.preflight = false;
    let watch = Watch::default();
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            while server.seen.shaken.load(Ordering::SeqCst) < 30 {
                thread::sleep(Duration::from_millis(5));
            }
            watch.stop();
        });
        run_watched(&plan, &watch).expect("a run")
    });
    assert_eq!((report.completed, report.errors), (30, 0));
    assert_eq!(server.finish().most_open.load(Ordering::SeqCst), 30);
}

#[test]
fn a_stopped_run_reports_what_it_has() {
    let server = Server::tls(Identity::new().config(&[]));
    let mut plan = server.plan();
    plan.arrivals = Arrivals::Concurrency(2);
    let watch = Watch::default();
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            while watch.snapshot().completed < 10 {
                thread::sleep(Duration::from_millis(5));
            }
            watch.stop();
        });
        run_watched(&plan, &watch).expect("a run")
    });
    assert!(report.interrupted);
    assert!(report.completed >= 10);
    assert!(report.duration_s < plan.duration.as_secs_f64());
    assert_eq!(report.attempted, report.completed + report.errors + report.unfinished);
    assert!(report.notes.iter().any(|note| note.starts_with("stopped early")));
}

#[test]
fn a_stalled_server_leaves_unfinished_connections_in_a_stopped_run() {
    let watch = Watch::default();
    let started = Arc::new(AtomicUsize::new(0));
    let server = Server::new({
        let started = started.clone();
        move |mut stream, _| {
            started.fetch_add(1, Ordering::SeqCst);
            while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
        }
    });
    let mut plan = server.plan();
    plan.arrivals = Arrivals::Concurrency(3);
    plan.preflight = false;
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            while started.load(Ordering::SeqCst) < 3 {
                thread::sleep(Duration::from_millis(5));
            }
            watch.stop();
        });
        run_watched(&plan, &watch).expect("a run")
    });
    assert_eq!((report.attempted, report.completed, report.unfinished), (3, 0, 3));
    assert_eq!(report.p50_us, None);
    assert!(report.notes.iter().any(|note| note.starts_with("latencies n/a")));
    assert!(report.to_string().contains("n/a"));
}

#[test]
fn a_server_slower_than_the_warm_up_leaves_nothing_to_measure_and_the_report_says_so() {
    let silent = Server::new(|mut stream, _| while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {});
    let mut plan = silent.plan();
    plan.preflight = false;
    plan.warmup = Duration::from_millis(50);
    plan.duration = Duration::from_millis(50);
    plan.timeout = Duration::from_millis(500);
    let report = run(&plan).expect("a run");
    assert_eq!((report.attempted, report.completed), (0, 0));
    let note = report.notes.iter().find(|note| note.starts_with("latencies n/a"));
    assert!(
        note.is_some_and(|note| note.contains("timeout: handshake")),
        "{:?}",
        report.notes
    );
}

#[test]
fn the_json_object_has_the_promised_members() {
    let server = Server::tls(Identity::new().config(&[]));
    let mut plan = server.plan();
    plan.limit = Some(5);
    let report = run(&plan).expect("a run");
    let json = serde_json::to_value(&report).expect("JSON");
    for name in [
        "handshakes_per_s",
        "errors",
        "p50_us",
        "p90_us",
        "p99_us",
        "p999_us",
        "max_us",
        "duration_s",
        "attempted",
        "completed",
        "resumed",
        "cpu_us_per_handshake",
        "busiest_thread",
        "not_started",
    ] {
        assert!(json[name].is_number(), "{name} in {json}");
    }
    assert!(json["errors_by_kind"].is_object());
    assert!(json["notes"].is_array());
    assert!(json["lateness"].is_null(), "a closed loop has none");
    assert_eq!(json["version"], "1.3");
    assert_eq!(json["group"], "x25519");
    assert_eq!(json["negotiated"][0]["count"], 5);

    plan.arrivals = Arrivals::Rate {
        per_second: 500.0,
        spacing: Spacing::Even,
        storm: None,
    };
    let json = serde_json::to_value(run(&plan).expect("a run")).expect("JSON");
    assert!(json["lateness"]["p99_us"].is_number(), "{json}");
    assert_eq!(json["rate"], 500.0);
}

/// Runs a plan in which everything fails; the one kind of failure.
fn failing(mut plan: Plan) -> String {
    plan.preflight = false;
    plan.limit = Some(6);
    plan.arrivals = Arrivals::Concurrency(3);
    let report = run(&plan).expect("a run");
    assert_eq!((report.attempted, report.completed), (6, 0));
    let (kind, count) = only_kind(&report);
    assert_eq!(count, 6);
    kind.to_owned()
}

fn only_kind(report: &Report) -> (&str, u64) {
    assert_eq!(report.errors_by_kind.len(), 1, "{:?}", report.errors_by_kind);
    let (kind, count) = report.errors_by_kind.first_key_value().expect("one kind");
    assert_eq!(report.errors, *count);
    (kind, *count)
}

fn write_pem(pem: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(pem.as_bytes()).expect("a written file");
    file
}
