//! The plain HTTP address that Prometheus and health checks ask: `/metrics` and `/healthz`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::server::Shared;
use crate::stats::Scrape;

/// A thread of its own, so that a scrape never waits behind handshakes nor they behind it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    socket: Option<TcpListener>,
    address: SocketAddr,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Endpoint {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self {
            socket: Some(socket),
            address,
            running: None,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn start(&mut self, shared: Arc<Shared>) -> io::Result<()> {
        let Some(socket) = self.socket.take() else {
            return Ok(());
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("widelane-metrics".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        result = serve(socket, shared) => if let Err(error) = result {
                            tracing::error!(%error, "metrics are not served any more");
                        },
                    }
                });
            })?;
        self.running = Some((stop, thread));
        Ok(())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

async fn serve(socket: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let socket = tokio::net::TcpListener::from_std(socket)?;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(shared.clone())));
    let registry = Arc::new(registry);
    let places = Arc::new(Semaphore::new(MOST_ASKING));
    loop {
        match socket.accept().await {
            Ok((client, _)) => {
                // One too many is closed at once: descriptors are the listeners'.
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    continue;
                };
                let answered = answer(client, registry.clone(), shared.clone());
                tokio::spawn(async move {
                    let _ = timeout(ASKING, answered).await;
                    drop(place);
                });
            }
            // Out of descriptors: the listeners say so already.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn answer(
    mut client: TcpStream,
    registry: Arc<Registry>,
    shared: Arc<Shared>,
) -> io::Result<()> {
    let mut request = Vec::with_capacity(1024);
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        if request.len() > LONGEST_REQUEST || client.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let response = respond(&request, &registry, &shared);
    client.write_all(response.as_bytes()).await?;
    client.shutdown().await
}

fn respond(request: &[u8], registry: &Registry, shared: &Shared) -> String {
    let line = request
        .split(|&byte| byte == b'\r')
        .next()
        .unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let path = target
        .split(|&byte| byte == b'?')
        .next()
        .unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => {
            let mut text = String::new();
            match prometheus_client::encoding::text::encode(&mut text, registry) {
                Ok(()) => ("200 OK", OPENMETRICS, text),
                Err(_) => ("500 Internal Server Error", PLAIN, "not encodable\n".into()),
            }
        }
        (b"GET" | b"HEAD", b"/healthz") if shared.is_draining() => {
            ("503 Service Unavailable", PLAIN, "draining\n".into())
        }
        (b"GET" | b"HEAD", b"/healthz") => ("200 OK", PLAIN, "ok\n".into()),
        (b"GET" | b"HEAD", _) => ("404 Not Found", PLAIN, "ask /metrics or /healthz\n".into()),
        _ => (
            "405 Method Not Allowed",
            PLAIN,
            "only GET and HEAD\n".into(),
        ),
    };
    let length = body.len();
    let body = if method == b"HEAD" { "" } else { &body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const LONGEST_REQUEST: usize = 8 * 1024;
/// Connections at a time. Prometheus and a few health checks need one each.
const MOST_ASKING: usize = 64;
const ASKING: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
