//! A map that forgets what was inserted longest ago when it is full.

use std::collections::BTreeMap;

/// A process and a number in it: of a connection, of a job, or of a thread.
pub(super) type Key = (u32, u64);

#[derive(Debug)]
pub(super) struct Recent<V> {
    pub(super) most: usize,
    inserted: u64,
    entries: BTreeMap<Key, (u64, V)>,
    /// Keys by the number of their insertion.
    order: BTreeMap<u64, Key>,
}

impl<V> Recent<V> {
    pub(super) fn of(most: usize) -> Self {
        Self {
            most,
            inserted: 0,
            entries: BTreeMap::new(),
            order: BTreeMap::new(),
        }
    }

    /// Inserts a value as the newest. Gives the one that is forgotten for it.
    pub(super) fn insert(&mut self, key: Key, value: V) -> Option<V> {
        self.remove(&key);
        self.inserted += 1;
        self.entries.insert(key, (self.inserted, value));
        self.order.insert(self.inserted, key);
        if self.entries.len() <= self.most {
            return None;
        }
        let (_, oldest) = self.order.pop_first()?;
        self.remove(&oldest)
    }

    pub(super) fn get(&self, key: &Key) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<V> {
        let (number, value) = self.entries.remove(key)?;
        self.order.remove(&number);
        Some(value)
    }

    /// Removes the values of a process, and gives them in the order of their numbers.
    pub(super) fn remove_process(&mut self, pid: u32) -> Vec<V> {
        let of_process = self.entries.range((pid, 0)..=(pid, u64::MAX));
        let keys: Vec<Key> = of_process.map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| self.remove(key)).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.entries.len(), self.order.len());
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_forgotten() {
        let mut recent = Recent::of(3);
        let key = |number| (7, number);
        for number in 0..5 {
            recent.insert(key(number), number);
        }
        assert_eq!((recent.get(&key(1)), recent.get(&key(2))), (None, Some(&2)));
        // A key that is inserted again counts as new.
        assert_eq!(recent.insert(key(2), 20), None);
        assert_eq!(recent.insert(key(6), 6), Some(3));
        recent.insert(key(7), 7);
        assert_eq!((recent.get(&key(2)), recent.get(&key(4))), (Some(&20), None));
        assert_eq!((recent.remove(&key(2)), recent.remove(&key(2))), (Some(20), None));
        recent.insert((8, 0), 8);
        assert_eq!(recent.remove_process(7), [6, 7]);
        assert_eq!((recent.get(&(8, 0)), recent.len()), (Some(&8), 1));
    }
}
