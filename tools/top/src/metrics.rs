//! A server's metrics: fetches and parses the text at its metrics address.

use std::time::Duration;
use ureq::Agent;

/// A line of a scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name of the series.
    pub name: String,
    /// Labels and their values.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: f64,
}

impl Sample {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(label, _)| label == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reason why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address means nothing.
    #[error("{0}: it has no host or no port; an address is like 127.0.0.1:9464")]
    Address(String),
    /// No server answers there.
    #[error("{address}: {cause}; does a `widelane serve` run that offers its metrics there?")]
    Connection {
        /// Address of the server.
        address: String,
        /// Error of the connection.
        cause: ureq::Error,
    },
    /// An answer of another status.
    #[error("{0}; is this the metrics address of `widelane serve`?")]
    Response(&'static str),
    /// A line is none of the format.
    #[error("line {0} of the metrics is malformed; is this the metrics address of `widelane serve`?")]
    Line(usize),
}

/// The place `host:port` of an address, which is that or a whole URL of plain HTTP.
///
/// # Errors
///
/// When there is no host or no port.
pub fn place(address: &str) -> Result<&str, MetricsError> {
    let place = address.strip_prefix("http://").unwrap_or(address);
    let place = place.split('/').next().unwrap_or(place);
    match place.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(place),
        _ => Err(MetricsError::Address(address.to_owned())),
    }
}

/// Asks for the metrics at an address, as [`place`] takes it.
///
/// # Errors
///
/// When no answer comes in time, or it is something else than metrics.
pub(crate) fn fetch(address: &str) -> Result<Vec<Sample>, MetricsError> {
    let place = place(address)?;
    let failed = |cause| MetricsError::Connection {
        address: address.to_owned(),
        cause,
    };
    let config = Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .max_redirects(0)
        .http_status_as_error(false)
        .proxy(None)
        .max_idle_connections(0);
    let agent = config.build().new_agent();
    let mut answer = agent.get(format!("http://{place}/metrics")).call().map_err(failed)?;
    if answer.status() != 200 {
        return Err(MetricsError::Response("the answer's status is not 200"));
    }
    let body = answer.body_mut().with_config().limit(LARGEST);
    parse(&body.read_to_string().map_err(failed)?)
}

/// Reads the text format of Prometheus or OpenMetrics. Times and exemplars are left out.
///
/// # Errors
///
/// At the first line that is not of the format.
pub fn parse(text: &str) -> Result<Vec<Sample>, MetricsError> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(number, line)| sample(line).ok_or(MetricsError::Line(number + 1)))
        .collect()
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: rest.split_whitespace().next()?.parse().ok()?,
    })
}

type Labels = Vec<(String, String)>;

/// Labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        loop {
            match characters.next()?.1 {
                '"' => break,
                '\\' => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                other => value.push(other),
            }
        }
        labels.push((name.trim().to_owned(), value));
        rest = characters.as_str();
    }
}

const PATIENCE: Duration = Duration::from_secs(1);
const LARGEST: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufRead, BufReader, Write};

    #[test]
    fn lines_of_both_formats_are_read() {
        let text = "# HELP a b\na 1\n\nb_total{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 2.5 1700000000\n\
            c_bucket{le=\"+Inf\",} 3 # {id=\"7\"} 0.1\nd NaN\n# EOF\n";
        let samples = parse(text).expect("it is well-formed");
        assert_eq!(samples.len(), 4);
        assert_eq!((samples[0].name.as_str(), samples[0].value), ("a", 1.0));
        assert_eq!(samples[1].label("y"), Some("a\"b\\c\nd"));
        assert_eq!(samples[1].value, 2.5);
        assert_eq!(samples[2].label("le"), Some("+Inf"));
        assert_eq!(samples[2].value, 3.0);
        assert!(samples[3].value.is_nan() && samples[3].label("x").is_none());
    }

    #[test]
    fn malformed_lines_are_named() {
        for wrong in [
            "a",
            "a b",
            "{} 1",
            "a{x} 1",
            "a{x=\"1} 1",
            "a{x=\"1\\",
            "a{x=\"1\"}",
            "<html>",
        ] {
            let text = format!("fine 1\n{wrong}\n");
            assert!(matches!(parse(&text), Err(MetricsError::Line(2))), "{wrong}");
        }
    }

    /// The result of a fetch from a server that gives this answer.
    fn fetched(answer: &'static [u8]) -> Result<Vec<Sample>, MetricsError> {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address").to_string();
        let serving = std::thread::spawn(move || {
            let (mut client, _) = socket.accept().expect("a client");
            let mut request = BufReader::new(client.try_clone().expect("a socket")).lines();
            while request
                .next()
                .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
            {}
            client.write_all(answer).expect("it reads");
        });
        let fetched = fetch(&address);
        serving.join().expect("one request");
        fetched
    }

    #[test]
    fn only_an_answer_of_status_200_is_read() {
        let samples = fetched(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\na 1\n");
        assert_eq!(samples.expect("it is fine")[0].value, 1.0);
        for wrong in [
            &b"HTTP/1.1 404 Not Found\r\n\r\na 1\n"[..],
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/metrics\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe",
            b"\x15\x03\x01",
            b"SSH-2.0\r\n\r\n",
            b"",
        ] {
            assert!(fetched(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_place_has_a_host_and_a_port() {
        for (address, expected) in [
            ("localhost:1", "localhost:1"),
            ("[::1]:80", "[::1]:80"),
            ("http://a.b:9/metrics", "a.b:9"),
        ] {
            assert_eq!(place(address).unwrap(), expected);
        }
        for wrong in ["", "nope", ":80", "127.0.0.1:99999", "http://a.b/metrics"] {
            assert!(place(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn wrong_addresses_and_missing_servers_are_distinguished() {
        assert!(matches!(fetch("9464"), Err(MetricsError::Address(_))));
        // The port was ours a moment ago, no socket listens on it now, and others are on 127.0.0.1.
        let socket = std::net::TcpListener::bind("127.0.0.2:0").expect("a port");
        let address = socket.local_addr().expect("an address").to_string();
        drop(socket);
        let failed = fetch(&address).expect_err("no server is there");
        assert!(matches!(failed, MetricsError::Connection { .. }));
        assert!(failed.to_string().contains(&address), "{failed}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = parse(&text);
        }

        #[test]
        fn any_labels_come_back(
            name in "[a-z_]{1,9}",
            labels in proptest::collection::vec(("[a-z]{1,5}", ".{0,9}"), 0..4),
            value in -1e15..1e15,
        ) {
            let escape = |value: &str| {
                value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
            };
            // A line ends at these.
            prop_assume!(labels.iter().all(|(_, value)| !value.contains(['\n', '\r'])));
            let list: Vec<_> = labels
                .iter()
                .map(|(label, value)| format!("{label}=\"{}\"", escape(value)))
                .collect();
            let samples = parse(&format!("{name}{{{}}} {value}\n", list.join(","))).unwrap();
            prop_assert_eq!(samples, [Sample { name, labels, value }]);
        }
    }
}
