//! What is measured: whole operations with two classes of secrets or inputs, and a planted leak.

use crate::Random;
use std::error::Error;
use std::hint::black_box;
use widelane_crypto::chacha20poly1305::{Choice, Cipher, Key, NONCE_LEN, TAG_LEN};
use widelane_crypto::{Backend, Operation, Preference, ecdsa, mlkem, rsa};

/// One of the two classes that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The first.
    A,
    /// The second.
    B,
}

/// An operation that can be measured with inputs of either class.
pub trait Subject {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What the two classes are.
    fn classes(&self) -> [&'static str; 2];

    /// The code that does the arithmetic.
    fn backend(&self) -> String;

    /// Measurements for which inputs are made at once.
    fn batch(&self) -> usize {
        64
    }

    /// Makes inputs of these classes, one each; not measured.
    fn prepare(&mut self, classes: &[Class], random: &mut Random);

    /// Does the operation with the input of this number.
    fn run(&mut self, index: usize);
}

/// Why a subject cannot be measured here.
pub type Unavailable = Box<dyn Error>;

/// All of them, the planted leak last.
///
/// # Errors
///
/// When a key cannot be made.
pub fn subjects() -> Result<Vec<Box<dyn Subject>>, Unavailable> {
    Ok(vec![
        Box::new(RsaSigning::new()?),
        Box::new(EcdsaSigning::new()?),
        Box::new(Decapsulation::new()?),
        Box::new(TagComparison::new()?),
        Box::new(PlantedLeak::default()),
    ])
}

/// The best backend of this machine.
fn best() -> Result<Backend, Unavailable> {
    Ok(Preference::Auto.resolve()?)
}

/// RSA-2048 signatures by one of two private keys, of random messages.
struct RsaSigning {
    signing: rsa::Signing,
    backend: Backend,
    keys: [rsa::PrivateKey; 2],
    requests: Vec<rsa::SignRequest>,
}

impl RsaSigning {
    fn new() -> Result<Self, Unavailable> {
        let backend = best()?;
        Ok(Self {
            signing: rsa::Signing::new(backend, rsa::Size::Rsa2048)?,
            backend,
            keys: [
                rsa::PrivateKey::from_pem(include_bytes!(
                    "../../../crates/crypto/tests/data/rsa2048_a.pem"
                ))?,
                rsa::PrivateKey::from_pem(include_bytes!(
                    "../../../crates/crypto/tests/data/rsa2048_b.pem"
                ))?,
            ],
            requests: Vec::new(),
        })
    }
}

impl Subject for RsaSigning {
    fn name(&self) -> &'static str {
        "rsa2048-sign"
    }

    fn classes(&self) -> [&'static str; 2] {
        ["one private key", "another private key"]
    }

    fn backend(&self) -> String {
        self.backend.to_string()
    }

    fn prepare(&mut self, classes: &[Class], random: &mut Random) {
        self.requests.clear();
        for class in classes {
            let message = random.number().to_le_bytes();
            let key = &self.keys[*class as usize];
            let request = rsa::SignRequest::new(key, rsa::Scheme::PssSha256, &message);
            self.requests.extend(request);
        }
    }

    fn run(&mut self, index: usize) {
        black_box(self.signing.pass(&self.requests[index..=index]));
    }
}

/// ECDSA signatures with P-256 by one of two private keys, of random messages.
struct EcdsaSigning {
    signing: ecdsa::Signing,
    backend: Backend,
    keys: [ecdsa::PrivateKey; 2],
    requests: Vec<ecdsa::SignRequest>,
}

impl EcdsaSigning {
    fn new() -> Result<Self, Unavailable> {
        let backend = best()?;
        // The smallest scalars have almost only zero bits.
        let mut small = [0; 32];
        small[31] = 3;
        let mut large = [0xa5; 32];
        large[0] = 0x7b;
        let key = |scalar: &[u8; 32]| ecdsa::PrivateKey::from_sec1_der(&sec1(scalar));
        Ok(Self {
            signing: ecdsa::Signing::new(backend, ecdsa::Curve::P256)?,
            backend,
            keys: [key(&small)?, key(&large)?],
            requests: Vec::new(),
        })
    }
}

/// A private key of P-256 as SEC 1 has it (RFC 5915), without its public key.
fn sec1(scalar: &[u8; 32]) -> Vec<u8> {
    let mut der = vec![0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20];
    der.extend(scalar);
    der.extend([
        0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
    ]);
    der
}

impl Subject for EcdsaSigning {
    fn name(&self) -> &'static str {
        "p256-ecdsa-sign"
    }

    fn classes(&self) -> [&'static str; 2] {
        ["private key 3", "private key with many one bits"]
    }

    fn backend(&self) -> String {
        self.backend.to_string()
    }

    fn prepare(&mut self, classes: &[Class], random: &mut Random) {
        self.requests.clear();
        for class in classes {
            let message = random.number().to_le_bytes();
            let key = &self.keys[*class as usize];
            self.requests.push(ecdsa::SignRequest::new(key, &message));
        }
    }

    fn run(&mut self, index: usize) {
        black_box(self.signing.pass(&self.requests[index..=index]));
    }
}

/// ML-KEM-768 decapsulation of ciphertexts for this key, and of ciphertexts that must be rejected
/// implicitly (FIPS 203, section 6.3).
struct Decapsulation {
    decapsulation: mlkem::Decapsulation,
    encapsulation: mlkem::Encapsulation,
    backend: Backend,
    key: mlkem::DecapsulationKey,
    requests: Vec<mlkem::Decapsulate>,
}

impl Decapsulation {
    fn new() -> Result<Self, Unavailable> {
        let backend = best()?;
        let size = mlkem::Size::MlKem768;
        Ok(Self {
            decapsulation: mlkem::Decapsulation::new(backend, size)?,
            encapsulation: mlkem::Encapsulation::new(backend, size)?,
            backend,
            key: mlkem::DecapsulationKey::from_seed(size, &[7; 64])?,
            requests: Vec::new(),
        })
    }
}

impl Subject for Decapsulation {
    fn name(&self) -> &'static str {
        "mlkem768-decaps"
    }

    fn classes(&self) -> [&'static str; 2] {
        ["ciphertext for this key", "ciphertext with a wrong bit"]
    }

    fn backend(&self) -> String {
        self.backend.to_string()
    }

    fn prepare(&mut self, classes: &[Class], random: &mut Random) {
        let request = mlkem::Encapsulate {
            size: mlkem::Size::MlKem768,
            key: self.key.encapsulation_key().to_vec(),
        };
        let requests = vec![request; classes.len()];
        let made = self.encapsulation.pass(&requests);
        let made = made.into_iter().zip(classes);
        self.requests = made
            .filter_map(|(made, class)| {
                let mut ciphertext = made.ok()?.0;
                let bit = random.number() as usize % (8 * ciphertext.len());
                // The other class flips a bit twice, so that both do the same.
                ciphertext[bit / 8] ^= 1 << (bit % 8);
                let again = u8::from(*class == Class::A);
                ciphertext[bit / 8] ^= again << (bit % 8);
                Some(mlkem::Decapsulate {
                    key: self.key.clone(),
                    ciphertext,
                })
            })
            .collect();
    }

    fn run(&mut self, index: usize) {
        black_box(self.decapsulation.pass(&self.requests[index..=index]));
    }
}

/// Records with a wrong tag: wrong in its first byte, or in its last.
struct TagComparison {
    key: Key,
    nonce: [u8; NONCE_LEN],
    records: Vec<[u8; RECORD]>,
}

impl TagComparison {
    fn new() -> Result<Self, Unavailable> {
        let cipher = Cipher::new(Choice::Auto)?;
        Ok(Self {
            key: cipher.key(&[0x42; 32]),
            nonce: [1; NONCE_LEN],
            records: Vec::new(),
        })
    }
}

impl Subject for TagComparison {
    fn name(&self) -> &'static str {
        "tag-comparison"
    }

    fn classes(&self) -> [&'static str; 2] {
        [
            "first byte of the tag is wrong",
            "last byte of the tag is wrong",
        ]
    }

    fn backend(&self) -> String {
        format!("ChaCha20-Poly1305, {:?}", self.key.form())
    }

    fn prepare(&mut self, classes: &[Class], random: &mut Random) {
        self.records.clear();
        for class in classes {
            let mut record = [0; RECORD];
            let (text, tag) = record.split_at_mut(RECORD - TAG_LEN);
            random.fill(text);
            if let Ok(right) = self.key.seal_in_place(&self.nonce, b"", text) {
                tag.copy_from_slice(&right);
            }
            let wrong = match class {
                Class::A => 0,
                Class::B => TAG_LEN - 1,
            };
            tag[wrong] ^= 0x80;
            self.records.push(record);
        }
    }

    fn run(&mut self, index: usize) {
        for _ in 0..TAGS {
            let mut record = self.records[index];
            let opened = self.key.open_in_place(&self.nonce, b"", &mut record);
            _ = black_box(opened.is_ok());
        }
    }
}

/// A comparison that stops at the first difference: the test must find it.
#[derive(Default)]
struct PlantedLeak {
    inputs: Vec<[u8; 64]>,
}

impl Subject for PlantedLeak {
    fn name(&self) -> &'static str {
        "planted-leak"
    }

    fn classes(&self) -> [&'static str; 2] {
        ["first byte differs", "last byte differs"]
    }

    fn backend(&self) -> String {
        "a comparison that stops early, on purpose".into()
    }

    fn prepare(&mut self, classes: &[Class], _: &mut Random) {
        self.inputs = classes.iter().map(|class| differing(*class)).collect();
    }

    fn run(&mut self, index: usize) {
        for _ in 0..TAGS {
            black_box(steps(black_box(&self.inputs[index]), black_box(&SECRET)));
        }
    }
}

/// How many bytes the planted comparison looks at.
#[cfg(test)]
pub(crate) fn steps_until_difference(class: Class) -> u32 {
    steps(&differing(class), &SECRET)
}

fn differing(class: Class) -> [u8; 64] {
    let mut bytes = SECRET;
    let place = match class {
        Class::A => 0,
        Class::B => 63,
    };
    bytes[place] ^= 1;
    bytes
}

fn steps(one: &[u8; 64], other: &[u8; 64]) -> u32 {
    let mut steps = 0;
    for (one, other) in one.iter().zip(other) {
        steps += 1;
        if black_box(one != other) {
            break;
        }
    }
    steps
}

const SECRET: [u8; 64] = [0x36; 64];
/// Bytes of a record with its tag: the comparison is a large part of opening it.
const RECORD: usize = 32 + TAG_LEN;
/// So many comparisons are one measurement, since the clock ticks in nanoseconds.
const TAGS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_runs_with_inputs_of_both_classes() {
        let mut random = Random::from_seed(1);
        let mut names = Vec::new();
        for mut subject in subjects().expect("keys") {
            subject.prepare(&[Class::A, Class::B, Class::A], &mut random);
            (0..3).for_each(|index| subject.run(index));
            names.push(subject.name());
        }
        assert_eq!(names.last(), Some(&"planted-leak"));
    }

    /// Otherwise one class would be quick because it is refused.
    #[test]
    fn answers_are_those_that_the_classes_promise() {
        let mut random = Random::from_seed(2);
        let both = [Class::A, Class::B];
        let mut rsa = RsaSigning::new().expect("keys");
        rsa.prepare(&both, &mut random);
        assert!(rsa.signing.pass(&rsa.requests).iter().all(Result::is_ok));
        let mut ecdsa = EcdsaSigning::new().expect("keys");
        ecdsa.prepare(&both, &mut random);
        assert!(
            ecdsa
                .signing
                .pass(&ecdsa.requests)
                .iter()
                .all(Result::is_ok)
        );
        let mut decapsulation = Decapsulation::new().expect("keys");
        decapsulation.prepare(&both, &mut random);
        let secrets = decapsulation.decapsulation.pass(&decapsulation.requests);
        assert!(secrets.iter().all(Result::is_ok) && secrets.len() == 2);
        let mut tags = TagComparison::new().expect("a cipher");
        tags.prepare(&both, &mut random);
        for (record, wrong) in tags.records.iter().zip([0, TAG_LEN - 1]) {
            let open = |mut record: [u8; RECORD]| {
                tags.key
                    .open_in_place(&tags.nonce, b"", &mut record)
                    .is_ok()
            };
            let mut right = *record;
            right[RECORD - TAG_LEN + wrong] ^= 0x80;
            assert!(open(right) && !open(*record));
        }
        let steps = both.map(steps_until_difference);
        assert_eq!(steps, [1, 64]);
    }
}
