//! Asks a responder over HTTP, as RFC 5019, section 5 and RFC 6960, appendix A have it.

use std::time::Duration;

use base64ct::{Base64, Encoding};
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
            .max_redirects(MOST_REDIRECTS)
            .user_agent(concat!("widelane/", env!("CARGO_PKG_VERSION")))
            .accept("application/ocsp-response")
            // Where responders are is in certificates and in the configuration, not in the environment.
            .proxy(None)
            // One question a day needs no connection in between.
            .max_idle_connections(0);
        Self(config.build().new_agent())
    }

    /// What the responder at this address answers, whatever it is.
    pub(crate) fn ask(&self, responder: &str, request: &[u8]) -> Result<Vec<u8>, String> {
        let got = short_question(responder, request).map(|address| self.0.get(address).call());
        let asked = match got {
            // Not every responder takes questions in the address.
            None | Some(Err(Error::StatusCode(400..=599))) => {
                let asking = self.0.post(responder);
                let asking = asking.header("content-type", "application/ocsp-request");
                asking.send(request)
            }
            Some(got) => got,
        };
        let mut response = asked.map_err(|error| explain(&error))?;
        let body = response.body_mut().with_config().limit(LONGEST as u64);
        body.read_to_vec().map_err(|error| explain(&error))
    }
}

/// The address that has the question in it, if that is short enough: caches on the way know such answers
/// (RFC 5019, section 5).
fn short_question(responder: &str, request: &[u8]) -> Option<String> {
    let question = Base64::encode_string(request);
    let question = question
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D");
    let address = format!("{}/{question}", responder.trim_end_matches('/'));
    // One with a query has no place for it.
    (address.len() <= LONGEST_ADDRESS && !responder.contains('?')).then_some(address)
}

fn explain(error: &Error) -> String {
    match error {
        Error::StatusCode(status) => format!("it answers with HTTP status {status}"),
        Error::Timeout(_) => format!("it gives no whole answer in {} seconds", PATIENCE.as_secs()),
        Error::HostNotFound => "its name is not known".into(),
        Error::TooManyRedirects => format!("it redirects more than {MOST_REDIRECTS} times"),
        Error::BodyExceedsLimit(_) => format!("its answer is longer than {LONGEST} bytes"),
        error => error.to_string().replace('\n', " "),
    }
}

/// From the look-up of the name to the last byte.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_REDIRECTS: u32 = 3;
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
        let problem = fetch.ask(&responder, &[0; 300]).unwrap_err();
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
