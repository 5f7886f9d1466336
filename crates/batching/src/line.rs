//! The queue of handshakes that wait for their turn at a worker.

// Here and not in the root of the crate: no other module can allocate.
extern crate alloc;

use alloc::collections::{BTreeMap, BTreeSet};

/// The place of one in a [`Line`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    since: u64,
    number: u64,
}

/// Handshakes that wait, each with its source and its arrival.
#[derive(Clone, Debug)]
pub struct Line<S, T> {
    next: u64,
    waiting: BTreeMap<Place, (S, T)>,
    /// First place of the fresh ones: those that arrived there or later.
    fresh_from: Place,
    /// The places of the fresh, by source.
    fresh: BTreeMap<S, BTreeSet<Place>>,
    fresh_count: usize,
    /// The source whose turn was last.
    last: Option<S>,
}

impl<S: Ord + Copy, T> Line<S, T> {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            next: 0,
            waiting: BTreeMap::new(),
            fresh_from: Place { since: 0, number: 0 },
            fresh: BTreeMap::new(),
            fresh_count: 0,
            last: None,
        }
    }

    /// Adds one that waits since `now`.
    pub fn push(&mut self, now: u64, source: S, item: T) -> Place {
        // A clock that went back must not let it overtake others.
        let latest = self.waiting.last_key_value();
        let since = latest
            .map_or(now, |(latest, _)| now.max(latest.since))
            .max(self.fresh_from.since);
        let place = Place {
            since,
            number: self.next,
        };
        self.next += 1;
        self.waiting.insert(place, (source, item));
        self.fresh.entry(source).or_default().insert(place);
        self.fresh_count += 1;
        place
    }

    /// Takes out one that waits no more.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        let (source, item) = self.waiting.remove(&place)?;
        self.forget(source, place);
        Some(item)
    }

    /// The one that has waited longest, and since when it waits.
    pub fn pop_oldest(&mut self) -> Option<(u64, T)> {
        let (place, _) = self.waiting.first_key_value()?;
        let place = *place;
        Some((place.since, self.remove(place)?))
    }

    /// The next under overload, if `most` can be served in time: the newest of the next source that has fresh ones,
    /// or its oldest where no more than `most` are fresh; or else the newest of all.
    pub fn pop_fresh(&mut self, most: usize) -> Option<(u64, T)> {
        use core::ops::Bound::{Excluded, Unbounded};
        let next = self.last.and_then(|last| {
            let mut later = self.fresh.range((Excluded(last), Unbounded));
            later.next()
        });
        let next = next.or_else(|| self.fresh.first_key_value());
        let place = match next {
            Some((source, places)) => {
                self.last = Some(*source);
                match self.fresh_count <= most {
                    true => *places.first()?,
                    false => *places.last()?,
                }
            }
            None => *self.waiting.last_key_value()?.0,
        };
        Some((place.since, self.remove(place)?))
    }

    /// Has all that arrived before `since` be fresh no more, and hands them to `late`.
    pub fn age(&mut self, since: u64, mut late: impl FnMut(&T)) {
        let until = Place { since, number: 0 };
        if until <= self.fresh_from {
            return;
        }
        let from = core::mem::replace(&mut self.fresh_from, until);
        let aged = self.waiting.range(from..until);
        for (place, (source, item)) in aged {
            if remove_from(&mut self.fresh, *source, *place) {
                self.fresh_count -= 1;
            }
            late(item);
        }
    }

    /// Since when the one waits that has waited longest.
    pub fn oldest(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(place, _)| place.since)
    }

    /// Since when the one waits that has waited longest of the fresh.
    pub fn oldest_fresh(&self) -> Option<u64> {
        let mut fresh = self.waiting.range(self.fresh_from..);
        fresh.next().map(|(place, _)| place.since)
    }

    /// Number of fresh ones.
    pub fn fresh(&self) -> usize {
        self.fresh_count
    }

    /// Number that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn forget(&mut self, source: S, place: Place) {
        if place >= self.fresh_from && remove_from(&mut self.fresh, source, place) {
            self.fresh_count -= 1;
        }
    }
}

impl<S: Ord + Copy, T> Default for Line<S, T> {
    fn default() -> Self {
        Self::new()
    }
}

fn remove_from<S: Ord>(fresh: &mut BTreeMap<S, BTreeSet<Place>>, source: S, place: Place) -> bool {
    let Some(places) = fresh.get_mut(&source) else {
        return false;
    };
    let was_there = places.remove(&place);
    if places.is_empty() {
        fresh.remove(&source);
    }
    was_there
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sources_take_turns_under_overload_only() {
        let mut line = Line::new();
        for at in 0..100 {
            line.push(at, b'a', at);
        }
        line.push(100, b'b', 100);
        line.push(101, b'a', 101);
        let mut order: Vec<_> = (0..3).filter_map(|_| line.pop_fresh(0)).collect();
        order.extend(line.pop_oldest());
        let order: Vec<_> = order.into_iter().map(|(_, item)| item).collect();
        assert_eq!(order, [101, 100, 99, 0]);
    }

    #[test]
    fn none_waits_for_ever_where_all_can_be_served() {
        let mut line = Line::new();
        for at in 0..3 {
            line.push(at, b'a', at);
        }
        // More come than are served, one for each that goes.
        let mut order = Vec::new();
        for at in 3..9 {
            order.extend(line.pop_fresh(3).map(|(_, item)| item));
            line.push(at, b'a', at);
        }
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
        line.push(9, b'a', 9);
        assert_eq!(line.pop_fresh(3), Some((9, 9)));
    }

    #[test]
    fn those_that_are_late_come_after_the_fresh() {
        let mut line = Line::new();
        let places: Vec<_> = (0..6).map(|at| line.push(at, 0, at)).collect();
        let mut late = Vec::new();
        line.age(3, |item| late.push(*item));
        assert_eq!(late, [0, 1, 2]);
        assert_eq!(
            (line.fresh(), line.oldest_fresh(), line.oldest()),
            (3, Some(3), Some(0))
        );
        assert_eq!(line.remove(places[4]), Some(4));
        assert_eq!(line.remove(places[1]), Some(1));
        assert_eq!(line.remove(places[1]), None);
        let rest = std::iter::from_fn(|| line.pop_fresh(0)).map(|(_, item)| item);
        assert_eq!(rest.collect::<Vec<_>>(), [5, 3, 2, 0]);
        assert_eq!((line.fresh(), line.len()), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64, u8),
        Oldest,
        Newest,
        Age(u64),
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..1000, 0u8..4).prop_map(|(at, source)| Step::Push(at, source)),
            1 => Just(Step::Oldest),
            1 => Just(Step::Newest),
            1 => (0u64..1000).prop_map(Step::Age),
            1 => (0usize..50).prop_map(Step::Remove),
        ]
    }

    proptest! {
        /// Each that was pushed comes out once; the oldest are the oldest; none of a source that has fresh ones
        /// is passed over twice by the same other source.
        #[test]
        fn none_is_lost_and_none_comes_twice(steps in proptest::collection::vec(step(), 0..200)) {
            let mut line = Line::new();
            let mut inside: Vec<(Place, u8)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(at, source) => {
                        let place = line.push(at, source, number);
                        prop_assert!(inside.iter().all(|(other, _)| *other < place));
                        inside.push((place, source));
                    }
                    Step::Oldest => {
                        let popped = line.pop_oldest().map(|(since, _)| since);
                        prop_assert_eq!(popped, inside.first().map(|(place, _)| place.since));
                        if popped.is_some() {
                            inside.remove(0);
                        }
                    }
                    Step::Newest => {
                        let before = line.waiting.keys().copied().collect::<Vec<_>>();
                        let popped = line.pop_fresh(0);
                        prop_assert_eq!(popped.is_some(), !before.is_empty());
                        inside.retain(|(place, _)| line.waiting.contains_key(place));
                    }
                    Step::Age(until) => line.age(until, |_| {}),
                    Step::Remove(index) => {
                        if let Some((place, _)) = inside.get(index).copied() {
                            prop_assert!(line.remove(place).is_some());
                            inside.remove(index);
                        }
                    }
                }
                prop_assert_eq!(line.len(), inside.len());
                let fresh = inside.iter().filter(|(place, _)| *place >= line.fresh_from).count();
                prop_assert_eq!(line.fresh(), fresh);
                prop_assert_eq!(line.fresh.values().map(BTreeSet::len).sum::<usize>(), fresh);
            }
        }
    }
}
