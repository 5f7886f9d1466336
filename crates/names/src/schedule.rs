//! When host names are looked up: each has one lookup at a time, and there are not too many at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// All names that are followed, and those whose last lookup has not ended.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    turns: BTreeMap<String, Turn>,
}

#[derive(Debug)]
struct Turn {
    is_wanted: bool,
    /// Whether a lookup is under way.
    is_asked: bool,
    /// When it began; without one, when the next one is due.
    since: Instant,
    /// Whether it has counted as a failure because it takes too long.
    is_late: bool,
    /// Whether another one follows at once.
    again: bool,
    /// After the next failure.
    pause: Duration,
}

impl Schedule {
    /// These names, and no others, are looked up from now on. With `anew`, all at once.
    pub(crate) fn follow(&mut self, hosts: &BTreeSet<String>, anew: bool, now: Instant) {
        for (host, turn) in &mut self.turns {
            turn.is_wanted &= hosts.contains(host);
        }
        self.turns.retain(|_, turn| turn.is_wanted || turn.is_asked);
        for host in hosts {
            let turn = self.turns.entry(host.clone()).or_insert(Turn {
                is_wanted: true,
                is_asked: false,
                since: now,
                is_late: false,
                again: false,
                pause: SHORTEST_PAUSE,
            });
            if !turn.is_wanted {
                // It was forgotten, and nothing is known of it: the lookup under way is its first.
                turn.is_wanted = true;
                turn.since = now;
                turn.is_late = false;
                turn.pause = SHORTEST_PAUSE;
            }
            if anew {
                turn.pause = SHORTEST_PAUSE;
                match turn.is_asked {
                    true => turn.again = true,
                    false => turn.since = turn.since.min(now),
                }
            }
        }
    }

    /// The names whose lookups begin now, those first that have waited longest.
    pub(crate) fn begin(&mut self, now: Instant) -> Vec<String> {
        let places = self.places();
        let mut due: Vec<_> = self
            .turns
            .iter_mut()
            .filter(|(_, turn)| !turn.is_asked && turn.since <= now)
            .collect();
        due.sort_by_key(|(_, turn)| turn.since);
        due.truncate(places);
        let begin = |(host, turn): (&String, &mut Turn)| {
            turn.is_asked = true;
            turn.since = now;
            host.clone()
        };
        due.into_iter().map(begin).collect()
    }

    /// A name of which an answer has not come in time, or no place for a lookup. Each is returned once; one for each
    /// call, so that the others are still to come if its report fails.
    pub(crate) fn late(&mut self, now: Instant) -> Option<String> {
        let is_late = |turn: &Turn| turn.is_wanted && !turn.is_late && turn.since + PATIENCE <= now;
        let (host, turn) = self.turns.iter_mut().find(|(_, turn)| is_late(turn))?;
        turn.is_late = true;
        Some(host.clone())
    }

    /// A lookup has ended. Returns whether its answer counts: a failure that was late has counted.
    pub(crate) fn answered(&mut self, host: &str, succeeded: bool, now: Instant) -> bool {
        let Some(turn) = self.turns.get_mut(host) else {
            return false;
        };
        if !turn.is_wanted {
            self.turns.remove(host);
            return false;
        }
        let counts = succeeded || !turn.is_late;
        let pause = match succeeded {
            true => EVERY,
            false => turn.pause,
        };
        turn.pause = match succeeded {
            true => SHORTEST_PAUSE,
            false => (turn.pause * 2).min(LONGEST_PAUSE),
        };
        turn.since = if turn.again { now } else { now + pause };
        (turn.is_asked, turn.is_late, turn.again) = (false, false, false);
        counts
    }

    /// When the time alone brings something to do.
    pub(crate) fn next(&self) -> Option<Instant> {
        let has_place = self.places() > 0;
        let moment = |turn: &Turn| match turn {
            turn if !turn.is_asked && has_place => Some(turn.since),
            turn if turn.is_wanted && !turn.is_late => Some(turn.since + PATIENCE),
            _ => None,
        };
        self.turns.values().filter_map(moment).min()
    }

    fn places(&self) -> usize {
        let asked = self.turns.values().filter(|turn| turn.is_asked).count();
        MOST_AT_ONCE.saturating_sub(asked)
    }
}

/// After an answer. The system's resolver does not say how long one is good.
const EVERY: Duration = Duration::from_secs(5);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After it, a lookup counts as failed. glibc answers after 15 seconds if one server is silent for one family.
const PATIENCE: Duration = Duration::from_secs(20);
/// Each has a thread and descriptors.
const MOST_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    /// A schedule, and a clock that only the test moves.
    struct Clock {
        schedule: Schedule,
        now: Instant,
    }

    impl Clock {
        fn new(hosts: &[&str]) -> Self {
            let mut clock = Self {
                schedule: Schedule::default(),
                now: Instant::now(),
            };
            clock.follow(hosts, false);
            clock
        }

        fn follow(&mut self, hosts: &[&str], anew: bool) {
            let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
            self.schedule.follow(&hosts, anew, self.now);
        }

        fn begin(&mut self) -> Vec<String> {
            self.schedule.begin(self.now)
        }

        fn late(&mut self) -> Vec<String> {
            iter::from_fn(|| self.schedule.late(self.now)).collect()
        }

        fn answered(&mut self, host: &str, succeeded: bool) -> bool {
            self.schedule.answered(host, succeeded, self.now)
        }

        /// Goes on to the next moment at which there is something to do. Returns how long that is.
        fn go_on(&mut self) -> Duration {
            let next = self.schedule.next().expect("something to do");
            let passed = next.saturating_duration_since(self.now);
            self.now += passed;
            passed
        }
    }

    #[test]
    fn a_name_is_looked_up_again_and_less_often_while_that_fails() {
        let mut clock = Clock::new(&["a"]);
        let answers = [true, true, false, false, false, false, false, false, false];
        let mut pauses = Vec::new();
        for succeeded in answers.into_iter().chain([true, false]) {
            assert_eq!(clock.begin(), ["a"]);
            assert!(clock.begin().is_empty(), "one lookup at a time");
            assert!(clock.answered("a", succeeded));
            assert!(clock.begin().is_empty(), "not yet");
            pauses.push(clock.go_on().as_secs());
        }
        assert_eq!(pauses, [5, 5, 1, 2, 4, 8, 16, 30, 30, 5, 1]);
    }

    #[test]
    fn a_late_answer_has_failed_once_and_counts_all_the_same() {
        let mut clock = Clock::new(&["a"]);
        for succeeded in [false, true] {
            assert_eq!(clock.begin(), ["a"]);
            assert!(clock.late().is_empty());
            assert_eq!(clock.go_on(), PATIENCE);
            assert_eq!(clock.late(), ["a"]);
            assert!(clock.late().is_empty(), "it is logged once");
            assert_eq!(clock.schedule.next(), None, "no second lookup beside it");
            clock.now += PATIENCE * 2;
            assert_eq!(clock.answered("a", succeeded), succeeded);
            clock.go_on();
        }
    }

    /// A refused reload forgets its names, and is tried again.
    #[test]
    fn a_name_that_comes_back_has_no_second_lookup() {
        let mut clock = Clock::new(&["a", "b"]);
        assert_eq!(clock.begin(), ["a", "b"]);
        clock.now += PATIENCE;
        assert_eq!(clock.late(), ["a", "b"]);
        clock.follow(&["b"], false);
        assert_eq!(clock.schedule.next(), None);
        clock.follow(&["a", "b"], true);
        assert!(clock.begin().is_empty());
        assert_eq!(clock.go_on(), PATIENCE);
        assert_eq!(clock.late(), ["a"], "the new wait ends, too");
        clock.follow(&["b"], false);
        assert!(!clock.answered("a", true), "it is not wanted");
        assert!(!clock.answered("a", true));
        clock.follow(&["a", "b"], false);
        assert_eq!(clock.begin(), ["a"]);
    }

    #[test]
    fn a_reload_looks_up_all_names_at_once() {
        let mut clock = Clock::new(&["failing", "good", "slow"]);
        assert_eq!(clock.begin().len(), 3);
        for _ in 0..4 {
            clock.answered("failing", false);
            clock.go_on();
            clock.begin();
        }
        clock.answered("failing", false);
        clock.answered("good", true);
        assert!(clock.begin().is_empty());
        clock.follow(&["failing", "good", "slow"], false);
        assert!(clock.begin().is_empty(), "other files are no reason");
        clock.follow(&["failing", "good", "slow"], true);
        assert_eq!(clock.begin(), ["failing", "good"]);
        // An answer from before the reload may be old.
        assert!(clock.answered("slow", true));
        assert_eq!(clock.begin(), ["slow"]);
        clock.answered("slow", true);
        assert!(clock.begin().is_empty(), "once");
        clock.answered("failing", false);
        assert_eq!(clock.go_on(), SHORTEST_PAUSE, "counted anew");
    }

    #[test]
    fn lookups_beyond_a_bound_wait_and_fail_in_time() {
        let names: Vec<String> = (0..MOST_AT_ONCE + 2).map(|at| format!("{at:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut clock = Clock::new(&names);
        assert_eq!(clock.begin(), names[..MOST_AT_ONCE]);
        clock.now += Duration::from_secs(1);
        assert!(clock.begin().is_empty());
        clock.answered("000", true);
        assert_eq!(clock.begin(), names[MOST_AT_ONCE..][..1]);
        assert_eq!(clock.go_on(), PATIENCE - Duration::from_secs(1));
        let late = clock.late();
        assert_eq!(late.last().map(String::as_str), names.last().copied());
        assert_eq!(late.len(), MOST_AT_ONCE);
        assert_eq!(clock.go_on(), Duration::from_secs(1));
        // Who waits longest is first.
        clock.answered("001", true);
        clock.now += EVERY;
        assert_eq!(clock.begin(), names[MOST_AT_ONCE + 1..]);
        clock.follow(&["000"], false);
        assert!(clock.begin().is_empty());
        clock.answered("002", true);
        assert_eq!(clock.begin(), ["000"], "there is room again");
    }
}
