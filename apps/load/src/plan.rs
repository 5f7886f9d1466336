//! Plan of a run: the target, the arrivals of connections, the duration.

use crate::error::LoadError;
use crate::offer::Offer;
use crate::starttls::StartTls;
use rustls_pki_types::ServerName;
use serde::{Serialize, Serializer};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;
use widelane_affinity::Cpus;

/// Everything a run needs to know. [`Plan::new`] fills in defaults; the fields are public.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Address of the server.
    pub address: SocketAddr,
    /// The name in SNI. If certificates are checked, it must be in the server's certificate.
    pub server_name: String,
    /// Arrivals of connections.
    pub arrivals: Arrivals,
    /// Time of measurement, after `warmup`.
    pub duration: Duration,
    /// Time before the measurement, for caches, tickets and clocks.
    pub warmup: Duration,
    /// Ends the run when this many connections have started, warm-up included.
    pub limit: Option<u64>,
    /// Threads, each with its own loop and its share of the load.
    pub threads: usize,
    /// CPUs to pin the threads to, in turn. Empty: the threads are not pinned.
    pub cpus: Cpus,
    /// Most time one connection may take, from its start to the end of its handshake (and
    /// answer). A client gives up on it then.
    pub timeout: Duration,
    /// Number of further attempts of a client that has failed or given up. It waits for up to 100 ms first, and for
    /// twice as long each time.
    pub retries: u32,
    /// Offer of the client in its ClientHello, and its trust.
    pub offer: Offer,
    /// Protocol in which the client asks for TLS first; `None` if TLS begins at once.
    pub starttls: Option<StartTls>,
    /// Traffic after a handshake.
    pub after: After,
    /// End of our side of a connection.
    pub close: Close,
    /// True to try one connection first, so that a wrong address or an untrusted certificate is an immediate error and
    /// not ten seconds of failures.
    pub preflight: bool,
    /// True if the generator batches its own public-key operations. It does so only with more connections in flight
    /// than threads.
    pub batching: bool,
    /// Most connections in flight at once in an open loop. Further starts wait and are late.
    pub max_in_flight: usize,
}

/// Arrivals of connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: this many in flight, always.
    Concurrency(usize),
    /// Open loop: by the clock.
    Rate {
        /// Starts a second.
        per_second: f64,
        /// Gaps between the starts.
        spacing: Spacing,
        /// A span with another rate.
        storm: Option<Storm>,
    },
}

/// A span of an open loop in which connections start at another rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Storm {
    /// Starts a second in the storm.
    #[serde(rename = "rate")]
    pub per_second: f64,
    /// Begin of the storm, after the begin of the measured time.
    #[serde(rename = "from_s", serialize_with = "seconds")]
    pub from: Duration,
    /// Length of the storm.
    #[serde(rename = "length_s", serialize_with = "seconds")]
    pub length: Duration,
    /// True if the rate rises evenly to that of the storm, and only reaches it at its end.
    pub ramp: bool,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// The gaps between the starts of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Equal gaps.
    Even,
    /// Exponentially distributed: independent arrivals, as from many users.
    Poisson,
}

/// Traffic after a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing: close.
    Close,
    /// One HTTP/1.1 GET for this path; the connection succeeds if a 2xx or 3xx arrives whole.
    Get(String),
    /// One message; the connection succeeds if the server's answer contains what is expected.
    Exchange {
        /// Bytes that the client sends; none if the server speaks first.
        send: Vec<u8>,
        /// Bytes of the answer, at least one.
        expect: Vec<u8>,
    },
    /// Keep the connection open and idle until the run ends.
    Hold,
}

/// End of our side of a connection, once the server has closed its own; [`Close::Abrupt`] does not wait for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Reset. The server has read everything and closed, so nothing is lost, and neither side has a socket in
    /// TIME_WAIT. 5,000 connections a second would leave 300,000 of them.
    Reset,
    /// Reset as soon as our last flight was written, without a close_notify. The server cannot
    /// know from that flight that no request follows, and no client waits for its tickets. Whether it
    /// has accepted our Finished is not seen.
    Abrupt,
    /// FIN, as browsers send. Then the server has the socket in TIME_WAIT, because it closed first.
    Fin,
}

impl Plan {
    /// A plan against `target` (`ADDR:PORT` or `NAME:PORT`): closed loop, 16 connections in
    /// flight, one thread, ten seconds after one of warm-up.
    ///
    /// # Errors
    ///
    /// [`LoadError::Target`] if `target` is no address or its name does not resolve.
    pub fn new(target: &str) -> Result<Self, LoadError> {
        let wrong = |reason: String| LoadError::Target {
            target: target.to_owned(),
            reason,
        };
        let (host, _) = target
            .rsplit_once(':')
            .ok_or_else(|| wrong("it has no port; write ADDR:PORT, like 127.0.0.1:8443".into()))?;
        let address = target
            .to_socket_addrs()
            .map_err(|error| wrong(error.to_string()))?
            .next()
            .ok_or_else(|| wrong("the name has no address".into()))?;
        Ok(Self {
            address,
            server_name: host.trim_matches(['[', ']']).to_owned(),
            arrivals: Arrivals::Concurrency(16),
            duration: Duration::from_secs(10),
            warmup: Duration::from_secs(1),
            limit: None,
            threads: 1,
            cpus: Cpus::default(),
            timeout: Duration::from_secs(10),
            retries: 0,
            offer: Offer::default(),
            starttls: None,
            after: After::Close,
            close: Close::Reset,
            preflight: true,
            batching: true,
            max_in_flight: 50_000,
        })
    }

    /// Finds contradictions before anything is started.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let wrong = |text: String| Err(LoadError::Plan(text));
        if self.threads == 0 {
            return wrong("--threads 0 does nothing; give at least 1".into());
        }
        if self.duration.is_zero() {
            return wrong("--duration 0 measures nothing; give at least 0.1".into());
        }
        if self.timeout.is_zero() {
            return wrong("with --timeout 0 every connection fails; give at least 0.1".into());
        }
        if self.limit == Some(0) {
            return wrong("--count 0 does nothing; give at least 1".into());
        }
        match self.arrivals {
            Arrivals::Concurrency(0) => {
                return wrong("--concurrency 0 does nothing; give at least 1".into());
            }
            Arrivals::Concurrency(n) if n < self.threads => {
                return wrong(format!(
                    "--concurrency {n} leaves some of --threads {} without a connection; \
                     use --threads {n} or less",
                    self.threads
                ));
            }
            Arrivals::Rate { per_second, storm, .. } => {
                let storm = storm.map(|storm| ("--storm", storm.per_second));
                for (option, rate) in [("--rate", per_second)].into_iter().chain(storm) {
                    if !(LOWEST_RATE..=HIGHEST_RATE).contains(&rate) {
                        return wrong(format!(
                            "{option} {rate} is not a possible number of starts a second; \
                             give {LOWEST_RATE} to {HIGHEST_RATE}"
                        ));
                    }
                }
            }
            Arrivals::Concurrency(_) => {}
        }
        if self.retries > MOST_RETRIES {
            return wrong(format!(
                "--retries {} would have clients wait for hours; give {MOST_RETRIES} or fewer",
                self.retries
            ));
        }
        if self.max_in_flight < self.threads {
            return wrong("the limit of connections in flight is lower than the number of threads".into());
        }
        if let After::Get(path) = &self.after {
            if !path.starts_with('/') || path.bytes().any(|b| b <= b' ' || b == 0x7f) {
                return wrong(format!(
                    "--get `{}` is not a path: it must begin with / and contain no spaces",
                    path.escape_debug()
                ));
            }
            if self.offer.alpn.iter().any(|name| name != "http/1.1") {
                return wrong("--get uses HTTP/1.1; remove --alpn or use --alpn http/1.1".into());
            }
        }
        if let After::Exchange { expect, .. } = &self.after
            && expect.is_empty()
        {
            return wrong("--expect nothing is fulfilled by nothing; give a part of the server's answer".into());
        }
        if self.close == Close::Abrupt {
            if self.after != After::Close {
                return wrong(
                    "--close abrupt ends a connection with its handshake; remove --get, --expect and --hold".into(),
                );
            }
            if self.offer.resume {
                return wrong(
                    "--close abrupt reads no tickets, so that --resume resumes nothing; use \
                     --close reset"
                        .into(),
                );
            }
        }
        self.server_name()?;
        self.offer.check()
    }

    /// The server's name for rustls.
    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, LoadError> {
        ServerName::try_from(self.server_name.clone()).map_err(|_| {
            LoadError::Plan(format!(
                "`{}` is neither a DNS name nor an IP address; give one with --server-name",
                self.server_name.escape_debug()
            ))
        })
    }

    /// Most connections that may be in flight at once, over all threads.
    pub(crate) fn most_in_flight(&self) -> usize {
        match self.arrivals {
            Arrivals::Concurrency(n) => n,
            Arrivals::Rate { .. } => self.max_in_flight,
        }
    }

    /// Returns whether there is anything to batch.
    pub(crate) fn batches(&self) -> bool {
        self.batching && self.most_in_flight() > self.threads
    }

    /// The part of `whole` that thread `index` takes.
    pub(crate) fn share(&self, whole: usize, index: usize) -> usize {
        whole / self.threads + usize::from(index < whole % self.threads)
    }
}

/// The last wait is then two minutes.
const MOST_RETRIES: u32 = 10;

/// One start in eleven days. With lower rates, the time between starts could exceed what a clock
/// can count.
const LOWEST_RATE: f64 = 1e-6;
/// Starts that are due and not possible are counted one by one.
const HIGHEST_RATE: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Plan)) -> String {
        let mut plan = Plan::new("127.0.0.1:1").expect("an address");
        change(&mut plan);
        match plan.check() {
            Err(LoadError::Plan(text)) => text,
            other => panic!("expected a refused plan, got {other:?}"),
        }
    }

    #[test]
    fn contradictions_name_the_option() {
        assert!(refused(|p| p.threads = 0).contains("--threads"));
        assert!(refused(|p| p.duration = Duration::ZERO).contains("--duration"));
        assert!(refused(|p| p.arrivals = Arrivals::Concurrency(0)).contains("--concurrency"));
        assert!(refused(|p| p.limit = Some(0)).contains("--count"));
        assert!(refused(|p| p.threads = 17).contains("--threads 16"));
        let rate = |per_second| Arrivals::Rate {
            per_second,
            spacing: Spacing::Even,
            storm: None,
        };
        assert!(refused(|p| p.arrivals = rate(f64::NAN)).contains("--rate"));
        assert!(refused(|p| p.arrivals = rate(-1.0)).contains("--rate"));
        assert!(refused(|p| p.arrivals = rate(1e-300)).contains("--rate"));
        assert!(refused(|p| p.arrivals = rate(1e300)).contains("--rate"));
        let storm = |per_second| Arrivals::Rate {
            per_second: 1.0,
            spacing: Spacing::Even,
            storm: Some(Storm {
                per_second,
                from: Duration::ZERO,
                length: Duration::ZERO,
                ramp: false,
            }),
        };
        assert!(refused(|p| p.arrivals = storm(0.0)).contains("--storm"));
        assert!(refused(|p| p.retries = 11).contains("--retries"));
        assert!(refused(|p| p.after = After::Get("x".into())).contains("--get"));
        assert!(refused(|p| p.after = After::Get("/a b".into())).contains("--get"));
        assert!(refused(|p| p.server_name = "a b".into()).contains("--server-name"));
        assert!(
            refused(|p| {
                p.after = After::Get("/".into());
                p.offer.alpn = vec!["h2".into()];
            })
            .contains("HTTP/1.1")
        );
        assert!(
            refused(|p| {
                p.after = After::Exchange {
                    send: Vec::new(),
                    expect: Vec::new(),
                };
            })
            .contains("--expect")
        );
        assert!(
            refused(|p| {
                p.close = Close::Abrupt;
                p.after = After::Hold;
            })
            .contains("--hold")
        );
        assert!(
            refused(|p| {
                p.close = Close::Abrupt;
                p.offer.resume = true;
            })
            .contains("--resume")
        );
    }

    #[test]
    fn targets_without_port_or_address_are_named() {
        for target in ["127.0.0.1", "127.0.0.1:x", ":", "a b:1"] {
            let error = Plan::new(target).expect_err("no address").to_string();
            assert!(error.contains(target), "{error}");
        }
        assert_eq!(Plan::new("[::1]:443").expect("IPv6").server_name, "::1");
    }

    #[test]
    fn shares_add_up() {
        let mut plan = Plan::new("127.0.0.1:1").expect("an address");
        for threads in 1..6 {
            plan.threads = threads;
            for whole in 0..20 {
                let sum: usize = (0..threads).map(|i| plan.share(whole, i)).sum();
                assert_eq!(sum, whole);
            }
        }
    }
}
