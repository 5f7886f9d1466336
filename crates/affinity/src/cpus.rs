//! Sets of CPUs, as the kernel writes them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

/// A set of CPU numbers below [`Cpus::MOST`]. Its text is the kernel's: `0,2-3`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cpus([u64; WORDS]);

impl Cpus {
    /// The size of the set that `sched_setaffinity` is called with here.
    pub const MOST: usize = 64 * WORDS;

    /// Every CPU that could ever be there.
    pub const ALL: Self = Self([u64::MAX; WORDS]);

    /// Reads a list that a person wrote, and that names at least one CPU: `0,2-3`.
    ///
    /// # Errors
    ///
    /// With the first part that names none.
    pub fn named(text: &str) -> Result<Self, ParseCpusError> {
        let cpus: Self = text.parse()?;
        match cpus.is_empty() {
            true => Err(ParseCpusError(text.to_owned())),
            false => Ok(cpus),
        }
    }

    /// Reads a file of the kernel's that holds such a list, like `/sys/devices/system/cpu/online`.
    ///
    /// # Errors
    ///
    /// When it cannot be read or holds something else.
    pub fn read(path: &Path) -> io::Result<Self> {
        let listed = fs::read_to_string(path)?.trim().parse();
        listed.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
    }

    /// Returns whether `cpu` is in the set.
    pub fn has(&self, cpu: usize) -> bool {
        cpu < Self::MOST && self.0[cpu / 64] >> (cpu % 64) & 1 == 1
    }

    /// Adds `cpu`; one that is too large is left out.
    pub fn add(&mut self, cpu: usize) {
        if cpu < Self::MOST {
            self.0[cpu / 64] |= 1 << (cpu % 64);
        }
    }

    /// Removes `cpu`.
    pub fn remove(&mut self, cpu: usize) {
        if cpu < Self::MOST {
            self.0[cpu / 64] &= !(1 << (cpu % 64));
        }
    }

    /// The number of CPUs in it.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// CPUs that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// CPUs that are in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// CPUs of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Returns whether all CPUs of this set are in `other`.
    pub fn within(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        let words = self.0.iter().enumerate();
        words.flat_map(|(place, &word)| {
            let rest = |word: u64| Some(word).filter(|&word| word != 0);
            let lowest_first = std::iter::successors(rest(word), move |word| rest(word & (word - 1)));
            lowest_first.map(move |word| 64 * place + word.trailing_zeros() as usize)
        })
    }
}

impl FromIterator<usize> for Cpus {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        let mut cpus = Self::default();
        for cpu in numbers {
            cpus.add(cpu);
        }
        cpus
    }
}

/// A part of a text that names no CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` names no CPUs; write numbers below {most} and ranges, like 0,2-3",
    .0.escape_debug(), most = Cpus::MOST
)]
pub struct ParseCpusError(String);

impl FromStr for Cpus {
    type Err = ParseCpusError;

    /// Reads `0,2-3`, also with spaces around numbers; an empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, ParseCpusError> {
        let mut cpus = Self::default();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let range = range(part).ok_or_else(|| ParseCpusError(part.to_owned()))?;
            range.for_each(|cpu| cpus.add(cpu));
        }
        Ok(cpus)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut next = 0;
        while let Some(first) = (next..Self::MOST).find(|&cpu| self.has(cpu)) {
            let last = (first..Self::MOST)
                .take_while(|&cpu| self.has(cpu))
                .last()
                .unwrap_or(first);
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
            next = last + 1;
        }
        Ok(())
    }
}

impl fmt::Debug for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cpus({self})")
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// `2` or `2-3`.
fn range(part: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last && last < Cpus::MOST).then_some(first..=last)
}

/// Digits alone: `str::parse` would take a sign.
fn number(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

const WORDS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        let cpus = |text: &str| text.parse::<Cpus>();
        assert_eq!(cpus("0,2-3"), Ok([0, 2, 3].into_iter().collect()));
        assert_eq!(cpus("0,2, 4 - 6"), Ok([0, 2, 4, 5, 6].into_iter().collect()));
        assert_eq!(cpus("0-1023,0-1023"), Ok(Cpus::ALL));
        assert_eq!(cpus(""), Ok(Cpus::default()));
        assert_eq!(Cpus::ALL.to_string(), "0-1023");
        for wrong in [
            "a",
            "1,",
            "3-1",
            "1-",
            "-",
            "-1",
            "+1",
            "1024",
            "0-99999999999999999999",
        ] {
            assert!(cpus(wrong).is_err(), "{wrong:?}");
            assert!(Cpus::named(wrong).is_err(), "{wrong:?}");
        }
        let error = cpus("0,x\u{1b}-,2").expect_err("no number").to_string();
        assert!(error.starts_with("`x\\u{1b}-` names no CPUs"), "{error}");
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(Cpus::named("0,2-3").map(|cpus| cpus.to_string()), Ok("0,2-3".into()));
        assert_eq!(Cpus::named("7"), Ok(Cpus::from_iter([7])));
        let error = Cpus::named("").expect_err("no CPU").to_string();
        assert!(error.starts_with("`` names no CPUs"), "{error}");
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_it_was_written(numbers in prop::collection::vec(0..1024usize, 0..40)) {
            let cpus: Cpus = numbers.iter().copied().collect();
            prop_assert_eq!(cpus.to_string().parse(), Ok(cpus));
            prop_assert!(numbers.iter().all(|&cpu| cpus.has(cpu)));
            prop_assert_eq!(cpus.iter().count(), cpus.count());
            prop_assert!(cpus.iter().is_sorted() && cpus.iter().all(|cpu| numbers.contains(&cpu)));
            let mut left = cpus;
            numbers.iter().for_each(|&cpu| left.remove(cpu));
            prop_assert!(left.is_empty());
        }
    }
}
