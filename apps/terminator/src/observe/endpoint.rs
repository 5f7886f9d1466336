//! The plain HTTP address for Prometheus and health checks: `/metrics` and `/healthz`.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::config::{Config, Fault};
use crate::front::sockets::bind_fault;
use crate::housekeeping::spawn;
use crate::observe::scrape::Scrape;
use crate::observe::scrape_format::{Format, classic};
use crate::shared::Shared;

/// Binds the address of a configuration, if it has one.
pub(crate) fn bind_for(config: &Config) -> Result<Option<TcpListener>, Fault> {
    let bound = config.metrics.listen.map(|address| {
        let bound = TcpListener::bind(address).and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        bound.map_err(|error| bind_fault("metrics.listen", address, &error))
    });
    bound.transpose()
}

/// Answers those who ask.
pub(crate) async fn serve(socket: &TcpListener, shared: &Arc<Shared>) {
    let watch = || tokio::net::TcpListener::from_std(socket.try_clone()?);
    let socket = until_watched(watch).await;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(shared.clone())));
    let registry = Arc::new(registry);
    let answers = Arc::new(Semaphore::new(MOST_ANSWERS));
    let mut asking = Asking::default();
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((client, _)) => asking.enter(client),
                // Out of descriptors: the workers log that already.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some((client, request)) = asking.next() => {
                let Ok(place) = answers.clone().try_acquire_owned() else {
                    continue;
                };
                let response = respond(&request, &registry, shared);
                spawn("an answer of the metrics", async move {
                    let _ = timeout(ANSWERING, answer(client, response)).await;
                    drop(place);
                });
            }
        }
    }
}

/// Has the socket watched, again and again until that succeeds: descriptors or memory may lack for a time.
async fn until_watched<T>(mut watch: impl FnMut() -> io::Result<T>) -> T {
    let mut has_failed = false;
    loop {
        match watch() {
            Ok(watched) => {
                if has_failed {
                    tracing::info!("metrics are served");
                }
                return watched;
            }
            Err(error) if !has_failed => tracing::error!(%error, "metrics are not served yet; this is tried again"),
            Err(_) => {}
        }
        has_failed = true;
        sleep(WATCH_PAUSE).await;
    }
}

/// Clients whose request is not complete, oldest first. If there are too many, the oldest is closed,
/// so that silent clients do not keep out a client that asks.
#[derive(Default)]
struct Asking {
    clients: JoinSet<Option<(TcpStream, Request)>>,
    oldest_first: VecDeque<AbortHandle>,
}

impl Asking {
    fn enter(&mut self, client: TcpStream) {
        self.oldest_first.retain(|client| !client.is_finished());
        if self.oldest_first.len() >= MOST_ASKING
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            oldest.abort();
        }
        let request = async { timeout(ASKING, read_request(client)).await.ok().flatten() };
        self.oldest_first.push_back(self.clients.spawn(request));
    }

    /// The next request that is complete. `None`: no client asks.
    async fn next(&mut self) -> Option<(TcpStream, Request)> {
        loop {
            if let Ok(Some(asked)) = self.clients.join_next().await? {
                return Some(asked);
            }
        }
    }
}

/// Request of a client.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Metrics(Format),
    Health,
    /// Another path.
    Unknown,
    /// A request whose answer has no body.
    Head(Box<Request>),
    /// Another method than GET and HEAD.
    OtherMethod,
    /// Not HTTP.
    Malformed,
}

async fn read_request(mut client: TcpStream) -> Option<(TcpStream, Request)> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if bytes.len() > LONGEST_REQUEST || client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(request) = parse(&bytes) {
            return Some((client, request));
        }
    }
}

/// `None`: there is more to come.
fn parse(bytes: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return Some(Request::Malformed),
    }
    let path = parsed.path.map(path);
    let wanted = match path {
        Some("/metrics") => {
            let asked = parsed.headers.iter();
            let asked = asked.filter(|header| header.name.eq_ignore_ascii_case("accept"));
            Request::Metrics(Format::asked_for(asked.map(|header| header.value)))
        }
        Some("/healthz") => Request::Health,
        _ => Request::Unknown,
    };
    Some(match parsed.method {
        Some("GET") => wanted,
        Some("HEAD") => Request::Head(Box::new(wanted)),
        _ => Request::OtherMethod,
    })
}

/// The path of a request's target, also of one in absolute form (RFC 9112, section 3.2.2).
fn path(target: &str) -> &str {
    let scheme = target.split_at_checked("http://".len());
    let path = match scheme {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http://") => {
            rest.find(['/', '?']).map_or("", |at| &rest[at..])
        }
        _ => target,
    };
    path.split_once('?').map_or(path, |(path, _)| path)
}

async fn answer(mut client: TcpStream, response: String) -> io::Result<()> {
    client.write_all(response.as_bytes()).await?;
    client.shutdown().await
}

fn respond(request: &Request, registry: &Registry, shared: &Shared) -> String {
    let (request, is_head) = match request {
        Request::Head(wanted) => (&**wanted, true),
        wanted => (wanted, false),
    };
    let (status, kind, body) = match request {
        Request::Metrics(format) => {
            let mut text = String::new();
            let encoded = prometheus_client::encoding::text::encode(&mut text, registry);
            match (encoded, format) {
                (Ok(()), Format::OpenMetrics) => ("200 OK", OPENMETRICS, text),
                (Ok(()), Format::Classic) => ("200 OK", CLASSIC, classic(&text)),
                (Err(_), _) => ("500 Internal Server Error", PLAIN, "not encodable\n".into()),
            }
        }
        Request::Health if shared.is_draining() => ("503 Service Unavailable", PLAIN, "draining\n".into()),
        Request::Health => ("200 OK", PLAIN, "ok\n".into()),
        Request::Unknown | Request::Head(_) => ("404 Not Found", PLAIN, "ask /metrics or /healthz\n".into()),
        Request::OtherMethod => ("405 Method Not Allowed", PLAIN, "only GET and HEAD\n".into()),
        Request::Malformed => ("400 Bad Request", PLAIN, "this is not HTTP/1\n".into()),
    };
    let length = body.len();
    let body = if is_head { "" } else { &body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nVary: Accept\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const LONGEST_REQUEST: usize = 8 * 1024;
const MOST_HEADERS: usize = 64;
/// Connections at a time whose request is not complete. Prometheus and a few health checks need one
/// each.
const MOST_ASKING: usize = 64;
/// From accept to the end of the request's head. Clients of this address send it at once.
const ASKING: Duration = Duration::from_secs(2);
/// Answers at a time that their clients have not taken yet.
const MOST_ANSWERS: usize = 64;
const ANSWERING: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two attempts to have the socket watched.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_lack_of_descriptors_at_the_begin_does_not_last() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let mut answers = [Err(Errno::MFILE), Err(Errno::NFILE), Ok("watched")].into_iter();
        runtime.block_on(async {
            let start = tokio::time::Instant::now();
            let watched = until_watched(|| answers.next().unwrap().map_err(io::Error::from)).await;
            assert_eq!((watched, start.elapsed()), ("watched", 2 * WATCH_PAUSE));
        });
    }

    #[test]
    fn requests_are_read_in_any_pieces() {
        let head = |wanted| Some(Request::Head(Box::new(wanted)));
        let metrics = Request::Metrics(Format::Classic);
        let open = || Some(Request::Metrics(Format::OpenMetrics));
        for (text, expected) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
                Some(Request::Metrics(Format::Classic)),
            ),
            (
                "GET /metrics HTTP/1.1\r\naccept: text/plain;q=0.5\r\nAccept: \
                 application/openmetrics-text\r\n\r\n",
                open(),
            ),
            ("GET /healthz?now=1 HTTP/1.0\r\n\r\n", Some(Request::Health)),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", head(metrics)),
            ("HEAD / HTTP/1.1\r\n\r\n", head(Request::Unknown)),
            (
                "GET http://a:9090/metrics HTTP/1.1\r\nHost: a:9090\r\n\r\n",
                Some(Request::Metrics(Format::Classic)),
            ),
            ("GET HTTP://a/healthz?now=1 HTTP/1.1\r\n\r\n", Some(Request::Health)),
            ("GET http://a?/metrics HTTP/1.1\r\n\r\n", Some(Request::Unknown)),
            ("GET http://metrics HTTP/1.1\r\n\r\n", Some(Request::Unknown)),
            ("GET /healthz/ HTTP/1.1\r\n\r\n", Some(Request::Unknown)),
            ("POST /metrics HTTP/1.1\r\n\r\n", Some(Request::OtherMethod)),
            ("GET /metrics\r\n\r\n", Some(Request::Malformed)),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
            // Malformed ones may be known to be so before their end.
            if expected != Some(Request::Malformed) {
                for length in 0..text.len() {
                    assert_eq!(parse(&text.as_bytes()[..length]), None, "{length} of {text}");
                }
            }
        }
        assert_eq!(parse(b"\x16\x03\x01\x02\0"), Some(Request::Malformed));
    }
}
