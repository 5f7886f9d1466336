//! Decides which thread belongs on which CPUs. A pure function of what was seen: no clock, no system.
//!
//! [`Policy::decide`] is called once an interval with every thread that may be moved. A thread is
//! on the *wide side* while it was seen wide, and for the hold of the return policy after. Wide
//! threads are kept on the vector cores and the others off them; whole cores are taken, since
//! hyperthreads of a core share its clock. How many follows from the demand of both sides.
//!
//! Whatever it decides for a thread lies within what that thread is allowed, and is not empty.

use crate::fairness::{GroupId, Groups};
use crate::returning::{Pauses, Returning};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;
use widelane_affinity::Cpus;

/// A thread for as long as it lives: its number is used again later, with another start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadId {
    /// Number of the thread in the kernel.
    pub tid: i32,
    /// Time of the thread's start, in the kernel's ticks since boot.
    pub start: u64,
}

/// State of a thread in the last interval.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Thread.
    pub id: ThreadId,
    /// CPUs that the thread may use when it is not steered.
    pub allowed: Cpus,
    /// True if the thread used wide registers.
    pub wide: bool,
    /// The share of the interval in which it ran or waited for a CPU, from 0 to 1.
    pub demand: f64,
    /// The group in which it competes for CPUs.
    pub group: GroupId,
}

/// Limits that the user chose for vector cores.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// CPUs whose cores may become vector cores; `None` lets all.
    pub candidates: Option<Cpus>,
    /// Fewest vector cores, kept even while nothing is wide.
    pub min: usize,
    /// Most vector cores. One core is always left to scalar code.
    pub max: Option<usize>,
    /// True to keep scalar threads off vector cores even while these are idle. Needed if not all that runs on them is
    /// seen.
    pub reserved: bool,
}

/// Places for all threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The CPUs of the vector cores.
    pub vector: Cpus,
    /// True if the vector cores have so little to do that scalar threads may use them too.
    pub open: bool,
    /// Place of each thread that was asked about, in the same order.
    pub places: Vec<Place>,
}

/// Place of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Thread.
    pub id: ThreadId,
    /// CPUs that the thread shall run on.
    pub affinity: Cpus,
    /// Reason for the place.
    pub why: Why,
}

/// Reason why a thread belongs where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The thread used wide registers in the last interval.
    Wide,
    /// The thread used wide registers lately, and may again.
    WideLately,
    /// The thread uses no wide registers, and vector cores are busy.
    Scalar,
    /// The thread uses no wide registers, and vector cores have room for it.
    VectorCoresIdle,
    /// No core is a vector core now.
    NoVectorCores,
    /// The thread is not allowed on any CPU of its side, and is left alone.
    NotAllowedThere,
}

/// Decides, and remembers what it needs of earlier intervals.
#[derive(Clone, Debug)]
pub struct Policy {
    limits: Limits,
    returning: Returning,
    threads: HashMap<ThreadId, History>,
    /// Demand of all threads in CPUs, smoothed over some intervals.
    demand: f64,
    /// Share of each side in the demand: all of it, or what the kernel would let it have. No user and no control group
    /// counts for more than its share, however many threads it has.
    wide_demand: f64,
    scalar_demand: f64,
    vector: Vec<Cpus>,
    /// Time since when fewer vector cores would do.
    fewer_since: Option<Duration>,
    /// Time since when the vector cores have next to nothing to do.
    idle_since: Option<Duration>,
}

/// History of a thread.
#[derive(Clone, Debug, Default)]
struct History {
    last_wide: Option<Duration>,
    wide_before: bool,
    pauses: Pauses,
}

impl Policy {
    /// Makes a policy without any history.
    pub fn new(limits: Limits, returning: Returning) -> Self {
        Self {
            limits,
            returning,
            threads: HashMap::new(),
            demand: 0.0,
            wide_demand: 0.0,
            scalar_demand: 0.0,
            vector: Vec::new(),
            fewer_since: None,
            idle_since: None,
        }
    }

    /// Decides for the interval that begins at `now`. `groups` are those of the threads, `cores` are
    /// the online cores, each with the CPUs that are its hyperthreads; a thread's number must not
    /// occur twice.
    pub fn decide(&mut self, now: Duration, threads: &[Thread], groups: &Groups, cores: &[Cpus]) -> Plan {
        let kept = self.remember(now, threads);
        self.measure(threads, &kept, groups, union(cores).count() as f64);
        let count = self.count(now, &kept, cores);
        self.choose(count, threads, &kept, cores);
        let vector = union(&self.vector);
        let scalar = union(cores).without(&vector);
        let open = self.idle(now, vector.count()) && !self.limits.reserved;
        let place = |(thread, &kept): (&Thread, &bool)| {
            let side = if kept { vector } else { scalar };
            let within = thread.allowed.and(&side);
            let (affinity, why) = match kept {
                _ if vector.is_empty() => (thread.allowed, Why::NoVectorCores),
                false if open => (thread.allowed, Why::VectorCoresIdle),
                _ if within.is_empty() => (thread.allowed, Why::NotAllowedThere),
                true if thread.wide => (within, Why::Wide),
                true => (within, Why::WideLately),
                false => (within, Why::Scalar),
            };
            Place {
                id: thread.id,
                affinity,
                why,
            }
        };
        Plan {
            vector,
            open,
            places: threads.iter().zip(&kept).map(place).collect(),
        }
    }

    /// Brings the histories up to date; which threads are on the wide side.
    fn remember(&mut self, now: Duration, threads: &[Thread]) -> Vec<bool> {
        let mut before = std::mem::take(&mut self.threads);
        let side = |thread: &Thread| {
            let mut history = before.remove(&thread.id).unwrap_or_default();
            if thread.wide {
                if let Some(last) = history.last_wide
                    && !history.wide_before
                {
                    history.pauses.record(now.saturating_sub(last));
                }
                history.last_wide = Some(now);
            }
            history.wide_before = thread.wide;
            let hold = history.pauses.hold(self.returning);
            let waited = history.last_wide.map(|last| now.saturating_sub(last));
            let kept = thread.wide || waited.is_some_and(|waited| waited < hold);
            // Threads that never were wide are most of them, and nothing need be kept of them.
            if history.last_wide.is_some() {
                self.threads.insert(thread.id, history);
            }
            kept
        };
        threads.iter().map(side).collect()
    }

    fn measure(&mut self, threads: &[Thread], kept: &[bool], groups: &Groups, cpus: f64) {
        let mut wide = vec![0.0; groups.count()];
        let mut all = wide.clone();
        for (thread, &kept) in threads.iter().zip(kept) {
            let demand = thread.demand.clamp(0.0, 1.0);
            all[thread.group.at()] += demand;
            if kept {
                wide[thread.group.at()] += demand;
            }
        }
        let due = groups.due(&all, cpus);
        // Each side of a group gets the same share of what it wants.
        let of_group = |((due, wide), all): ((&f64, &f64), &f64)| match *all > 0.0 {
            true => due * wide / all,
            false => 0.0,
        };
        let wide_due: f64 = due.iter().zip(&wide).zip(&all).map(of_group).sum();
        let scalar_due = due.iter().sum::<f64>() - wide_due;
        let smooth = |value: &mut f64, now: f64| *value += SMOOTHING * (now - *value);
        smooth(&mut self.demand, all.iter().sum());
        smooth(&mut self.wide_demand, wide_due);
        smooth(&mut self.scalar_demand, scalar_due.max(0.0));
    }

    /// Number of vector cores from now on. More come at once, fewer after a while.
    fn count(&mut self, now: Duration, kept: &[bool], cores: &[Cpus]) -> usize {
        let candidates = cores.iter().filter(|core| self.may_be_vector(core)).count();
        let max = self.limits.max.unwrap_or(usize::MAX);
        let max = max.min(candidates).min(cores.len().saturating_sub(1));
        let min = self.limits.min.min(max);
        let wide = kept.iter().filter(|&&kept| kept).count();
        let wanted = if wide > 0 {
            self.wanted(wide, cores).clamp(min.max(1).min(max), max)
        } else {
            min
        };
        let present = self.vector.len().min(max);
        if wanted >= present || wide == 0 {
            self.fewer_since = None;
            return wanted;
        }
        let since = *self.fewer_since.get_or_insert(now);
        if now.saturating_sub(since) < SHRINK_AFTER {
            return present;
        }
        self.fewer_since = None;
        wanted
    }

    /// The number of cores that carries the `wide` threads of the wide side, of which each can fill
    /// one CPU; their fair share when there are too few.
    fn wanted(&self, wide: usize, cores: &[Cpus]) -> usize {
        let cpus = union(cores).count() as f64;
        let each = cpus / cores.len().max(1) as f64;
        if self.demand <= cpus {
            ((self.wide_demand / FULL).min(wide as f64) / each).ceil() as usize
        } else {
            let both = self.wide_demand + self.scalar_demand;
            (cpus * self.wide_demand / both / each).round() as usize
        }
    }

    /// Takes those cores that most of the wide side may use (of all threads, while nothing is
    /// wide), and rather the present ones. Among equals the last: interrupts and pinned
    /// housekeeping are mostly on the first.
    fn choose(&mut self, count: usize, threads: &[Thread], kept: &[bool], cores: &[Cpus]) {
        let nothing_wide = !kept.contains(&true);
        let welcome = |core: &Cpus| {
            let may =
                |(thread, kept): &(&Thread, &bool)| (nothing_wide || **kept) && !thread.allowed.and(core).is_empty();
            threads.iter().zip(kept).filter(may).count()
        };
        let mut ranked: Vec<(usize, bool, usize)> = cores
            .iter()
            .enumerate()
            .filter(|(_, core)| self.may_be_vector(core))
            .map(|(number, core)| (welcome(core), self.vector.contains(core), number))
            .collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        ranked.truncate(count);
        self.vector = ranked.iter().map(|&(_, _, number)| cores[number]).collect();
    }

    fn may_be_vector(&self, core: &Cpus) -> bool {
        let candidates = self.limits.candidates.unwrap_or(Cpus::ALL);
        !core.and(&candidates).is_empty()
    }

    /// Returns whether the vector cores have had next to nothing to do for a while.
    fn idle(&mut self, now: Duration, cpus: usize) -> bool {
        if self.wide_demand > IDLE * cpus as f64 {
            self.idle_since = None;
            return false;
        }
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_sub(since) >= OPEN_AFTER || self.wide_demand == 0.0
    }
}

/// The CPUs of all `cores`.
pub(crate) fn union(cores: &[Cpus]) -> Cpus {
    let none = Cpus::default();
    cores.iter().fold(none, |all, core| all.or(core))
}

/// The weight of the newest interval in the demand.
const SMOOTHING: f64 = 0.5;
/// A vector core this busy is full: the next one is taken before threads have to wait.
const FULL: f64 = 0.9;
/// Vector cores that are used less than this are idle.
const IDLE: f64 = 0.05;
const OPEN_AFTER: Duration = Duration::from_secs(1);
const SHRINK_AFTER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Duration = Duration::from_millis(250);

    fn cpus(text: &str) -> Cpus {
        text.parse().unwrap()
    }

    fn thread(tid: i32, allowed: &str, wide: bool, demand: f64) -> Thread {
        Thread {
            id: ThreadId { tid, start: 1 },
            allowed: cpus(allowed),
            wide,
            demand,
            group: GroupId::ROOT,
        }
    }

    fn fixed(ticks: u32) -> Policy {
        Policy::new(Limits::default(), Returning::Fixed(TICK * ticks))
    }

    fn settled(policy: &mut Policy, threads: &[Thread], cores: &[Cpus]) -> Plan {
        let mut plan = policy.decide(Duration::ZERO, threads, &Groups::new(), cores);
        for step in 1..40 {
            plan = policy.decide(TICK * step, threads, &Groups::new(), cores);
        }
        plan
    }

    #[test]
    fn wide_and_scalar_part_ways() {
        let cores = [cpus("0"), cpus("1")];
        let threads = [thread(7, "0-1", true, 1.0), thread(8, "0-1", false, 1.0)];
        let plan = settled(&mut fixed(4), &threads, &cores);
        assert_eq!((plan.vector, plan.open), (cpus("1"), false));
        assert_eq!(plan.places[0].affinity, cpus("1"));
        assert_eq!(plan.places[1].affinity, cpus("0"));
        assert_eq!((plan.places[0].why, plan.places[1].why), (Why::Wide, Why::Scalar));
    }

    #[test]
    fn a_pinned_wide_thread_makes_its_core_the_vector_core() {
        let cores = [cpus("0"), cpus("1"), cpus("2")];
        let threads = [thread(7, "0", true, 1.0), thread(8, "0-2", false, 0.5)];
        let plan = settled(&mut fixed(4), &threads, &cores);
        assert_eq!(plan.vector, cpus("0"));
        assert_eq!(plan.places[0].affinity, cpus("0"));
        assert_eq!(plan.places[1].affinity, cpus("1-2"));
    }

    #[test]
    fn siblings_are_one_core() {
        let cores = [cpus("0,4"), cpus("1,5"), cpus("2,6"), cpus("3,7")];
        let threads = [thread(7, "0-7", true, 1.0), thread(8, "0-7", false, 1.0)];
        let plan = settled(&mut fixed(4), &threads, &cores);
        assert_eq!(plan.vector, cpus("3,7"));
        assert_eq!(plan.places[1].affinity, cpus("0-2,4-6"));
    }

    #[test]
    fn one_core_alone_is_never_divided() {
        let threads = [thread(7, "0", true, 1.0), thread(8, "0", false, 1.0)];
        let plan = settled(&mut fixed(4), &threads, &[cpus("0")]);
        assert_eq!(plan.vector, Cpus::default());
        assert!(plan.places.iter().all(|p| p.affinity == cpus("0")));
    }

    #[test]
    fn vector_cores_follow_the_load_up_at_once_and_down_after_a_while() {
        let cores: Vec<Cpus> = (0..8).map(|cpu| [cpu].into_iter().collect()).collect();
        let load = |n: i32| -> Vec<Thread> { (0..n).map(|tid| thread(tid + 1, "0-7", true, 0.8)).collect() };
        let mut policy = fixed(0);
        let many = settled(&mut policy, &load(4), &cores);
        assert_eq!(many.vector.count(), 4);
        let at = TICK * 40;
        assert_eq!(policy.decide(at, &load(1), &Groups::new(), &cores).vector.count(), 4);
        let later = (1..20).map(|i| policy.decide(at + TICK * i, &load(1), &Groups::new(), &cores));
        assert_eq!(later.last().unwrap().vector.count(), 1);
        let gone = policy.decide(at + TICK * 20, &[], &Groups::new(), &cores);
        assert_eq!(gone.vector, Cpus::default());
    }

    #[test]
    fn when_there_are_too_few_cores_both_sides_get_their_share() {
        let cores: Vec<Cpus> = (0..4).map(|cpu| [cpu].into_iter().collect()).collect();
        let threads: Vec<Thread> = (1..=12).map(|tid| thread(tid, "0-3", tid <= 3, 1.0)).collect();
        let plan = settled(&mut fixed(4), &threads, &cores);
        assert_eq!(plan.vector.count(), 1);
    }

    #[test]
    fn idle_vector_cores_are_open_to_scalar_threads_and_closed_again() {
        let cores = [cpus("0"), cpus("1")];
        let limits = Limits {
            min: 1,
            ..Limits::default()
        };
        let mut policy = Policy::new(limits, Returning::Fixed(TICK));
        let scalar = [thread(8, "0-1", false, 1.0)];
        let plan = settled(&mut policy, &scalar, &cores);
        assert!(plan.open && plan.vector == cpus("1"));
        assert_eq!(plan.places[0].affinity, cpus("0-1"));
        let both = [scalar[0], thread(7, "0-1", true, 1.0)];
        let plan = policy.decide(TICK * 40, &both, &Groups::new(), &cores);
        assert!(!plan.open);
        assert_eq!(plan.places[0].affinity, cpus("0"));
    }

    #[test]
    fn candidates_are_kept_to_and_taken_as_whole_cores() {
        let cores = [cpus("0,2"), cpus("1,3")];
        let limits = Limits {
            candidates: Some(cpus("2")),
            ..Limits::default()
        };
        let mut policy = Policy::new(limits, Returning::Fixed(TICK));
        let plan = settled(&mut policy, &[thread(7, "0-3", true, 1.0)], &cores);
        assert_eq!(plan.vector, cpus("0,2"));
    }

    /// Cores without hyperthreads.
    fn plain_cores(count: usize) -> Vec<Cpus> {
        (0..count).map(|cpu| [cpu].into_iter().collect()).collect()
    }

    /// A user with `attackers` wide threads that spin, and one with `others` busy scalar ones.
    fn two_users(cores: usize, attackers: i32, others: i32) -> (Groups, Vec<Thread>) {
        let mut groups = Groups::new();
        let attacker = groups.add(GroupId::ROOT, Groups::USUAL);
        let other = groups.add(GroupId::ROOT, Groups::USUAL);
        let allowed = format!("0-{}", cores - 1);
        let of = |tid, group, wide| Thread {
            group,
            ..thread(tid, &allowed, wide, 1.0)
        };
        let wide = (0..attackers).map(|tid| of(1 + tid, attacker, true));
        let scalar = (0..others).map(|tid| of(10_000 + tid, other, false));
        (groups, wide.chain(scalar).collect())
    }

    #[test]
    fn a_hundred_spinning_threads_of_one_user_do_not_confine_the_others_to_one_core() {
        let cores = plain_cores(8);
        let (groups, threads) = two_users(8, 100, 8);
        let mut policy = fixed(4);
        let mut plan = None;
        for step in 0..40 {
            plan = Some(policy.decide(TICK * step, &threads, &groups, &cores));
        }
        assert_eq!(plan.unwrap().vector.count(), 4);
    }

    fn any_cores() -> impl Strategy<Value = Vec<Cpus>> {
        (1..=8usize, any::<bool>()).prop_map(|(count, siblings)| {
            let core = |number: usize| -> Cpus {
                let sibling = siblings.then_some(number + count);
                std::iter::once(number).chain(sibling).collect()
            };
            (0..count).map(core).collect()
        })
    }

    fn any_limits() -> impl Strategy<Value = Limits> {
        let candidates = prop::option::of(prop::collection::vec(0..16usize, 1..4));
        let max = prop::option::of(0..6usize);
        (candidates, 0..4usize, max, any::<bool>()).prop_map(|(cpus, min, max, reserved)| Limits {
            candidates: cpus.map(|cpus| cpus.into_iter().collect()),
            min,
            max,
            reserved,
        })
    }

    fn any_returning() -> impl Strategy<Value = Returning> {
        prop_oneof![
            (0..2000u64).prop_map(|ms| Returning::Fixed(Duration::from_millis(ms))),
            (1..2000u64).prop_map(|ms| Returning::Measured {
                cost: Duration::from_millis(ms)
            }),
        ]
    }

    /// For some threads (allowed CPUs, as bits of a byte pair), what they do in each interval.
    #[allow(clippy::type_complexity)]
    fn any_story() -> impl Strategy<Value = (Vec<u16>, Vec<Vec<(bool, f64)>>)> {
        (1..6usize, 1..30usize).prop_flat_map(|(threads, steps)| {
            let allowed = prop::collection::vec(1..=u16::MAX, threads);
            let step = prop::collection::vec((any::<bool>(), 0.0..1.0f64), threads);
            (allowed, prop::collection::vec(step, steps))
        })
    }

    /// Threads in one interval.
    fn threads_of(allowed: &[u16], seen: &[(bool, f64)]) -> Vec<Thread> {
        let thread = |(tid, (&bits, &(wide, demand)))| Thread {
            id: ThreadId {
                tid: tid as i32 + 1,
                start: 1,
            },
            allowed: (0..16).filter(|cpu| bits >> cpu & 1 == 1).collect(),
            wide,
            demand,
            group: GroupId::ROOT,
        };
        allowed.iter().zip(seen).enumerate().map(thread).collect()
    }

    proptest! {
        #[test]
        fn what_always_holds(
            cores in any_cores(),
            limits in any_limits(),
            returning in any_returning(),
            (allowed, story) in any_story(),
        ) {
            let online = union(&cores);
            let mut policy = Policy::new(limits, returning);
            for (step, seen) in story.iter().enumerate() {
                let threads = threads_of(&allowed, seen);
                let plan = policy.decide(TICK * step as u32, &threads, &Groups::new(), &cores);
                let vector = plan.vector;
                let taken = cores.iter().filter(|core| !core.and(&vector).is_empty()).count();

                // Whole cores, among the candidates, and never all of them.
                prop_assert!(vector.within(&online));
                prop_assert!(cores.iter().all(|c| c.within(&vector) || c.and(&vector).is_empty()));
                prop_assert!(taken < cores.len());
                prop_assert!(taken <= limits.max.unwrap_or(usize::MAX));
                if let Some(candidates) = limits.candidates {
                    let mut chosen = cores.iter().filter(|core| core.within(&vector));
                    prop_assert!(chosen.all(|core| !core.and(&candidates).is_empty()));
                }

                prop_assert_eq!(plan.places.len(), threads.len());
                for (thread, place) in threads.iter().zip(&plan.places) {
                    prop_assert_eq!(thread.id, place.id);
                    // No thread gets more CPUs than it had, and none is left without a CPU.
                    prop_assert!(place.affinity.within(&thread.allowed));
                    prop_assert!(!place.affinity.is_empty());
                    let on_vector = !thread.allowed.and(&vector).is_empty();
                    let on_scalar = !thread.allowed.and(&online).without(&vector).is_empty();
                    if thread.wide && on_vector {
                        prop_assert!(place.affinity.within(&vector));
                    }
                    match place.why {
                        Why::Wide | Why::WideLately => {
                            prop_assert!(place.affinity.within(&vector));
                        }
                        Why::Scalar => prop_assert!(place.affinity.and(&vector).is_empty()),
                        Why::NotAllowedThere => {
                            prop_assert_eq!(place.affinity, thread.allowed);
                            prop_assert!(!on_vector || !on_scalar);
                        }
                        Why::VectorCoresIdle => {
                            prop_assert!(plan.open && !thread.wide && !limits.reserved);
                            prop_assert_eq!(place.affinity, thread.allowed);
                        }
                        Why::NoVectorCores => {
                            prop_assert!(vector.is_empty());
                            prop_assert_eq!(place.affinity, thread.allowed);
                        }
                    }
                }
            }
        }

        /// However many threads one user has, the others keep the cores that they are due or need.
        #[test]
        fn no_user_takes_more_than_the_share_of_one(
            count in 2..16usize,
            attackers in 1..200i32,
            others in 1..40i32,
        ) {
            let cores = plain_cores(count);
            let (groups, threads) = two_users(count, attackers, others);
            let mut policy = fixed(4);
            let due = (count / 2).min(others as usize);
            // Four times as long as a thread stays on the wide side.
            for step in 0..16 {
                let plan = policy.decide(TICK * step, &threads, &groups, &cores);
                let vector = plan.vector.count();
                prop_assert!(count - vector >= due, "{vector} of {count}");
            }
        }

        /// With a fixed time, a thread is on the wide side for exactly that time after it was last
        /// seen wide.
        #[test]
        fn a_fixed_hold_is_kept_to_the_interval(hold in 0..12u32, wide_for in 1..6u32) {
            let cores = [cpus("0"), cpus("1")];
            let mut policy = fixed(hold);
            for step in 0..30 {
                let wide = step < wide_for;
                // Another one is wide throughout, so that there is a vector core.
                let threads = [thread(1, "0-1", wide, 1.0), thread(2, "0-1", true, 1.0)];
                let place = policy.decide(TICK * step, &threads, &Groups::new(), &cores).places[0];
                let since = step.saturating_sub(wide_for - 1);
                let expected = match wide {
                    true => Why::Wide,
                    false if since < hold => Why::WideLately,
                    false => Why::Scalar,
                };
                prop_assert_eq!(place.why, expected);
            }
        }

        /// Repeated equal observations lead to one plan that stays.
        #[test]
        fn decisions_come_to_rest(
            cores in any_cores(),
            limits in any_limits(),
            returning in any_returning(),
            (allowed, story) in any_story(),
        ) {
            let threads = threads_of(&allowed, &story[0]);
            let mut policy = Policy::new(limits, returning);
            let plan = settled(&mut policy, &threads, &cores);
            for step in 40..60 {
                prop_assert_eq!(&policy.decide(TICK * step, &threads, &Groups::new(), &cores), &plan);
            }
        }
    }
}
