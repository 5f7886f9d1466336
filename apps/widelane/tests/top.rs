//! `widelane top` as its users see it, beside an endpoint that answers as a server would.

mod under_test;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

fn top(arguments: &[&str]) -> Output {
    let mut command = under_test::widelane();
    command.arg("top").args(arguments).stdin(Stdio::null());
    command.output().expect("it starts")
}

/// Answers as many scrapes; each tells of a pass with six jobs and of three handshakes more.
fn endpoint(scrapes: u64) -> (SocketAddr, thread::JoinHandle<()>) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    let serving = thread::spawn(move || {
        for turn in 1..=scrapes {
            let (mut client, _) = socket.accept().expect("a scrape");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).expect("a request");
                request.push(byte[0]);
            }
            assert!(request.starts_with(b"GET /metrics "), "{request:?}");
            let text = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n# TYPE x counter\n\
                 widelane_batching 1\n\
                 widelane_handshakes_total{{result=\"ok\",version=\"1.3\"}} {}\n\
                 widelane_engine_jobs_total{{operation=\"rsa2048-sign\"}} {}\n\
                 widelane_engine_passes_total{{operation=\"rsa2048-sign\"}} {turn}\n\
                 widelane_engine_lanes_filled_total{{operation=\"rsa2048-sign\"}} {}\n\
                 widelane_engine_queued_nanoseconds_total{{operation=\"rsa2048-sign\"}} {}\n\
                 # EOF\n",
                3 * turn,
                6 * turn,
                6 * turn,
                120_000 * turn,
            );
            client.write_all(text.as_bytes()).expect("it reads");
        }
    });
    (address, serving)
}

#[test]
fn a_signal_ends_it_well() {
    let mut command = under_test::widelane();
    command.args(["top", "--json", "--no-users", "--interval", "0.1"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    lines.read_line(&mut String::new()).expect("it has begun");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("whole lines");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_mistyped_address_is_refused_at_once() {
    let output = top(&["--once", "--no-users", "--metrics", "127.0.0.1:99999"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("an address is like 127.0.0.1:9464"), "{complaint}");
}

#[test]
fn once_shows_what_the_server_did() {
    let (address, serving) = endpoint(2);
    let address = address.to_string();
    let output = top(&["--once", "--interval", "0.2", "--metrics", &address]);
    serving.join().expect("two scrapes and no more");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("plain text");
    let expected = "lanes 6.0  queue 20.0 us  failed 0/s";
    assert!(text.starts_with("handshakes ") && text.contains(expected), "{text}");
    assert!(text.contains("rsa2048-sign") && !text.contains('\x1b'), "{text}");
    for section in ["AVX users", "licence", "clock", "by class"] {
        assert!(text.contains(&format!("\n{section} ")), "{section}: {text}");
    }
}

#[test]
fn without_a_server_it_says_how_to_get_one() {
    let output = top(&["--once", "--interval", "0.1", "--no-users"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("plain text");
    assert!(text.contains("--metrics 127.0.0.1:9464"), "{text}");
    assert!(text.contains("AVX users  n/a: left out"), "{text}");
}

/// The reason and all other panels are shown where tracing is not allowed.
#[test]
fn handshakes_are_shown_only_if_they_are_asked_for() {
    let show = |more: &[&str]| {
        let output = top(&[&["--json", "--count", "1", "--interval", "0.1", "--no-users"], more].concat());
        assert!(output.status.success(), "{output:?}");
        let line: Value = serde_json::from_slice(&output.stdout).expect("an object");
        line
    };
    assert!(show(&[])["tls"].is_null());
    let line = show(&["--handshakes"]);
    let tls = &line["tls"];
    assert!(tls["processes"].is_array() || tls["why_not"].is_string(), "{line}");
    assert!(line["processor"].is_string(), "{line}");
}

#[test]
fn json_has_an_object_for_each_interval() {
    let (address, serving) = endpoint(3);
    let address = address.to_string();
    let output = top(&[
        "--json",
        "--count",
        "2",
        "--interval",
        "0.1",
        "--no-users",
        "--metrics",
        &address,
    ]);
    serving.join().expect("three scrapes and no more");
    let lines = under_test::objects(&output);
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_eq!(line["server"]["all"]["lanes"].as_f64(), Some(6.0), "{line}");
        assert!(line["server"]["handshakes"].as_f64() > Some(0.0), "{line}");
        assert!(line["users"]["why_not"].is_string(), "{line}");
        let clocks = &line["clocks"];
        assert!(clocks["cores"].is_array() || clocks["why_not"].is_string(), "{line}");
    }
}

#[test]
fn an_address_where_nobody_answers_is_a_reason_and_no_failure() {
    // Other tests are on 127.0.0.1 and cannot be given its port.
    let socket = TcpListener::bind("127.0.0.2:0").expect("a port");
    let address = socket.local_addr().expect("an address").to_string();
    drop(socket);
    let output = top(&["--once", "--interval", "0.1", "--no-users", "--metrics", &address]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("plain text");
    assert!(
        text.starts_with("handshakes n/a: ") && text.contains(&address),
        "{text}"
    );
}

#[test]
fn wrong_intervals_are_refused() {
    let output = top(&["--interval", "0"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
