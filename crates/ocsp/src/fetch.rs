//! Asks a responder over HTTP, as RFC 5019, section 5 and RFC 6960, appendix A have it.

use std::time::Duration;

use base64ct::{Base64, Encoding};
use ureq::http::Uri;
use ureq::http::uri::Scheme;
use ureq::{Agent, Error};

use super::check::LONGEST;

/// An HTTP client that takes no more time and memory than an answer deserves.
#[derive(Debug)]
pub(crate) struct Fetch(Agent);

impl Fetch {
    /// One that gives up after a while.
    pub(crate) fn new() -> Self {
        Self::with_patience(PATIENCE)
    }

    fn with_patience(patience: Duration) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(patience))
            // What is redirected over plain HTTP could lead anywhere inside the operator's network.
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("widelane/", env!("CARGO_PKG_VERSION")))
            .accept("application/ocsp-response")
            // Where responders are is in certificates and in the configuration, not in the environment.
            .proxy(None)
            // One question a day needs no connection in between.
            .max_idle_connections(0);
        Self(config.build().new_agent())
    }

    /// What the responder at this address answers, whatever it is.
    pub(crate) fn ask(&self, responder: &str, request: &[u8]) -> Result<Vec<u8>, Failure> {
        let got = match short_question(responder, request) {
            Some(address) => Some(self.0.get(address).call()?),
            None => None,
        };
        let mut response = match got {
            Some(response) if response.status().is_success() => response,
            // Not every responder takes questions in the address.
            refused => {
                // Some take the next connection only when this one has ended.
                drop(refused);
                let asking = self.0.post(responder);
                let asking = asking.header("content-type", "application/ocsp-request");
                asking.send(request)?
            }
        };
        let status = response.status();
        if !status.is_success() {
            return Err(Failure::Answered(match status.is_redirection() {
                true => format!(
                    "it redirects (HTTP status {}), and redirects are not followed; configure the \
                     address to which it leads, if that is right",
                    status.as_u16()
                ),
                false => format!("it answers with HTTP status {}", status.as_u16()),
            }));
        }
        let body = response.body_mut().with_config().limit(LONGEST as u64);
        Ok(body.read_to_vec()?)
    }
}

/// Why there is nothing that could be a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The responder cannot be reached, or does not come to an end. Other questions would fare no better.
    Silent(String),
    /// It has answered, or was not asked: that is about this question alone.
    Answered(String),
}

impl Failure {
    pub(crate) fn problem(self) -> String {
        match self {
            Self::Silent(problem) | Self::Answered(problem) => problem,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let problem = explain(&error);
        match error {
            Error::Timeout(_) | Error::HostNotFound | Error::Io(_) | Error::ConnectionFailed => Self::Silent(problem),
            _ => Self::Answered(problem),
        }
    }
}

/// Returns whether this is the address of a responder that can be asked: `http://`, a host, and what follows.
pub fn is_responder(address: &str) -> bool {
    address.parse::<Uri>().is_ok_and(|address| {
        let has_host = address.host().is_some_and(|host| !host.is_empty());
        address.scheme() == Some(&Scheme::HTTP) && has_host
    })
}

/// The address that has the question in it, if that is short enough: caches on the way know such answers
/// (RFC 5019, section 5).
fn short_question(responder: &str, request: &[u8]) -> Option<String> {
    let question = Base64::encode_string(request);
    let question = question.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let address = format!("{}/{question}", responder.trim_end_matches('/'));
    // One with a query has no place for it.
    (address.len() <= LONGEST_ADDRESS && !responder.contains('?')).then_some(address)
}

fn explain(error: &Error) -> String {
    match error {
        Error::Timeout(_) => format!("it gives no whole answer in {} seconds", PATIENCE.as_secs()),
        Error::HostNotFound => "its name is not known".into(),
        Error::BodyExceedsLimit(_) => format!("its answer is longer than {LONGEST} bytes"),
        error => error.to_string().replace('\n', " "),
    }
}

/// From the look-up of the name to the last byte.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_ADDRESS: usize = 255;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_that_never_ends_is_given_up() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let responder = format!("http://{}", socket.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut client, _) = socket.accept().unwrap();
            let mut request = [0; 4];
            client.read_exact(&mut request).unwrap();
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n";
            client.write_all(head).unwrap();
            while client.write_all(b"0").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
            request
        });
        let fetch = Fetch::with_patience(Duration::from_millis(100));
        let Err(Failure::Silent(problem)) = fetch.ask(&responder, &[0; 300]) else {
            panic!("it is too slow");
        };
        assert!(problem.starts_with("it gives no whole answer"), "{problem}");
        assert_eq!(&thread.join().unwrap(), b"POST");
    }

    #[test]
    fn a_responder_that_wants_no_question_in_the_address_gets_it_sent() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let responder = format!("http://{}", socket.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            [("GET ", "404 Not Found"), ("POST", "200 OK")].map(|(method, status)| {
                let (mut client, _) = socket.accept().unwrap();
                let mut request = [0; 4];
                client.read_exact(&mut request).unwrap();
                assert_eq!(request, method.as_bytes());
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
                client.write_all(head.as_bytes()).unwrap();
                client
            })
        });
        let answer = Fetch::new().ask(&responder, b"question");
        assert_eq!(answer.as_deref(), Ok(&b"ok"[..]));
        thread.join().unwrap();
    }

    /// A responder that gives each client this answer; the thread ends with the test.
    fn saying(answer: Vec<u8>) -> String {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let responder = format!("http://{}", socket.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut client in socket.incoming().flatten() {
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap_or(0) == 1 {
                    request.push(byte[0]);
                }
                let _ = client.write_all(&answer);
                // What is closed with bytes that were not read is reset, and the answer may be lost.
                let _ = client.shutdown(std::net::Shutdown::Write);
                let _ = client.read_to_end(&mut Vec::new());
            }
        });
        responder
    }

    #[test]
    fn only_what_would_keep_other_questions_waiting_is_silence() {
        let refused = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes();
        let mut long = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n".to_vec();
        long.resize(70_000, b'0');
        for (answer, expected) in [
            (refused("404 Not Found"), "it answers with HTTP status 404"),
            (refused("503 No"), "it answers with HTTP status 503"),
            (long, "its answer is longer"),
            (b"hello\r\n\r\n".to_vec(), ""),
        ] {
            match Fetch::new().ask(&saying(answer), b"question") {
                Err(Failure::Answered(problem)) => {
                    assert!(problem.starts_with(expected), "{problem}")
                }
                other => panic!("{expected}: {other:?}"),
            }
        }
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        for absent in [
            format!("http://{}", unused.unwrap()),
            "http://no-such-host.invalid".to_owned(),
            saying(Vec::new()),
        ] {
            let answer = Fetch::new().ask(&absent, b"question");
            assert!(matches!(answer, Err(Failure::Silent(_))), "{answer:?}");
        }
    }

    #[test]
    fn redirects_lead_nowhere() {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        target.set_nonblocking(true).unwrap();
        let place = target.local_addr().unwrap();
        for status in [301, 302, 303, 307, 308] {
            let head = format!("HTTP/1.1 {status} No\r\nLocation: http://{place}/\r\nContent-Length: 2\r\n\r\nok");
            match Fetch::new().ask(&saying(head.into_bytes()), b"question") {
                Err(Failure::Answered(problem)) => {
                    assert!(problem.contains("redirects are not followed"), "{problem}");
                }
                other => panic!("{status}: {other:?}"),
            }
        }
        let asked = target.accept().map(|_| ()).map_err(|error| error.kind());
        assert_eq!(asked, Err(std::io::ErrorKind::WouldBlock));
    }

    #[test]
    fn short_questions_are_in_the_address() {
        let request = [0xfb, 0xff, 0xfe, 0xff];
        let expected = Some("http://a.example/%2B%2F%2B%2Fw%3D%3D".to_owned());
        let expected = expected.map(|text| text.replace("%2B%2F%2B%2Fw", "%2B%2F%2F%2B%2Fw"));
        let encoded = Base64::encode_string(&request);
        assert_eq!(encoded, "+//+/w==");
        for responder in ["http://a.example", "http://a.example/"] {
            assert_eq!(short_question(responder, &request), expected);
        }
        assert_eq!(short_question("http://a.example/?a=b", &request), None);
        assert_eq!(short_question("http://a.example", &[0; 200]), None);
    }
}
