//! The moments at which tests damage the memory of a pass, and the campaign that does it.
//!
//! The functions do nothing outside tests. `widelane_kernels::faults` adds the moments around each
//! call of a kernel.

/// The array has just been loaded.
#[inline(always)]
pub(crate) fn loaded<const L: usize>(place: &str, array: &mut [[u64; L]]) {
    #[cfg(test)]
    widelane_kernels::faults::position(widelane_kernels::faults::Moment::Loaded, place, array);
    #[cfg(not(test))]
    let _ = (place, array);
}

/// The array is between two steps of a pass.
#[inline(always)]
pub(crate) fn resting<const L: usize>(place: &str, array: &mut [[u64; L]]) {
    #[cfg(test)]
    widelane_kernels::faults::position(widelane_kernels::faults::Moment::Resting, place, array);
    #[cfg(not(test))]
    let _ = (place, array);
}

#[cfg(test)]
pub(crate) use campaign::{Campaign, Owner, Verdict};

#[cfg(test)]
mod campaign {
    use std::collections::BTreeMap;
    use widelane_kernels::faults::{self, Damage, Fault, Hit, Moment};

    /// Verdict on one request's answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Verdict {
        /// A signature left that the public key of the request accepts.
        Right,
        /// An error left.
        Withheld,
        /// Another signature left.
        Wrong,
    }

    impl Verdict {
        pub(crate) fn of<T: PartialEq, E>(
            result: &Result<T, E>,
            expected: &T,
            verifies: impl FnOnce(&T) -> bool,
        ) -> Self {
            match result {
                Ok(signature) if signature == expected || verifies(signature) => Self::Right,
                Ok(_) => Self::Wrong,
                Err(_) => Self::Withheld,
            }
        }
    }

    /// Requests that a fault may withhold.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Owner {
        /// The request with this index.
        Request(usize),
        /// One of the requests: requests change lanes.
        One,
        /// All requests: all lanes share the array.
        All,
    }

    /// Damages one array of one pass at a time, at every position, and counts what leaves.
    ///
    /// A release build tries everything, a debug build a sample.
    pub(crate) struct Campaign<'a> {
        pub(crate) name: &'a str,
        /// Different bits for each position; one more fault clears a lane of the array.
        pub(crate) bits: u64,
        /// Faults in a debug build, about.
        pub(crate) sample: usize,
        /// The most faults in a release build, about.
        pub(crate) most: usize,
        /// Requests that the fault may withhold.
        pub(crate) owner: &'a dyn Fn(Moment, &Hit) -> Owner,
        /// Faults that are not tried: each campaign says why.
        pub(crate) skip: &'a dyn Fn(Fault, &Hit) -> bool,
        /// Runs before each pass, without faults.
        pub(crate) prepare: &'a dyn Fn(),
        /// Runs one pass.
        pub(crate) pass: &'a dyn Fn() -> Vec<Verdict>,
    }

    /// Faults with one outcome, for each moment.
    #[derive(Default)]
    struct Row {
        positions: usize,
        tried: usize,
        harmless: usize,
        caught: usize,
        wrong: usize,
        skipped: usize,
    }

    impl Campaign<'_> {
        /// # Panics
        ///
        /// If a wrong signature leaves, or a request fails that the fault should not reach.
        pub(crate) fn run(&self) {
            (self.prepare)();
            let (verdicts, seen) = faults::run(None, self.pass);
            let right = |verdict: &Verdict| *verdict == Verdict::Right;
            assert!(verdicts.iter().all(right), "{}: {verdicts:?}", self.name);
            let each = self.bits as usize + 1;
            let limit = if cfg!(debug_assertions) { self.sample } else { self.most };
            let limit = (limit / seen.positions.len()).max(1);
            let mut rows: [Row; 4] = Default::default();
            for (row, positions) in rows.iter_mut().zip(seen.positions) {
                row.positions = positions;
            }
            let numbers = (0..4).flat_map(|moment| {
                let all = seen.positions[moment] * each;
                let stride = all.div_ceil(limit).max(1);
                // Varies the place within each stride, or the campaign would meet only some kinds of places.
                let within = move |from: usize| from.wrapping_mul(0x9e37_79b9) / 7 % stride;
                let numbers = (0..all).step_by(stride);
                numbers.map(move |from| (moment, (from + within(from)).min(all - 1)))
            });
            let mut wrong: BTreeMap<String, usize> = BTreeMap::new();
            for (moment, number) in numbers {
                let (position, kind) = (number / each, number % each);
                let fault = Fault {
                    moment: Moment::ALL[moment],
                    position,
                    damage: if kind == 0 { Damage::Zero } else { Damage::Bit },
                    seed: number as u64,
                };
                (self.prepare)();
                let (verdicts, hit) = faults::run(Some(fault), self.pass);
                let Some(hit) = hit.hit else { continue };
                let row = &mut rows[moment];
                if (self.skip)(fault, &hit) {
                    row.skipped += 1;
                    continue;
                }
                row.tried += 1;
                let withheld = |verdict: &Verdict| *verdict == Verdict::Withheld;
                let owner = (self.owner)(fault.moment, &hit);
                let spread = match owner {
                    Owner::All => false,
                    Owner::One => verdicts.iter().filter(|v| withheld(v)).count() > 1,
                    Owner::Request(at) => {
                        let mut others = verdicts.iter().enumerate();
                        others.any(|(i, verdict)| i != at && withheld(verdict))
                    }
                };
                if spread || verdicts.contains(&Verdict::Wrong) {
                    row.wrong += 1;
                    let what = if spread { "harms others" } else { "wrong" };
                    let place = format!("{what}: {:?} {:?} {}", fault.moment, fault.damage, hit.place);
                    *wrong.entry(place).or_default() += 1;
                } else if verdicts.iter().any(withheld) {
                    row.caught += 1;
                } else {
                    row.harmless += 1;
                }
            }
            println!(
                "{:<24} {:<8} {:>9} {:>8} {:>8} {:>8} {:>6} {:>7}",
                self.name, "moment", "positions", "faults", "harmless", "caught", "wrong", "skipped"
            );
            for (moment, row) in Moment::ALL.iter().zip(&rows) {
                println!(
                    "{:<24} {:<8} {:>9} {:>8} {:>8} {:>8} {:>6} {:>7}",
                    self.name,
                    format!("{moment:?}"),
                    row.positions,
                    row.tried,
                    row.harmless,
                    row.caught,
                    row.wrong,
                    row.skipped
                );
            }
            let caught: usize = rows.iter().map(|row| row.caught).sum();
            assert!(caught > 0, "{}: no fault had any effect", self.name);
            assert!(wrong.is_empty(), "{}: {wrong:#?}", self.name);
        }
    }
}
