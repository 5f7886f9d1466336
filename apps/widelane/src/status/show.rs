//! Processes with the provider as tables, as JSON and as Prometheus text.

use crate::object::object;
use crate::series::{self, counters, gauges, with};
use prometheus_client::registry::Registry;
use std::fmt::Write as _;
use widelane_cli::failure::Failure;
use widelane_status_tool::proof::noted;
use widelane_status_tool::{Asked, Facts, Operation, Overload, Process, Report, State, Totals, Way, now};
use widelane_text::{escaped, json_line, label};

/// A paragraph for each process.
pub(crate) fn table(processes: &[Process]) -> String {
    let mut text = String::new();
    let mut decided: Vec<(u32, &[String])> = Vec::new();
    for process in processes {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "{} {}", process.pid, escaped(&process.name));
        if let Some(facts) = facts(&process.state) {
            let _ = writeln!(text, "  {}", described(facts));
            // Workers of one server decide alike.
            match decided.iter().find(|(_, lines)| *lines == facts.decisions) {
                _ if facts.decisions.is_empty() => {}
                Some((pid, _)) => {
                    let _ = writeln!(text, "  who computes what: as in {pid}");
                }
                None => {
                    let _ = writeln!(text, "  who computes what:");
                    for line in &facts.decisions {
                        let _ = writeln!(text, "    {}", escaped(line));
                    }
                    decided.push((process.pid, &facts.decisions));
                }
            }
        }
        match &process.state {
            State::Counts(report) => {
                for line in waiting(&report.ways)
                    .into_iter()
                    .chain(switched(report, process.pid))
                    .chain(noted(report, now()))
                {
                    let _ = writeln!(text, "  {line}");
                }
                if report.overload != Overload::default() {
                    let _ = writeln!(text, "  {}", overloaded(&report.overload));
                }
                counted(&mut text, report);
            }
            state => {
                let _ = writeln!(text, "  {}", explained(state));
            }
        }
    }
    let caveats = widelane_cpu::caveats(&text);
    text + &caveats
}

/// An object in a line for each process. Fields of its report and of its facts are there with these alone.
pub(crate) fn json(processes: &[Process]) -> String {
    let overload = |overload: &Overload| {
        object! {
            now: overload.now,
            begun: overload.begun,
            gone: overload.gone,
            refused: overload.refused,
            p50_below_ms: overload.wait(50),
            p99_below_ms: overload.wait(99),
        }
    };
    let operation = |Operation { name, totals }: &Operation| {
        object! {
            name: name.clone(),
            lanes: totals.lanes,
            jobs: totals.jobs,
            alone: totals.alone,
            at_once: totals.at_once,
            passes: totals.passes,
            lanes_filled: totals.lanes_filled,
            mean_fill: (totals.passes > 0).then(|| mean_fill(totals)),
            failed: totals.failed,
            busy_ns: totals.busy_ns,
        }
    };
    let line = |process: &Process| {
        let report = own_report(&process.state);
        json_line(&object! {
            pid: process.pid,
            name: &process.name,
            state: state_name(&process.state),
            why: match process.state {
                State::Counts(_) => None,
                ref state => Some(explained(state)),
            },
            #[serde(flatten)]
            handshakes: report.map(|report| object! {
                ways: report.ways.iter().map(|way| way.name()).collect::<Vec<_>>(),
                switched_off: report.asked(now()) != Asked::On,
                signatures_of_handshakes: report.signed,
                key_exchanges: report.agreed,
                #[serde(flatten)]
                proof: noted(report, now()).map(|proof| object! { proof }),
                overload: overload(&report.overload),
            }),
            #[serde(flatten)]
            facts: facts(&process.state).map(|facts| object! {
                version: &facts.provider,
                openssl: known(&facts.openssl),
                backend: known(&facts.backend),
                suspends_handshakes: facts.suspends,
                decisions: &facts.decisions,
            }),
            #[serde(flatten)]
            work: report.map(|report| object! {
                operations: active(report).map(operation).collect::<Vec<_>>(),
                fallbacks: report.reasons.iter()
                    .map(|reason| object! { reason: &reason.text, count: reason.count })
                    .collect::<Vec<_>>(),
                other_fallbacks: report.unlisted,
            }),
        })
    };
    processes.iter().map(line).collect()
}

/// All of it as Prometheus counts.
pub(crate) fn prometheus(processes: &[Process]) -> Result<String, Failure> {
    let mut registry = Registry::with_prefix("widelane_status");
    let info = gauges(&mut registry, "process", "A process with the provider");
    let figures: [(_, _, Figure); 5] = [
        ("jobs", "Jobs answered", |totals| totals.jobs),
        ("alone", "Jobs that ran one by one", |totals| totals.alone),
        ("passes", "Passes", |totals| totals.passes),
        ("lanes_filled", "Jobs in passes", |totals| totals.lanes_filled),
        ("failed", "Jobs without an answer", |totals| totals.failed),
    ];
    let families = figures.map(|(name, help, value)| (value, counters(&mut registry, name, help)));
    let fallbacks = counters(
        &mut registry,
        "fallbacks",
        "How often OpenSSL did something by itself, or the provider could not start",
    );
    let overloaded = gauges(
        &mut registry,
        "overloaded",
        "Workers, or listening sockets of a server with the provider, that are under overload",
    );
    let overloads = counters(
        &mut registry,
        "overloads",
        "Times that one of them has come under overload",
    );
    let dropped = counters(
        &mut registry,
        "dropped",
        "Clients that were not served under overload, by the reason",
    );
    let ways = gauges(
        &mut registry,
        "way",
        "Ways in which handshakes have waited, and reasons for which some were not suspended",
    );
    for process in processes {
        let own = vec![("pid", process.pid.to_string()), ("name", label(&process.name))];
        let mut labels = own.clone();
        labels.push(("state", state_name(&process.state).to_owned()));
        if let Some(facts) = facts(&process.state) {
            labels.push(("version", label(&facts.provider)));
            labels.push(("openssl", label(&facts.openssl)));
            labels.push(("backend", label(&facts.backend)));
            labels.push(("suspends_handshakes", facts.suspends.to_string()));
        }
        info.get_or_create(&labels).set(1);
        let Some(report) = own_report(&process.state) else {
            continue;
        };
        for operation in active(report) {
            let labels = with(&own, "operation", &operation.name);
            for (value, family) in &families {
                let counter = family.get_or_create(&labels);
                counter.inc_by(value(&operation.totals));
            }
        }
        for way in &report.ways {
            ways.get_or_create(&with(&own, "way", way.name())).set(1);
        }
        let Overload {
            now,
            begun,
            gone,
            refused,
            ..
        } = report.overload;
        (overloaded.get_or_create(&own)).set(i64::try_from(now).unwrap_or(i64::MAX));
        overloads.get_or_create(&own).inc_by(begun);
        for (reason, count) in [("gone", gone), ("refused", refused)] {
            let labels = with(&own, "reason", reason);
            dropped.get_or_create(&labels).inc_by(count);
        }
        let unlisted = (report.unlisted > 0).then_some((OTHER, report.unlisted));
        let reasons = report.reasons.iter();
        let reasons = reasons.map(|reason| (&*reason.text, reason.count));
        for (reason, count) in reasons.chain(unlisted) {
            let labels = with(&own, "reason", reason);
            fallbacks.get_or_create(&labels).inc_by(count);
        }
    }
    series::text(&registry)
}

/// Ways in which handshakes have waited, and reasons for which some were not suspended.
fn waiting(ways: &[Way]) -> Vec<String> {
    let all = |waits, separator: &str| {
        let some = ways.iter().filter(|way| way.waits() == waits);
        some.map(|way| described_way(*way)).collect::<Vec<_>>().join(separator)
    };
    let lines = [
        ("handshakes wait: ", all(true, ", or ")),
        ("not suspended: ", all(false, "; ")),
    ];
    let lines = lines.iter().filter(|(_, text)| !text.is_empty());
    lines.map(|(what, text)| format!("{what}{text}")).collect()
}

fn described_way(way: Way) -> &'static str {
    match way {
        Way::Epoll => "suspended, told by epoll_wait",
        Way::Poll => "suspended, told by poll",
        Way::Select => "suspended, told by select",
        Way::Jobs => "paused as jobs of OpenSSL's",
        Way::Threads => "on threads that block",
        Way::BlockingSocket => "handshakes on a socket that blocks",
        Way::NoSocket => "handshakes for which OpenSSL has no stream socket (memory, a buffer in between, DTLS, QUIC)",
        Way::NoLoop => "handshakes on a socket that no epoll_wait, poll or select of their thread was seen to wait for",
        Way::SharedEpoll => "handshakes in an epoll instance in which several threads wait",
        Way::OneConnection => "handshakes of a thread that waits for one connection only",
        Way::IoUring => "handshakes of a process with a ring of io_uring",
        Way::Moved => "handshakes after another thread has used a connection in the middle of its own",
        Way::Runtime => "handshakes in a process of a language's runtime (Ruby, Python, Java), which knows its stacks",
    }
}

/// Says what is switched off by an operator, or else by a proof.
fn switched(report: &Report, pid: u32) -> Option<String> {
    match (report.operator, report.asked(now())) {
        (Asked::Off, _) => Some(format!(
            "lanes are switched off; `widelane status --on {pid}` switches them on"
        )),
        (Asked::On, Asked::Off) => Some("lanes are switched off for a moment".into()),
        (Asked::On, Asked::On) => None,
    }
}

/// Overload now and since the process began to count.
fn overloaded(overload: &Overload) -> String {
    let begun = match overload.begun {
        0 => "never begun".to_owned(),
        1 => "begun once".to_owned(),
        times => format!("begun {times} times"),
    };
    let waits = [50, 99].map(|percent| overload.wait(percent));
    format!(
        "{}, {begun}; clients gone {}, refused {}{}",
        match overload.now {
            0 => "no overload now",
            _ => "overload now",
        },
        overload.gone,
        overload.refused,
        match waits {
            [Some(half), Some(most)] => format!("; waits in it: half below {half} ms, 99 of 100 below {most} ms"),
            _ => String::new(),
        }
    )
}

fn counted(text: &mut String, report: &Report) {
    let mut rows = active(report).peekable();
    if rows.peek().is_none() {
        let _ = writeln!(text, "  loaded, nothing done yet");
    } else {
        let _ = writeln!(
            text,
            "  {:<24} {:>10} {:>10} {:>10} {:>12} {:>8}",
            "OPERATION", "JOBS", "ALONE", "PASSES", "LANES FILLED", "FAILED"
        );
    }
    for Operation { name, totals } in rows {
        let filled = match totals.passes {
            0 => "n/a".to_owned(),
            _ => format!("{:.1} of {}", mean_fill(totals), totals.lanes),
        };
        let _ = writeln!(
            text,
            "  {:<24} {:>10} {:>10} {:>10} {filled:>12} {:>8}",
            escaped(name),
            totals.jobs,
            totals.alone,
            totals.passes,
            totals.failed
        );
    }
    for reason in &report.reasons {
        let _ = writeln!(text, "  {:>8} times: {}", reason.count, escaped(&reason.text));
    }
    if report.unlisted > 0 {
        let _ = writeln!(text, "  {:>8} times: {OTHER}", report.unlisted);
    }
}

fn described(facts: &Facts) -> String {
    let or_unknown = |text: &str| match text {
        "" => "n/a".to_owned(),
        text => escaped(text),
    };
    if facts.serves {
        let [version, backend] = [&facts.provider, &facts.backend].map(|text| or_unknown(text));
        return format!("widelane serve {version}, backend {backend}");
    }
    format!(
        "provider {}, OpenSSL {}, backend {}, suspends handshakes: {}",
        or_unknown(&facts.provider),
        or_unknown(&facts.openssl),
        or_unknown(&facts.backend),
        if facts.suspends { "yes" } else { "no" }
    )
}

/// Says what a state without figures means, and what to do about it.
fn explained(state: &State) -> String {
    match state {
        State::Inherited(report) => match report.operator {
            Asked::On => "loaded by its parent, nothing done yet".into(),
            Asked::Off => "loaded by its parent, nothing done yet; lanes are switched off".into(),
        },
        State::Uncounted => "loaded, and not counted: an older version of the provider, or no memory for its page, \
             as its log says"
            .into(),
        State::Damaged(bad) => format!("loaded, and its page cannot be read: {bad}"),
        State::NotAllowed => "loaded; this user may not read its figures: it takes root, or the same user where \
             kernel.yama.ptrace_scope is 0"
            .into(),
        State::NoProvider => "handshakes could be suspended, but OpenSSL has not loaded the provider: does \
             OPENSSL_CONF reach this process?"
            .into(),
        State::NoSharedLibssl => "nothing to do here: no shared libssl".into(),
        State::NotPreloaded => "LD_PRELOAD names the library that suspends handshakes, and the program has not loaded \
             it: it is linked statically, or has gained rights"
            .into(),
        _ => "loaded".into(),
    }
}

fn state_name(state: &State) -> &'static str {
    match state {
        State::Counts(_) => "counts",
        State::Inherited(_) => "idle",
        State::Uncounted => "uncounted",
        State::Damaged(_) => "damaged",
        State::NotAllowed => "not-allowed",
        State::NoProvider => "no-provider",
        State::NoSharedLibssl => "no-shared-libssl",
        State::NotPreloaded => "not-preloaded",
        _ => "unknown",
    }
}

fn facts(state: &State) -> Option<&Facts> {
    match state {
        State::Counts(report) | State::Inherited(report) => Some(&report.facts),
        _ => None,
    }
}

/// The figures that are the process's own.
fn own_report(state: &State) -> Option<&Report> {
    match state {
        State::Counts(report) => Some(report),
        _ => None,
    }
}

/// Operations that did something.
fn active(report: &Report) -> impl Iterator<Item = &Operation> {
    let operations = report.operations.iter();
    operations.filter(|one| one.totals.jobs > 0 || one.totals.failed > 0)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mean_fill(totals: &Totals) -> f64 {
    totals.lanes_filled as f64 / totals.passes as f64
}

fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

type Figure = fn(&Totals) -> u64;

/// Name for reasons that a page has no room for.
const OTHER: &str = "other reasons";

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_status_tool::{BadPage, Reason};

    fn report() -> Report {
        let operation = |name: &str, jobs| Operation {
            name: name.to_owned(),
            totals: Totals {
                lanes: 8,
                jobs,
                alone: 1,
                passes: 4,
                lanes_filled: 30,
                ..Totals::default()
            },
        };
        Report {
            process: 7,
            facts: Facts {
                provider: "0.1.0".to_owned(),
                openssl: "3.0.2".to_owned(),
                backend: String::new(),
                suspends: true,
                serves: false,
                decisions: vec!["x25519-derive: lanes (avx2), 1.6 × OpenSSL\x1b".to_owned()],
            },
            operator: Asked::Off,
            ways: vec![Way::Epoll, Way::Threads, Way::BlockingSocket, Way::IoUring],
            signed: 31,
            agreed: 33,
            overload: Overload::default(),
            operations: vec![operation("rsa2048-sign", 31), operation("x25519", 0)],
            reasons: vec![Reason {
                text: "evil\x1b[2J\u{9b}\u{202e}".to_owned(),
                count: 3,
            }],
            unlisted: 2,
            ..Report::default()
        }
    }

    fn processes() -> [Process; 4] {
        let process = |pid, name: &str, state| Process {
            pid,
            name: name.to_owned(),
            state,
        };
        [
            process(7, "nginx\n", State::Counts(report())),
            process(8, "nginx", State::Inherited(report())),
            process(9, "a\"b", State::Damaged(BadPage::NoPage)),
            process(10, "sh", State::NoSharedLibssl),
        ]
    }

    #[test]
    fn a_table_says_what_works_and_cannot_steer_a_terminal() {
        let text = table(&processes());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "7 nginx\\n");
        assert_eq!(
            lines[1],
            "  provider 0.1.0, OpenSSL 3.0.2, backend n/a, suspends handshakes: yes"
        );
        assert_eq!(lines[2], "  who computes what:");
        assert_eq!(lines[3], "    x25519-derive: lanes (avx2), 1.6 × OpenSSL\\u{1b}");
        assert!(text.contains("\n  who computes what: as in 7\n"), "{text}");
        assert_eq!(
            lines[4..6],
            [
                "  handshakes wait: suspended, told by epoll_wait, or on threads that block",
                "  not suspended: handshakes on a socket that blocks; handshakes of a process \
                 with a ring of io_uring",
            ]
        );
        assert_eq!(
            lines[6],
            "  lanes are switched off; `widelane status --on 7` switches them on"
        );
        let row: Vec<_> = lines[8].split_whitespace().collect();
        assert_eq!(row, ["rsa2048-sign", "31", "1", "4", "7.5", "of", "8", "0"]);
        assert_eq!(lines[9], "         3 times: evil\\u{1b}[2J\\u{9b}\\u{202e}");
        assert_eq!(lines[10], "         2 times: other reasons");
        assert!(!text.contains("  x25519 "), "it did nothing: {text}");
        assert!(
            text.contains("by its parent, nothing done yet; lanes are switched off\n"),
            "{text}"
        );
        assert!(text.contains("does not begin as a page"), "{text}");
        assert!(
            text.ends_with("10 sh\n  nothing to do here: no shared libssl\n"),
            "{text}"
        );
    }

    #[test]
    fn a_table_says_of_lanes_that_nobody_has_measured_them() {
        let caveat = "avxifma: tested by emulation, never measured\n";
        let mut report = report();
        report.facts.decisions = vec!["x25519-derive: lanes (avxifma), 1.6 × OpenSSL".to_owned()];
        let process = Process {
            pid: 7,
            name: "nginx".to_owned(),
            state: State::Counts(report),
        };
        assert!(table(&[process]).ends_with(caveat));
        assert!(!table(&processes()).contains(caveat));
    }

    #[test]
    fn overload_is_told_where_there_was_one() {
        let of = |overload: &Overload| Process {
            pid: 7,
            name: "nginx".to_owned(),
            state: State::Counts(Report {
                overload: overload.clone(),
                ..report()
            }),
        };
        let mut overload = Overload::default();
        assert!(!table(&[of(&overload)]).contains("overload"));
        overload.begun = 1;
        let text = table(&[of(&overload)]);
        let over = "\n  no overload now, begun once; clients gone 0, refused 0\n";
        assert!(text.contains(over), "{text}");
        overload = Overload {
            now: 2,
            begun: 3,
            gone: 40,
            refused: 5,
            ..Overload::default()
        };
        (overload.waits[1], overload.waits[4]) = (90, 10);
        let processes = [of(&overload)];
        let text = table(&processes);
        let now = "\n  overload now, begun 3 times; clients gone 40, refused 5; waits in it: half below 16 ms, \
                   99 of 100 below 128 ms\n";
        assert!(text.contains(now), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json(&processes)).unwrap();
        assert_eq!(
            json["overload"],
            serde_json::json!({
                "now": 2, "begun": 3, "gone": 40, "refused": 5, "p50_below_ms": 16, "p99_below_ms": 128
            })
        );
        let text = prometheus(&processes).unwrap();
        for line in [
            "widelane_status_overloaded{pid=\"7\",name=\"nginx\"} 2\n",
            "widelane_status_overloads_total{pid=\"7\",name=\"nginx\"} 3\n",
            "widelane_status_dropped_total{pid=\"7\",name=\"nginx\",reason=\"gone\"} 40\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn nothing_of_a_page_steers_a_terminal() {
        let processes = processes();
        let texts = [table(&processes), json(&processes), prometheus(&processes).unwrap()];
        for text in texts {
            assert_eq!(widelane_text::printable(&text), text);
        }
    }

    #[test]
    fn json_has_an_object_a_process() {
        let text = json(&processes());
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        let first = &lines[0];
        assert_eq!(first["state"], "counts");
        assert_eq!(first["version"], "0.1.0");
        assert!(first["backend"].is_null() && first["suspends_handshakes"] == true);
        assert_eq!(first["decisions"].as_array().unwrap().len(), 1);
        let ways = serde_json::json!(["epoll", "threads", "blocking-socket", "io-uring"]);
        assert!(first["ways"] == ways && lines[1].get("ways").is_none());
        assert_eq!(first["operations"].as_array().unwrap().len(), 1);
        assert_eq!(first["operations"][0]["mean_fill"], 7.5);
        assert!(first["switched_off"] == true && first["signatures_of_handshakes"] == 31);
        assert_eq!(first["fallbacks"][0]["count"], 3);
        assert_eq!(first["other_fallbacks"], 2);
        // The figures of its parent are not its own.
        assert!(first.get("proof").is_none());
        assert!(lines[1].get("operations").is_none() && lines[1]["openssl"] == "3.0.2");
        assert!(lines[2]["why"].as_str().unwrap().contains("page"), "{}", lines[2]);
        assert_eq!(lines[3]["state"], "no-shared-libssl");
    }

    #[test]
    fn prometheus_has_a_series_for_each_operation_and_reason() {
        let text = prometheus(&processes()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        for line in [
            "widelane_status_jobs_total{pid=\"7\",name=\"nginx\\n\",operation=\"rsa2048-sign\"} 31",
            "widelane_status_fallbacks_total{pid=\"7\",name=\"nginx\\n\",reason=\"other reasons\"} 2",
            "widelane_status_way{pid=\"7\",name=\"nginx\\n\",way=\"io-uring\"} 1",
            "widelane_status_process{pid=\"9\",name=\"a\\\"b\",state=\"damaged\"} 1",
        ] {
            assert!(lines.contains(&line), "{line}\n{text}");
        }
        assert!(!text.contains("jobs_total{pid=\"8\""), "{text}");
    }
}
