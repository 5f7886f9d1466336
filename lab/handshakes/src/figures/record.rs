//! A record as it is read again.

use crate::condition::Condition;
use crate::machine;
use crate::summary;
use crate::ways_in;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Lines of a record, the first one apart.
pub(super) struct Record {
    pub(super) run: Value,
    pub(super) lines: Vec<Value>,
}

impl Record {
    pub(super) fn read(file: &Path, name: &str) -> Result<Self, String> {
        let bytes = fs::read(file).map_err(|error| format!("{name}: {error}"))?;
        let (record, faults) = widelane_samples::Record::parse(name, &bytes);
        // No figure of a document stands on a record with a hole.
        match (record, faults.first()) {
            (_, Some(fault)) => Err(fault.to_string()),
            (Some(record), None) => Ok(Self {
                run: record.run,
                lines: record.lines.into_iter().map(|line| line.value).collect(),
            }),
            (None, None) => Err(format!("{name} is not a record")),
        }
    }

    /// The lines of a kind for which `wanted` holds.
    pub(super) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["kind"] == kind)
    }

    /// Reports of the load generator, turn by turn.
    pub(super) fn reports(&self, kind: &str, condition: Condition, side: &str) -> Vec<Value> {
        let wanted = |line: &&Value| {
            let same = line["condition"] == condition.id();
            // A closed loop is shown with many in flight; a pair has one number of them.
            let shown = kind != "closed" || line["in_flight"].as_u64() != Some(1);
            same && shown && line["side"] == side
        };
        let lines = self.of(kind).filter(wanted);
        lines.map(|line| line["report"].clone()).collect()
    }

    /// The servers of lines of a kind, in the order in which they first ran.
    pub(super) fn sides(&self, kind: &str) -> Vec<String> {
        let mut sides: Vec<String> = Vec::new();
        for line in self.of(kind) {
            let side = line["side"].as_str().or(line["result"]["side"].as_str());
            if let Some(side) = side
                && !sides.iter().any(|known| known == side)
            {
                sides.push(side.to_owned());
            }
        }
        sides
    }

    /// The servers of a pair in the order in which the command names them.
    pub(super) fn pair(&self) -> Result<[String; 2], String> {
        let command = self.run["command"].as_str().unwrap_or_default();
        let mut sides = self.sides("pair");
        sides.sort_by_key(|side| command.split(' ').position(|word| word == side));
        sides
            .try_into()
            .map_err(|_| "it is no record of a pair".to_owned())
    }

    pub(super) fn rounds(&self, kind: &str) -> u64 {
        let rounds = self.of(kind).filter_map(|line| line["round"].as_u64());
        rounds.max().map_or(0, |last| last + 1)
    }

    /// A server's name in tables.
    pub(super) fn name(&self, side: &str) -> String {
        match side {
            "widelane-on" => "`widelane serve`".into(),
            "widelane-off" => "`widelane serve`, batching off".into(),
            "widelane-inline" => "`widelane serve`, inline".into(),
            "widelane-old" => "`widelane serve`, old".into(),
            "nginx-stream" => "nginx stream".into(),
            "haproxy" => "HAProxy".into(),
            "hitch" => "hitch".into(),
            _ => {
                let nginx = self.nginx().unwrap_or_else(|| "nginx".into());
                match side.strip_prefix("nginx-trace-") {
                    Some(view) => format!("{nginx}, traced by `trace {view}`"),
                    None => nginx,
                }
            }
        }
    }

    pub(super) fn nginx(&self) -> Option<String> {
        let said = self.run["machine"]["nginx"].as_array()?;
        let lines: Vec<_> = said.iter().filter_map(Value::as_str).collect();
        machine::name_in(&lines.join("\n"))
    }

    /// Source of the figures, in one sentence or a few. `name` is the record's path.
    pub(super) fn source(&self, name: &str, up: &str) -> String {
        let machine = &self.run["machine"];
        let word = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        let file = name.rsplit('/').next().unwrap_or(name);
        let commit: String = word(&machine["commit"]).chars().take(7).collect();
        let tree = match machine["modified"].as_bool() {
            Some(false) => "",
            _ => ", **with changes that the commit does not have**",
        };
        let load: Vec<_> = ["load_average_at_start"]
            .iter()
            .filter_map(|key| machine[key].as_str()?.split(' ').next())
            .collect();
        let started = word(&self.run["started"]);
        let day = started.split('T').next().unwrap_or_default();
        let kinds = ["pair", "closed", ways_in::KIND];
        let rounds = kinds.map(|kind| self.rounds(kind)).into_iter().max();
        let rounds = match rounds.unwrap_or_default() {
            0 => String::new(),
            rounds => format!(" Medians of {rounds} rounds."),
        };
        format!(
            "{}{}, {}, commit {commit}{tree}; load average at the start {}. \
             Record: [{file}]({up}{name}) of `{}`.{rounds}",
            word(&machine["cpu"]),
            if machine["hypervisor"] == true {
                ", virtual machine"
            } else {
                ""
            },
            day,
            load.first().copied().unwrap_or("unknown"),
            word(&self.run["command"]),
        )
    }

    /// One line of `widelane speed`.
    pub(super) fn speed(&self, operation: &str, backend: &str, in_flight: u64) -> Option<&Value> {
        let results = self.of("speed").map(|line| &line["result"]);
        let mut wanted = results.filter(|result| {
            result["operation"] == operation
                && result["backend"] == backend
                && result["in_flight"] == in_flight
        });
        wanted.next()
    }

    /// The conditions that lines of a kind have, in the order of tables.
    pub(super) fn conditions(&self, kind: &str) -> Vec<Condition> {
        let has = |condition: &Condition| {
            let sides = self.sides(kind);
            sides
                .iter()
                .any(|side| !self.reports(kind, *condition, side).is_empty())
        };
        Condition::ALL.into_iter().filter(has).collect()
    }

    pub(super) fn median(reports: &[Value], field: &str) -> Option<f64> {
        summary::median_of(reports, field)
    }
}
