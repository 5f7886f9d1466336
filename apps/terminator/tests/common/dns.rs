//! A DNS server on loopback whose answers a test changes.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

/// What a name has.
#[derive(Clone, Default)]
pub struct Records {
    pub addresses: Vec<IpAddr>,
    pub ttl: u32,
    pub how: How,
    /// How questions for AAAA are answered, if in another way.
    pub how_aaaa: Option<How>,
}

/// How a question is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    #[default]
    Well,
    NxDomain,
    ServFail,
    Silent,
    WrongId,
    Garbage,
    /// With records of another name.
    OtherName,
}

/// Answers until the test ends. A long answer comes over TCP.
pub struct Dns {
    pub address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
}

#[derive(Default)]
struct Zone {
    names: HashMap<String, Records>,
    asked: HashMap<String, usize>,
}

impl Dns {
    pub fn start() -> Self {
        let (tcp, udp) = std::iter::repeat_with(|| {
            let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
            let udp = UdpSocket::bind(tcp.local_addr().expect("an address"));
            Some((tcp, udp.ok()?))
        })
        .take(20)
        .flatten()
        .next()
        .expect("a port for both");
        let address = udp.local_addr().expect("an address");
        let zone = Arc::new(Mutex::new(Zone::default()));
        let of_udp = zone.clone();
        std::thread::spawn(move || {
            let mut question = [0; 1500];
            while let Ok((length, from)) = udp.recv_from(&mut question) {
                let answer = answer(&of_udp, &question[..length], MOST_UDP);
                if let Some(answer) = answer {
                    let _ = udp.send_to(&answer, from);
                }
            }
        });
        let of_tcp = zone.clone();
        std::thread::spawn(move || {
            for mut client in tcp.incoming().map_while(Result::ok) {
                let zone = of_tcp.clone();
                std::thread::spawn(move || {
                    let mut length = [0; 2];
                    while client.read_exact(&mut length).is_ok() {
                        let mut question = vec![0; u16::from_be_bytes(length).into()];
                        if client.read_exact(&mut question).is_err() {
                            return;
                        }
                        if let Some(answer) = answer(&zone, &question, usize::MAX) {
                            let length = u16::try_from(answer.len()).expect("a length");
                            let _ = client.write_all(&length.to_be_bytes());
                            let _ = client.write_all(&answer);
                        }
                    }
                });
            }
        });
        Self { address, zone }
    }

    pub fn set(&self, name: &str, records: Records) {
        let mut zone = self.zone.lock().expect("no panic");
        zone.names.insert(name.into(), records);
    }

    /// Good answers with a time of one second.
    pub fn answer(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|one| one.parse().expect("an address"));
        let records = Records {
            addresses: addresses.collect(),
            ttl: 1,
            ..Records::default()
        };
        self.set(name, records);
    }

    pub fn change(&self, name: &str, change: impl FnOnce(&mut Records)) {
        let mut zone = self.zone.lock().expect("no panic");
        change(zone.names.get_mut(name).expect("a name"));
    }

    /// How often the name was asked for, in both families.
    pub fn asked(&self, name: &str) -> usize {
        let zone = self.zone.lock().expect("no panic");
        zone.asked.get(name).copied().unwrap_or(0)
    }
}

fn answer(zone: &Mutex<Zone>, question: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut zone = zone.lock().expect("no panic");
    let mut labels = Vec::new();
    let mut at = 12;
    while let Some(length @ 1..) = question.get(at).copied() {
        let label = question.get(at + 1..)?.get(..length.into())?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += 1 + usize::from(length);
    }
    let name = labels.join(".");
    let asked = question.get(12..at + 5)?;
    let family = u16::from_be_bytes([*question.get(at + 1)?, *question.get(at + 2)?]);
    *zone.asked.entry(name.clone()).or_default() += 1;
    let unknown = Records {
        how: How::NxDomain,
        ..Records::default()
    };
    let records = zone.names.get(&name).unwrap_or(&unknown);
    let how = match family {
        28 => records.how_aaaa.unwrap_or(records.how),
        _ => records.how,
    };
    let (id, code) = match how {
        How::Silent => return None,
        How::Garbage => return Some(question.iter().map(|byte| byte ^ 0xa5).collect()),
        How::NxDomain => (question[1], 3),
        How::ServFail => (question[1], 2),
        How::WrongId => (question[1] ^ 1, 0),
        How::Well | How::OtherName => (question[1], 0),
    };
    let data = records
        .addresses
        .iter()
        .filter_map(|address| match address {
            IpAddr::V4(address) if family == 1 => Some(address.octets().to_vec()),
            IpAddr::V6(address) if family == 28 => Some(address.octets().to_vec()),
            _ => None,
        });
    let data: Vec<_> = data.filter(|_| code == 0).collect();
    // Response, recursion desired and available.
    let mut answer = vec![question[0], id, 0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0];
    answer.extend(asked);
    let head = answer.len();
    for octets in &data {
        match how {
            How::OtherName => answer.extend(b"\x05other\x00"),
            _ => answer.extend([0xc0, 12]),
        }
        answer.extend(family.to_be_bytes());
        answer.extend([0, 1]);
        answer.extend(records.ttl.to_be_bytes());
        answer.extend(u16::try_from(octets.len()).expect("short").to_be_bytes());
        answer.extend(octets);
    }
    if answer.len() > most {
        answer.truncate(head);
        answer[2] |= 0x02;
    } else {
        answer[6..8].copy_from_slice(&u16::try_from(data.len()).expect("few").to_be_bytes());
    }
    Some(answer)
}

const MOST_UDP: usize = 512;
