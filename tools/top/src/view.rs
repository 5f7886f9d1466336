//! A snapshot as lines of text in sections: pure functions. `picture` lays them out for a terminal.

use crate::clock::Clocks;
use crate::licence::Licence;
use crate::provider::Providers;
use crate::server::Server;
use crate::snapshot::{ClassClock, Known, Snapshot};
use crate::tls::Tls;
use crate::users::Users;
use widelane_text::escaped;

/// All of it, uncut, for a pipe.
pub fn plain(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for line in sections(snapshot, None).into_iter().flatten() {
        text.push_str(line.text.trim_end());
        text.push('\n');
    }
    text
}

/// A line and what it is worth.
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The summary of a section.
    Head,
    /// More about it.
    Detail,
    /// Reason why something is not known.
    Missing,
}

/// The sections, the most important first; in each, the summary first. A picture,
/// with a `width`, puts several CPUs into a line, and breaks reasons that are too long for one.
pub(crate) fn sections(snapshot: &Snapshot, width: Option<usize>) -> Vec<Vec<Line>> {
    let tls = snapshot.tls.as_ref();
    let sections = vec![
        known("handshakes", &snapshot.server, server),
        known("provider", &snapshot.providers, providers),
        tls.map_or_else(Vec::new, |of_all| known("TLS", of_all, self::tls)),
        known("AVX users", &snapshot.users, users),
        known("licence", &snapshot.licence, licence),
        known("clock", &snapshot.clocks, |all| clocks(all, width.is_some())),
        known("by class", &snapshot.classes, |all| classes(all)),
        machine(snapshot, width.is_some()),
    ];
    let Some(width) = width.filter(|width| *width >= LEAST_TO_BREAK) else {
        return sections;
    };
    let broken = |section: Vec<Line>| section.into_iter().flat_map(|line| broken(line, width));
    sections.into_iter().map(|section| broken(section).collect()).collect()
}

/// The lines of something that is known, or why it is not.
fn known<T>(name: &str, part: &Known<T>, lines: impl FnOnce(&T) -> Vec<Line>) -> Vec<Line> {
    match part {
        Known::Known(part) => lines(part),
        Known::Missing { why_not } => vec![Line {
            kind: Kind::Missing,
            ..head(name, &format!("n/a: {why_not}"))
        }],
    }
}

fn server(server: &Server) -> Vec<Line> {
    let all = &server.all;
    let mean = |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.1}"));
    let mut lines = vec![head(
        "handshakes",
        &format!(
            "{:.0}/s  passes {:.0}/s  lanes {}  queue {} us  failed {:.0}/s",
            server.handshakes,
            all.passes,
            mean(all.lanes),
            mean(all.queue_us),
            server.failures
        ),
    )];
    lines.extend(server.overload.words().as_deref().map(note));
    if server.batching == Some(false) {
        lines.push(note("batching is off: batching.enabled = false"));
    }
    if !server.operations.is_empty() {
        lines.push(detail(format!(
            "{:<22} {:>9} {:>9} {:>6} {:>9} {:>6}",
            "OPERATION", "JOBS/S", "PASSES/S", "LANES", "QUEUE us", "CPU %"
        )));
    }
    for one in &server.operations {
        lines.push(detail(format!(
            "{:<22} {:>9.0} {:>9.0} {:>6} {:>9} {:>6.1}",
            one.name,
            one.jobs,
            one.passes,
            mean(one.lanes),
            mean(one.queue_us),
            100.0 * one.busy
        )));
    }
    lines
}

fn providers(providers: &Providers) -> Vec<Line> {
    let hidden = providers.hidden;
    let mut lines = vec![head(
        "provider",
        &match providers.processes.len() {
            0 if hidden > 0 => format!("no process, of those that need no root ({hidden} do)"),
            0 => "no process has loaded that of OpenSSL".to_owned(),
            processes => format!(
                "{:.0} jobs/s, alone {:.0}/s, failed {:.0}/s, left to OpenSSL {:.0}/s; {}",
                providers.sum(|one| one.jobs),
                providers.sum(|one| one.alone),
                providers.sum(|one| one.failed),
                providers.fallbacks(),
                match processes {
                    1 => "1 process".to_owned(),
                    more => format!("{more} processes"),
                }
            ),
        },
    )];
    for process in &providers.processes {
        let backend = process.backend.as_deref().unwrap_or("n/a");
        let (operations, said, overload) = match &process.work {
            Known::Missing { why_not } => (&[][..], why_not.clone(), None),
            Known::Known(work) => {
                let left = format!("left to OpenSSL {:.0}/s", work.fallbacks);
                let said = match &work.ways[..] {
                    [] => left,
                    ways => format!("waits: {}, {left}", ways.join(" ")),
                };
                (&work.operations[..], said, work.overload.words())
            }
        };
        lines.push(detail(format!(
            "{:>8}  {:<16} {backend}{}, {said}",
            process.pid,
            process.name,
            match process.lanes_off {
                true => " switched off",
                false => "",
            }
        )));
        lines.extend(overload.as_deref().map(note));
        lines.extend(widelane_cpu::caveats(backend).lines().map(note));
        if !operations.is_empty() {
            lines.push(detail(format!(
                "{:<22} {:>9} {:>9} {:>9} {:>12} {:>9}",
                "OPERATION", "JOBS/S", "ALONE/S", "PASSES/S", "LANES FILLED", "FAILED/S"
            )));
        }
        for one in operations {
            let filled = one.lanes.map(|lanes| format!("{lanes:.1} of {}", one.of));
            lines.push(detail(format!(
                "{:<22} {:>9.0} {:>9.0} {:>9.0} {:>12} {:>9.0}",
                one.name,
                one.jobs,
                one.alone,
                one.passes,
                filled.as_deref().unwrap_or("n/a"),
                one.failed
            )));
        }
    }
    for proof in &providers.proofs {
        lines.push(detail(format!("{:>8}  {:<16} {}", proof.pid, proof.name, proof.said)));
    }
    lines
}

fn tls(tls: &Tls) -> Vec<Line> {
    let sum: f64 = tls.processes.iter().map(|one| one.handshakes).sum();
    let failed: f64 = tls.processes.iter().map(|one| one.failed).sum();
    let mut lines = vec![head(
        "TLS",
        &match tls.processes.len() {
            0 => "no handshake of a library that is known".to_owned(),
            1 => format!("{sum:.0} handshakes/s, failed {failed:.0}/s; 1 process"),
            more => format!("{sum:.0} handshakes/s, failed {failed:.0}/s; {more} processes"),
        },
    )];
    if tls.lost > 0.0 {
        lines.push(note(&format!(
            "{:.0} events/s were lost: the rates are too low",
            tls.lost
        )));
    }
    let milliseconds = |us: Option<f64>| us.map_or("n/a".to_owned(), |us| format!("{:.2}", us / 1e3));
    for one in &tls.processes {
        lines.push(detail(format!(
            "{:>8}  {:<16} {:<9} {:>7.0}/s  failed {:.0}/s  p50 {} ms  p99 {} ms",
            one.pid,
            one.name,
            one.library,
            one.handshakes,
            one.failed,
            milliseconds(one.p50_us),
            milliseconds(one.p99_us)
        )));
        for function in &one.functions {
            lines.push(detail(format!(
                "          {:<26} {:>7.0}/s {:>6.1} % of a CPU",
                function.name,
                function.calls,
                100.0 * function.cpus
            )));
        }
    }
    lines
}

fn users(users: &Users) -> Vec<Line> {
    let mut lines = vec![head(
        "AVX users",
        &match users.processes.first() {
            None => format!("no process, by {}", users.method),
            Some(first) => format!(
                "{:.2} CPUs surely, {:.2} at most, by {}: {}{}",
                users.wide,
                users.at_most,
                users.method,
                first.name,
                match users.processes.len() {
                    1 => String::new(),
                    more => format!(" and {} more", more - 1),
                }
            ),
        },
    )];
    for user in &users.processes {
        lines.push(detail(format!(
            "{:>8}  {:<16} {:>6.1} %  {}",
            user.pid,
            user.name,
            100.0 * user.cpus,
            user.verdict
        )));
    }
    lines.extend(users.why_not_better.iter().map(|why| note(&format!("polled: {why}"))));
    lines
}

fn licence(licence: &Licence) -> Vec<Line> {
    let mut lines = vec![head("licence", &licence.words)];
    if let Some(clocks) = licence.published_ghz {
        let clock = |clock: Option<f64>| clock.map_or("n/a".to_owned(), |ghz| format!("{ghz:.1}"));
        let [l0, l1, l2] = clocks.map(clock);
        lines.push(detail(format!(
            "published for all cores: LVL0 {l0}, LVL1 {l1}, LVL2 {l2} GHz"
        )));
    }
    lines
}

fn clocks(clocks: &Clocks, short: bool) -> Vec<Line> {
    let awake = || clocks.cores.iter().filter_map(|core| core.ghz);
    let (low, high) = (awake().fold(f64::INFINITY, f64::min), awake().fold(0.0, f64::max));
    let range = match awake().next() {
        None => "all CPUs halted".to_owned(),
        Some(_) if high - low < 0.005 => format!("{high:.2} GHz"),
        Some(_) => format!("{low:.2} to {high:.2} GHz"),
    };
    let mut lines = vec![head(
        "clock",
        &format!("{range}, {} CPUs, {}", clocks.cores.len(), clocks.meaning),
    )];
    let one = |core: &crate::clock::Core| {
        let ghz = core.ghz.map_or("halted".to_owned(), |ghz| format!("{ghz:.2}"));
        format!("cpu{:<4}{ghz:>6}", core.cpu)
    };
    let together = if short { CPUS_IN_A_LINE } else { 1 };
    for some in clocks.cores.chunks(together) {
        let texts: Vec<_> = some.iter().map(one).collect();
        lines.push(detail(texts.join("   ")));
    }
    lines.extend(clocks.why_not_better.iter().map(|why| note(why)));
    lines
}

fn classes(classes: &[ClassClock]) -> Vec<Line> {
    let most = classes.iter().map(|clock| clock.cores).max().unwrap_or(0);
    let on_all = || classes.iter().filter(|clock| clock.cores == most);
    let lowest = on_all().min_by(|a, b| a.of_scalar.total_cmp(&b.of_scalar));
    let summary = match lowest {
        None => "the profile has no clocks".to_owned(),
        Some(lowest) => format!(
            "{} is the slowest: {:.2} GHz, {:.1} % of scalar ({most} cores, profile)",
            lowest.class,
            lowest.ghz,
            100.0 * lowest.of_scalar
        ),
    };
    let mut lines = vec![head("by class", &summary)];
    for clock in on_all() {
        lines.push(detail(format!(
            "{:<10} {:>5.2} GHz  {:>5.1} %",
            clock.class,
            clock.ghz,
            100.0 * clock.of_scalar
        )));
    }
    lines
}

fn machine(snapshot: &Snapshot, keys: bool) -> Vec<Line> {
    let Snapshot { processor, seconds, .. } = snapshot;
    let keys = if keys { ", q ends" } else { "" };
    vec![head("machine", &format!("{processor}, rates of {seconds:.1} s{keys}"))]
}

fn head(name: &str, text: &str) -> Line {
    Line {
        text: escaped(&format!("{name:<11}{text}")),
        kind: Kind::Head,
    }
}

fn detail(text: String) -> Line {
    Line {
        text: escaped(&format!("  {text}")),
        kind: Kind::Detail,
    }
}

fn note(text: &str) -> Line {
    Line {
        kind: Kind::Missing,
        ..detail(text.to_owned())
    }
}

/// A reason in lines of this width; anything else as it is.
fn broken(line: Line, width: usize) -> Vec<Line> {
    if line.kind != Kind::Missing || line.text.chars().count() <= width {
        return vec![line];
    }
    let mut parts = vec![String::new()];
    for word in line.text.split_inclusive(' ') {
        let last = parts.last_mut().filter(|last| {
            let both = last.chars().count() + word.trim_end().chars().count();
            both <= width || last.trim().is_empty()
        });
        match last {
            Some(last) => last.push_str(word),
            None => parts.push(format!("{:INDENT$}{word}", "")),
        }
    }
    let kind = Kind::Missing;
    let line = |text| Line { text, kind };
    parts.into_iter().map(line).collect()
}

/// Column at which the second line of a reason begins.
const INDENT: usize = 4;
/// Narrowest picture in which reasons are broken. In others they are cut, since they would push everything else out.
pub(crate) const LEAST_TO_BREAK: usize = 40;
const CPUS_IN_A_LINE: usize = 4;

/// Snapshots for tests: all is known, or nothing is.
#[cfg(test)]
pub(crate) mod specimens {
    use crate::clock::{Clocks, Core, Source};
    use crate::overload::Overload;
    use crate::provider::{ProofSeen, Provider, ProviderOperation, Providers, Work};
    use crate::server::{Operation, Server};
    use crate::snapshot::{ClassClock, Known, Snapshot};
    use crate::tls::{Tls, TlsFunction, TlsProcess};
    use crate::users::{User, Users};

    fn overload() -> Overload {
        Overload {
            now: 1,
            gone: 40.0,
            refused: 2.0,
            p50_below_ms: Some(16.0),
            p99_below_ms: Some(0.5),
            ..Overload::default()
        }
    }

    pub(crate) fn full() -> Snapshot {
        let operation = |name: &str| Operation {
            name: name.to_owned(),
            jobs: 800.0,
            passes: 120.0,
            lanes: Some(6.7),
            queue_us: Some(41.0),
            busy: 0.25,
        };
        let provider = |work| Provider {
            pid: 812,
            name: "nginx\n".to_owned(),
            backend: Some("avx512ifma".to_owned()),
            lanes_off: matches!(work, Known::Missing { .. }),
            work,
        };
        let core = |cpu| Core {
            cpu,
            ghz: (cpu != 3).then_some(2.1 + cpu as f64 / 10.0),
        };
        Snapshot {
            processor: "a CPU".to_owned(),
            seconds: 1.0,
            server: Known::Known(Server {
                handshakes: 512.0,
                failures: 1.0,
                batching: Some(true),
                overload: overload(),
                all: operation("all"),
                operations: vec![operation("rsa2048-sign"), operation("x25519-derive")],
            }),
            providers: Known::Known(Providers {
                processes: vec![
                    provider(Known::Known(Work {
                        operations: vec![ProviderOperation {
                            name: "rsa2048-sign".to_owned(),
                            jobs: 900.0,
                            alone: 11.0,
                            passes: 140.0,
                            lanes: Some(3.9),
                            of: 4,
                            failed: 2.0,
                            busy: 0.5,
                        }],
                        fallbacks: 5.0,
                        ways: vec!["epoll", "threads"],
                        overload: overload(),
                    })),
                    provider(Known::missing("nothing done yet")),
                ],
                hidden: 0,
                proofs: vec![ProofSeen {
                    pid: 812,
                    name: "nginx\n".to_owned(),
                    said: "a proof is at work".to_owned(),
                }],
            }),
            clocks: Known::Known(Clocks {
                source: Source::Aperf,
                meaning: Source::Aperf.meaning(false),
                why_not_better: Vec::new(),
                cores: (0..64).map(core).collect(),
            }),
            classes: Known::Known(vec![
                ClassClock {
                    class: "scalar".to_owned(),
                    cores: 2,
                    ghz: 3.7,
                    of_scalar: 1.0,
                },
                ClassClock {
                    class: "512-heavy".to_owned(),
                    cores: 2,
                    ghz: 2.9,
                    of_scalar: 0.784,
                },
            ]),
            licence: Known::missing("nothing published"),
            tls: None,
            users: Known::Known(Users {
                method: "ebpf",
                why_not_better: None,
                wide: 0.97,
                at_most: 1.2,
                processes: vec![User {
                    pid: 4711,
                    name: "evil\x1b[2J\u{9b}\u{202e}".to_owned(),
                    cpus: 0.97,
                    verdict: "wide",
                }],
            }),
        }
    }

    /// A picture with the handshakes of a process.
    pub(crate) fn traced() -> Snapshot {
        Snapshot {
            tls: Some(Known::Known(Tls {
                processes: vec![TlsProcess {
                    pid: 812,
                    name: "nginx\n".to_owned(),
                    library: "openssl".to_owned(),
                    handshakes: 1234.0,
                    failed: 3.0,
                    p50_us: Some(1_500.0),
                    p99_us: None,
                    functions: vec![TlsFunction {
                        name: "rsa-2048 sign".to_owned(),
                        calls: 1234.0,
                        cpus: 0.42,
                    }],
                }],
                lost: 7.0,
            })),
            ..full()
        }
    }

    pub(crate) fn empty() -> Snapshot {
        Snapshot {
            server: Known::missing("no address"),
            providers: Known::missing("no /proc"),
            clocks: Known::missing("no source"),
            classes: Known::missing("no profile"),
            users: Known::missing("no rights"),
            tls: Some(Known::missing("takes root")),
            ..full()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::specimens::{empty, full, traced};
    use super::*;
    use crate::provider::Providers;
    use crate::tls::Tls;

    #[test]
    fn a_pipe_gets_every_line_uncut_and_harmless() {
        let shown = plain(&full());
        assert!(shown.lines().any(|line| line.trim() == "cpu3   halted"), "{shown}");
        assert_eq!(widelane_text::printable(&shown), shown);
        assert_eq!(shown.lines().filter(|line| line.trim().starts_with("cpu")).count(), 64);
        let shown = plain(&empty());
        assert_eq!(shown.matches("n/a: ").count(), 7, "{shown}");
    }

    #[test]
    fn handshakes_are_shown_if_they_were_asked_for() {
        let shown = plain(&traced());
        for expected in [
            "\nTLS        1234 handshakes/s, failed 3/s; 1 process\n  7 events/s were lost",
            "     812  nginx\\n           openssl      1234/s  failed 3/s  p50 1.50 ms  p99 n/a ms\n",
            "rsa-2048 sign                 1234/s   42.0 % of a CPU\n",
        ] {
            assert!(shown.contains(expected), "{expected}\n{shown}");
        }
        assert!(plain(&empty()).contains("\nTLS        n/a: takes root\n"));
        let idle = Snapshot {
            tls: Some(Known::Known(Tls::default())),
            ..full()
        };
        assert!(plain(&idle).contains("\nTLS        no handshake of a library that is known\n"));
        assert!(!plain(&full()).contains("\nTLS "));
    }

    #[test]
    fn processes_with_the_provider_are_shown_with_their_operations() {
        let shown = plain(&full());
        for expected in [
            "\n  overload: clients gone 40/s, refused 2/s; waits: half below 16 ms, 99 of 100 below 0.5 ms\n  OPERATION",
            "provider   900 jobs/s, alone 11/s, failed 2/s, left to OpenSSL 5/s; 2 processes\n",
            "\n       812  nginx\\n           avx512ifma, waits: epoll threads, left to OpenSSL 5/s\n",
            "\n       812  nginx\\n           avx512ifma switched off, nothing done yet\n",
            "3.9 of 4         2\n",
            "\n       812  nginx\\n           a proof is at work\n",
        ] {
            assert!(shown.contains(expected), "{expected}\n{shown}");
        }
        for (hidden, expected) in [(0, "no process has loaded"), (3, "(3 do)")] {
            let none = Snapshot {
                providers: Known::Known(Providers {
                    hidden,
                    ..Providers::default()
                }),
                ..full()
            };
            assert!(plain(&none).contains(expected));
        }
    }
}
