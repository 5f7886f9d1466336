//! Counts of tests and their times, out of what Rust's test programs print.

use std::collections::BTreeMap;

/// Counts of one or several test programs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Results {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// Reasons of skipped tests, as their lines `SKIP: …` say, with how often.
    pub(crate) reasons: BTreeMap<String, usize>,
    /// Names of tests that failed.
    pub(crate) failures: Vec<String>,
}

impl Results {
    /// Reads the output of test programs.
    ///
    /// A test that prints a line `SKIP: …` counts as skipped, not as passed: all of it or a part of
    /// it cannot run on this machine.
    pub(crate) fn read(output: &str) -> Self {
        let mut results = Self::default();
        let mut without = 0;
        let mut inside = false;
        for line in output.lines() {
            if line.starts_with("test result:") {
                results.passed += count(line, "passed;");
                results.failed += count(line, "failed;");
                results.skipped += count(line, "ignored;");
            } else if line.starts_with("---- ") && line.ends_with(" stdout ----") {
                inside = true;
            } else if line == "successes:" || line == "failures:" {
                inside = false;
            } else if let Some(at) = line.find("SKIP: ") {
                let reason = line[at + "SKIP: ".len()..].to_owned();
                *results.reasons.entry(reason).or_default() += 1;
                if inside {
                    without += 1;
                    inside = false;
                }
            } else if let Some((name, verdict)) = verdict(line)
                && verdict == "FAILED"
            {
                results.failures.push(name.to_owned());
            }
        }
        results.passed = results.passed.saturating_sub(without);
        results.skipped += without;
        results
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        for (reason, times) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += times;
        }
        self.failures.extend(other.failures.iter().cloned());
    }

    /// How many tests there were.
    pub(crate) fn tests(&self) -> usize {
        self.passed + self.failed + self.skipped
    }
}

/// Seconds of each test in the output of test programs that ran with `--report-time`.
pub(crate) fn times(output: &str) -> Vec<(String, f64)> {
    let timed = |line: &str| {
        let (name, rest) = verdict_with_time(line)?;
        let seconds = rest.strip_suffix("s>")?.rsplit_once('<')?.1.parse().ok()?;
        Some((name.to_owned(), seconds))
    };
    output.lines().filter_map(timed).collect()
}

/// The part of a failed program's output that a person reads first: failed tests with what they
/// printed, and errors of the compiler.
pub(crate) fn failures(output: &str) -> String {
    let mut shown = false;
    let mut text = String::new();
    for line in output.lines() {
        shown |= line == "failures:";
        shown &= !line.starts_with("test result:");
        if shown || line.starts_with("error") {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The name and the verdict of a line `test NAME ... VERDICT <time>`.
fn verdict(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = verdict_with_time(line)?;
    Some((name, rest.split(' ').next().unwrap_or(rest)))
}

fn verdict_with_time(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

/// The number before `word`.
fn count(line: &str, word: &str) -> usize {
    let mut before = "";
    for one in line.split_whitespace() {
        if one == word {
            return before.parse().unwrap_or(0);
        }
        before = one;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 4 tests
test a ... ok <0.250s>
test b ... FAILED <1.500s>
test c ... ok <0.001s>
test d ... ignored

successes:

---- c stdout ----
SKIP: this CPU has no lanes
SKIP: this CPU has no lanes

successes:
    a

failures:

---- b stdout ----
thread 'b' panicked

failures:
    b

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.75s
";

    #[test]
    fn a_test_that_says_skip_has_not_passed() {
        let results = Results::read(OUTPUT);
        let counts = (results.passed, results.failed, results.skipped);
        assert_eq!(counts, (1, 1, 2));
        assert_eq!(results.failures, ["b"]);
        assert_eq!(results.reasons["this CPU has no lanes"], 2);
    }

    #[test]
    fn times_are_read_from_the_lines_of_tests() {
        let expected = [("a", 0.25), ("b", 1.5), ("c", 0.001)];
        let times = times(OUTPUT);
        let times: Vec<_> = times.iter().map(|(name, s)| (&**name, *s)).collect();
        assert_eq!(times, expected);
    }

    #[test]
    fn the_failure_is_shown_and_the_rest_is_not() {
        let text = failures(OUTPUT);
        assert!(
            text.contains("thread 'b' panicked") && !text.contains("test a"),
            "{text}"
        );
    }

    #[test]
    fn counts_of_programs_add_up() {
        let mut sum = Results::read(OUTPUT);
        sum.add(&Results::read(OUTPUT));
        assert_eq!((sum.tests(), sum.failures.len()), (8, 2));
        assert_eq!(sum.reasons["this CPU has no lanes"], 4);
    }
}
