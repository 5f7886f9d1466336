use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// An etcd with the three entries, and its own clock. The lease of `holder` is on it.
#[derive(Default)]
struct Store {
    revision: i64,
    keys: Option<(i64, Result<Set, Unreadable>)>,
    fresh_until: u64,
    /// A stranger keeps `fresh` until then.
    kept_fresh: u64,
    holder: Option<(i64, u64)>,
    /// A stranger has put in a `holder` without a lease.
    blocked: bool,
    leases: i64,
    written: Vec<Written>,
}

/// A set that was put into etcd.
#[derive(Clone, Debug, PartialEq)]
struct Written {
    generation: u64,
    keys: Vec<String>,
    /// By etcd's clock.
    at: u64,
}

impl Store {
    fn view(&mut self, lease: Option<i64>, now: u64) -> View {
        self.holder = self.holder.filter(|(_, until)| now < *until);
        View {
            keys: self.keys.clone(),
            fresh: now < self.fresh_until,
            holder: match self.holder {
                _ if self.blocked => Holder::WithoutLease,
                None => Holder::None,
                Some((of, _)) if Some(of) == lease => Holder::This(of),
                Some(_) => Holder::Another,
            },
        }
    }

    fn claim(&mut self, now: u64) -> Option<i64> {
        self.holder = self.holder.filter(|(_, until)| now < *until);
        if self.holder.is_some() || self.blocked {
            return None;
        }
        self.leases += 1;
        self.holder = Some((self.leases, now + TTL));
        Some(self.leases)
    }

    /// The transaction.
    fn write(&mut self, write: Write, lease: Option<i64>, now: u64) {
        let holds = self.holder.is_some_and(|(of, until)| Some(of) == lease && now < until);
        let revision = self.keys.as_ref().map_or(0, |(revision, _)| *revision);
        if !holds || revision != write.revision || write.turn && now < self.fresh_until {
            return;
        }
        self.revision += 1;
        self.written.push(Written {
            generation: write.set.generation,
            keys: write.set.keys.iter().map(|key| key.bytes.name()).collect(),
            at: now,
        });
        self.keys = Some((self.revision, Ok(write.set)));
        self.fresh_until = self.kept_fresh.max(now + u64::from(write.fresh));
    }
}

/// An instance with a clock that is wrong, and what it has not sent yet.
struct Instance {
    member: Member,
    lease: Option<i64>,
    wrong: i64,
    pending: Option<Act>,
}

impl Instance {
    fn new(at: Instant, wrong: i64) -> Self {
        let rotation = Duration::from_secs(ROTATION);
        Self {
            member: Member::new(rotation, at, 0).unwrap(),
            lease: None,
            wrong,
            pending: None,
        }
    }

    /// Reads etcd. What is to be written is sent in a later step: meanwhile anything may happen.
    fn read(&mut self, store: &mut Store, start: Instant, now: u64) {
        let at = start + Duration::from_secs(now);
        let view = store.view(self.lease, now);
        let wall = (1_000_000 + now as i64 + self.wrong) as u64;
        self.pending = Some(self.member.observe(view, at, wall).unwrap());
        self.member.pass(at, wall).unwrap();
    }

    fn send(&mut self, store: &mut Store, now: u64) {
        match self.pending.take() {
            Some(Act::Claim) => self.lease = store.claim(now).or(self.lease),
            Some(Act::Write(write)) => store.write(write, self.lease, now),
            Some(Act::Resign) => {
                if store.holder.is_some_and(|(of, _)| Some(of) == self.lease) {
                    store.holder = None;
                }
            }
            Some(Act::Nothing) | None => {}
        }
    }

    fn keep_alive(&mut self, store: &mut Store, now: u64) {
        if let Some((of, until)) = &mut store.holder
            && Some(*of) == self.lease
            && now < *until
        {
            *until = now + TTL;
        }
    }

    fn names(&self, at: Instant) -> (Option<String>, BTreeSet<String>, bool) {
        let force = self.member.in_force(at);
        let name = |entry: &&Entry| entry.bytes.name();
        let has_set = self.member.set(at).is_some();
        let first = force.keys.first().map(name).filter(|_| force.shared);
        (first, force.keys.iter().map(name).collect(), has_set)
    }
}

/// An instance that has a set of etcd can decrypt what all others encrypt with a key of etcd.
fn all_can_decrypt(instances: &[Instance], at: Instant) -> Result<(), String> {
    let all: Vec<_> = (instances.iter())
        .map(|one| (one.member.in_force(at), one.member.set(at).is_some()))
        .collect();
    for (one, (force, _)) in all.iter().enumerate() {
        let Some(first) = force.keys.first().filter(|_| force.shared) else {
            continue;
        };
        let is_first = |key: &&Entry| key.bytes.as_bytes() == first.bytes.as_bytes();
        for (other, (known, has_set)) in all.iter().enumerate() {
            if *has_set && !known.keys.iter().any(is_first) {
                return Err(format!("{other} does not know the key with which {one} encrypts"));
            }
        }
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    /// The seconds pass, and instances read in turn but for those that are cut off.
    Pass(u8),
    Cut(usize, bool),
    Read(usize),
    Send(usize),
    Restart(usize),
    Corrupt,
    /// A stranger keeps `fresh` or `holder` from expiring, or stops that.
    Block(bool, bool),
    /// A long time passes without etcd, for some.
    Long(u8),
    /// etcd gets a new leader, which gives all leases their whole time again.
    Leader,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..50u8).prop_map(Step::Pass),
        3 => (0..3usize, any::<bool>()).prop_map(|(one, cut)| Step::Cut(one, cut)),
        2 => (0..3usize).prop_map(Step::Read),
        2 => (0..3usize).prop_map(Step::Send),
        1 => (0..3usize).prop_map(Step::Restart),
        1 => Just(Step::Corrupt),
        1 => Just(Step::Leader),
        1 => any::<(bool, bool)>().prop_map(|(fresh, holder)| Step::Block(fresh, holder)),
        1 => (1..=60u8).prop_map(Step::Long),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_key_encrypts_that_an_instance_cannot_know(
        steps in prop::collection::vec(step(), 1..120),
        wrong in prop::collection::vec(-90..90i64, 3),
    ) {
        let start = Instant::now();
        let mut store = Store::default();
        let mut instances: Vec<_> = wrong.iter().map(|wrong| Instance::new(start, *wrong)).collect();
        let mut cut = [false; 3];
        let mut now = 0;
        for step in steps {
            match step {
                Step::Pass(seconds) => for _ in 0..seconds {
                    now += 1;
                    let at = start + Duration::from_secs(now);
                    for (instance, cut) in instances.iter_mut().zip(cut) {
                        if !cut {
                            instance.keep_alive(&mut store, now);
                            // What was begun before is sent late, and fails or is right.
                            instance.send(&mut store, now);
                            instance.read(&mut store, start, now);
                            instance.send(&mut store, now);
                        } else {
                            let wall = (1_000_000 + now as i64 + instance.wrong) as u64;
                            instance.member.pass(at, wall).unwrap();
                        }
                    }
                    // All have looked at the same second, as far as they can.
                    all_can_decrypt(&instances, at).map_err(TestCaseError::fail)?;
                },
                Step::Cut(one, is) => cut[one] = is,
                Step::Read(one) if !cut[one] => instances[one].read(&mut store, start, now),
                Step::Send(one) => instances[one].send(&mut store, now),
                Step::Restart(one) => {
                    let wrong = instances[one].wrong;
                    instances[one] = Instance::new(start + Duration::from_secs(now), wrong);
                }
                Step::Corrupt => {
                    if let Some((revision, set)) = &mut store.keys {
                        store.revision += 1;
                        *revision = store.revision;
                        *set = Err(Unreadable::Seal);
                    }
                }
                Step::Leader => {
                    if now < store.fresh_until {
                        store.fresh_until = store.fresh_until.max(now + ROTATION);
                    }
                }
                Step::Block(fresh, holder) => {
                    store.kept_fresh = if fresh { u64::MAX } else { 0 };
                    store.fresh_until = store.fresh_until.min(now + ROTATION).max(store.kept_fresh);
                    store.blocked = holder;
                }
                Step::Long(minutes) => for _ in 0..minutes {
                    now += 60;
                    let at = start + Duration::from_secs(now);
                    for instance in &mut instances {
                        let wall = (1_000_000 + now as i64 + instance.wrong) as u64;
                        instance.member.pass(at, wall).unwrap();
                    }
                },
                Step::Read(_) => {}
            }
        }
        // A set that was never there comes no earlier than a rotation after the one before it came first. What is put
        // back after damage was there before: maybe the newest, maybe the one before.
        for (place, new) in store.written.iter().enumerate().skip(1) {
            let (before, last) = (&store.written[..place], &store.written[place - 1]);
            if before.iter().all(|old| old.keys != new.keys) {
                prop_assert_eq!(new.generation, last.generation + 1);
                let begins = last.keys.len() == WAITING;
                let waits = if begins { u64::from(LEARNING) } else { ROTATION };
                let came = before.iter().find(|old| old.keys == last.keys);
                let came = came.map_or(0, |came| came.at);
                prop_assert!(new.at - came >= waits, "{:?}", store.written);
            }
        }
    }
}

fn passing(instances: &mut [Instance], store: &mut Store, start: Instant, from: u64, seconds: u64) -> u64 {
    for now in from + 1..=from + seconds {
        for instance in instances.iter_mut() {
            instance.keep_alive(store, now);
            instance.read(store, start, now);
            instance.send(store, now);
        }
    }
    from + seconds
}

fn first_of(instance: &Instance, start: Instant, now: u64) -> Option<String> {
    instance.names(start + Duration::from_secs(now)).0
}

#[test]
fn all_encrypt_with_the_same_key_soon_and_it_changes_with_each_rotation() {
    let start = Instant::now();
    let mut store = Store::default();
    let mut all = [60, 0, -60].map(|wrong| Instance::new(start, wrong));
    let now = passing(&mut all, &mut store, start, 0, 5);
    assert_eq!(first_of(&all[0], start, now), None, "not all may have it");
    let mut now = passing(&mut all, &mut store, start, now, 20);
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        let names: BTreeSet<_> = all.iter().map(|one| first_of(one, start, now)).collect();
        assert_eq!(names.len(), 1);
        assert!(seen.insert(names.into_iter().next().unwrap().expect("a key of etcd")));
        now = passing(&mut all, &mut store, start, now, ROTATION + 1);
    }
    assert_eq!(all.iter().filter(|one| one.member.holds).count(), 1);
    // The one that writes is ahead by 60 seconds; the others see it.
    let ahead: Vec<_> = all.iter().map(|one| one.member.ahead.unwrap_or(0)).collect();
    assert!(
        (-61..=-59).contains(&ahead[1]) && (-121..=-119).contains(&ahead[2]),
        "{ahead:?}"
    );
}

#[test]
fn without_etcd_nothing_changes_for_two_rotations_and_then_its_keys_are_erased() {
    let start = Instant::now();
    let mut store = Store::default();
    let mut all = [0, 0].map(|wrong| Instance::new(start, wrong));
    let now = passing(&mut all, &mut store, start, 0, 200);
    let before = all[0].names(start + Duration::from_secs(now));
    assert!(before.0.is_some());
    for later in now..now + 3 * ROTATION {
        let at = start + Duration::from_secs(later);
        all[0].member.pass(at, later).unwrap();
        let (first, known, has_set) = all[0].names(at);
        if later < now + 2 * ROTATION {
            assert_eq!((first, known, has_set), before, "after {} s", later - now);
        } else {
            assert_eq!((first, has_set), (None, false));
            assert!(known.is_disjoint(&before.1));
            assert!((1..=2).contains(&known.len()));
        }
    }
    // What it made meanwhile is still good when etcd is there again, for a rotation.
    let now = now + 3 * ROTATION;
    let own = all[0].names(start + Duration::from_secs(now)).1;
    let now = passing(&mut all, &mut store, start, now, 3);
    let (first, known, _) = all[0].names(start + Duration::from_secs(now));
    assert!(first.is_some() && own.is_subset(&known));
    let now = passing(&mut all, &mut store, start, now, ROTATION);
    assert!(all[0].names(start + Duration::from_secs(now)).1.is_disjoint(&own));
}

#[test]
fn a_damaged_value_is_put_right_by_the_holder_alone() {
    let start = Instant::now();
    let mut store = Store::default();
    let mut all = [0, 0].map(|wrong| Instance::new(start, wrong));
    let now = passing(&mut all, &mut store, start, 0, 100);
    let generation = all[0].member.set(start).unwrap().0.generation;
    let damage = |store: &mut Store| {
        store.revision += 1;
        store.keys = Some((store.revision, Err(Unreadable::Seal)));
    };
    damage(&mut store);
    let holder = all.iter().position(|one| one.member.holds).unwrap();
    let other = 1 - holder;
    all[other].read(&mut store, start, now);
    assert!(matches!(all[other].pending, Some(Act::Nothing)));
    assert_eq!(all[other].member.problem, Some(Problem::Unreadable(Unreadable::Seal)));
    let now = passing(&mut all, &mut store, start, now, 2);
    assert!(all.iter().all(|one| one.member.problem.is_none()));
    assert_eq!(all[0].member.set(start).unwrap().0.generation, generation);

    // One with another secret never reads anything, and must not write over what it finds.
    damage(&mut store);
    let mut stranger = [Instance::new(start, 0)];
    store.holder = None;
    let now = passing(&mut stranger, &mut store, start, now, 60);
    assert!(store.keys.as_ref().unwrap().1.is_err() && store.holder.is_none());
    // Not even if it has the lease already, from a time without a value.
    stranger[0].lease = store.claim(now);
    passing(&mut stranger, &mut store, start, now, 3);
    assert!(store.keys.unwrap().1.is_err() && store.holder.is_none(), "it resigns");
}

#[test]
fn an_old_state_of_etcd_is_not_taken_and_a_lost_one_comes_back() {
    let start = Instant::now();
    let mut store = Store::default();
    let mut all = [0, 0].map(|wrong| Instance::new(start, wrong));
    let now = passing(&mut all, &mut store, start, 0, 100);
    let old = store.keys.clone();
    let now = passing(&mut all, &mut store, start, now, 2 * ROTATION);
    let generation = all[0].member.set(start).unwrap().0.generation;
    store.keys = old;
    all[1].read(&mut store, start, now);
    assert_eq!(all[1].member.problem, Some(Problem::Older));
    assert_eq!(all[1].member.set(start).unwrap().0.generation, generation);
    let now = passing(&mut all, &mut store, start, now, 2);
    assert!(store.keys.as_ref().unwrap().1.as_ref().unwrap().generation >= generation);
    store.keys = None;
    all[1].read(&mut store, start, now);
    assert_eq!(all[1].member.problem, Some(Problem::Gone));
    passing(&mut all, &mut store, start, now, 2);
    assert!(store.keys.unwrap().1.unwrap().generation >= generation);
}

#[test]
fn an_entry_that_does_not_expire_is_told_of_and_does_not_stop_the_changes() {
    let start = Instant::now();
    let mut store = Store::default();
    let mut all = [60, -60].map(|wrong| Instance::new(start, wrong));
    let now = passing(&mut all, &mut store, start, 0, 100);
    let keys = all[0].names(start).1;
    (store.kept_fresh, store.fresh_until) = (u64::MAX, u64::MAX);
    let now = passing(&mut all, &mut store, start, now, 2 * ROTATION);
    assert!(all.iter().all(|one| one.member.problem.is_none()));
    let mut seen = BTreeSet::new();
    let mut told = [false; 2];
    let mut last = now;
    for later in now + 1..now + 20 * ROTATION {
        last = passing(&mut all, &mut store, start, later - 1, 1);
        seen.extend(first_of(&all[0], start, later));
        for (told, one) in told.iter_mut().zip(&all) {
            *told |= one.member.problem == Some(Problem::Unchanged);
        }
        all_can_decrypt(&all, start + Duration::from_secs(later)).unwrap();
    }
    assert_eq!(told, [true; 2]);
    assert!((6..=10).contains(&seen.len()), "{} keys in 20 rotations", seen.len());
    let now = all[0].names(start + Duration::from_secs(last)).1;
    assert!(now.is_disjoint(&keys));
}

#[test]
fn keys_that_nobody_may_change_are_not_used_for_ever() {
    let start = Instant::now();
    let mut store = Store::default();
    let mut all = [60, -60].map(|wrong| Instance::new(start, wrong));
    let now = passing(&mut all, &mut store, start, 0, 100);
    let keys = all[0].names(start).1;
    store.blocked = true;
    let now = passing(&mut all, &mut store, start, now, 1);
    let problem = Some(Problem::HolderWithoutLease);
    assert!(all.iter().all(|one| one.member.problem == problem));
    let now = passing(&mut all, &mut store, start, now, 4 * ROTATION + WRONG_CLOCK + 100);
    for one in &all {
        let (_, known, has_set) = one.names(start + Duration::from_secs(now));
        assert!(!has_set && known.is_disjoint(&keys));
    }
    // With the entry gone, there are new ones.
    store.blocked = false;
    let now = passing(&mut all, &mut store, start, now, 2 * ROTATION + 300);
    let [one, other] = [0, 1].map(|place| all[place].names(start + Duration::from_secs(now)));
    assert!(one.0.is_some() && one.0 == other.0 && one.1.is_disjoint(&keys));
}

#[test]
fn an_old_value_is_not_taken_after_a_restart_and_the_holder_begins_anew() {
    let start = Instant::now();
    let mut store = Store::default();
    let mut all = [60, -60].map(|wrong| Instance::new(start, wrong));
    let now = passing(&mut all, &mut store, start, 0, 100);
    let old = store.keys.clone();
    let keys = all[0].names(start).1;
    let mut now = passing(&mut all, &mut store, start, now, 2 * WRONG_CLOCK);
    store.keys = old;
    let mut all = [60, -60].map(|wrong| Instance::new(start + Duration::from_secs(now), wrong));
    let mut told = [false; 2];
    for _ in 0..10 * ROTATION {
        now = passing(&mut all, &mut store, start, now, 1);
        for (told, one) in told.iter_mut().zip(&all) {
            let (_, known, _) = one.names(start + Duration::from_secs(now));
            assert!(known.is_disjoint(&keys));
            *told |= one.member.problem == Some(Problem::Outdated);
        }
    }
    assert_eq!(told, [true; 2]);
    let [one, other] = [0, 1].map(|place| all[place].names(start + Duration::from_secs(now)));
    assert!(one.0.is_some() && one.0 == other.0);
    assert!(all.iter().all(|one| one.member.problem.is_none()));
}

/// The transaction decides, whatever an instance believes.
#[test]
fn two_that_believe_they_hold_the_lease_write_once() {
    let start = Instant::now();
    let mut store = Store::default();
    let mut all = [0, 0].map(|wrong| Instance::new(start, wrong));
    let now = passing(&mut all, &mut store, start, 0, 20);
    let holder = all.iter().position(|one| one.member.holds).unwrap();
    let later = now + ROTATION + 1;
    all[holder].keep_alive(&mut store, later - 1);
    store.holder = store.holder.map(|(of, _)| (of, later + 1));
    all[holder].read(&mut store, start, later);
    assert!(matches!(all[holder].pending, Some(Act::Write(_))));
    // Its lease ends before it sends that, and the other one takes over.
    let late = later + TTL;
    let other = 1 - holder;
    for _ in 0..3 {
        all[other].read(&mut store, start, late);
        all[other].send(&mut store, late);
    }
    let written = store.written.clone();
    assert!(all[other].lease.is_some());
    all[holder].send(&mut store, late);
    assert_eq!(store.written, written);
}

const ROTATION: u64 = 60;
const TTL: u64 = 10;
