//! Rules which ticket keys are in force, and what is to be written into etcd: without etcd and without clocks
//! of their own, so that tests give both.
//!
//! etcd has three entries. `keys` is one [`Set`] of keys, which changes as a whole. `holder` exists while the
//! one instance that may write has its lease. `fresh` exists for one rotation after each change: etcd
//! itself lets it expire, so no clock of a terminator decides when the next key encrypts.
//!
//! Who may write into etcd, but does not have the secret, can put back an old value, keep `fresh` or `holder` from
//! expiring, or delete entries. So a set that has not changed for two rotations is logged and changed without
//! `fresh`, and one that was written long ago is not taken: the instances then use keys of their own.
//!
//! Why no key encrypts that another instance cannot know: an instance goes by the set that it has read, for
//! at most two rotations after it was last seen to be the one in etcd. Two changes are a rotation apart, so in that
//! time etcd gets at most two newer sets. The key that encrypts in a set waits in both sets before, and
//! decrypts in both sets after it ([`WAITING`], [`PAST`]). The first set of all encrypts nothing: it waits
//! until all have seen it.

use std::time::{Duration, Instant};

use crate::key::{KeyBytes, NoKey};
use crate::sealed::Unreadable;

/// The ticket keys of all instances.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// Grows by one with each change.
    pub(crate) generation: u64,
    /// Time of writing, in seconds since 1970, by the clock of the instance that wrote it.
    pub(crate) written: u64,
    /// Time for which a key encrypts, in seconds.
    pub(crate) rotation: u32,
    /// The place of the key that encrypts. Those before it are past, those after it wait.
    pub(crate) encrypts: Option<u8>,
    pub(crate) keys: Vec<Entry>,
}

/// A key in a set.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Time of making, in seconds since 1970, by the clock of the instance that made it.
    pub(crate) made: u64,
    pub(crate) bytes: KeyBytes,
}

/// State of etcd at one moment.
#[derive(Debug)]
pub(crate) struct View {
    /// The set, with the revision of its last change.
    pub(crate) keys: Option<(i64, Result<Set, Unreadable>)>,
    /// True if the last change is less than a rotation ago, by etcd's clock.
    pub(crate) fresh: bool,
    pub(crate) holder: Holder,
}

/// Instance that may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    None,
    /// This instance, by the lease of this number.
    This(i64),
    Another,
    /// An entry without a lease, which no instance makes, and which never expires.
    WithoutLease,
}

/// Task of an instance in etcd. Whether it has worked is seen when etcd is read again.
#[derive(Debug)]
pub(crate) enum Act {
    Nothing,
    /// Become the one that writes, if no instance is.
    Claim,
    /// Let another one be it.
    Resign,
    Write(Write),
}

/// A change of the set. It must not happen unless the instance still holds the lease and the entry `keys`
/// still has this revision.
#[derive(Debug)]
pub(crate) struct Write {
    /// 0: there is no entry.
    pub(crate) revision: i64,
    pub(crate) set: Set,
    /// True if it must not happen while `fresh` exists.
    pub(crate) turn: bool,
    /// Time for which `fresh` exists then, in seconds.
    pub(crate) fresh: u32,
}

/// Reason why the set in etcd is not the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Unreadable(Unreadable),
    /// Older than the one in force: etcd has an old state, or an old value was put there.
    Older,
    /// Written longer ago than [`Set::is_outdated`] allows.
    Outdated,
    /// The set has not changed for more than two rotations.
    Unchanged,
    /// The entry is gone.
    Gone,
    /// No instance may write, because the entry `holder` has no lease.
    HolderWithoutLease,
}

/// Knowledge of one instance.
#[derive(Debug)]
pub(crate) struct Member {
    rotation: Duration,
    held: Option<Held>,
    /// Time since which etcd has had an outdated set at each look, if it has.
    outdated: Option<Instant>,
    own: Own,
    /// Problem that was found when etcd was read last.
    pub(crate) problem: Option<Problem>,
    /// True if this instance is the one that writes.
    pub(crate) holds: bool,
    /// By how many seconds this machine's clock is ahead of that of the machine that has written last, if
    /// that could be seen.
    pub(crate) ahead: Option<i64>,
}

#[derive(Debug)]
struct Held {
    set: Set,
    /// Time at which it was first seen in etcd.
    since: Instant,
    /// Time at which it was last seen there.
    seen: Instant,
    /// The lease under which this instance has seen it, if it could write then.
    under: Option<i64>,
}

/// Keys of this instance alone, for as long as there are none of etcd.
#[derive(Debug)]
struct Own {
    now: Entry,
    before: Option<Entry>,
    /// Time since which `now` encrypts.
    since: Instant,
    /// Time at which it has encrypted last.
    used: Instant,
}

/// The keys in force, the one that encrypts first.
#[derive(Debug)]
pub(crate) struct InForce<'a> {
    pub(crate) keys: Vec<&'a Entry>,
    /// True if the first one is in etcd.
    pub(crate) shared: bool,
}

impl Set {
    /// The first of all: its keys wait until all instances have seen them.
    pub(crate) fn first(rotation: u32, now: u64) -> Result<Self, NoKey> {
        let keys: Result<_, _> = (0..WAITING).map(|_| Entry::generate(now)).collect();
        Ok(Self {
            generation: 1,
            written: now,
            rotation,
            encrypts: None,
            keys: keys?,
        })
    }

    /// The next one: the key that has waited longest encrypts.
    pub(crate) fn rotated(&self, now: u64) -> Result<Self, NoKey> {
        let mut keys = self.keys.clone();
        keys.push(Entry::generate(now)?);
        let mut encrypts = self.encrypts.map_or(0, |place| usize::from(place) + 1);
        let gone = encrypts.saturating_sub(PAST);
        keys.drain(..gone);
        encrypts -= gone;
        Ok(Self {
            generation: self.generation.saturating_add(1),
            written: now,
            rotation: self.rotation,
            encrypts: Some(u8::try_from(encrypts).map_err(|_| NoKey)?),
            keys,
        })
    }

    fn rotation(&self) -> Duration {
        Duration::from_secs(self.rotation.into())
    }

    /// Returns whether it was written so long ago that a stranger has kept it, by a clock that may be wrong by an hour:
    /// etcd has an old value again, or its keys are held in force by an entry that does not expire.
    fn is_outdated(&self, wall: u64) -> bool {
        let lasts = MOST_ROTATIONS * u64::from(self.rotation) + WRONG_CLOCK;
        wall.saturating_sub(self.written) > lasts
    }
}

impl Entry {
    fn generate(now: u64) -> Result<Self, NoKey> {
        Ok(Self {
            made: now,
            bytes: KeyBytes::generate()?,
        })
    }
}

impl Member {
    /// An instance that knows nothing of etcd yet. `wall` is its clock in seconds since 1970; it decides only whether
    /// a set is outdated.
    pub(crate) fn new(rotation: Duration, now: Instant, wall: u64) -> Result<Self, NoKey> {
        Ok(Self {
            rotation,
            held: None,
            outdated: None,
            own: Own {
                now: Entry::generate(wall)?,
                before: None,
                since: now,
                used: now,
            },
            problem: None,
            holds: false,
            ahead: None,
        })
    }

    /// Takes in what etcd has, and says what to do there. `asked` is the moment before etcd was asked.
    pub(crate) fn observe(&mut self, view: View, asked: Instant, wall: u64) -> Result<Act, NoKey> {
        self.expire(asked, wall);
        self.problem = match view.holder {
            Holder::WithoutLease => Some(Problem::HolderWithoutLease),
            _ => None,
        };
        let lease = match view.holder {
            Holder::This(lease) => Some(lease),
            Holder::None | Holder::Another | Holder::WithoutLease => None,
        };
        self.holds = lease.is_some();
        let free = view.holder == Holder::None;
        let (revision, set) = match view.keys {
            None => {
                if self.held.is_some() {
                    self.problem = Some(Problem::Gone);
                }
                return match (lease, &self.held) {
                    (Some(_), Some(held)) => Ok(held.restore(0)),
                    (Some(_), None) => Ok(Act::Write(self.first(wall)?)),
                    (None, _) if free => Ok(Act::Claim),
                    (None, _) => Ok(Act::Nothing),
                };
            }
            Some((_, Err(unreadable))) if lease.is_none() => {
                // Who cannot read what is there must not write, and so must not keep others from it.
                self.problem = Some(Problem::Unreadable(unreadable));
                return Ok(Act::Nothing);
            }
            Some((revision, Err(unreadable))) => {
                self.problem = Some(Problem::Unreadable(unreadable));
                // Under this lease no other instance may write. If what was there before could be read, then the
                // secret is the right one, and what is there now was written by no terminator.
                return match &self.held {
                    Some(held) if held.under == lease => Ok(held.restore(revision)),
                    _ => Ok(Act::Resign),
                };
            }
            Some((revision, Ok(set))) => (revision, set),
        };
        if set.is_outdated(wall) {
            return self.refuse(&set, revision, (lease, free), asked, wall);
        }
        self.outdated = None;
        if let Some(held) = &self.held
            && set.generation < held.set.generation
        {
            self.problem = Some(Problem::Older);
            return match lease {
                Some(_) => Ok(held.restore(revision)),
                None if free => Ok(Act::Claim),
                None => Ok(Act::Nothing),
            };
        }
        // A change that comes between two looks was written now. What is from the future shows by itself.
        let ahead = i128::from(wall) - i128::from(set.written);
        let just_written = self.held.as_ref().is_some_and(|held| {
            let since = asked.saturating_duration_since(held.seen);
            set.generation > held.set.generation && since <= BETWEEN_LOOKS
        });
        let ahead = i64::try_from(ahead).unwrap_or(i64::MIN);
        // The more of the two, until the next change tells it exactly.
        let is_worse = ahead < 0 && self.ahead.is_none_or(|before| ahead < before);
        if just_written || is_worse {
            self.ahead = Some(ahead);
        }
        let same = self.held.as_ref();
        let same = same.filter(|held| held.set.generation == set.generation);
        let since = same.map_or(asked, |held| held.since);
        // etcd lets `fresh` expire after a rotation. Where it does not, it was put there by a stranger, and this
        // instance's own clock decides.
        let unchanged = asked.saturating_duration_since(since) > 2 * set.rotation() + BETWEEN_LOOKS;
        if unchanged {
            self.problem.get_or_insert(Problem::Unchanged);
        }
        let act = match lease {
            Some(_) if !view.fresh || unchanged => Act::Write(Write {
                revision,
                turn: !unchanged,
                fresh: set.rotation,
                set: set.rotated(wall)?,
            }),
            None if free => Act::Claim,
            _ => Act::Nothing,
        };
        self.held = Some(Held {
            set,
            since,
            seen: asked,
            under: lease,
        });
        Ok(act)
    }

    /// Says what to do about a set that is outdated. The one that writes begins anew, but not before all others must
    /// have forgotten that set, by their clocks.
    fn refuse(
        &mut self,
        set: &Set,
        revision: i64,
        (lease, free): (Option<i64>, bool),
        asked: Instant,
        wall: u64,
    ) -> Result<Act, NoKey> {
        self.problem.get_or_insert(Problem::Outdated);
        let since = *self.outdated.get_or_insert(asked);
        let refused = asked.saturating_duration_since(since);
        Ok(match lease {
            Some(_) if refused >= 2 * set.rotation() + CLOCKS_APART => {
                let mut first = self.first(wall)?;
                first.set.generation = set.generation.saturating_add(1);
                Act::Write(Write { revision, ..first })
            }
            None if free => Act::Claim,
            _ => Act::Nothing,
        })
    }

    /// Forgets keys whose time is over, and renews those of this instance. To be called from time to time,
    /// also if etcd cannot be reached.
    pub(crate) fn pass(&mut self, now: Instant, wall: u64) -> Result<(), NoKey> {
        self.expire(now, wall);
        if self.is_shared() {
            if self.own.before.is_some() && now - self.own.used >= self.rotation {
                self.own.before = None;
            }
            return Ok(());
        }
        // After a time in which the keys of etcd were in force, the old key is not used again.
        let idle = now - self.own.used >= self.rotation;
        if now - self.own.since >= self.rotation || idle {
            let new = Entry::generate(wall)?;
            let old = std::mem::replace(&mut self.own.now, new);
            self.own.before = (!idle).then_some(old);
            self.own.since = now;
        }
        self.own.used = now;
        Ok(())
    }

    /// The keys of this moment.
    pub(crate) fn in_force(&self, now: Instant) -> InForce<'_> {
        let shared = self.is_shared();
        let mut keys: Vec<&Entry> = Vec::new();
        if let Some(held) = &self.held {
            let first = held.set.encrypts.map_or(0, usize::from);
            keys.extend(held.set.keys.get(first));
            let others = held.set.keys.iter().enumerate();
            keys.extend(others.filter(|(at, _)| *at != first).map(|(_, key)| key));
        }
        // Tickets that this instance has made with its own keys are still good for a rotation.
        let recent = !shared || now.saturating_duration_since(self.own.used) < self.rotation;
        if recent {
            let own = std::iter::once(&self.own.now).chain(&self.own.before);
            match shared {
                true => keys.extend(own),
                false => {
                    keys.splice(0..0, own);
                }
            }
        }
        InForce { keys, shared }
    }

    /// The set that was read, with how long ago it was seen in etcd.
    pub(crate) fn set(&self, now: Instant) -> Option<(&Set, Duration)> {
        let held = self.held.as_ref()?;
        Some((&held.set, now.saturating_duration_since(held.seen)))
    }

    /// Returns whether a key of etcd encrypts.
    fn is_shared(&self) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.set.encrypts.is_some())
    }

    fn expire(&mut self, now: Instant, wall: u64) {
        let old = |held: &Held| {
            let seen = now.saturating_duration_since(held.seen);
            seen >= 2 * held.set.rotation() || held.set.is_outdated(wall)
        };
        if self.held.as_ref().is_some_and(old) {
            self.held = None;
        }
    }

    fn first(&self, wall: u64) -> Result<Write, NoKey> {
        let rotation = u32::try_from(self.rotation.as_secs()).unwrap_or(u32::MAX);
        Ok(Write {
            revision: 0,
            set: Set::first(rotation.max(1), wall)?,
            turn: false,
            fresh: rotation.clamp(1, LEARNING),
        })
    }
}

impl Held {
    /// Puts what is in force back into etcd.
    fn restore(&self, revision: i64) -> Act {
        Act::Write(Write {
            revision,
            set: self.set.clone(),
            turn: false,
            fresh: self.set.rotation,
        })
    }
}

/// Number of keys that wait in a set.
pub(crate) const WAITING: usize = 2;
/// Number of keys that have encrypted and still decrypt.
pub(crate) const PAST: usize = 2;
/// Two looks that are further apart do not tell when the set has changed between them.
const BETWEEN_LOOKS: Duration = Duration::from_secs(15);
/// Most rotations since a set was written: it lasts one, and an outage of etcd leaves it in force for two.
const MOST_ROTATIONS: u64 = 4;
/// Seconds by which a clock may be wrong for a set to be good by it.
const WRONG_CLOCK: u64 = 3600;
/// Time for which clocks that the tickets tolerate may differ in what is outdated: 90 seconds each.
const CLOCKS_APART: Duration = Duration::from_secs(180);
/// Seconds for which the keys of the first set wait: many times the pause between reads of etcd.
const LEARNING: u32 = 15;

#[cfg(test)]
mod tests;
