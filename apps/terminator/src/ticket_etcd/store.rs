//! The keys of one place in etcd, for all listeners that take them from there.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::rules::{Act, Member, Problem, View};
use super::settings::Settings;
use crate::config::{Etcd, Listener};
use crate::resumption::Keys;
use crate::shared::{TicketKeyNote, ticket_key_notes};
use crate::ticket_key::{KeySource, NoKey, TicketKey};
use crate::waiting::wait_while;

/// Where keys come from, and how long one encrypts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreName {
    pub(crate) etcd: Etcd,
    pub(crate) rotation: Duration,
}

/// The keys of one place in etcd, as far as this process knows them.
pub(crate) struct Store {
    pub(crate) name: StoreName,
    state: Mutex<State>,
    tried: Condvar,
}

struct State {
    member: Member,
    /// The keys in force, the one that encrypts first.
    keys: Vec<Arc<TicketKey>>,
    /// Who takes them.
    listeners: Vec<Weak<Keys>>,
    /// Whether etcd has answered, or was found not to.
    tried: bool,
    fault: Option<Said>,
    other_rotation: Option<u32>,
    clock: Option<Instant>,
    own: bool,
}

/// What is wrong, and when that was said.
struct Said {
    problem: String,
    at: Instant,
    /// Since when nothing was right.
    since: Instant,
}

/// What metrics tell.
pub(crate) struct StoreNote {
    pub(crate) prefix: String,
    pub(crate) current: bool,
    pub(crate) holds: bool,
    /// Whether clients get tickets that no other machine can decrypt.
    pub(crate) own: bool,
    /// Seconds since keys were last seen in etcd.
    pub(crate) unseen: Option<u64>,
    pub(crate) ahead: Option<i64>,
    pub(crate) keys: Vec<TicketKeyNote>,
}

impl StoreName {
    /// Of a listener that takes its keys from etcd.
    pub(crate) fn of(listener: &Listener) -> Option<Self> {
        let tickets = &listener.tickets;
        let etcd = tickets.etcd.as_ref().filter(|_| tickets.count > 0)?;
        Some(Self {
            etcd: etcd.clone(),
            rotation: tickets.rotation,
        })
    }
}

impl Store {
    pub(crate) fn new(name: StoreName) -> Result<Self, NoKey> {
        let now = Instant::now();
        let store = Self {
            state: Mutex::new(State {
                member: Member::new(name.rotation, now, wall())?,
                keys: Vec::new(),
                listeners: Vec::new(),
                tried: false,
                fault: None,
                other_rotation: None,
                clock: None,
                own: true,
            }),
            name,
            tried: Condvar::new(),
        };
        store.lock().renew(&store.name, now)?;
        Ok(store)
    }

    /// The keys of this moment.
    pub(crate) fn keys(&self) -> Vec<Arc<TicketKey>> {
        self.lock().keys.clone()
    }

    /// Gives a listener the keys of this moment and all later ones, until it is gone.
    pub(crate) fn serve(&self, keys: &Arc<Keys>) {
        let mut state = self.lock();
        state.listeners.push(Arc::downgrade(keys));
        keys.replace(state.keys.clone());
    }

    /// Waits until etcd has answered or was found not to, but not for ever, and not after `is_cut_off` says so.
    /// The error says what is wrong.
    pub(crate) fn wait(
        &self,
        limit: Duration,
        is_cut_off: &mut dyn FnMut() -> bool,
    ) -> Result<(), String> {
        let is_open = |state: &State| !state.tried;
        let state = wait_while(&self.tried, self.lock(), limit, is_cut_off, is_open);
        match (&state.fault, state.tried) {
            (Some(said), _) => Err(said.problem.clone()),
            (None, false) => Err(format!("etcd has not answered within {limit:?}")),
            (None, true) => Ok(()),
        }
    }

    /// Takes in what etcd has, and says what to do there.
    pub(crate) fn observe(&self, view: View, asked: Instant) -> Result<Act, NoKey> {
        let mut state = self.lock();
        let stored = match &view.keys {
            Some((_, Ok(set))) => Some(set.rotation),
            _ => None,
        };
        let act = state.member.observe(view, asked, wall())?;
        state.renew(&self.name, Instant::now())?;
        state.tell_rotation(&self.name, stored);
        state.tell_clock(&self.name, asked);
        let problem = state
            .member
            .problem
            .map(|problem| explain(&self.name, problem, &act));
        if let Some(problem) = problem {
            state.ill(&self.name, problem, Instant::now());
        }
        state.tried = true;
        drop(state);
        self.tried.notify_all();
        Ok(act)
    }

    /// Takes note that etcd was asked, and has refused nothing that was to be done there.
    pub(crate) fn succeeded(&self) {
        let mut state = self.lock();
        if state.member.problem.is_none() {
            state.well(&self.name);
        }
    }

    /// Takes note that etcd could not be asked, or has refused something.
    pub(crate) fn failed(&self, problem: String) {
        let now = Instant::now();
        let mut state = self.lock();
        state.ill(&self.name, problem, now);
        state.tried = true;
        drop(state);
        self.tried.notify_all();
    }

    /// Renews keys whose time is over, with etcd or without.
    pub(crate) fn pass(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        let passed = state.member.pass(now, wall());
        if let Err(error) = passed.and_then(|()| state.renew(&self.name, now)) {
            tracing::error!(%error, "ticket keys are not renewed; it is tried again");
        }
    }

    pub(crate) fn note(&self) -> StoreNote {
        let state = self.lock();
        let seen = state.member.set(Instant::now());
        StoreNote {
            prefix: self.name.etcd.prefix.clone(),
            current: state.fault.is_none() && state.tried,
            holds: state.member.holds,
            own: state.own,
            unseen: seen.map(|(_, since)| since.as_secs()),
            ahead: state.member.ahead,
            keys: ticket_key_notes(&state.keys),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Makes the keys in force anew if they have changed, and gives them to all listeners.
    fn renew(&mut self, name: &StoreName, now: Instant) -> Result<(), NoKey> {
        let force = self.member.in_force(now);
        let shared = force.shared;
        let wanted: Vec<String> = force.keys.iter().map(|key| key.bytes.name()).collect();
        let is_same = wanted
            .iter()
            .eq(&self.keys.iter().map(|key| key.name()).collect::<Vec<_>>());
        if !is_same {
            let mut keys = Vec::new();
            for entry in &force.keys {
                let source = KeySource {
                    file: PathBuf::from(format!("etcd:{}", name.etcd.prefix)),
                    written: SystemTime::UNIX_EPOCH + Duration::from_secs(entry.made.min(LATEST)),
                };
                let known = self
                    .keys
                    .iter()
                    .find(|key| key.name() == entry.bytes.name());
                keys.push(match known {
                    Some(key) => key.clone(),
                    None => TicketKey::new(&entry.bytes, Some(source))?,
                });
            }
            self.keys = keys;
            self.listeners.retain(|keys| keys.strong_count() > 0);
            for keys in self.listeners.iter().filter_map(Weak::upgrade) {
                keys.replace(self.keys.clone());
            }
        }
        let prefix = &name.etcd.prefix;
        match (self.own, shared) {
            (true, true) => tracing::info!(prefix, "ticket keys of etcd encrypt"),
            (false, false) => tracing::error!(
                prefix,
                "no ticket keys were seen in etcd for two rotations; those of etcd are erased, and this \
                 process makes its own, with which clients resume on this machine only"
            ),
            _ => {}
        }
        self.own = !shared;
        Ok(())
    }

    fn well(&mut self, name: &StoreName) {
        if let Some(said) = self.fault.take() {
            let seconds = said.since.elapsed().as_secs();
            tracing::info!(
                prefix = name.etcd.prefix,
                "the ticket keys in etcd are in force again, after {seconds} seconds"
            );
        }
    }

    /// Says what is wrong: when it begins or is something else, and from time to time.
    fn ill(&mut self, name: &StoreName, problem: String, now: Instant) {
        let since = self.fault.as_ref().map_or(now, |said| said.since);
        if let Some(said) = &self.fault
            && (said.problem == problem || now - said.at < CALM)
            && now - said.at < AGAIN
        {
            return;
        }
        let prefix = &name.etcd.prefix;
        let limit = 2 * name.rotation;
        let left = self
            .member
            .set(now)
            .map(|(_, age)| limit.saturating_sub(age).as_secs());
        match left.filter(|_| !self.own) {
            Some(left) => tracing::error!(
                prefix,
                "{problem} (the ticket keys from before stay in force for {left} seconds)"
            ),
            None => tracing::error!(
                prefix,
                "{problem} (until then, clients resume on this machine only)"
            ),
        }
        let at = now;
        self.fault = Some(Said { problem, at, since });
    }

    fn tell_rotation(&mut self, name: &StoreName, stored: Option<u32>) {
        let own = name.rotation.as_secs();
        let other = stored.filter(|stored| u64::from(*stored) != own);
        if let Some(other) = other
            && self.other_rotation != Some(other)
        {
            tracing::warn!(
                prefix = name.etcd.prefix,
                "the ticket keys in etcd change every {other} seconds and not every {own}, as \
                 `tickets.rotation_seconds` says here; set {other} on all machines, or another `prefix` to \
                 begin anew"
            );
        }
        self.other_rotation = other;
    }

    fn tell_clock(&mut self, name: &StoreName, now: Instant) {
        let Some(ahead) = self.member.ahead else {
            return;
        };
        if ahead.abs() < CLOCK_TOLERANCE {
            self.clock = None;
        } else if self
            .clock
            .is_none_or(|said| now.saturating_duration_since(said) >= AGAIN)
        {
            self.clock = Some(now);
            let direction = if ahead < 0 { "behind" } else { "ahead of" };
            tracing::warn!(
                prefix = name.etcd.prefix,
                "the clock of this machine is {} seconds {direction} that of the machine that wrote the \
                 ticket keys in etcd; correct the one that is wrong (`timedatectl`, `chronyc tracking`): \
                 sessions do not resume on machines whose clocks are more than 90 seconds behind",
                ahead.unsigned_abs()
            );
        }
    }
}

fn explain(name: &StoreName, problem: Problem, act: &Act) -> String {
    let key = format!("{}/{KEYS}", name.etcd.prefix);
    let restores = match act {
        Act::Write(_) => "; this instance puts the keys from before back",
        _ => "",
    };
    match problem {
        Problem::Unreadable(why) => format!(
            "the ticket keys at `{key}` in etcd are refused: {why}; give all machines the same `key_file`, \
             or begin anew with another `prefix`, or, if the value is damaged: etcdctl del {key}{restores}"
        ),
        Problem::Older => format!(
            "the ticket keys at `{key}` in etcd are older than those in force, as after a backup was \
             restored{}",
            match act {
                Act::Write(_) => restores,
                _ =>
                    "; the instance that writes puts newer ones there, or these are taken after two rotations",
            }
        ),
        Problem::Outdated => format!(
            "the ticket keys at `{key}` in etcd were written too long ago and are not used: etcd has an old value again, \
             or the clock of this machine is wrong; until there are new ones, each instance uses keys of its own{}",
            match act {
                Act::Write(_) => "; this instance puts new ones there",
                _ => "",
            }
        ),
        Problem::Unchanged => format!(
            "the ticket keys at `{key}` in etcd have not changed for more than two rotations: no instance that writes \
             can be reached, or a stranger keeps the entry `fresh` from expiring{}",
            match act {
                Act::Write(_) => "; this instance changes them",
                _ => "",
            }
        ),
        Problem::HolderWithoutLease => format!(
            "no instance can change the ticket keys in etcd, because the entry `{}/{HOLDER}` has no lease, which no \
             terminator makes; find out who put it there, and delete it: etcdctl del {0}/{HOLDER}",
            name.etcd.prefix
        ),
        Problem::Gone => format!(
            "the ticket keys at `{key}` are gone from etcd; find out who deletes them{}",
            match act {
                Act::Write(_) => restores,
                _ => "; the instance that writes puts them back",
            }
        ),
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.name).finish()
    }
}

/// The stores of a configuration. A thread asks etcd for all of them; it begins with the first.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    stores: HashMap<StoreName, (Arc<Store>, Settings)>,
    /// Only looks, and writes nothing.
    looks_only: bool,
    #[cfg(feature = "etcd")]
    running: Option<super::client::Running>,
}

impl Stores {
    /// Stores that are read and never written.
    pub(crate) fn to_look_at() -> Self {
        Self {
            looks_only: true,
            ..Self::default()
        }
    }

    /// The store of this name, which is asked from now on.
    pub(crate) fn get(&mut self, name: &StoreName, settings: &Settings) -> io::Result<Arc<Store>> {
        if let Some((store, _)) = self.stores.get(name) {
            return Ok(store.clone());
        }
        let store = Arc::new(Store::new(name.clone()).map_err(io::Error::other)?);
        let followed = (store.clone(), settings.clone());
        self.stores.insert(name.clone(), followed);
        self.ask()?;
        Ok(store)
    }

    /// Asks with these settings from now on, and asks no others.
    pub(crate) fn adopt(&mut self, wanted: &[(StoreName, Settings)]) -> io::Result<()> {
        let find = |name: &StoreName| wanted.iter().find(|(wanted, _)| wanted == name);
        let mut changed = false;
        self.stores.retain(|name, (_, settings)| {
            let new = find(name);
            if let Some((_, new)) = new
                && !new.is(settings)
            {
                settings.clone_from(new);
                changed = true;
            }
            changed |= new.is_none();
            new.is_some()
        });
        if changed { self.ask() } else { Ok(()) }
    }

    /// Asks only those that are wanted, with the settings from before.
    pub(crate) fn keep(&mut self, wanted: &[StoreName]) -> io::Result<()> {
        let before = self.stores.len();
        self.stores.retain(|name, _| wanted.contains(name));
        if self.stores.len() == before {
            Ok(())
        } else {
            self.ask()
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Store>> {
        self.stores
            .values()
            .map(|(store, _)| store.clone())
            .collect()
    }

    #[cfg(feature = "etcd")]
    fn ask(&mut self) -> io::Result<()> {
        let all = self.stores.values().cloned().collect();
        match &self.running {
            Some(running) => running.follow(all),
            None => {
                let running = super::client::Running::start(self.looks_only)?;
                running.follow(all);
                self.running = Some(running);
            }
        }
        Ok(())
    }

    /// The configuration is refused before.
    #[cfg(not(feature = "etcd"))]
    fn ask(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The names below the prefix.
pub(crate) const KEYS: &str = "keys";
pub(crate) const HOLDER: &str = "holder";
pub(crate) const FRESH: &str = "fresh";
/// The year 9999: later times are told as this one.
const LATEST: u64 = 253_402_300_799;
/// How much clocks may differ before it is told, in seconds.
const CLOCK_TOLERANCE: i64 = 30;
/// A fault that goes on is told again.
const AGAIN: Duration = Duration::from_secs(300);
/// Faults that take turns, as several endpoints have, are not told each time.
const CALM: Duration = Duration::from_secs(30);
/// How long a start or a reload waits for keys that it does not know.
pub(crate) const FIRST_KEYS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SecretFile;
    use crate::ticket_etcd::rules::Holder;
    use crate::ticket_etcd::sealed::Unreadable;

    fn store() -> Store {
        let endpoints = vec!["http://127.0.0.1:2379".into()];
        let etcd = Etcd::new(endpoints, SecretFile::File("key".into()));
        let rotation = Duration::from_secs(3600);
        Store::new(StoreName { etcd, rotation }).unwrap()
    }

    #[test]
    fn a_fault_ends_with_a_turn_in_which_nothing_is_refused() {
        let store = store();
        for _ in 0..2 {
            let empty = View {
                keys: None,
                fresh: false,
                holder: Holder::None,
            };
            store.failed("etcd gives too few rights".into());
            // It can be read, and what follows is not known yet.
            let act = store.observe(empty, Instant::now()).unwrap();
            assert!(matches!(act, Act::Claim));
            assert!(!store.note().current);
        }
        store.succeeded();
        assert!(store.note().current);
    }

    #[test]
    fn keys_that_are_refused_are_a_fault_after_the_turn_too() {
        let store = store();
        let damaged = View {
            keys: Some((1, Err(Unreadable::Form))),
            fresh: false,
            holder: Holder::Another,
        };
        store.observe(damaged, Instant::now()).unwrap();
        store.succeeded();
        assert!(!store.note().current);
    }
}
