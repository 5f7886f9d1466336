//! Unmodified servers, each with OpenSSL alone and with Widelane in it: the ways into Widelane for
//! people who keep their server.

use crate::condition::Condition;
use crate::demo::GENERATOR_LIMIT;
use crate::drive::{Drive, SERVER_CPU};
use crate::error::TrialError;
use crate::machine;
use crate::record::Record;
use crate::servers::Running;
use crate::setup::other_setting;
use crate::stage::Stage;
use crate::summary::{interval_of_median, median, median_of, ratio, ratios, sum_of, table, whole};
use crate::unmodified::{self, Software};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use widelane_cpu::{DISABLE_VARIABLE, Lanes};

/// Plan of a comparison of ways into servers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaysInPlan {
    /// The servers. Those that are not installed are left out, and named.
    pub servers: Vec<Software>,
    /// The kinds of handshake; none means RSA-2048, and for nginx also ECDSA, with X25519. Beside a
    /// hybrid key exchange the server alone has X25519: before OpenSSL 3.5 it knows no other.
    pub conditions: Vec<Condition>,
    /// Numbers of connections in flight.
    pub in_flight: Vec<usize>,
    /// Turns of each side in each comparison; six at least for an interval.
    pub rounds: usize,
    /// Seconds of each turn.
    pub seconds: f64,
    /// True if Widelane must do as on a CPU without lanes.
    pub disable_lanes: bool,
    /// Folder of the record.
    pub records: PathBuf,
    /// Command line of this call, for the record.
    pub command: String,
}

impl WaysInPlan {
    /// All servers; 1, 16 and 64 in flight; five minutes.
    pub fn new(records: PathBuf, command: String) -> Self {
        Self {
            servers: Software::ALL.into(),
            conditions: Vec::new(),
            in_flight: vec![1, 16, 64],
            rounds: 9,
            seconds: 0.8,
            disable_lanes: false,
            records,
            command,
        }
    }
}

/// Result of a comparison.
#[derive(Clone, Debug)]
#[non_exhaustive]
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
pub fn ways_in(
    stage: &Stage,
    plan: &WaysInPlan,
    mut progress: impl FnMut(&str),
) -> Result<WaysIn, TrialError> {
    if let Some(other) = other_setting(&plan.conditions) {
        return Err(TrialError::Nothing(other));
    }
    let mut notes = stage.options.notes.clone();
    let installed = installed(stage, plan, &mut notes);
    let ways = ways(&installed, &plan.conditions);
    if ways.iter().any(|way| way.condition.is_hybrid()) {
        notes.push(
            "Beside X25519MLKEM768, the server alone has X25519: before OpenSSL 3.5 it knows no \
             hybrid group."
                .into(),
        );
    }
    if ways.is_empty() {
        return Err(TrialError::Nothing(notes.join(" ")));
    }
    let lanes = widelane_cpu::lanes();
    notes.extend(without_lanes(plan.disable_lanes, lanes));
    let (mut record, _) = Record::begin(stage, &plan.records, "ways in", &plan.command)?;
    let mut comparisons = Vec::new();
    let mut servers = Vec::new();
    for way in &ways {
        progress(&format!("starting {way}"));
        let (software, condition) = (way.software, way.condition);
        let plain = unmodified::plain(stage, software, condition.classical())?;
        let lanes = !plan.disable_lanes;
        let (with, said) = unmodified::with_widelane(stage, software, condition, lanes)?;
        let mut sides = [plain, with];
        for (side, condition) in sides.iter_mut().zip(way.conditions()) {
            // The provider measures once in each process what passes cost. No turn pays for that.
            stage.drive(side, condition, Drive::Closed(SETTLING), (WARMUP, SETTLE))?;
        }
        comparisons.push(Comparison::new(*way, sides, &plan.in_flight));
        let program = software.program(&stage.options);
        servers.push(json!({
            "server": software.id(),
            "condition": condition.id(),
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
        for comparison in &mut comparisons {
            for (row, &in_flight) in plan.in_flight.iter().enumerate() {
                progress(&format!(
                    "round {} of {}: {}, {in_flight} in flight",
                    round + 1,
                    plan.rounds,
                    comparison.way
                ));
                // Each side is the first one in every second round.
                for side in [round % 2, (round + 1) % 2] {
                    let report = comparison.turn(stage, plan.seconds, side, row)?;
                    record.line(&json!({
                        "kind": KIND,
                        "server": comparison.way.software.id(),
                        "condition": comparison.way.condition.id(),
                        "side": SIDES[side],
                        "in_flight": in_flight,
                        "round": round,
                        "report": report,
                    }))?;
                }
            }
        }
    }
    let rows: Vec<Row> = comparisons.into_iter().flat_map(|one| one.rows).collect();
    notes.extend(limits(&rows));
    let table = shown(stage, plan, &servers, &rows, &notes);
    let rows: Vec<Value> = rows.iter().map(Row::figures).collect();
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
    for &software in &plan.servers {
        match software.program(&stage.options) {
            Some(_) if installed.contains(&software) => {}
            Some(_) => installed.push(software),
            None => notes.push(format!("{software} is not installed, and left out.")),
        }
    }
    installed
}

/// A server under a condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Way {
    software: Software,
    condition: Condition,
}

impl Way {
    /// Conditions of each side, in the order of [`SIDES`].
    fn conditions(self) -> [Condition; 2] {
        [self.condition.classical(), self.condition]
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.software, self.condition)
    }
}

fn ways(servers: &[Software], wanted: &[Condition]) -> Vec<Way> {
    let mut ways = Vec::new();
    for &software in servers {
        let own: &[Condition] = match software {
            _ if !wanted.is_empty() => wanted,
            Software::Nginx => &[Condition::RsaX25519, Condition::EcdsaX25519],
            _ => &[Condition::RsaX25519],
        };
        ways.extend(own.iter().map(|&condition| Way {
            software,
            condition,
        }));
    }
    ways
}

/// Both sides of a way, and what was measured of them.
struct Comparison {
    way: Way,
    sides: [Running; 2],
    /// Reports, one for each number in flight.
    rows: Vec<Row>,
}

impl Comparison {
    fn new(way: Way, sides: [Running; 2], in_flight: &[usize]) -> Self {
        let rows = in_flight.iter().map(|&in_flight| Row::new(way, in_flight));
        Self {
            way,
            sides,
            rows: rows.collect(),
        }
    }

    fn turn(
        &mut self,
        stage: &Stage,
        seconds: f64,
        side: usize,
        row: usize,
    ) -> Result<Value, TrialError> {
        let row = &mut self.rows[row];
        let (drive, times) = (Drive::Closed(row.in_flight), (WARMUP, seconds));
        let condition = self.way.conditions()[side];
        let report = stage.drive(&mut self.sides[side], condition, drive, times)?;
        row.reports[side].push(report.clone());
        Ok(report)
    }
}

/// The reports of both sides, plain first, round by round.
pub(crate) struct Row {
    pub(crate) way: Way,
    pub(crate) in_flight: usize,
    pub(crate) reports: [Vec<Value>; 2],
}

impl Row {
    /// The rows of a record, from its lines of this kind.
    pub(crate) fn of<'a>(lines: impl Iterator<Item = &'a Value>) -> Result<Vec<Self>, String> {
        let mut rows: Vec<Self> = Vec::new();
        for line in lines {
            let word = |key: &str| line[key].as_str().unwrap_or_default();
            let way = Way {
                software: word("server").parse()?,
                condition: word("condition").parse()?,
            };
            let side = SIDES.iter().position(|side| *side == word("side"));
            let side = side.ok_or_else(|| format!("{:?} is no side", word("side")))?;
            let in_flight = line["in_flight"].as_u64().unwrap_or_default() as usize;
            let known = rows
                .iter()
                .position(|row| row.way == way && row.in_flight == in_flight);
            let index = known.unwrap_or_else(|| {
                rows.push(Self::new(way, in_flight));
                rows.len() - 1
            });
            rows[index].reports[side].push(line["report"].clone());
        }
        Ok(rows)
    }

    fn new(way: Way, in_flight: usize) -> Self {
        Self {
            way,
            in_flight,
            reports: [Vec::new(), Vec::new()],
        }
    }

    /// The median of the rounds' quotients, with Widelane by plain, and its interval.
    pub(crate) fn quotient(&self, key: &str) -> (Option<f64>, Option<(f64, f64)>) {
        let [plain, with] = &self.reports;
        let quotients = ratios(with, plain, key);
        let interval = interval_of_median(&quotients);
        (median(quotients), interval)
    }

    fn cells(&self) -> [Vec<String>; 2] {
        let [own, _] = self.way.conditions();
        let [mut plain, mut with] = [0, 1].map(|side| {
            let own = &self.reports[side];
            let mut cells = vec![String::new(); COLUMNS.len()];
            cells[1] = self.in_flight.to_string();
            cells[2] = whole(median_of(own, "handshakes_per_s"));
            cells[5] = whole(median_of(own, SERVER_CPU));
            cells[8] = whole(median_of(own, "p50_us"));
            cells[9] = whole(median_of(own, "p99_us"));
            cells[10] = sum_of(own, "errors").to_string();
            cells
        });
        plain[0] = format!("{}, {own}", self.way.software);
        with[0] = match own == self.way.condition {
            true => "  with Widelane".into(),
            false => format!("  with Widelane, {}", self.way.condition),
        };
        for (column, key) in [(3, "handshakes_per_s"), (6, SERVER_CPU)] {
            let (middle, interval) = self.quotient(key);
            with[column] = ratio(middle);
            with[column + 1] = interval.map_or_else(
                || "too few rounds".into(),
                |(low, high)| format!("{low:.2} to {high:.2}"),
            );
        }
        [plain, with]
    }

    fn figures(&self) -> Value {
        let side = |side: usize| {
            let own = &self.reports[side];
            json!({
                "handshakes_per_s": median_of(own, "handshakes_per_s"),
                SERVER_CPU: median_of(own, SERVER_CPU),
                "p50_us": median_of(own, "p50_us"),
                "p99_us": median_of(own, "p99_us"),
                "errors": sum_of(own, "errors"),
            })
        };
        let quotient = |key| {
            let (median, interval) = self.quotient(key);
            json!({
                "median": median,
                "low": interval.map(|(low, _)| low),
                "high": interval.map(|(_, high)| high),
            })
        };
        json!({
            "server": self.way.software.id(),
            "condition": self.way.condition.id(),
            "in_flight": self.in_flight,
            SIDES[0]: side(0),
            SIDES[1]: side(1),
            "quotient": {
                "handshakes_per_s": quotient("handshakes_per_s"),
                SERVER_CPU: quotient(SERVER_CPU),
            },
        })
    }
}

/// Notes on rows in which the load generator had no CPU left: the server may have had.
fn limits(rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    for row in rows {
        for (reports, with) in row.reports.iter().zip(["", " with Widelane"]) {
            let busy = median_of(reports, "busiest_thread").unwrap_or(0.0);
            if busy > GENERATOR_LIMIT {
                notes.push(format!(
                    "The load generator was at its limit for {}{with}, {} in flight: the CPU time \
                     for a handshake says more than the rate.",
                    row.way, row.in_flight
                ));
            }
        }
    }
    notes
}

fn shown(
    stage: &Stage,
    plan: &WaysInPlan,
    servers: &[Value],
    rows: &[Row],
    notes: &[String],
) -> String {
    let mut cells = vec![COLUMNS.map(String::from).to_vec()];
    cells.extend(rows.iter().flat_map(Row::cells));
    let mut text = format!(
        "Full TLS 1.3 handshakes of unmodified servers: AES-128-GCM, no resumption.\n\
         {}; one server at a time on CPU {}, load on CPU {}; medians of {} rounds of {} s.\n\n{}\n\
         x plain: with Widelane, as a multiple of the server alone; the median of the rounds'\n\
         quotients and its 95 % interval. Of the CPU time, less is better.\n",
        machine::cpu_model(),
        stage.options.server_cpu,
        stage.options.load_cpu,
        plan.rounds,
        plan.seconds,
        table(&cells),
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

/// The kind of a record's lines with the reports.
pub(crate) const KIND: &str = "ways-in";
/// Names in records and JSON; the order of [`Row::reports`].
const SIDES: [&str; 2] = ["plain", "widelane"];
const COLUMNS: [&str; 11] = [
    "server",
    "in flight",
    "handshakes/s",
    "x plain",
    "95 % interval",
    "server CPU us each",
    "x plain",
    "95 % interval",
    "p50 us",
    "p99 us",
    "errors",
];
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

    fn row(rounds: usize) -> Row {
        let report = |rate: f64, cpu: f64| {
            json!({
                "handshakes_per_s": rate,
                SERVER_CPU: cpu,
                "p50_us": 1234.0,
                "p99_us": 5678.0,
                "errors": 1,
                "busiest_thread": rate / 4000.0,
            })
        };
        Row {
            way: Way {
                software: Software::Haproxy,
                condition: RSA,
            },
            in_flight: 16,
            reports: [
                vec![report(1000.0, 800.0); rounds],
                vec![report(4000.0, 200.0); rounds],
            ],
        }
    }

    #[test]
    fn every_server_has_rsa_and_nginx_also_ecdsa_unless_others_are_asked_for() {
        let pairs = |wanted: &[Condition]| -> Vec<(Software, Condition)> {
            let ways = ways(&Software::ALL, wanted);
            let pairs = ways.iter().map(|way| (way.software, way.condition));
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
        assert_eq!(asked, Software::ALL.map(|software| (software, ECDSA)));
    }

    #[test]
    fn without_lanes_a_note_says_what_is_compared() {
        assert_eq!(without_lanes(false, Lanes::ALL), None);
        let disabled = without_lanes(true, Lanes::ALL).expect("a note");
        assert!(disabled.contains("as on a CPU without lanes"), "{disabled}");
        let lacking = without_lanes(false, Lanes::NONE).expect("a note");
        assert!(lacking.starts_with("This CPU has no lanes"), "{lacking}");
        assert!(
            lacking.contains("operations run one at a time"),
            "{lacking}"
        );
    }

    #[test]
    fn a_hybrid_group_is_compared_with_x25519() {
        let mut row = row(6);
        row.way.condition = Condition::RsaHybrid;
        assert_eq!(row.way.conditions(), [RSA, Condition::RsaHybrid]);
        let [plain, with] = row.cells();
        assert_eq!(plain[0], "HAProxy, RSA-2048, X25519");
        assert_eq!(with[0], "  with Widelane, RSA-2048, X25519MLKEM768");
    }

    #[test]
    fn a_row_has_both_sides_and_what_widelane_changes() {
        let [plain, with] = row(6).cells();
        let text = table(&[plain, with]);
        let words: Vec<Vec<_>> = text
            .lines()
            .map(|line| line.split("  ").filter(|word| !word.is_empty()).collect())
            .map(|cells: Vec<&str>| cells.into_iter().map(str::trim).collect())
            .collect();
        let plain = "HAProxy, RSA-2048, X25519|16|1,000|800|1,234|5,678|6";
        assert_eq!(words[0].join("|"), plain);
        let with = "with Widelane|16|4,000|4.00|4.00 to 4.00|200|0.25|0.25 to 0.25|1,234|5,678|6";
        assert_eq!(words[2].join("|"), with);
    }

    #[test]
    fn few_rounds_have_no_interval() {
        let [_, with] = row(5).cells();
        assert_eq!((&*with[3], &*with[4]), ("4.00", "too few rounds"));
        let figures = row(5).figures();
        let rate = &figures["quotient"]["handshakes_per_s"];
        assert_eq!((&rate["median"], &rate["low"]), (&json!(4.0), &Value::Null));
    }

    #[test]
    fn programs_get_the_figures_of_the_table() {
        let figures = row(6).figures();
        assert_eq!(figures["server"], "haproxy");
        assert_eq!(figures["condition"], "rsa-x25519");
        assert_eq!(figures["plain"]["handshakes_per_s"], 1000.0);
        assert_eq!(figures["widelane"]["errors"], 6);
        assert_eq!(figures["quotient"][SERVER_CPU]["high"], 0.25);
    }

    #[test]
    fn a_load_generator_at_its_limit_is_told() {
        let notes = limits(&[row(1)]);
        assert_eq!(notes.len(), 1);
        let told = "HAProxy, RSA-2048, X25519 with Widelane, 16 in flight";
        assert!(notes[0].contains(told), "{}", notes[0]);
    }
}
