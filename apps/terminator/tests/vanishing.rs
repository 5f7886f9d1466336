//! Clients that vanish at every stage of a connection, while others are served.
//!
//! Alone in its file, so that descriptors, threads and memory of the whole process can be counted.

mod common;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::*;
use widelane_terminator::PlacementChoice;

/// Place at which a client stops.
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
    let (files, own) = (Files::new(), Process::own());
    let backend = echo();
    let certificate = files.certificate(Kind::Rsa, &["a.example"]);
    // Opens what a process opens once: entropy, the time zone, the backend's own socket. And measures what
    // passes cost, for which it makes keys.
    drop(start(&config(vec![listener(
        backend.clone(),
        vec![certificate.clone()],
    )])));
    eventually("what passes cost is measured", || !own.has_thread("calibration"));
    for (enabled, placement) in [
        (true, PlacementChoice::Inline),
        (true, PlacementChoice::VectorCores),
        (false, PlacementChoice::Inline),
    ] {
        let (descriptors_before, threads_before) = (own.descriptors(), own.status("Threads"));
        let mut config = config(vec![listener(backend.clone(), vec![certificate.clone()])]);
        config.batching.enabled = enabled;
        config.batching.placement = placement;
        config.batching.vector_cpus = "0".parse().expect("a list");
        let server = start(&config);
        let address = server.addresses()[0];
        // Two clients that behave keep the passes busy, and must never notice.
        let client = Wish::default().config();
        let behaved = Crowd::start(2, move || {
            serve_one(address, &client);
        });
        let round = |times: usize| {
            for turn in 0..times {
                for stage in STAGES {
                    vanish(address, stage, turn % 2 == 0).unwrap_or_else(|error| panic!("{stage:?}: {error}"));
                }
            }
        };
        // The first rounds fill pools and caches that are meant to stay.
        round(100);
        let memory_before = own.resident();
        round(400);
        behaved.end();
        eventually("no connection and no task is left", || {
            server.connections() == 0 && metric(&server, "widelane_handshakes_pending") == 0
        });
        let grown = own.resident().saturating_sub(memory_before);
        // 400 connections a stage; a leak of their state (5 KiB each) at one stage would be 2 MiB.
        assert!(grown < 1024, "{placement:?} {enabled}: {grown} KiB more than before");
        let internal = failed(&server, "internal");
        assert_eq!(internal, 0, "a client that vanishes is no error of the server");
        assert_eq!(server.stop(PATIENCE), 0, "connections cut off");
        eventually("the backend's threads are gone", || {
            own.status("Threads") == threads_before
        });
        assert_eq!(own.descriptors(), descriptors_before);
    }
}
