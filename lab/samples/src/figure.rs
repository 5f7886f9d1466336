//! A number with all that is needed to find it again: where it was measured, and how it follows
//! from what was written there.

use crate::record::{Line, Record};
use serde_json::{Value, json};
use std::rc::Rc;
use widelane_statistics::{interval_of_median, median, quotients};
use widelane_text::{named, thousands};

/// A number in a table or in a text.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Description of the figure in words.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Unit of the number.
    pub unit: Unit,
    /// Certainty of the number.
    pub interval: Interval,
    /// Derivation of the number from its source.
    pub origin: Origin,
    /// The file with its numbers.
    pub source: Rc<Source>,
}

/// Certainty of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// The true value lies there with 95 %.
    Confidence(f64, f64),
    /// A twentieth of the samples is below, a twentieth above.
    Spread(f64, f64),
    /// The smallest and the largest value.
    Range(f64, f64),
    /// None: an interval takes more than this number of values.
    TooFew(usize),
    /// None, for this reason.
    None(&'static str),
    /// The number was published or simulated: it has none by its nature.
    NotMeasured,
}

/// Derivation of a figure from its source.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Statistic by which one number was made of several.
    pub statistic: Statistic,
    /// Place of the numbers in each line, or in the profile: a JSON pointer.
    pub field: String,
    /// The lines with its numbers; none for a profile.
    pub lines: Vec<usize>,
    /// Lines of a quotient's divisors, in the same order.
    pub by: Vec<usize>,
    /// Factor of the result.
    pub scale: f64,
}

named! {
    /// Statistic that makes one number of several.
    pub enum Statistic {
        /// The number itself.
        Value = "value",
        /// The median.
        Median = "median",
        /// The median of the quotients, pair by pair.
        Quotient = "quotient",
        /// The sum.
        Sum = "sum",
        /// Computed when the report was made.
        Simulated = "simulated",
    }
}

/// A file with numbers, and what they have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// The name of the CPU.
    pub machine: String,
    /// True if the machine was a virtual one.
    pub virtual_machine: bool,
    /// Commit of the measured programs' sources, if it is known.
    pub commit: Option<String>,
    /// Day, like `2026-01-02`.
    pub date: String,
    /// Name of the file for people, or of the program that computed the figures.
    pub name: String,
    /// The address of the file, seen from the page.
    pub link: Option<String>,
    /// Command that was run.
    pub command: String,
    /// Notes that readers need to judge the figures.
    pub notes: Vec<String>,
}

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Events a second.
    PerSecond,
    /// Microseconds.
    Microseconds,
    /// Microseconds, to a tenth.
    FineMicroseconds,
    /// Seconds, to a millisecond.
    Seconds,
    /// GHz.
    Gigahertz,
    /// 10^9 bytes a second.
    GigabytesPerSecond,
    /// 2^30 bytes a second.
    GibibytesPerSecond,
    /// Events a nanosecond.
    PerNanosecond,
    /// Bytes.
    Bytes,
    /// KiB, shown in MiB.
    Kibibytes,
    /// Shown in per cent.
    Share,
    /// A quotient. Near one a digit more counts.
    Times,
    /// A whole number.
    Count,
    /// None, to a tenth.
    Tenths,
    /// None: the title says it.
    Plain,
}

impl Figure {
    /// The median of what stands at `field` of `lines`; `None` if nothing does.
    pub fn median(what: &str, unit: Unit, lines: &[&Line], field: &str, source: &Rc<Source>) -> Option<Self> {
        let values: Vec<f64> = lines.iter().flat_map(|line| numbers(line, field)).collect();
        let interval = interval(&values);
        let origin = Origin::new(Statistic::Median, field, lines);
        Self::new(what, median(values)?, unit, interval, origin, source)
    }

    /// The median of the quotients of what stands at `field`, in the first line of a pair by the
    /// second; of several numbers in a line, one by one. `None` if there are none.
    pub fn quotient(what: &str, pairs: &[(&Line, &Line)], field: &str, source: &Rc<Source>) -> Option<Self> {
        let mut all = Vec::new();
        for (ours, theirs) in pairs {
            let (ours, theirs) = (numbers(ours, field), numbers(theirs, field));
            if ours.len() == theirs.len() {
                let (ours, theirs) = (ours.into_iter().map(Some), theirs.into_iter().map(Some));
                all.extend(quotients(ours, theirs));
            }
        }
        let interval = interval(&all);
        let (lines, by): (Vec<&Line>, Vec<&Line>) = pairs.iter().copied().unzip();
        let origin = Origin {
            by: by.iter().map(|line| line.number).collect(),
            ..Origin::new(Statistic::Quotient, field, &lines)
        };
        Self::new(what, median(all)?, Unit::Times, interval, origin, source)
    }

    /// The median again, with the smallest and the largest value.
    pub fn range(what: &str, unit: Unit, lines: &[&Line], field: &str, source: &Rc<Source>) -> Option<Self> {
        let values = lines.iter().flat_map(|line| numbers(line, field));
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let median = Self::median(what, unit, lines, field, source)?;
        let interval = Interval::Range(low, high);
        Some(Self { interval, ..median })
    }

    /// The sum of what stands at `field` of `lines`; `None` if nothing does.
    pub fn sum(what: &str, lines: &[&Line], field: &str, source: &Rc<Source>) -> Option<Self> {
        let values: Vec<f64> = lines.iter().flat_map(|line| numbers(line, field)).collect();
        let sum = (!values.is_empty()).then(|| values.iter().sum())?;
        let origin = Origin::new(Statistic::Sum, field, lines);
        let interval = Interval::None("a count");
        Self::new(what, sum, Unit::Count, interval, origin, source)
    }

    /// Multiplies the figure by `scale`, and changes its unit.
    pub fn scaled(mut self, scale: f64, unit: Unit) -> Self {
        self.value *= scale;
        self.unit = unit;
        self.origin.scale *= scale;
        self.interval = match self.interval {
            Interval::Confidence(low, high) => Interval::Confidence(low * scale, high * scale),
            Interval::Spread(low, high) => Interval::Spread(low * scale, high * scale),
            Interval::Range(low, high) => Interval::Range(low * scale, high * scale),
            none => none,
        };
        self
    }

    /// A figure, unless it is no number.
    pub fn new(
        what: &str,
        value: f64,
        unit: Unit,
        interval: Interval,
        origin: Origin,
        source: &Rc<Source>,
    ) -> Option<Self> {
        value.is_finite().then(|| Self {
            what: what.to_owned(),
            value,
            unit,
            interval,
            origin,
            source: Rc::clone(source),
        })
    }

    /// Value of the figure for people.
    pub fn shown(&self) -> String {
        self.unit.shown(self.value)
    }

    /// Interval of the figure for people.
    pub fn shown_interval(&self) -> String {
        let decimals = self.unit.decimals(self.value);
        let between = |low, high| {
            let [low, high] = [low, high].map(|end| self.unit.written(end, decimals));
            format!("{low} to {high}")
        };
        match self.interval {
            Interval::Confidence(low, high) | Interval::Range(low, high) => between(low, high),
            Interval::Spread(low, high) => format!("p5 to p95: {}", between(low, high)),
            Interval::TooFew(1) => "one value".to_owned(),
            Interval::TooFew(count) => format!("median of {count}"),
            Interval::None(why) => why.to_owned(),
            Interval::NotMeasured => NOT_MEASURED.to_owned(),
        }
    }

    /// The figure as JSON.
    pub fn json(&self, section: &str) -> Value {
        let source = &*self.source;
        let (interval, why) = match self.interval {
            Interval::Confidence(low, high) => (json!({"of": "95 %", "low": low, "high": high}), None),
            Interval::Spread(low, high) => (json!({"of": "p5 to p95", "low": low, "high": high}), None),
            Interval::Range(low, high) => (json!({"of": "all", "low": low, "high": high}), None),
            Interval::TooFew(count) => {
                let why = format!("too few values for an interval: {count}");
                (Value::Null, Some(why))
            }
            Interval::None(_) | Interval::NotMeasured => (Value::Null, Some(self.shown_interval())),
        };
        json!({
            "section": section,
            "what": self.what,
            "value": self.value,
            "unit": self.unit.name(),
            "interval": interval,
            "no_interval": why,
            "machine": source.machine,
            "virtual_machine": source.virtual_machine,
            "commit": source.commit,
            "date": source.date,
            "record": source.name,
            "link": source.link,
            "command": source.command,
            "notes": source.notes,
            "statistic": self.origin.statistic.name(),
            "field": self.origin.field,
            "lines": self.origin.lines,
            "by_lines": self.origin.by,
            "scale": self.origin.scale,
        })
    }

    /// Source of the figure, in a line.
    pub fn provenance(&self) -> String {
        let source = &*self.source;
        let mut text = format!(
            "{}; {}; {}; commit {}; {}",
            self.what,
            source.machine,
            source.date,
            source.short_commit(),
            source.name
        );
        let lines = ranges(self.origin.lines.iter().chain(&self.origin.by));
        if !lines.is_empty() {
            text.push_str(&format!(", lines {lines}"));
        }
        text
    }
}

impl Interval {
    /// The ends of an interval of 95 %; `None` of any other.
    pub fn confidence(self) -> Option<(f64, f64)> {
        match self {
            Self::Confidence(low, high) => Some((low, high)),
            _ => None,
        }
    }
}

impl Origin {
    fn new(statistic: Statistic, field: &str, lines: &[&Line]) -> Self {
        Self {
            statistic,
            field: field.to_owned(),
            lines: lines.iter().map(|line| line.number).collect(),
            by: Vec::new(),
            scale: 1.0,
        }
    }

    /// Origin of a figure at `field` of a profile.
    pub fn of_profile(field: &str) -> Self {
        Self::new(Statistic::Value, field, &[])
    }
}

impl Source {
    /// Common source of all figures of a record. `link` is the address of its file.
    pub fn of(record: &Record, link: Option<String>) -> Rc<Self> {
        let (run, machine) = (&record.run, &record.run["machine"]);
        let word = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        let mut notes = Vec::new();
        match &machine["modified"] {
            Value::Bool(false) => {}
            Value::Bool(true) => notes.push(MODIFIED.to_owned()),
            _ => {
                notes.push("it is not known whether the sources were those of the commit".to_owned());
            }
        }
        if !record.is_complete() {
            notes.push("its run was interrupted".to_owned());
        }
        let file = record.name.rsplit('/').next().filter(|name| !name.is_empty());
        let started = word(&run["started"]);
        Rc::new(Self {
            machine: word(&machine["cpu"]),
            virtual_machine: machine["hypervisor"] == true,
            commit: machine["commit"].as_str().map(str::to_owned),
            date: started.split('T').next().unwrap_or_default().to_owned(),
            name: file.unwrap_or(&record.name).to_owned(),
            link,
            command: word(&run["command"]),
            notes,
        })
    }

    /// The commit as people write it.
    pub fn short_commit(&self) -> String {
        let commit = self.commit.as_deref().unwrap_or("n/a");
        commit.chars().take(7).collect()
    }
}

impl Unit {
    /// Name for programs, what stands behind a number for people, and digits behind the point.
    fn facts(self) -> (&'static str, &'static str, usize) {
        match self {
            Self::PerSecond => ("/s", "", 0),
            Self::Microseconds => ("us", " µs", 0),
            Self::FineMicroseconds => ("us", " µs", 1),
            Self::Seconds => ("s", " s", 3),
            Self::Gigahertz => ("GHz", " GHz", 2),
            Self::GigabytesPerSecond => ("GB/s", " GB/s", 1),
            Self::GibibytesPerSecond => ("GiB/s", " GiB/s", 2),
            Self::PerNanosecond => ("/ns", "", 1),
            Self::Bytes => ("bytes", " bytes", 0),
            Self::Kibibytes => ("KiB", " MiB", 1),
            Self::Share => ("share", " %", 1),
            Self::Times => ("times", "", 2),
            Self::Count => ("", "", 0),
            Self::Tenths => ("", "", 1),
            // Two digits are enough for what people publish.
            Self::Plain => ("as named", "", 2),
        }
    }

    /// Name of the unit for programs.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// A number of this unit for people.
    pub fn shown(self, value: f64) -> String {
        self.written(value, self.decimals(value)) + self.facts().1
    }

    /// Digits behind the point of a value of about this size.
    fn decimals(self, value: f64) -> usize {
        match self {
            Self::Microseconds if value.abs() < 20.0 => 1,
            Self::Times if (f64::EPSILON..0.1).contains(&(value - 1.0).abs()) => 3,
            _ => self.facts().2,
        }
    }

    /// Text without the unit.
    fn written(self, value: f64, decimals: usize) -> String {
        if value.abs() >= TOO_LONG {
            return format!("{value:.2e}");
        }
        match self {
            Self::Share => format!("{:.decimals$}", 100.0 * value),
            Self::Kibibytes => format!("{:.decimals$}", value / 1024.0),
            Self::Plain => {
                let text = format!("{value:.decimals$}");
                match text.trim_end_matches('0').trim_end_matches('.') {
                    "-0" => "0".to_owned(),
                    text => text.to_owned(),
                }
            }
            _ if decimals == 0 => whole(value),
            _ => format!("{value:.decimals$}"),
        }
    }
}

/// Numbers of lines as people write them: `2–5, 9`, and of many pieces `7–248 (18 of them)`.
pub fn ranges<'a>(lines: impl Iterator<Item = &'a usize>) -> String {
    let mut lines: Vec<usize> = lines.copied().collect();
    lines.sort_unstable();
    lines.dedup();
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for line in lines {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == line => *last = line,
            _ => parts.push((line, line)),
        }
    }
    if let (true, Some((first, _)), Some((_, last))) = (parts.len() > MOST_PIECES, parts.first(), parts.last()) {
        let count: usize = parts.iter().map(|(first, last)| last - first + 1).sum();
        return format!("{first}–{last} ({count} of them)");
    }
    let part = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}–{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// Numbers at `field` of a line: one number, or a list of them.
fn numbers(line: &Line, field: &str) -> Vec<f64> {
    match line.value.pointer(field) {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_f64).collect(),
        Some(one) => one.as_f64().into_iter().collect(),
        None => Vec::new(),
    }
}

fn interval(values: &[f64]) -> Interval {
    match interval_of_median(values) {
        Some((low, high)) => Interval::Confidence(low, high),
        None => Interval::TooFew(values.len()),
    }
}

/// A whole number with commas.
fn whole(value: f64) -> String {
    let text = format!("{value:.0}");
    match text.strip_prefix('-') {
        Some("0") => "0".to_owned(),
        Some(digits) => format!("-{}", thousands(digits)),
        None => thousands(&text),
    }
}

/// Note of a source whose program was not built from a commit alone.
pub const MODIFIED: &str = "with changes that the commit does not have";
const NOT_MEASURED: &str = "not measured here";
/// Pieces of a list of lines that people read.
const MOST_PIECES: usize = 4;
/// Numbers from here on are shown by their power of ten.
const TOO_LONG: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: usize, value: Value) -> Line {
        Line { number, value }
    }

    #[test]
    fn numbers_for_people() {
        for (unit, value, shown) in [
            (Unit::PerSecond, 12_628.4, "12,628"),
            (Unit::PerSecond, -1_234.0, "-1,234"),
            (Unit::PerSecond, 3e15, "3.00e15"),
            (Unit::Microseconds, 94.2, "94 µs"),
            (Unit::Microseconds, 1.25, "1.2 µs"),
            (Unit::Share, 0.679, "67.9 %"),
            (Unit::Times, 3.988, "3.99"),
            (Unit::Plain, -10.0, "-10"),
            (Unit::Plain, 7.925, "7.92"),
            (Unit::Plain, -0.001, "0"),
            (Unit::Count, 0.0, "0"),
        ] {
            assert_eq!(unit.shown(value), shown);
        }
    }

    #[test]
    fn lines_for_people() {
        assert_eq!(ranges([7, 2, 3, 4, 9, 3].iter()), "2–4, 7, 9");
        assert_eq!(ranges([7, 8, 37, 38, 67, 97, 127].iter()), "7–127 (7 of them)");
        assert_eq!(ranges([].iter()), "");
    }

    #[test]
    fn a_quotient_is_of_pairs_and_says_which() {
        let source = Rc::new(Source::default());
        let ours = (0..6).map(|n| line(2 * n + 2, json!({"x": 30.0 + n as f64})));
        let ours: Vec<Line> = ours.collect();
        let theirs: Vec<Line> = (0..6).map(|n| line(2 * n + 3, json!({"x": 10.0}))).collect();
        let pairs: Vec<_> = ours.iter().zip(&theirs).collect();
        let figure = Figure::quotient("q", &pairs, "/x", &source).expect("a figure");
        assert_eq!(figure.value, 3.25);
        assert_eq!(figure.interval, Interval::Confidence(3.0, 3.5));
        assert_eq!(figure.origin.by, [3, 5, 7, 9, 11, 13]);
        assert_eq!(figure.shown_interval(), "3.00 to 3.50");
        assert!(Figure::quotient("q", &pairs, "/y", &source).is_none());
    }

    #[test]
    fn slices_in_a_line_are_paired_one_by_one_or_not_at_all() {
        let source = Rc::new(Source::default());
        let ours = line(2, json!({"x": [2.0, 4.0, 6.0]}));
        let theirs = line(3, json!({"x": [1.0, 1.0, 2.0]}));
        let short = line(4, json!({"x": [1.0]}));
        let of = |by| Figure::quotient("q", &[(&ours, by)], "/x", &source);
        assert_eq!(of(&theirs).expect("a figure").value, 3.0);
        assert!(of(&short).is_none());
    }
}
