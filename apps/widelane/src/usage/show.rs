//! Use as a table, as JSON and as Prometheus text.

use crate::object::object;
use crate::series::{self, Labels, with};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use widelane_cli::failure::Failure;
use widelane_text::{escaped, json_line, label};
use widelane_usage::{By, Key, Method, Row, Sampled, State};

/// An interval, as it is shown.
pub(crate) struct Picture<'a> {
    pub(crate) method: Method,
    /// Reason why it is not the better one.
    pub(crate) fallback: Option<&'a str>,
    pub(crate) by: By,
    pub(crate) elapsed: Duration,
    pub(crate) rows: &'a [Row],
}

/// A table of at most `limit` rows; of all if that is 0.
pub(crate) fn table(picture: &Picture<'_>, limit: usize) -> String {
    let states = states(picture.method);
    let sampled = picture.rows.iter().any(|row| row.sampled.is_some());
    let mut text = format!(
        "512-bit registers in use, {:.1} s by {}; times in % of a CPU\n",
        picture.elapsed.as_secs_f64(),
        picture.method.name(),
    );
    if let Some(why) = picture.fallback {
        let _ = writeln!(text, "polled, for eBPF failed: {why}");
    }
    let subject = match picture.by {
        By::Process => format!("{:>7}  {:<15}", "PID", "COMMAND"),
        By::Thread => format!("{:>7} {:>7}  {:<15}", "PID", "TID", "THREAD"),
        By::Cgroup => format!("{:<44}", "CGROUP"),
        By::Container => format!("{:<44}", "CONTAINER OR UNIT"),
    };
    let _ = write!(text, "{subject} {:>6}", "CPU");
    for state in states {
        let _ = write!(text, " {:>6}", heading(*state));
    }
    if sampled {
        let _ = write!(text, " {:>6}", "CODE");
    }
    let _ = writeln!(text, "  {:<8}  WHY", "USE");
    let most = if limit == 0 { usize::MAX } else { limit };
    for row in picture.rows.iter().take(most) {
        let _ = match &row.key {
            Key::Process(pid) => write!(text, "{pid:>7}  {:<15}", escaped(&row.name)),
            Key::Thread(thread) => write!(text, "{:>7} {:>7}  {:<15}", thread.pid, thread.tid, escaped(&row.name)),
            Key::Group(name) => write!(text, "{:<44}", escaped(name)),
        };
        let percent = |part: Duration| 100.0 * part.as_secs_f64() / picture.elapsed.as_secs_f64();
        let cpu = row.cpu.map_or("n/a".to_owned(), |cpu| format!("{:.1}", percent(cpu)));
        let _ = write!(text, " {cpu:>6}");
        for state in states {
            let _ = write!(text, " {:>6.1}", percent(row.live[*state as usize]));
        }
        if sampled {
            let _ = write!(text, " {:>6}", row.sampled.map_or("n/a".to_owned(), share));
        }
        let finding = &row.finding;
        let _ = writeln!(text, "  {:<8}  {}", finding.verdict.name(), escaped(&finding.why));
    }
    if picture.rows.is_empty() {
        text.push_str("no process\n");
    } else if picture.rows.len() > most {
        let _ = writeln!(text, "… and {} more", picture.rows.len() - most);
    }
    text
}

/// An object in a line.
pub(crate) fn json(picture: &Picture<'_>) -> String {
    let row = |row: &Row| {
        let (mut pid, mut tid, mut group) = (None, None, None);
        match &row.key {
            Key::Process(number) => pid = Some(*number),
            Key::Thread(thread) => (pid, tid) = (Some(thread.pid), Some(thread.tid)),
            Key::Group(name) => group = Some(name.clone()),
        }
        let of = |state: &State| (state.name(), milliseconds(row.live[*state as usize]));
        // A field inside of another object is there only if it has a value.
        object! {
            #[serde(flatten)]
            pid: pid.map(|pid| object! { pid }),
            #[serde(flatten)]
            tid: tid.map(|tid| object! { tid }),
            #[serde(flatten)]
            group: group.map(|group| object! { group }),
            name: row.name.clone(),
            #[serde(flatten)]
            cgroup: row.cgroup.clone().map(|cgroup| object! { cgroup }),
            processes: row.processes,
            threads: row.threads,
            cpu_ms: row.cpu.map(milliseconds),
            live_ms: states(picture.method).iter().map(of).collect::<BTreeMap<_, _>>(),
            samples: row.sampled.map(|Sampled { wide, copies, other }| object! { wide, copies, other }),
            verdict: row.finding.verdict.name(),
            why: row.finding.why.clone(),
        }
    };
    json_line(&object! {
        seconds: picture.elapsed.as_secs_f64(),
        method: picture.method.name(),
        #[serde(flatten)]
        fallback: picture.fallback.map(|fallback| object! { fallback }),
        rows: picture.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

/// Sums since the start, as Prometheus counts.
#[derive(Default)]
pub(crate) struct Sums {
    live: Family<Labels, Counter<f64, AtomicU64>>,
    samples: Family<Labels, Counter>,
    verdicts: Family<Labels, Gauge>,
    /// Labels of what the last interval had, and of what it had not.
    shown: Vec<(Labels, bool)>,
}

impl Sums {
    /// Adds an interval. What was idle in it and in the one before is forgotten, for numbers of
    /// processes come without end.
    pub(crate) fn add(&mut self, picture: &Picture<'_>) {
        let mut idle = std::mem::take(&mut self.shown);
        for row in picture.rows {
            let labels = labels(row, picture.by);
            idle.retain(|(known, _)| *known != labels);
            for state in states(picture.method) {
                let time = row.live[*state as usize].as_secs_f64();
                let labels = with(&labels, "state", state.name());
                self.live.get_or_create(&labels).inc_by(time);
            }
            for (code, count) in row.sampled.map(kinds).into_iter().flatten() {
                let labels = with(&labels, "code", code);
                self.samples.get_or_create(&labels).inc_by(count);
            }
            let verdict = self.verdicts.get_or_create(&labels);
            verdict.set(row.finding.verdict as i64);
            self.shown.push((labels, true));
        }
        for (labels, recent) in idle {
            if recent {
                self.shown.push((labels, false));
                continue;
            }
            for state in State::ALL {
                self.live.remove(&with(&labels, "state", state.name()));
            }
            for (code, _) in kinds(Sampled::default()) {
                self.samples.remove(&with(&labels, "code", code));
            }
            self.verdicts.remove(&labels);
        }
    }

    /// All of it.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        let mut registry = Registry::with_prefix("widelane_usage");
        registry.register_with_unit(
            "live",
            "CPU time in slices that ended with AVX-512 registers in use",
            Unit::Seconds,
            self.live.clone(),
        );
        registry.register(
            "samples",
            "How often it was found in functions with 512-bit code, and in others",
            self.samples.clone(),
        );
        registry.register(
            "verdict",
            "0 narrow, 1 copies, 2 unknown, 3 possible, 4 wide",
            self.verdicts.clone(),
        );
        series::text(&registry)
    }
}

/// The states that a method tells apart.
fn states(method: Method) -> &'static [State] {
    match method {
        Method::Ebpf => &[State::Upper, State::High, State::Masks],
        Method::Poll => &[State::Undivided],
    }
}

fn heading(state: State) -> &'static str {
    match state {
        State::Upper => "512",
        State::High => "16-31",
        State::Masks => "MASKS",
        State::Undivided => "IN USE",
    }
}

/// The share of samples in wide code.
fn share(sampled: Sampled) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let share = 100.0 * sampled.wide as f64 / sampled.all() as f64;
    if share.is_nan() {
        return "n/a".to_owned();
    }
    format!("{share:.0}")
}

fn kinds(sampled: Sampled) -> [(&'static str, u64); 3] {
    [
        ("wide", sampled.wide),
        ("copies", sampled.copies),
        ("other", sampled.other),
    ]
}

fn labels(row: &Row, by: By) -> Labels {
    let mut labels = match &row.key {
        Key::Process(pid) => vec![("pid", pid.to_string())],
        Key::Thread(thread) => vec![("pid", thread.pid.to_string()), ("tid", thread.tid.to_string())],
        Key::Group(name) => {
            let what = match by {
                By::Cgroup => "cgroup",
                By::Process | By::Thread | By::Container => "container",
            };
            return vec![(what, label(name))];
        }
    };
    labels.push(("name", label(&row.name)));
    labels.push(("cgroup", label(row.cgroup.as_deref().unwrap_or_default())));
    labels
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_usage::{Finding, Verdict};

    const MS: Duration = Duration::from_millis(1);

    fn row(pid: u32, name: &str, ms: u32, verdict: Verdict) -> Row {
        Row {
            key: Key::Process(pid),
            name: name.to_owned(),
            cgroup: Some("/group".to_owned()),
            processes: 1,
            threads: 2,
            cpu: Some(500 * MS),
            live: [Duration::ZERO, Duration::ZERO, Duration::ZERO, ms * MS],
            sampled: None,
            finding: Finding {
                verdict,
                why: "reason".to_owned(),
            },
        }
    }

    fn picture(rows: &[Row]) -> Picture<'_> {
        Picture {
            method: Method::Poll,
            fallback: Some("no rights"),
            by: By::Process,
            elapsed: Duration::from_secs(1),
            rows,
        }
    }

    #[test]
    fn a_table_has_shares_of_a_cpu_and_no_control_characters() {
        let rows = [
            row(7, "evil\x1b[2J", 250, Verdict::Wide),
            row(8, "b", 1, Verdict::Copies),
        ];
        assert!(table(&picture(&rows), 0).contains("copies"));
        assert!(table(&picture(&[]), 5).contains("no process"));
        let text = table(&picture(&rows), 1);
        assert!(
            text.contains("      7  evil\\u{1b}[2J     50.0   25.0  wide      reason"),
            "{text}"
        );
        let rows = [row(7, "a\u{9b}\u{202e}\n", 250, Verdict::Wide)];
        let picture = picture(&rows);
        let mut sums = Sums::default();
        sums.add(&picture);
        for text in [table(&picture, 0), json(&picture), sums.text().unwrap()] {
            assert_eq!(widelane_text::printable(&text), text);
        }
        assert!(text.ends_with("… and 1 more\n"), "{text}");
        assert!(text.contains("no rights"), "{text}");
    }

    #[test]
    fn what_a_method_tells_apart_has_columns_of_its_own() {
        let mut rows = [row(7, "a", 0, Verdict::Wide)];
        rows[0].live = [100 * MS, 200 * MS, 300 * MS, Duration::ZERO];
        rows[0].sampled = Some(Sampled {
            wide: 3,
            copies: 0,
            other: 1,
        });
        let picture = Picture {
            method: Method::Ebpf,
            fallback: None,
            ..picture(&rows)
        };
        let text = table(&picture, 0);
        assert!(text.contains("CPU    512  16-31  MASKS   CODE  USE"), "{text}");
        assert!(text.contains("50.0   10.0   20.0   30.0     75  wide"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&json(&picture)).unwrap();
        assert_eq!(value["rows"][0]["live_ms"]["high"].as_f64(), Some(200.0));
        assert_eq!(value["rows"][0]["samples"]["wide"].as_u64(), Some(3));
        assert!(value.get("fallback").is_none());
    }

    #[test]
    fn json_has_an_object_an_interval() {
        let rows = [row(7, "a\"b", 250, Verdict::Possible)];
        let text = json(&picture(&rows));
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let row = &value["rows"][0];
        assert_eq!((row["pid"].as_u64(), row["name"].as_str()), (Some(7), Some("a\"b")));
        assert_eq!(row["live_ms"]["undivided"].as_f64(), Some(250.0));
        assert_eq!(row["verdict"].as_str(), Some("possible"));
    }

    #[test]
    fn prometheus_sums_grow_and_forget_the_idle() {
        let mut sums = Sums::default();
        let rows = [row(7, "a", 250, Verdict::Wide), row(8, "b", 1, Verdict::Copies)];
        sums.add(&picture(&rows));
        sums.add(&picture(&rows[..1]));
        let text = sums.text().unwrap();
        let line = "widelane_usage_live_seconds_total\
                    {pid=\"7\",name=\"a\",cgroup=\"/group\",state=\"undivided\"} 0.5";
        assert!(text.contains(line), "{text}");
        let verdict = "widelane_usage_verdict{pid=\"7\",name=\"a\",cgroup=\"/group\"} 4";
        assert!(text.contains(verdict), "{text}");
        assert!(text.contains("pid=\"8\""), "idle for one interval: {text}");
        sums.add(&picture(&rows[..1]));
        assert!(!sums.text().unwrap().contains("pid=\"8\""));
    }
}
