//! Private keys in the form in which lanes sign with them: prepared when that pays, and shared by copies of
//! the key.
//!
//! To prepare an RSA key takes as long as half a signature. A server that loads its keys at start
//! signs with each of them again and again. nginx with `ssl_certificate $variable` loads a key for
//! one handshake, and would pay each time. Two rules serve both without a timer:
//!
//! 1. A key is prepared when it has signed once. OpenSSL makes the first signature. One that is begun and
//!    dropped does not count: libssl asks so, for each handshake, whether a key can sign.
//! 2. Copies of a key that exist at the same time are one key. Signatures with any of them count,
//!    and what was prepared for one serves the others. It goes away with the last copy.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use widelane_crypto::agreement::Curve;
use widelane_crypto::sign::{self, Algorithm};
use zeroize::Zeroizing;

use crate::family::Family;
use crate::ffi::params::Params;
use crate::forked::{Forked, InUse};
use crate::{choice, log};

/// A key that lanes sign with, while it may sign.
pub(crate) struct KeyInUse<'a>(InUse<'a, Option<sign::Key>>);

impl<'a> KeyInUse<'a> {
    fn of(key: InUse<'a, Option<sign::Key>>) -> Option<Self> {
        key.is_some().then_some(Self(key))
    }
}

impl Deref for KeyInUse<'_> {
    type Target = sign::Key;

    fn deref(&self) -> &sign::Key {
        self.0.as_ref().expect("there is one: `of` has looked")
    }
}

/// A private key and, once lanes have signed with it, the form that they need.
pub(crate) struct PreparedKey {
    family: Family,
    algorithm: Algorithm,
    /// The public half, by which copies find each other; empty if it is not known.
    public: Vec<u8>,
    /// As [`sign::Key::from_secret`] takes it.
    secret: Zeroizing<Vec<u8>>,
    has_signed: AtomicBool,
    /// `None` if lanes do not take the key. A forked process prepares the key anew if it was signing.
    key: Forked<Option<sign::Key>>,
}

impl PreparedKey {
    /// The key with these values, which another copy may have prepared. `None` if it is of a kind without
    /// lanes.
    pub(crate) fn of(family: Family, params: Params<'_>) -> Option<Arc<Self>> {
        let group = params.get(c"group").and_then(|value| value.text());
        let curve = group.and_then(Curve::named);
        let mut algorithms = family.algorithms.iter();
        let found = algorithms.find(|one| one.curve().is_none_or(|own| Some(own) == curve));
        let Some(&algorithm) = found else {
            if family.signature_name.is_some() {
                refused(family, &format!("lanes do not sign on {}", group?));
            }
            return None;
        };
        let value = |name: &CStr| {
            let value = params.get(name)?;
            let bytes = || Some(Zeroizing::new(value.octets()?.to_vec()));
            value.big().or_else(bytes)
        };
        match algorithm.read(value) {
            Ok(values) => values.map(|(public, secret)| {
                Self::shared(Self {
                    family,
                    algorithm,
                    public,
                    secret,
                    has_signed: AtomicBool::new(false),
                    key: Forked::new(),
                })
            }),
            Err(reason) => {
                refused(family, &reason.to_string());
                None
            }
        }
    }

    /// The algorithm of the key.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// A signature begins: the key, if lanes make it.
    pub(crate) fn begin(&self) -> Option<KeyInUse<'_>> {
        let is_due = || self.has_signed.load(Relaxed) || AT_FIRST_USE.load(Relaxed) || AT_ONCE.with(Cell::get);
        let found = match self.key.get() {
            None if !is_due() => return None,
            found => found,
        };
        KeyInUse::of(found.unwrap_or_else(|| self.key.set(self.prepare())))
    }

    /// OpenSSL has made a signature.
    pub(crate) fn signed(&self) {
        self.has_signed.store(true, Relaxed);
    }

    /// The key, if it was prepared.
    pub(crate) fn get(&self) -> Option<KeyInUse<'_>> {
        KeyInUse::of(self.key.get()?)
    }

    /// Returns whether lanes take the key, as far as that is known.
    pub(crate) fn may_sign(&self) -> bool {
        self.key.get().is_none_or(|key| key.is_some())
    }

    fn prepare(&self) -> Option<sign::Key> {
        let key = sign::Key::from_secret(self.algorithm, &self.secret);
        key.and_then(sign::Key::in_lanes)
            .map_err(|error| refused(self.family, &error.to_string()))
            .ok()
            .filter(|key| key.operation().is_some_and(choice::signs))
    }

    /// Another copy, if there is one, and else this one.
    fn shared(self) -> Arc<Self> {
        if self.public.is_empty() {
            return Arc::new(self);
        }
        let mut known = known();
        let of = (self.algorithm, self.public.clone());
        if let Some(copy) = known.get(&of).and_then(Weak::upgrade) {
            // The lock is not held when `self` goes away: that takes the lock too.
            drop(known);
            return match copy.is_same(&self) {
                true => copy,
                false => Arc::new(self),
            };
        }
        let own = Arc::new(self);
        known.insert(of, Arc::downgrade(&own));
        own
    }

    /// Returns whether the private halves are the same, compared without a branch on a byte of them.
    fn is_same(&self, other: &Self) -> bool {
        let pairs = self.secret.iter().zip(other.secret.iter());
        let difference = pairs.fold(0, |sum, (one, other)| sum | (one ^ other));
        self.secret.len() == other.secret.len() && difference == 0
    }
}

impl Drop for PreparedKey {
    fn drop(&mut self) {
        let of = (self.algorithm, std::mem::take(&mut self.public));
        let mut known = known();
        // A newer copy may have taken the place.
        if known.get(&of).is_some_and(|weak| weak.strong_count() == 0) {
            known.remove(&of);
        }
    }
}

/// Chooses whether signatures that this thread begins prepare their keys at once.
pub(crate) fn prepare_at_once(at_once: bool) {
    AT_ONCE.set(at_once);
}

/// Chooses that keys are prepared at their first signature.
pub(crate) fn prepare_at_first_use() {
    AT_FIRST_USE.store(true, Relaxed);
}

fn refused(family: Family, reason: &str) {
    log::reason(&format!(
        "OpenSSL signs by itself with a key {}: {reason}",
        family.key_name.to_string_lossy()
    ));
}

pub(crate) type Known = HashMap<(Algorithm, Vec<u8>), Weak<PreparedKey>>;

/// The keys that exist, by algorithm and public half.
pub(crate) fn known() -> MutexGuard<'static, Known> {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

static AT_FIRST_USE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ed25519(public: u8, seed: u8) -> Arc<PreparedKey> {
        PreparedKey::shared(PreparedKey {
            family: Family::numbered(2),
            algorithm: Algorithm::Ed25519,
            public: vec![public; 32],
            secret: Zeroizing::new(vec![seed; 32]),
            has_signed: AtomicBool::new(false),
            key: Forked::new(),
        })
    }

    #[test]
    fn a_key_that_has_signed_is_prepared() {
        let key = ed25519(1, 1);
        for _ in 0..3 {
            assert!(key.begin().is_none(), "begun and dropped");
        }
        key.signed();
        assert!(key.get().is_none(), "no signature has begun since");
        assert!(key.begin().is_some() && key.get().is_some());
    }

    #[test]
    fn a_server_prepares_its_keys_at_its_start() {
        let key = ed25519(5, 5);
        prepare_at_once(true);
        assert!(key.begin().is_some());
        prepare_at_once(false);
        assert!(ed25519(6, 6).begin().is_none());
    }

    #[test]
    fn copies_that_exist_at_the_same_time_are_one_key() {
        let one = ed25519(2, 2);
        assert!(one.begin().is_none());
        one.signed();
        let copy = ed25519(2, 2);
        assert!(Arc::ptr_eq(&one, &copy));
        assert!(copy.begin().is_some() && one.get().is_some());
        drop(one);
        assert!(ed25519(2, 2).get().is_some(), "a copy is left");
        drop(copy);
        assert!(ed25519(2, 2).begin().is_none(), "the last copy has gone");
    }

    #[test]
    fn keys_with_one_public_half_and_other_secrets_share_nothing() {
        let [one, other] = [ed25519(3, 3), ed25519(3, 4)];
        other.signed();
        assert!(one.begin().is_none() && other.begin().is_some());
        drop(other);
        assert!(one.begin().is_none());
        one.signed();
        assert!(one.begin().is_some());
        assert!(ed25519(3, 3).get().is_some());
    }
}
