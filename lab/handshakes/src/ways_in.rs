//! Unmodified servers, each with OpenSSL alone and with Widelane in it: the ways into Widelane for
//! people who keep their server.

use crate::backend::Backend;
use crate::condition::Condition;
use crate::drive::{Drive, SERVER_CPU};
use crate::error::TrialError;
use crate::machine;
use crate::plan::{at_least_one, or};
use crate::programs;
use crate::record::Record;
use crate::setup::other_setting;
use crate::stage::Stage;
use crate::summary::limits;
use crate::unmodified::{self, Software};
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use widelane_cpu::{DISABLE_VARIABLE, Lanes};
use widelane_samples::kinds::{CPU_TIME, ERRORS, P50, P99, RATE, WAYS_IN, WAYS_IN_SIDES};
use widelane_samples::{Figure, Group, Source, Table, Unit, pairs};

/// Unmodified servers with OpenSSL alone and with Widelane in it; writes a record
///
/// Five minutes. Example: widelane-lab handshakes ways-in --servers nginx,haproxy --rounds 20
#[derive(Clone, Debug, clap::Args)]
pub struct WaysInPlan {
    /// nginx, haproxy, apache2, lighttpd [default: these four]; valkey, valkey-io-threads, redis,
    /// redis-io-threads, pgbouncer, mosquitto, dovecot, dovecot-starttls, stunnel4, postfix. Those that
    /// are not installed are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub servers: Vec<Software>,
    /// Numbers of connections in flight
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 16, 64],
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub in_flight: Vec<usize>,
    /// Turns of each side in each comparison; six at least for an interval
    #[arg(long, default_value_t = 9, value_parser = at_least_one())]
    pub rounds: usize,
    /// Seconds of each turn
    #[arg(long, default_value_t = 0.8)]
    pub seconds: f64,
    /// Let Widelane do as on a CPU without lanes
    #[arg(long)]
    pub disable_lanes: bool,
    /// Print JSON, not a table
    #[arg(long)]
    pub json: bool,
    /// The kinds of handshake; none means RSA-2048, and for nginx also ECDSA, with X25519. Beside a
    /// hybrid key exchange the server alone has X25519: before OpenSSL 3.5 it knows no other.
    #[arg(skip)]
    pub conditions: Vec<Condition>,
    /// Folder of the record.
    #[arg(skip)]
    pub records: PathBuf,
    /// Command line of this call, for the record.
    #[arg(skip)]
    pub command: String,
}

/// Result of a comparison.
#[derive(Clone, Debug)]
pub struct WaysIn {
    /// The record's path.
    pub record: PathBuf,
    /// Table for people.
    pub table: String,
    /// Figures for programs.
    pub figures: Value,
}

/// Compares each server of `plan` with itself, says on `progress` what it is doing, and writes a
/// record.
///
/// # Errors
///
/// Whatever keeps an installed server or the load generator from running, or a server from using
/// Widelane. What was measured until then is in the record.
pub fn ways_in(stage: &Stage, plan: &WaysInPlan, mut progress: impl FnMut(&str)) -> Result<WaysIn, TrialError> {
    if let Some(other) = other_setting(&plan.conditions) {
        return Err(TrialError::Nothing(other));
    }
    let mut notes = stage.options.notes.clone();
    let installed = installed(stage, plan, &mut notes);
    let cases = cases(&installed, &plan.conditions);
    if cases.iter().any(|case| case.condition.is_hybrid()) {
        notes.push(
            "Beside X25519MLKEM768, the server alone has X25519: before OpenSSL 3.5 it knows no \
             hybrid group."
                .into(),
        );
    }
    if cases.is_empty() {
        return Err(TrialError::Nothing(notes.join(" ")));
    }
    let lanes = widelane_cpu::lanes();
    notes.extend(without_lanes(plan.disable_lanes, lanes));
    let mut record = Record::begin(stage, &plan.records, "ways in", &plan.command)?;
    let backend = Backend::start(stage.options.load_cpu)?;
    let mut comparisons = Vec::new();
    let mut servers = Vec::new();
    for case in &cases {
        progress(&format!("starting {case}"));
        let (software, condition) = (case.software, case.condition);
        let plain = unmodified::plain(stage, software, condition.classical(), backend.address())?;
        let lanes = !plan.disable_lanes;
        let (with, said) = unmodified::with_widelane(stage, software, condition, lanes, backend.address())?;
        let mut sides = [plain, with];
        for (side, condition) in sides.iter_mut().zip(case.conditions()) {
            // The provider measures once in each process what passes cost. No turn pays for that.
            stage.drive(side, condition, Drive::Closed(SETTLING), (WARMUP, SETTLE))?;
        }
        comparisons.push((*case, sides));
        let program = software.program(&stage.options);
        servers.push(json!({
            "server": software.name(),
            "condition": condition.name(),
            "version": program.and_then(|program| software.version(&program)),
            "provider": said,
        }));
    }
    record.line(&json!({
        "kind": "ways-in-servers",
        "servers": servers,
        "disable_lanes": plan.disable_lanes,
        "notes": notes,
    }))?;
    for round in 0..plan.rounds {
        for (case, sides) in &mut comparisons {
            for &in_flight in &plan.in_flight {
                progress(&format!(
                    "round {} of {}: {case}, {in_flight} in flight",
                    round + 1,
                    plan.rounds,
                ));
                // Each side is the first one in every second round.
                for side in [round % 2, (round + 1) % 2] {
                    let (drive, times) = (Drive::Closed(in_flight), (WARMUP, plan.seconds));
                    let condition = case.conditions()[side];
                    let report = stage.drive(&mut sides[side], condition, drive, times)?;
                    record.line(&json!({
                        "kind": WAYS_IN.kind, "server": case.software.name(), "condition": case.condition.name(),
                        "side": SIDES[side], "in_flight": in_flight, "round": round, "report": report,
                    }))?;
                }
            }
        }
    }
    notes.extend(limits(record.written(), &WAYS_IN_SIDES));
    let rows = figures(record.written());
    let table = shown(stage, plan, &servers, &record.table(&WAYS_IN_SIDES, |_| true), &notes);
    let record = record.end(&table)?;
    Ok(WaysIn {
        table,
        figures: json!({
            "record": record,
            "cpu": machine::cpu_model(),
            "server_cpu": stage.options.server_cpu,
            "load_cpu": stage.options.load_cpu,
            "rounds": plan.rounds,
            "seconds": plan.seconds,
            "disable_lanes": plan.disable_lanes,
            "servers": servers,
            "rows": rows,
            "notes": notes,
        }),
        record,
    })
}

/// Note for readers if Widelane has no lanes.
fn without_lanes(disabled: bool, lanes: Lanes) -> Option<String> {
    if disabled {
        return Some(format!(
            "{DISABLE_VARIABLE}={} is set beside Widelane: it does as on a CPU without lanes.",
            Lanes::ALL_DISABLED
        ));
    }
    lanes.why_none().map(|_| {
        format!(
            "{} With Widelane, too, operations run one at a time: by OpenSSL, or by AWS-LC where \
             that was measured to be faster.",
            lanes.sentence()
        )
    })
}

/// The servers of `plan` that there are; notes name the others.
fn installed(stage: &Stage, plan: &WaysInPlan, notes: &mut Vec<String>) -> Vec<Software> {
    let mut installed = Vec::new();
    for software in or(&plan.servers, || Software::WEB.into()) {
        match software.program(&stage.options) {
            Some(_) if installed.contains(&software) => {}
            Some(_) if software.needs_root() && !programs::is_root() => {
                notes.push(format!("{software} starts as root alone, and is left out."));
            }
            Some(_) => installed.push(software),
            None => notes.push(format!("{software} is not installed, and left out.")),
        }
    }
    installed
}

/// A server under a condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    software: Software,
    condition: Condition,
}

impl Case {
    /// Conditions of each side, in the order of [`SIDES`].
    fn conditions(self) -> [Condition; 2] {
        [self.condition.classical(), self.condition]
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.software, self.condition)
    }
}

fn cases(servers: &[Software], wanted: &[Condition]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &software in servers {
        let own: &[Condition] = match software {
            _ if !wanted.is_empty() => wanted,
            Software::Nginx => &[Condition::RsaX25519, Condition::EcdsaX25519],
            _ => &[Condition::RsaX25519],
        };
        cases.extend(own.iter().map(|&condition| Case { software, condition }));
    }
    cases
}

/// The rows of a record for programs.
fn figures(record: &widelane_samples::Record) -> Vec<Value> {
    let source = Source::of(record, None);
    let row = |row: &Group<'_>| {
        let lines = SIDES.map(|side| row.of_side(side));
        let side = |side: usize| {
            let of = |figure: Option<Figure>| figure.map(|figure| figure.value);
            let median = |field| of(Figure::median("", Unit::Plain, &lines[side], field, &source));
            json!({
                "handshakes_per_s": median(RATE),
                SERVER_CPU: median(CPU_TIME),
                "p50_us": median(P50),
                "p99_us": median(P99),
                "errors": of(Figure::sum("", &lines[side], ERRORS, &source)).map(|errors| errors as u64),
            })
        };
        let quotient = |field| {
            let figure = Figure::quotient("", &pairs(&lines[1], &lines[0]), field, &source);
            let interval = figure.as_ref().and_then(|figure| figure.interval.confidence());
            let (low, high) = interval.unzip();
            json!({"median": figure.map(|figure| figure.value), "low": low, "high": high})
        };
        json!({
            "server": row.word(0),
            "condition": row.word(1),
            "in_flight": row.key[2],
            SIDES[0]: side(0),
            SIDES[1]: side(1),
            "quotient": {"handshakes_per_s": quotient(RATE), SERVER_CPU: quotient(CPU_TIME)},
        })
    };
    WAYS_IN.groups(record).iter().map(row).collect()
}

fn shown(stage: &Stage, plan: &WaysInPlan, servers: &[Value], table: &Table, notes: &[String]) -> String {
    let mut text = format!(
        "Full TLS 1.3 handshakes of unmodified servers: AES-128-GCM, no resumption.\n\
         {}; one server at a time on CPU {}, load on CPU {}; medians of {} rounds of {} s.\n\n{}\n\
         × alone: with Widelane, as a multiple of the server alone; the median of the rounds'\n\
         quotients and its 95 % interval. Of the CPU time, less is better.\n",
        machine::cpu_model(),
        stage.options.server_cpu,
        stage.options.load_cpu,
        plan.rounds,
        plan.seconds,
        table.text(),
    );
    let mut named: Vec<&Value> = Vec::new();
    for server in servers {
        let (id, version) = (&server["server"], server["version"].as_str());
        if named.contains(&id) {
            continue;
        }
        named.push(id);
        let provider = server["provider"].as_str().unwrap_or_default();
        let _ = write!(
            text,
            "\n{} {}: Widelane {provider}",
            id.as_str().unwrap_or_default(),
            version.unwrap_or("of unknown version"),
        );
    }
    text.push('\n');
    for note in notes {
        let _ = writeln!(text, "\nNote: {note}");
    }
    text
}

/// Names of the sides in records and JSON.
pub(crate) const SIDES: [&str; 2] = ["plain", "widelane"];
/// Seconds before each measurement.
const WARMUP: f64 = 0.1;
/// Connections in flight, and seconds, before the first turn of a server.
const SETTLING: usize = 16;
const SETTLE: f64 = 0.4;

#[cfg(test)]
mod tests {
    use super::*;

    const RSA: Condition = Condition::RsaX25519;
    const ECDSA: Condition = Condition::EcdsaX25519;

    /// A record of HAProxy, four times as fast with Widelane.
    fn record(rounds: usize) -> widelane_samples::Record {
        let mut record = widelane_samples::Record::default();
        for round in 0..rounds {
            for (side, rate, cpu) in [(SIDES[0], 1000.0, 800.0), (SIDES[1], 4000.0, 200.0)] {
                record.push(json!({
                    "kind": WAYS_IN.kind, "server": "haproxy", "condition": "rsa-x25519", "side": side, "in_flight": 16,
                    "round": round,
                    "report": {
                        "handshakes_per_s": rate, SERVER_CPU: cpu, "p50_us": 1234.0, "p99_us": 5678.0, "errors": 1,
                        "busiest_thread": rate / 4000.0,
                    },
                }));
            }
        }
        record
    }

    fn rows(record: &widelane_samples::Record) -> Vec<String> {
        let text = WAYS_IN_SIDES.table(record, &Source::of(record, None)).text();
        let cells = |line: &str| {
            let cells = line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim);
            cells.collect::<Vec<_>>().join("|")
        };
        text.lines().skip(2).map(cells).collect()
    }

    #[test]
    fn every_server_has_rsa_and_nginx_also_ecdsa_unless_others_are_asked_for() {
        let pairs = |wanted: &[Condition]| -> Vec<(Software, Condition)> {
            let cases = cases(&Software::WEB, wanted);
            let pairs = cases.iter().map(|case| (case.software, case.condition));
            pairs.collect()
        };
        assert_eq!(
            pairs(&[]),
            [
                (Software::Nginx, RSA),
                (Software::Nginx, ECDSA),
                (Software::Haproxy, RSA),
                (Software::Apache2, RSA),
                (Software::Lighttpd, RSA),
            ]
        );
        let asked = pairs(&[ECDSA]);
        assert_eq!(asked, Software::WEB.map(|software| (software, ECDSA)));
    }

    #[test]
    fn without_lanes_a_note_says_what_is_compared() {
        assert_eq!(without_lanes(false, Lanes::ALL), None);
        let disabled = without_lanes(true, Lanes::ALL).expect("a note");
        assert!(disabled.contains("as on a CPU without lanes"), "{disabled}");
        let lacking = without_lanes(false, Lanes::NONE).expect("a note");
        assert!(lacking.starts_with("This CPU has no lanes"), "{lacking}");
        assert!(lacking.contains("operations run one at a time"), "{lacking}");
    }

    #[test]
    fn a_hybrid_group_is_compared_with_x25519() {
        let case = Case {
            software: Software::Haproxy,
            condition: Condition::RsaHybrid,
        };
        assert_eq!(case.conditions(), [RSA, Condition::RsaHybrid]);
        assert_eq!(case.to_string(), "HAProxy, RSA-2048, X25519MLKEM768");
    }

    #[test]
    fn a_row_has_both_sides_and_what_widelane_changes() {
        let rows = rows(&record(6));
        let plain = "HAProxy, RSA-2048, X25519|16|alone|1,000|800 µs|1,234 µs|5,678 µs|6";
        assert_eq!(rows[0], plain);
        let with = "HAProxy, RSA-2048, X25519|16|with Widelane|4,000|4.00|4.00 to 4.00|200 µs|0.25|0.25 to 0.25\
                    |1,234 µs|5,678 µs|6";
        assert_eq!(rows[1], with);
    }

    #[test]
    fn few_rounds_have_no_interval() {
        let record = record(5);
        assert!(rows(&record)[1].contains("4.00|median of 5"));
        let rate = &figures(&record)[0]["quotient"]["handshakes_per_s"];
        assert_eq!((&rate["median"], &rate["low"]), (&json!(4.0), &Value::Null));
    }

    #[test]
    fn programs_get_the_figures_of_the_table() {
        let figures = &figures(&record(6))[0];
        assert_eq!(figures["server"], "haproxy");
        assert_eq!(figures["condition"], "rsa-x25519");
        assert_eq!(figures["plain"]["handshakes_per_s"], 1000.0);
        assert_eq!(figures["widelane"]["errors"], 6);
        assert_eq!(figures["quotient"][SERVER_CPU]["high"], 0.25);
    }

    #[test]
    fn a_load_generator_at_its_limit_is_noted() {
        let notes = limits(&record(1), &WAYS_IN_SIDES);
        assert_eq!(notes.len(), 1);
        let expected = "HAProxy, RSA-2048, X25519, 16 in flight, with Widelane";
        assert!(notes[0].contains(expected), "{}", notes[0]);
    }
}
