//! Backends that say which one they are.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use widelane_terminator::{Backend, Server};

use super::*;

/// A backend that says a letter and then sends back what it reads. It can go away and come back at its
/// address.
pub struct Named {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Named {
    pub fn start(letter: u8) -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), letter)
    }

    pub fn at(address: SocketAddr, letter: u8) -> Self {
        Self::on(TcpListener::bind(address).expect("a port"), letter)
    }

    pub fn on(listener: TcpListener, letter: u8) -> Self {
        let address = listener.local_addr().expect("an address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::spawn(move || serve(client, letter));
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    pub fn backend(&self) -> Backend {
        Backend::Tcp(self.address)
    }

    /// Serves those that it has, and refuses all others.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(mut client: TcpStream, letter: u8) {
    let _ = client.set_read_timeout(Some(PATIENCE));
    if client.write_all(&[letter]).is_ok() {
        let mut copy = client.try_clone().expect("a second handle");
        let _ = std::io::copy(&mut copy, &mut client);
    }
    let _ = client.shutdown(std::net::Shutdown::Write);
}

/// Server of a connection that asks for `name`.
pub fn letter(stream: &mut Tls) -> char {
    let mut letter = [0];
    stream.read_exact(&mut letter).expect("a letter");
    letter[0].into()
}

pub fn served_by(address: SocketAddr, name: &str, alpn: &[&str]) -> (char, Tls) {
    let wish = Wish {
        alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
        ..Wish::default()
    };
    let mut stream = connect(address, name, &wish.config()).expect("TLS");
    (letter(&mut stream), stream)
}

pub fn connects(server: &Server, backend: &Backend, result: &str) -> u64 {
    let labels = format!(r#"{{backend="{backend}",result="{result}"}}"#);
    metric(server, &format!("widelane_backend_connects_total{labels}"))
}

pub fn gauge(server: &Server, name: &str, backend: &Backend) -> u64 {
    metric(server, &format!(r#"widelane_backend_{name}{{backend="{backend}"}}"#))
}
