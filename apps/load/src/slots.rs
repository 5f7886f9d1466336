//! A slab: values with keys that become invalid when the value is removed.

/// A table whose keys fit into the 64 bits of user data in an epoll event.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

/// The key of one value. When the value is removed, the key is invalid and stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    generation: u32,
    index: u32,
}

impl Key {
    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The index in the table. Several values can have the same one, one after another.
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }

    pub(crate) fn from_u64(key: u64) -> Self {
        Self {
            generation: (key >> 32) as u32,
            index: key as u32,
        }
    }
}

impl<T> Slots<T> {
    pub(crate) fn with_capacity(most: usize) -> Self {
        Self {
            slots: Vec::with_capacity(most),
            free: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        let key = self.vacant();
        if self.free.pop().is_none() {
            self.slots.push((0, None));
        }
        self.slots[key.index()].1 = Some(value);
        key
    }

    /// The key that the next value will get.
    pub(crate) fn vacant(&self) -> Key {
        let next = || u32::try_from(self.slots.len()).expect("fewer than 2^32 connections");
        let index = self.free.last().copied().unwrap_or_else(next);
        let generation = self.slots.get(index as usize);
        Key {
            generation: generation.map_or(0, |(generation, _)| *generation),
            index,
        }
    }

    /// The key of the value with this index, if there is one.
    pub(crate) fn key_at(&self, index: usize) -> Option<Key> {
        let (generation, slot) = self.slots.get(index)?;
        slot.as_ref().map(|_| Key {
            generation: *generation,
            index: index as u32,
        })
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slots.get_mut(key.index as usize) {
            Some((generation, slot)) if *generation == key.generation => slot.as_mut(),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, slot) = self.slots.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let value = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    /// The keys of all values.
    pub(crate) fn keys(&self) -> Vec<Key> {
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, (_, slot))| slot.is_some())
            .map(|(index, (generation, _))| Key {
                generation: *generation,
                index,
            })
            .collect()
    }

    /// Empties the table.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        std::mem::take(&mut self.slots)
            .into_iter()
            .filter_map(|(_, slot)| slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_removed_values_are_invalid() {
        let mut slots = Slots::with_capacity(2);
        let a = slots.insert('a');
        let b = slots.insert('b');
        assert_eq!(slots.len(), 2);
        assert_eq!(Key::from_u64(a.to_u64()), a);
        assert_eq!(slots.remove(a), Some('a'));
        assert_eq!(slots.remove(a), None);
        let vacant = slots.vacant();
        assert_eq!(slots.key_at(vacant.index()), None);
        let c = slots.insert('c');
        assert_eq!(c, vacant);
        assert_eq!(slots.key_at(c.index()), Some(c));
        assert_ne!(a, c);
        assert_eq!(slots.get_mut(a), None);
        assert_eq!(slots.get_mut(c), Some(&mut 'c'));
        assert_eq!(slots.get_mut(b), Some(&mut 'b'));
        assert_eq!(slots.len(), 2);
        assert_eq!(slots.keys(), [c, b]);
        assert_eq!(slots.drain().count(), 2);
        assert_eq!(slots.len(), 0);
    }
}
