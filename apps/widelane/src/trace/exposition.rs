//! Text for Prometheus, at an address.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use widelane_cli::failure::Failure;

/// Answers every request with the text that was shown last.
pub(super) struct Exposition {
    text: Arc<Mutex<String>>,
}

impl Exposition {
    /// Listens from now on.
    pub(super) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address)
            .map_err(|error| Failure::Failed(format!("cannot listen at {address} for Prometheus: {error}")))?;
        let text = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&text);
        let answering = move || {
            for client in listener.incoming().flatten() {
                let text = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A client that fails or is slow has lost its answer, not ours.
                let _ = answer(client, &text);
            }
        };
        thread::Builder::new().name("prometheus".to_owned()).spawn(answering)?;
        Ok(Self { text })
    }

    /// The text from now on.
    pub(super) fn show(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// Reads a request to its empty line, and answers it. One client after the other: each has little time.
fn answer(mut client: TcpStream, text: &str) -> std::io::Result<()> {
    let end = Instant::now() + PATIENCE;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut some = [0; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > MOST_REQUEST {
            return Ok(());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut some)? {
            0 => return Ok(()),
            read => request.extend_from_slice(&some[..read]),
        }
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(text.as_bytes())
}

const PATIENCE: Duration = Duration::from_secs(2);
const MOST_REQUEST: usize = 8192;
