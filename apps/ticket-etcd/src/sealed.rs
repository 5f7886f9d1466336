//! The form in which ticket keys lie in etcd: who reads or writes etcd learns none and makes none.
//!
//! ```text
//! "WETK" 1          what it is, version
//! nonce             12 bytes, random
//! AES-256-GCM of:
//!   generation      8 bytes, big endian
//!   written         8 bytes, seconds since 1970, by the clock of the machine that wrote it
//!   rotation        4 bytes, seconds
//!   place           1 byte: which key encrypts, 255 for none
//!   count           1 byte
//!   keys            for each, when it was made (8 bytes) and the key as nginx's files have it (80)
//! tag               16 bytes
//! ```
//!
//! The AES key is derived from the shared secret (HKDF-SHA-256). The first five bytes and the name in etcd
//! are associated data: a value that is copied to another name is refused.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::{constant_time, rand};
use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

use crate::key::{KeyBytes, NoKey};
use crate::options::OptionsError;
use crate::rules::{Entry, PAST, Set, WAITING};

/// The secret that all machines have, from which the key of the values in etcd is derived.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<[u8; SECRET]>);

/// A value that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The value has not the form of sealed keys.
    #[error("it is not in the form in which Widelane writes ticket keys")]
    Form,
    /// The value is in a form of a later release.
    #[error("it has version {0} of the form, and this release knows version {VERSION}")]
    Version(u8),
    /// The value is damaged, or was encrypted under another secret.
    #[error("it does not decrypt under the key of `--key-file`, or it is damaged")]
    Seal,
}

impl Secret {
    /// A new one.
    pub(crate) fn generate() -> Result<Self, NoKey> {
        let mut bytes = Zeroizing::new([0; SECRET]);
        rand::fill(&mut bytes[..]).map_err(|_| NoKey)?;
        Ok(Self(bytes))
    }

    /// The secret in a file: a line of base64, or 32 bytes. The error is what is wrong with the file.
    pub(crate) fn parse(file: &[u8]) -> Result<Self, String> {
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        let mut bytes = Zeroizing::new([0; SECRET]);
        if file.len() == SECRET && !file.iter().all(is_text) {
            bytes.copy_from_slice(file);
        } else {
            let line = file.trim_ascii();
            let mut decoded = Zeroizing::new([0; SECRET + 1]);
            let length = std::str::from_utf8(line)
                .ok()
                .and_then(|line| Base64::decode(line, &mut decoded[..]).ok())
                .map(<[u8]>::len);
            if length != Some(SECRET) {
                return Err(format!(
                    "it has {} bytes, which are neither {SECRET} random ones nor as many in base64",
                    file.len()
                ));
            }
            bytes.copy_from_slice(&decoded[..SECRET]);
        }
        // What a full disk or a crash leaves, and what no random generator makes.
        let first = [bytes[0]; SECRET];
        if constant_time::verify_slices_are_equal(&first, &bytes[..]).is_ok() {
            return Err("all its bytes are the same".into());
        }
        Ok(Self(bytes))
    }

    /// The line of a file.
    pub(crate) fn to_line(&self) -> Zeroizing<String> {
        let digits = Zeroizing::new(Base64::encode_string(&self.0[..]));
        // With room for all: a text that moves leaves a copy behind.
        let mut line = Zeroizing::new(String::with_capacity(digits.len() + 1));
        line.push_str(&digits);
        line.push('\n');
        line
    }

    fn key(&self) -> Option<LessSafeKey> {
        let secret = Salt::new(HKDF_SHA256, &[]).extract(&self.0[..]);
        let key = secret.expand(&[PURPOSE], &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(key)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Makes a file with a secret under which ticket keys in etcd are encrypted. There must be no such file yet.
pub fn make_key_file(path: &Path) -> Result<(), OptionsError> {
    let write = || {
        if fs::symlink_metadata(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let secret = Secret::generate().map_err(io::Error::other)?;
        widelane_files::replace(path, secret.to_line().as_bytes(), 0o600)
    };
    write().map_err(|error| {
        let (problem, remedy) = match error.kind() {
            io::ErrorKind::AlreadyExists => (
                "it exists already".into(),
                "copy it to the other machines; or name a new file, and give another --prefix with it",
            ),
            _ => (error.to_string(), "correct the path; the directory must exist"),
        };
        OptionsError::new(path.display().to_string(), problem, remedy)
    })
}

/// The value for `name` in etcd.
pub(crate) fn seal(secret: &Secret, name: &[u8], set: &Set) -> Result<Vec<u8>, NoKey> {
    let key = secret.key().ok_or(NoKey)?;
    let mut nonce = [0; NONCE];
    rand::fill(&mut nonce).map_err(|_| NoKey)?;
    let mut sealed = Zeroizing::new(Vec::with_capacity(FIXED + set.keys.len() * ENTRY + TAG));
    sealed.extend_from_slice(&set.generation.to_be_bytes());
    sealed.extend_from_slice(&set.written.to_be_bytes());
    sealed.extend_from_slice(&set.rotation.to_be_bytes());
    sealed.push(set.encrypts.unwrap_or(NONE));
    sealed.push(u8::try_from(set.keys.len()).map_err(|_| NoKey)?);
    for entry in &set.keys {
        sealed.extend_from_slice(&entry.made.to_be_bytes());
        sealed.extend_from_slice(entry.bytes.as_bytes());
    }
    let aad = associated(VERSION, name);
    let tag = key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(&aad), &mut sealed)
        .map_err(|_| NoKey)?;
    Ok([MAGIC, &[VERSION], &nonce, &sealed, tag.as_ref()].concat())
}

/// Opens the value of `name` in etcd.
pub(crate) fn open(secret: &Secret, name: &[u8], value: &[u8]) -> Result<Set, Unreadable> {
    let rest = value.strip_prefix(MAGIC).ok_or(Unreadable::Form)?;
    let (&version, rest) = rest.split_first().ok_or(Unreadable::Form)?;
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let (nonce, sealed) = rest.split_first_chunk().ok_or(Unreadable::Form)?;
    if !(FIXED + TAG..=LONGEST).contains(&sealed.len()) {
        return Err(Unreadable::Form);
    }
    let key = secret.key().ok_or(Unreadable::Seal)?;
    let mut plain = Zeroizing::new(sealed.to_vec());
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let aad = associated(version, name);
    let plain = key
        .open_in_place(nonce, Aad::from(&aad), &mut plain)
        .map_err(|_| Unreadable::Seal)?;
    parse(plain).ok_or(Unreadable::Form)
}

/// Reads what is inside the encryption. Who can write that has the secret; it is checked all the same.
pub(crate) fn parse(plain: &[u8]) -> Option<Set> {
    let (generation, rest) = plain.split_first_chunk()?;
    let (written, rest) = rest.split_first_chunk()?;
    let (rotation, rest) = rest.split_first_chunk()?;
    let (&[encrypts, count], rest) = rest.split_first_chunk()?;
    let count = usize::from(count);
    if rest.len() != count * ENTRY || !(1..=MOST).contains(&count) {
        return None;
    }
    let encrypts = (encrypts != NONE).then_some(encrypts);
    if encrypts.is_some_and(|place| usize::from(place) >= count) {
        return None;
    }
    let mut keys: Vec<Entry> = Vec::with_capacity(count);
    for entry in rest.chunks_exact(ENTRY) {
        let (made, bytes) = entry.split_first_chunk()?;
        let bytes = KeyBytes::from_store(bytes)?;
        if keys.iter().any(|other| other.bytes.name() == bytes.name()) {
            return None;
        }
        keys.push(Entry {
            made: u64::from_be_bytes(*made),
            bytes,
        });
    }
    let rotation = u32::from_be_bytes(*rotation);
    Some(Set {
        generation: u64::from_be_bytes(*generation),
        written: u64::from_be_bytes(*written),
        rotation: Some(rotation).filter(|rotation| *rotation > 0)?,
        encrypts,
        keys,
    })
}

fn associated(version: u8, name: &[u8]) -> Vec<u8> {
    [MAGIC, &[version], name].concat()
}

const MAGIC: &[u8] = b"WETK";
const VERSION: u8 = 1;
const PURPOSE: &[u8] = b"widelane: ticket keys in etcd";
const SECRET: usize = 32;
const NONCE: usize = 12;
const TAG: usize = 16;
/// Length of what is before the keys.
const FIXED: usize = 8 + 8 + 4 + 1 + 1;
const ENTRY: usize = 8 + KeyBytes::LENGTH;
/// No key encrypts.
const NONE: u8 = 255;
const MOST: usize = PAST + 1 + WAITING;
const LONGEST: usize = FIXED + MOST * ENTRY + TAG;

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Set {
        let first = Set::first(60, 1_000).unwrap();
        first.rotated(1_060).unwrap()
    }

    fn same(one: &Set, other: &Set) -> bool {
        let plain = |set: &Set| (set.generation, set.written, set.rotation, set.encrypts);
        plain(one) == plain(other)
            && one.keys.len() == other.keys.len()
            && one
                .keys
                .iter()
                .zip(&other.keys)
                .all(|(one, other)| one.made == other.made && one.bytes.as_bytes() == other.bytes.as_bytes())
    }

    #[test]
    fn a_value_is_for_its_secret_and_its_name_and_damage_is_found() {
        let [own, other] = [(); 2].map(|()| Secret::generate().unwrap());
        let set = set();
        let value = seal(&own, b"a/keys", &set).unwrap();
        assert!(same(&open(&own, b"a/keys", &value).unwrap(), &set));
        let refused = |secret, name: &[u8], value: &[u8]| open(secret, name, value).unwrap_err();
        assert_eq!(refused(&other, b"a/keys", &value), Unreadable::Seal);
        assert_eq!(refused(&own, b"b/keys", &value), Unreadable::Seal);
        for at in 0..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 0x10;
            let why = refused(&own, b"a/keys", &damaged);
            match at {
                0..4 => assert_eq!(why, Unreadable::Form),
                4 => assert_eq!(why, Unreadable::Version(0x11)),
                _ => assert_eq!(why, Unreadable::Seal, "byte {at}"),
            }
            refused(&own, b"a/keys", &value[..at]);
        }
        let again = seal(&own, b"a/keys", &set).unwrap();
        assert_ne!(value, again, "the nonce is the same");
        let key = set.keys[0].bytes.as_bytes();
        assert!(!value.windows(16).any(|part| key.windows(16).any(|of| of == part)));
    }

    /// An instance that has the secret and writes nonsense must not harm.
    #[test]
    fn what_is_inside_is_checked() {
        let whole = |encrypts: u8, count: u8, keys: usize, rotation: u32| {
            let mut plain = vec![0; 16];
            plain.extend(rotation.to_be_bytes());
            plain.extend([encrypts, count]);
            for at in 0..keys * ENTRY {
                plain.push((at * 37 + at / 256) as u8);
            }
            parse(&plain)
        };
        assert!(whole(0, 3, 3, 1).is_some());
        assert!(whole(NONE, 3, 3, 1).unwrap().encrypts.is_none());
        for (encrypts, count, keys, rotation) in
            [(3, 3, 3, 1), (0, 3, 2, 1), (NONE, 0, 0, 1), (0, 3, 3, 0), (0, 6, 6, 1)]
        {
            assert!(whole(encrypts, count, keys, rotation).is_none());
        }
        assert!(parse(b"").is_none());
    }

    #[test]
    fn a_secret_is_read_as_it_is_written_and_other_files_are_refused() {
        let secret = Secret::generate().unwrap();
        let line = secret.to_line();
        assert_eq!(Secret::parse(line.as_bytes()).unwrap().0, secret.0);
        assert_eq!(Secret::parse(&secret.0[..]).unwrap().0, secret.0);
        let hex = "0123456789abcdef".repeat(4);
        for (file, reason) in [
            (&b""[..], "it has 0 bytes"),
            (b"0123456789abcdef0123456789abcdef", "it has 32 bytes"),
            (hex.as_bytes(), "it has 64 bytes"),
            (&[7; 32], "all its bytes are the same"),
            (&[7; 33], "it has 33 bytes"),
            (b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "the same"),
        ] {
            let error = Secret::parse(file).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
