//! Limits of one source, of silence and of the whole server, against clients that hold places.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use common::*;
use widelane_terminator::Config;

const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("an option");
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("an option");
    seen.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Silent connections from one address, made again as fast as the server drops them.
struct Attack {
    stop: Arc<AtomicBool>,
    opened: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    fn start(to: SocketAddr, connections: usize) -> Self {
        let (stop, opened) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let threads = (0..2)
            .map(|_| {
                let (stop, opened) = (stop.clone(), opened.clone());
                std::thread::spawn(move || {
                    let mut held: Vec<TcpStream> = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        held.retain(is_open);
                        while held.len() < connections / 2 && !stop.load(Ordering::Relaxed) {
                            // The system runs out of ports for a moment.
                            let Ok(stream) = from(ATTACKER, to) else {
                                break;
                            };
                            // Leaves no socket behind that waits for its time.
                            let socket = socket2::SockRef::from(&stream);
                            socket.set_linger(Some(Duration::ZERO)).expect("an option");
                            held.push(stream);
                            opened.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        Self { stop, opened, threads }
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no panic");
        }
    }
}

/// Clients of another address lose nothing while one address holds all that it can.
fn assert_others_lose_nothing(config: &Config, silent: usize, clients: u64) {
    let server = start(config);
    let attack = Attack::start(server.addresses()[0], silent);
    eventually("the attacker is at its limit", || {
        refused(&server, "source_handshakes") > 0
    });
    for _ in 0..clients {
        works(&server);
    }
    eventually("the attacker goes on", || attack.opened() > 2 * silent);
    println!(
        "{} silent connections opened, {} at a time; {} refused at the limit of the source, {} \
         dropped for silence, {} for room; {clients} clients served",
        attack.opened(),
        silent,
        refused(&server, "source_handshakes"),
        failed(&server, "silent"),
        failed(&server, "made_room"),
    );
    attack.end();
    let ok = r#"widelane_handshakes_total{result="ok",version="1.3",resumed="no"}"#;
    assert_eq!(metric(&server, ok), clients);
    assert_eq!(refused(&server, "handshakes"), 0);
    assert_eq!(refused(&server, "connections"), 0);
    eventually("all places are given back", || server.connections() == 0);
    assert_eq!(metric(&server, "widelane_handshakes_pending"), 0);
}

#[test]
fn one_address_cannot_hold_the_places_of_another() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Ecdsa, echo());
    config.limits.handshakes = 200;
    config.limits.first_byte = Duration::from_millis(700);
    assert_others_lose_nothing(&config, 300, 50);
}

/// The same at full size, with everything as it comes.
#[test]
#[ignore = "3,000 connections need a machine of their own; run it by hand"]
fn three_thousand_silent_connections_of_one_address() {
    let files = Files::new();
    assert_others_lose_nothing(&simple(&files, Kind::Ecdsa, echo()), 3000, 2000);
}

#[test]
fn the_oldest_silent_connection_makes_room() {
    let files = Files::new();
    for of_connections in [false, true] {
        let mut config = simple(&files, Kind::Ecdsa, echo());
        config.workers = NonZeroUsize::new(1);
        if of_connections {
            config.limits.connections = Some(4);
        } else {
            config.limits.handshakes = 4;
        }
        let server = start(&config);
        let address = server.addresses()[0];
        let mut silent = Vec::new();
        for count in 1..=4 {
            silent.push(from(CLIENT, address).expect("a connection"));
            eventually("it is accepted", || server.connections() == count);
        }
        let mut speaking = hello(address).expect("a handshake finds a place");
        eventually("counted", || failed(&server, "made_room") == 1);
        let open: Vec<bool> = silent.iter().map(is_open).collect();
        assert_eq!(open, [false, true, true, true], "the oldest one had to go");
        ping(&mut speaking).expect("an answer");
        let limit = if of_connections { "connections" } else { "handshakes" };
        assert_eq!(refused(&server, limit), 0);
        drop(silent);
        finish(&mut speaking).expect("an orderly end");
        eventually("all places are given back", || server.connections() == 0);
        assert_eq!(metric(&server, "widelane_handshakes_pending"), 0);
    }
}

/// Holds all of `places` with connections that have sent `words`, and says whether another client finds a place.
fn another_finds_a_place(places: usize, words: &[u8]) -> bool {
    let files = Files::new();
    let mut config = simple(&files, Kind::Ecdsa, echo());
    config.workers = NonZeroUsize::new(1);
    config.limits.handshakes = places;
    let server = start(&config);
    let address = server.addresses()[0];
    let mut held = Vec::new();
    for count in 1..=places {
        let mut stream = from(ATTACKER, address).expect("a connection");
        eventually("it is accepted", || server.connections() == count);
        stream.write_all(words).expect("sent");
        held.push(stream);
    }
    if words.len() > 1000 {
        // A place counts as taken for good once the server has answered.
        for stream in &mut held {
            stream.read_exact(&mut [0]).expect("ServerHello");
        }
    }
    let found = hello(address).and_then(|mut stream| ping(&mut stream)).is_ok();
    assert_eq!(failed(&server, "made_room"), u64::from(found));
    assert_eq!(refused(&server, "handshakes"), u64::from(!found));
    drop(held);
    found
}

#[test]
fn a_connection_makes_room_until_its_client_hello_is_whole() {
    let hello = client_hello();
    assert!(another_finds_a_place(3, &hello[..1]));
    assert!(another_finds_a_place(3, &hello[..hello.len() - 1]));
    assert!(!another_finds_a_place(3, &hello), "its handshake has cost something");
}

/// Connections from `source` that get the alert for clients that speak no TLS, and stay open.
fn lingering(source: Ipv4Addr, address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let opened = (0..count).map(|_| {
        let mut stream = from(source, address).expect("a connection");
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
        // Refused connections have no alert.
        let _ = stream.read(&mut [0; 7]);
        stream
    });
    opened.collect()
}

#[test]
fn connections_that_linger_make_room() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Ecdsa, echo());
    config.workers = NonZeroUsize::new(1);
    config.limits.connections = Some(4);
    let server = start(&config);
    let address = server.addresses()[0];
    let held = lingering(ATTACKER, address, 3);
    // It has said nothing, and is still not the one that has to go.
    let silent = from(CLIENT, address).expect("a connection");
    eventually("it is accepted", || server.connections() == 4);
    for _ in 0..3 {
        works(&server);
        eventually("it has ended", || server.connections() <= 4);
    }
    assert!(is_open(&silent));
    assert_eq!(refused(&server, "connections"), 0);
    drop(held);
}

#[test]
fn connections_that_linger_count_for_their_source() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Ecdsa, echo());
    config.workers = NonZeroUsize::new(1);
    config.limits.source.handshakes = Some(4);
    let server = start(&config);
    let address = server.addresses()[0];
    let held = lingering(ATTACKER, address, 10);
    assert_eq!(refused(&server, "source_handshakes"), 6);
    assert_eq!(metric(&server, "widelane_handshakes_pending"), 0);
    works(&server);
    drop(held);
    eventually("all places are given back", || server.connections() == 0);
    let again = lingering(ATTACKER, address, 4);
    assert_eq!(refused(&server, "source_handshakes"), 6);
    drop(again);
}

#[test]
fn a_source_has_its_connections() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Ecdsa, echo());
    config.limits.source.connections = Some(2);
    let server = start(&config);
    let address = server.addresses()[0];
    let mut held: Vec<_> = (0..2).map(|_| hello(address).expect("a place")).collect();
    assert!(hello(address).is_err(), "a third one of this source");
    assert_eq!(refused(&server, "source_connections"), 1);
    drop(from(ATTACKER, address).expect("another source has its own"));
    finish(&mut held[0]).expect("an orderly end");
    eventually("a place is free again", || hello(address).is_ok());
    assert_eq!(refused(&server, "source_handshakes"), 0);
}

#[test]
fn a_source_has_its_rate_and_others_have_theirs() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Ecdsa, echo());
    config.limits.source.connections_per_second = Some(5);
    let server = start(&config);
    let address = server.addresses()[0];
    for _ in 0..200 {
        drop(from(ATTACKER, address).expect("a connection"));
    }
    works(&server);
    let accepted = "widelane_connections_accepted_total";
    eventually("all were looked at", || metric(&server, accepted) == 201);
    let over = refused(&server, "source_rate");
    // How many depends on how long it took; one second's worth come in at once.
    assert!((1..=195).contains(&over), "{over} of 200 refused");
}

#[test]
fn a_first_byte_has_a_time_limit_of_its_own() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Ecdsa, echo());
    config.limits.first_byte = Duration::from_millis(300);
    config.limits.handshake = 2 * PATIENCE;
    let server = start(&config);
    let address = server.addresses()[0];
    let mut begun = from(CLIENT, address).expect("a connection");
    begun.write_all(&[22]).expect("sent");
    let mut silent = from(CLIENT, address).expect("a connection");
    let mut words = Vec::new();
    silent.read_to_end(&mut words).expect("an orderly end");
    assert!(words.is_empty());
    eventually("counted", || failed(&server, "silent") == 1);
    assert!(is_open(&begun), "it has sent a byte, so another limit counts");
    assert_eq!(failed(&server, "timeout"), 0);
}
