//! Clients that go away at a random point of a session, in a random way.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use socket2::SockRef;

use super::Files;
use super::client::{Client, GROUPS, Tls, VERSIONS, Wish};
use super::protocol::Protocol;

/// A host of a server, as its clients know it.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    pub address: SocketAddr,
    pub name: &'a str,
    pub protocol: Protocol,
    /// Makes the server close connections whose clients say nothing for a while.
    pub closes_idle: bool,
}

/// Begins a session and goes away at a random point, in a random way.
pub fn go_away(client: &Client, host: &Host<'_>, random: &mut Random) -> io::Result<()> {
    let mut tls = client.connect(host.address, host.name)?;
    host.protocol.before(&mut tls.sock)?;
    let mut hello = Vec::new();
    tls.conn.write_tls(&mut hello)?;
    match random.below(6) {
        0 => tls.sock.write_all(&hello[..random.below(hello.len())])?,
        1 => tls.sock.write_all(&hello)?,
        2 => {
            tls.sock.write_all(&hello)?;
            // The server's flight, or a part of it.
            let mut part = vec![0; 1 + random.below(1500)];
            let _some = tls.sock.read(&mut part)?;
        }
        3 => {
            tls.sock.write_all(&hello)?;
            while !tls.conn.wants_write() {
                if tls.conn.read_tls(&mut tls.sock)? == 0 {
                    return Ok(());
                }
                tls.conn.process_new_packets().map_err(io::Error::other)?;
            }
            let mut flight = Vec::new();
            tls.conn.write_tls(&mut flight)?;
            tls.sock.write_all(&flight[..random.below(flight.len())])?;
        }
        point => {
            tls.sock.write_all(&hello)?;
            // One call is a whole handshake, or fails.
            tls.conn.complete_io(&mut tls.sock)?;
            if point == 5 {
                let data = host.protocol.data(host.name);
                tls.write_all(&data[..random.below(data.len())])?;
            }
        }
    }
    match random.below(16) {
        // Until the server has had enough.
        0 if host.closes_idle => read_to_end(&mut tls),
        0..=5 => {
            tls.sock.shutdown(Shutdown::Write)?;
            read_to_end(&mut tls)
        }
        6..=10 => SockRef::from(&tls.sock).set_linger(Some(Duration::ZERO)),
        _ => Ok(()),
    }
}

fn read_to_end(tls: &mut Tls) -> io::Result<()> {
    io::copy(&mut tls.sock, &mut io::sink()).map(drop)
}

/// Ends the load, also when a test fails in the middle.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Clients of both versions and all groups.
pub fn clients(files: &Files) -> Vec<Client> {
    let client = |version, group| {
        let wish = Wish {
            version,
            group,
            ..Wish::default()
        };
        wish.client(files)
    };
    VERSIONS
        .iter()
        .flat_map(|version| GROUPS.map(|group| client(version, group)))
        .collect()
}

/// Numbers that look random and are the same in each run (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: usize) -> Self {
        Self((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}
