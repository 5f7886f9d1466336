//! Reaches a verdict on a process from what was seen. Pure functions.

use crate::account::{Finding, Verdict};
use crate::interval::Sampled;

/// Facts about a process, for its verdict.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// True if the upper halves of registers were in use.
    pub(super) upper: bool,
    /// Code that the process was found executing; `None` if no sample was taken.
    pub(super) ran: Option<Ran>,
    /// Code that the process could execute.
    pub(super) has: Has,
}

/// Code that a process was found executing.
#[derive(Clone, Debug, Default)]
pub(super) struct Ran {
    pub(super) all: Sampled,
    /// The function with 512-bit code that was hit most.
    pub(super) most: Option<String>,
}

/// Code that a process could execute.
#[derive(Clone, Debug, Default)]
pub(super) struct Has {
    /// Memory and string functions with 512-bit code.
    pub(super) copies: bool,
    /// Other functions, in words: the file with most of them.
    pub(super) others: Option<String>,
    /// Code without a file.
    pub(super) generated: bool,
    /// Reason why not everything could be looked at.
    pub(super) unseen: Option<&'static str>,
}

/// The verdict on a process.
pub(super) fn judge(seen: &Facts) -> Finding {
    let Facts { upper, ran, has } = seen;
    if let Some(Ran { all, most: Some(most) }) = ran {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let share = 100.0 * all.wide as f64 / all.all() as f64;
        let why = format!("{share:.0} % of samples in 512-bit code, most in {most}");
        return Finding {
            verdict: Verdict::Wide,
            why,
        };
    }
    let samples = ran.as_ref().map_or(0, |ran| ran.all.all());
    let copied = ran.as_ref().map_or(0, |ran| ran.all.copies);
    let (verdict, why) = match (upper, &has.others, has.unseen) {
        (true, Some(others), _) if samples < ENOUGH_SAMPLES || copied == 0 => (Verdict::Wide, others.clone()),
        (false, Some(others), _) if samples < ENOUGH_SAMPLES => (Verdict::Possible, others.clone()),
        (_, Some(others), _) if copied > 0 => (
            Verdict::Copies,
            format!("{others}, but only memory and string functions were seen running"),
        ),
        (_, Some(others), _) => (Verdict::Narrow, format!("{others}, but none was seen running")),
        (true, None, Some(unseen)) => (
            Verdict::Wide,
            format!("512-bit values; from which code is unknown: {unseen}"),
        ),
        (false, None, Some(unseen)) => (Verdict::Unknown, unseen.to_owned()),
        (true, None, None) if has.generated => {
            (Verdict::Wide, "only code made at run time can have done it".to_owned())
        }
        (_, None, None) if has.copies => (
            Verdict::Copies,
            "has 512-bit code only in memory and string functions".to_owned(),
        ),
        (true, None, None) => (
            Verdict::Unknown,
            "it has no 512-bit code now, but 512-bit values".to_owned(),
        ),
        (false, None, None) if has.generated => (
            Verdict::Unknown,
            "it makes code at run time, which is not looked at".to_owned(),
        ),
        (false, None, None) => (Verdict::Narrow, "has no 512-bit code".to_owned()),
    };
    Finding { verdict, why }
}

/// Fewest samples from which the absence of wide code counts.
const ENOUGH_SAMPLES: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn has(copies: bool, others: bool) -> Has {
        Has {
            copies,
            others: others.then(|| "libx has 3 functions of 512 bits".to_owned()),
            ..Has::default()
        }
    }

    fn ran(wide: u64, copies: u64, other: u64) -> Option<Ran> {
        Some(Ran {
            all: Sampled { wide, copies, other },
            most: (wide > 0).then(|| "f in libx".to_owned()),
        })
    }

    fn verdict(upper: bool, ran: Option<Ran>, has: Has) -> Verdict {
        let finding = judge(&Facts { upper, ran, has });
        assert!(!finding.why.is_empty());
        finding.verdict
    }

    #[test]
    fn what_was_seen_running_decides() {
        let seen = Facts {
            upper: false,
            ran: ran(30, 10, 60),
            has: has(true, true),
        };
        let finding = judge(&seen);
        assert_eq!(finding.verdict, Verdict::Wide);
        assert!(finding.why.starts_with("30 % "), "{}", finding.why);
        assert!(finding.why.ends_with("f in libx"), "{}", finding.why);
        let copies = verdict(true, ran(0, 10, 60), has(true, true));
        assert_eq!(copies, Verdict::Copies, "zmm memcpy in a program with better code");
        assert_eq!(verdict(false, ran(0, 0, 60), has(true, true)), Verdict::Narrow);
        let few = verdict(false, ran(0, 0, 5), has(true, true));
        assert_eq!(few, Verdict::Possible, "five samples exclude nothing");
    }

    #[test]
    fn without_samples_the_code_it_has_decides() {
        assert_eq!(verdict(true, None, has(true, true)), Verdict::Wide);
        assert_eq!(verdict(false, None, has(true, true)), Verdict::Possible);
        assert_eq!(verdict(true, None, has(true, false)), Verdict::Copies);
        assert_eq!(verdict(false, None, has(true, false)), Verdict::Copies);
        assert_eq!(verdict(false, None, has(false, false)), Verdict::Narrow);
        let hidden = Has {
            unseen: Some("not readable"),
            ..has(true, false)
        };
        assert_eq!(verdict(false, None, hidden.clone()), Verdict::Unknown);
        assert_eq!(verdict(true, None, hidden), Verdict::Wide);
        let generated = Has {
            generated: true,
            ..Has::default()
        };
        assert_eq!(verdict(true, None, generated.clone()), Verdict::Wide);
        assert_eq!(verdict(false, None, generated), Verdict::Unknown);
    }
}
