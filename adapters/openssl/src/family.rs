//! The kinds of keys that the provider offers: those of the algorithms and curves of `widelane-crypto`.

use std::ffi::CStr;
use std::ops::Deref;
use std::sync::LazyLock;

use widelane_crypto::agreement::Curve;
use widelane_crypto::sign::Algorithm;

use crate::ffi::abi::MOST;

/// A kind of key: its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Family(usize);

/// Row of the table of kinds of keys.
pub(crate) struct Kind {
    /// OpenSSL's name of the keys.
    pub(crate) key_name: &'static CStr,
    /// The name of their signature algorithm.
    pub(crate) signature_name: Option<&'static CStr>,
    /// The name of their key exchange.
    pub(crate) exchange_name: Option<&'static CStr>,
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) curves: Vec<Curve>,
}

impl Family {
    /// The kind with this number.
    pub(crate) const fn numbered(number: usize) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> usize {
        self.0
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..KINDS.len()).map(Self)
    }

    /// The kind of the keys on a curve.
    pub(crate) fn of(curve: Curve) -> Self {
        let mut all = Self::all();
        all.find(|family| family.curves.contains(&curve))
            .expect("kinds are made of all curves")
    }
}

impl Deref for Family {
    type Target = Kind;

    fn deref(&self) -> &Kind {
        &KINDS[self.0]
    }
}

impl Kind {
    /// The algorithm of all keys of this kind, if there is only one.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        match self.algorithms[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The curve of all keys of this kind, if there is only one: such keys are bytes. Others name their group,
    /// and have an integer.
    pub(crate) fn curve(&self) -> Option<Curve> {
        match self.curves[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    fn named<'a>(kinds: &'a mut Vec<Self>, key_name: &'static CStr) -> &'a mut Self {
        let known = kinds.iter().position(|kind| kind.key_name == key_name);
        let place = known.unwrap_or_else(|| {
            kinds.push(Self {
                key_name,
                signature_name: None,
                exchange_name: None,
                algorithms: Vec::new(),
                curves: Vec::new(),
            });
            kinds.len() - 1
        });
        &mut kinds[place]
    }
}

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let mut kinds = Vec::new();
    for algorithm in Algorithm::ALL {
        let [key, signature] = algorithm.names();
        let kind = Kind::named(&mut kinds, key);
        kind.signature_name = Some(signature);
        kind.algorithms.push(algorithm);
    }
    for curve in Curve::ALL {
        let [key, exchange] = curve.key_names();
        let kind = Kind::named(&mut kinds, key);
        kind.exchange_name = Some(exchange);
        kind.curves.push(curve);
    }
    assert!(kinds.len() <= MOST, "no tables for so many kinds of keys");
    kinds
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_name_are_one_kind() {
        let kinds: Vec<_> = KINDS.iter().map(|kind| kind.key_name).collect();
        let expected = [
            c"RSA",
            c"EC",
            c"ED25519",
            c"ML-DSA-44",
            c"ML-DSA-65",
            c"ML-DSA-87",
            c"X25519",
        ];
        assert_eq!(kinds, expected);
        for curve in Curve::ALL {
            assert_eq!(Family::of(curve).key_name, curve.key_names()[0]);
        }
        let ec = Family::numbered(1);
        assert_eq!((ec.algorithm(), ec.curve()), (None, None));
        assert_eq!((ec.signature_name, ec.exchange_name), (Some(c"ECDSA"), Some(c"ECDH")));
    }
}
