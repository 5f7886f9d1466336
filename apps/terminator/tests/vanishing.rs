//! Clients that vanish at every stage of a connection, while others are served.
//!
//! Alone in its file, so that descriptors, threads and memory of the whole process can be counted.

mod common;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use widelane_terminator::PlacementChoice;

/// Where a client stops.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Connected,
    HalfHello,
    Hello,
    ServerFlight,
    Finished,
    Request,
    Answer,
}

const STAGES: [Stage; 7] = [
    Stage::Connected,
    Stage::HalfHello,
    Stage::Hello,
    Stage::ServerFlight,
    Stage::Finished,
    Stage::Request,
    Stage::Answer,
];

/// Goes as far as `stage` and vanishes, by an end of file or by a reset.
fn vanish(address: SocketAddr, stage: Stage, reset: bool) -> io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    if reset {
        socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    }
    let hello = client_hello();
    match stage {
        Stage::Connected => return Ok(()),
        Stage::HalfHello => return socket.write_all(&hello[..hello.len() / 2]),
        Stage::Hello => return socket.write_all(&hello),
        Stage::ServerFlight => {
            socket.write_all(&hello)?;
            let mut some = [0; 100];
            return socket.read(&mut some).map(drop);
        }
        Stage::Finished | Stage::Request | Stage::Answer => {}
    }
    drop(socket);
    let mut stream = connect(address, "a.example", &Wish::default().config())?;
    if reset {
        socket2::SockRef::from(&stream.sock).set_linger(Some(Duration::ZERO))?;
    }
    match stage {
        Stage::Request => stream.write_all(b"half a request"),
        Stage::Answer => ping(&mut stream),
        _ => Ok(()),
    }
}

#[test]
fn vanishing_at_any_stage_under_load_leaks_nothing() {
    let files = Files::new();
    let backend = echo();
    let certificate = files.certificate(Kind::Rsa, &["a.example"]);
    // Opens what a process opens once: entropy, the time zone, the backend's own socket. And measures what
    // passes cost, for which it makes keys.
    drop(start(&config(vec![listener(
        backend.clone(),
        vec![certificate.clone()],
    )])));
    eventually("what passes cost is measured", || {
        !has_thread("calibration")
    });
    for (enabled, placement) in [
        (true, PlacementChoice::Inline),
        (true, PlacementChoice::VectorCores),
        (false, PlacementChoice::Inline),
    ] {
        let (descriptors_before, threads_before) = (open_descriptors(), threads());
        let mut config = config(vec![listener(backend.clone(), vec![certificate.clone()])]);
        config.batching.enabled = enabled;
        config.batching.placement = placement;
        config.batching.vector_cpus = "0".parse().expect("a list");
        let server = start(&config);
        let address = server.addresses()[0];
        // Two clients that behave keep the passes busy, and must never notice.
        let stop = Arc::new(AtomicBool::new(false));
        let behaved: Vec<_> = (0..2)
            .map(|_| {
                let stop = stop.clone();
                std::thread::spawn(move || {
                    let config = Wish::default().config();
                    while !stop.load(Ordering::Relaxed) {
                        let mut stream = connect(address, "a.example", &config).expect("TLS");
                        ping(&mut stream).expect("an answer");
                        finish(&mut stream).expect("an orderly end");
                    }
                })
            })
            .collect();
        let round = |times: usize| {
            for turn in 0..times {
                for stage in STAGES {
                    vanish(address, stage, turn % 2 == 0)
                        .unwrap_or_else(|error| panic!("{stage:?}: {error}"));
                }
            }
        };
        // The first rounds fill pools and caches that are meant to stay.
        round(100);
        let memory_before = resident_kilobytes();
        round(400);
        stop.store(true, Ordering::Relaxed);
        for client in behaved {
            client.join().expect("no client that behaved was disturbed");
        }
        eventually("no connection and no task is left", || {
            server.connections() == 0 && metric(&server, "widelane_handshakes_pending") == 0
        });
        let grown = resident_kilobytes().saturating_sub(memory_before);
        // 400 connections a stage; a leak of their state (5 KiB each) at one stage would be 2 MiB.
        assert!(
            grown < 1024,
            "{placement:?} {enabled}: {grown} KiB more than before"
        );
        let internal = metric(
            &server,
            r#"widelane_handshakes_total{result="internal",version="",resumed=""}"#,
        );
        assert_eq!(
            internal, 0,
            "a client that vanishes is no error of the server"
        );
        assert_eq!(server.stop(PATIENCE), 0, "connections cut off");
        eventually("the backend's threads are gone", || {
            threads() == threads_before
        });
        assert_eq!(open_descriptors(), descriptors_before);
    }
}

fn resident_kilobytes() -> usize {
    status("VmRSS:")
}

fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    tasks.flatten().any(|task| {
        let comm = std::fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    })
}

fn threads() -> usize {
    status("Threads:")
}

fn status(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status
        .lines()
        .find(|line| line.starts_with(field))
        .expect("the field");
    let value = line.split_whitespace().nth(1).expect("a number");
    value.parse().expect("a number")
}

fn client_hello() -> Vec<u8> {
    let name = "a.example".try_into().expect("a name");
    let config = Wish::default().config();
    let mut client = rustls::ClientConnection::new(config, name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("in memory");
    bytes
}
