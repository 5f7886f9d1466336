//! The text that Prometheus reads: sums over all workers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustls_pki_types::UnixTime;
use widelane_ocsp::StapleStatus;

use crate::back::pool::Name;
use crate::back::upstream::Upstream;
use crate::observe::encode::{self, counters, gauges};
use crate::observe::stats::{BOUNDS_US, BUCKETS, End, Failure, Refusal, Stats, TicketRefusal};
use crate::shared::Shared;

/// Sums over all workers, rendered at each scrape.
pub(crate) struct Scrape(pub(crate) Arc<Shared>);

impl Scrape {
    fn sum(&self, field: impl Fn(&Stats) -> &AtomicU64) -> u64 {
        self.0.stats.iter().map(|stats| field(stats).load(Relaxed)).sum()
    }

    fn handshakes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kinds = [("1.3", "no"), ("1.3", "yes"), ("1.2", "no"), ("1.2", "yes")];
        let good = kinds.into_iter().enumerate().map(|(index, (version, resumed))| {
            let labels = [("result", "ok"), ("version", version), ("resumed", resumed)];
            (labels, self.sum(|stats| &stats.handshakes[index]))
        });
        let failed = Failure::ALL.into_iter().map(|why| {
            let labels = [("result", why.name()), ("version", ""), ("resumed", "")];
            (labels, self.sum(|stats| &stats.failures[why as usize]))
        });
        let help = "Handshakes by result, version and resumption";
        counters(encoder, "widelane_handshakes", help, good.chain(failed))
    }

    fn histogram(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        counts: impl Fn(&Stats) -> (&[AtomicU64; BUCKETS + 1], &AtomicU64),
    ) -> fmt::Result {
        let mut buckets = Vec::with_capacity(BUCKETS + 1);
        let mut count = 0;
        for index in 0..=BUCKETS {
            let bound = BOUNDS_US.get(index).map_or(f64::INFINITY, |&bound| bound as f64 / 1e6);
            let inside = self.sum(|stats| &counts(stats).0[index]);
            count += inside;
            buckets.push((bound, inside));
        }
        let sum = self.sum(|stats| counts(stats).1) as f64 / 1e6;
        encoder
            .encode_descriptor(name, help, None, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn backends(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.upstreams.in_use();
        let connects = all.iter().flat_map(|one| {
            let [ok, failed, timeout] = [&one.connected, &one.refused, &one.timed_out];
            let results = [("ok", ok), ("failed", failed), ("timeout", timeout)];
            results.map(|(result, count)| by_result("backend", &one.address, result, count.load(Relaxed)))
        });
        counters(
            encoder,
            "widelane_backend_connects",
            "Attempts to connect to an address of a backend, by result",
            connects,
        )?;
        let with_tls = all.iter().filter(|one| one.speaks_tls.load(Relaxed));
        let handshakes = with_tls.flat_map(|one| {
            let counts = one.handshakes.counts();
            counts.map(|(result, count)| by_result("backend", &one.address, result, count))
        });
        counters(
            encoder,
            "widelane_backend_tls_handshakes",
            "TLS handshakes with an address of a backend, by result",
            handshakes,
        )?;
        let checked = all.iter().filter(|one| one.checks() != [0, 0]);
        let checks = checked.flat_map(|one| {
            let [ok, failed] = one.checks();
            let results = [("ok", ok), ("failed", failed)];
            results.map(|(result, count)| by_result("backend", &one.address, result, count))
        });
        counters(
            encoder,
            "widelane_backend_checks",
            "Checks of an address of a backend, by result",
            checks,
        )?;
        let values = |value: &dyn Fn(&Upstream) -> i64| -> Vec<_> {
            let label = |one: &Upstream| [("backend", one.address.to_string())];
            all.iter().map(|one| (label(one), value(one))).collect()
        };
        gauges(
            encoder,
            "widelane_backend_connections",
            "Connections to an address of a backend that are open or being opened",
            values(&|one| one.connections() as i64),
        )?;
        gauges(
            encoder,
            "widelane_backend_up",
            "0 from an attempt to reach an address of a backend that failed until one succeeds, and while checks \
             find that it is down",
            values(&|one| i64::from(one.is_up())),
        )
    }

    fn names(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let names = self.0.upstreams.names();
        let lookups = names.iter().flat_map(|(host, name)| {
            let results = [("ok", name.succeeded), ("failed", name.failed)];
            results.map(|(result, count)| by_result("name", host, result, count))
        });
        counters(
            encoder,
            "widelane_backend_name_lookups",
            "Lookups of the host names of backends, by result",
            lookups,
        )?;
        let values = |value: fn(&Name) -> i64| {
            let all = names.iter();
            all.map(move |(host, name)| ([("name", host.as_str())], value(name)))
        };
        gauges(
            encoder,
            "widelane_backend_name_addresses",
            "Addresses that a host name of a backend has",
            values(|name| name.addresses.len() as i64),
        )?;
        gauges(
            encoder,
            "widelane_backend_name_current",
            "0 while lookups of a host name fail, so that the addresses from before are in use",
            values(|name| i64::from(name.fault.is_none())),
        )
    }

    fn certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let files = self.0.files.load();
        let expiries = files.certificates.iter().map(|one| {
            let labels = [("file", one.file.clone()), ("names", one.names.clone())];
            (labels, one.not_after)
        });
        gauges(
            encoder,
            "widelane_certificate_expiry_timestamp_seconds",
            "When each certificate expires, in seconds since 1970",
            expiries,
        )
    }

    fn ticket_keys(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let files = self.0.files.load();
        let times_of_keys = files.ticket_keys.iter().map(|key| {
            let labels = [("name", &key.name[..]), ("role", key.role), ("file", &key.file)];
            let labels = labels.map(|(label, value)| (label, value.to_owned()));
            (labels, key.written)
        });
        gauges(
            encoder,
            "widelane_ticket_key_written_timestamp_seconds",
            "When the file of each ticket key was written, in seconds since 1970",
            times_of_keys,
        )
    }

    /// Writes what is known about OCSP responses.
    fn staples(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let now = UnixTime::now();
        let files = self.0.files.load();
        let staples = &files.staples;
        let gauge = |encoder: &mut _, name, help, value: &dyn Fn(&StapleStatus) -> Option<i64>| {
            let values = staples.iter();
            let values = values.filter_map(|one| Some(([("file", one.file.clone())], value(one)?)));
            gauges(encoder, name, help, values)
        };
        gauge(
            encoder,
            "widelane_ocsp_stapled",
            "1 if clients that ask get an OCSP response with the certificate",
            &|one| Some(one.is_stapled(now).into()),
        )?;
        gauge(
            encoder,
            "widelane_ocsp_must_staple",
            "1 if the certificate demands an OCSP response",
            &|one| Some(one.must.into()),
        )?;
        gauge(
            encoder,
            "widelane_ocsp_source_ok",
            "0 if the last OCSP response from the certificate's source was not taken",
            &|one| Some(one.staple.as_ref()?.is_current().into()),
        )?;
        let fetches = staples
            .iter()
            .filter_map(|one| Some((&one.file, one.staple.as_ref()?.fetches())));
        let fetches = fetches.flat_map(|(file, [ok, failed])| {
            [("ok", ok), ("failed", failed)].map(|(result, count)| by_result("file", file, result, count))
        });
        counters(
            encoder,
            "widelane_ocsp_fetches",
            "OCSP responses asked for, by what became of it",
            fetches,
        )?;
        let last = |one: &StapleStatus| one.staple.as_ref()?.last();
        gauge(
            encoder,
            "widelane_ocsp_revoked",
            "1 if the last OCSP response says that the certificate is revoked",
            &|one| Some(last(one)?.revoked.into()),
        )?;
        gauge(
            encoder,
            "widelane_ocsp_this_update_timestamp_seconds",
            "When the last OCSP response was known to be right, in seconds since 1970",
            &|one| Some(i64::try_from(last(one)?.this_update).unwrap_or(i64::MAX)),
        )?;
        gauge(
            encoder,
            "widelane_ocsp_next_update_timestamp_seconds",
            "When the last OCSP response expires, in seconds since 1970",
            &|one| Some(i64::try_from(last(one)?.next_update).unwrap_or(i64::MAX)),
        )
    }
}

/// A count of something that has a name, by result.
fn by_result(
    label: &'static str,
    name: &impl ToString,
    result: &str,
    count: u64,
) -> ([(&'static str, String); 2], u64) {
    ([(label, name.to_string()), ("result", result.to_owned())], count)
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let [written, lost] = self.0.access_log.counts();
        let counts: [(_, _, u64); 10] = [
            (
                "widelane_connections_accepted",
                "Connections accepted",
                self.sum(|s| &s.accepted),
            ),
            (
                "widelane_accept_errors",
                "accept calls that failed",
                self.sum(|s| &s.accept_errors),
            ),
            (
                "widelane_client_received_bytes",
                "Decrypted bytes from clients to backends",
                self.sum(|s| &s.bytes_from_clients),
            ),
            (
                "widelane_client_sent_bytes",
                "Bytes from backends to clients before encryption",
                self.sum(|s| &s.bytes_to_clients),
            ),
            (
                "widelane_connections_closed_unused",
                "Clients that closed right after the handshake, for which no backend was opened",
                self.sum(|s| &s.closed_without_request),
            ),
            (
                "widelane_overloads",
                "Times that a worker has come under overload",
                self.sum(|s| &s.overloads),
            ),
            (
                "widelane_reloads_ok",
                "Reloads that took effect",
                self.0.reloads_ok.load(Relaxed),
            ),
            (
                "widelane_reloads_failed",
                "Reloads that kept the old configuration",
                self.0.reloads_failed.load(Relaxed),
            ),
            (
                "widelane_access_log_lines",
                "Lines that the access log has written",
                written,
            ),
            (
                "widelane_access_log_lost",
                "Lines that the access log has lost, because it could not write as fast",
                lost,
            ),
        ];
        let counts = counts.map(|(name, help, value)| (name, help, ConstCounter::new(value)));
        encode::plain(&mut encoder, counts)?;
        let levels: [(_, _, i64); 5] = [
            (
                "widelane_connections",
                "Live connections",
                self.0.connections.load(Relaxed) as i64,
            ),
            (
                "widelane_handshakes_pending",
                "Connections inside their handshake",
                self.0.handshakes.load(Relaxed) as i64,
            ),
            (
                "widelane_overloaded_workers",
                "Workers to which more handshakes come than they can finish, so that the newest go first",
                self.0.overloaded_workers() as i64,
            ),
            ("widelane_draining", "1 while stopping", i64::from(self.0.is_draining())),
            (
                "widelane_reload_current",
                "0 if new files or a new configuration were refused, so that those from before are in use",
                i64::from(self.0.is_current.load(Relaxed)),
            ),
        ];
        let levels = levels.map(|(name, help, value)| (name, help, ConstGauge::new(value)));
        encode::plain(&mut encoder, levels)?;
        let now = SystemTime::now();
        let looks = self.0.stats.iter().map(|stats| stats.longest_look.get(now));
        let longest = looks.max().unwrap_or_default().as_secs_f64();
        let longest = (
            "widelane_longest_look_seconds",
            "The longest time in the last one to two minutes that a busy worker took to look at its sockets and timers \
             again",
            ConstGauge::new(longest),
        );
        encode::plain(&mut encoder, [longest])?;
        self.handshakes(&mut encoder)?;
        let took = (
            "widelane_handshake_duration_seconds",
            "Time from accept to the end of the handshake",
        );
        self.histogram(&mut encoder, took, |stats| (&stats.durations, &stats.duration_sum_us))?;
        let waited = (
            "widelane_handshake_wait_seconds",
            "Time for which handshakes waited for their turn on a worker",
        );
        self.histogram(&mut encoder, waited, |stats| (&stats.waits, &stats.wait_sum_us))?;
        let refusals = Refusal::ALL.map(|why| {
            let count = self.sum(|stats| &stats.refusals[why as usize]);
            ([("limit", why.name())], count)
        });
        counters(
            &mut encoder,
            "widelane_refused",
            "Connections refused for overload, by the limit that was hit",
            refusals,
        )?;
        let ends = End::ALL.map(|how| {
            let count = self.sum(|stats| &stats.ends[how as usize]);
            ([("how", how.name())], count)
        });
        counters(
            &mut encoder,
            "widelane_connections_ended",
            "Connections past their handshake, by how they ended",
            ends,
        )?;
        let refusals = TicketRefusal::ALL.map(|why| {
            let count = self.sum(|stats| &stats.tickets_refused[why as usize]);
            ([("why", why.name())], count)
        });
        counters(
            &mut encoder,
            "widelane_tickets_refused",
            "Full handshakes of clients that offered a ticket, by what was wrong with it",
            refusals,
        )?;
        self.backends(&mut encoder)?;
        self.names(&mut encoder)?;
        self.certificates(&mut encoder)?;
        self.ticket_keys(&mut encoder)?;
        self.staples(&mut encoder)?;
        self.0.crypto.encode(&mut encoder)
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}
