//! Subjects of measurements: whole operations with two classes of secrets or inputs, and a planted leak.
//!
//! Every subject is a [`Measured`]: one closure makes inputs, another one works on an input.

use crate::Random;
use std::error::Error;
use std::hint::black_box;
use std::slice;
use widelane_crypto::chacha20poly1305::{Choice, Cipher, Key, NONCE_LEN, TAG_LEN};
use widelane_crypto::sign::{self, Algorithm, Input, Scheme};
use widelane_crypto::{
    Backend, BackendUnavailable, Operation, Preference, Request, Task, agreement, ecdsa, mlkem, rsa,
};

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
    /// Name of the subject on the command line.
    fn name(&self) -> &'static str;

    /// Description of the two classes.
    fn classes(&self) -> [&'static str; 2];

    /// The code that does the arithmetic.
    fn backend(&self) -> &str;

    /// Makes one input for each of these classes. This is not measured.
    fn prepare(&mut self, classes: &[Class], random: &mut Random);

    /// Does the operation with the input of this number. The result says whether its outcome is the
    /// expected one.
    fn run(&mut self, index: usize) -> bool;
}

/// Reason why a subject cannot be measured here.
pub type Unavailable = Box<dyn Error>;

/// All of them, the planted leak last.
///
/// # Errors
///
/// When a key cannot be made.
pub fn subjects() -> Result<Vec<Box<dyn Subject>>, Unavailable> {
    Ok(vec![
        Box::new(rsa_signing()?),
        Box::new(ecdsa_signing()?),
        Box::new(decapsulation()?),
        Box::new(tag_comparison()?),
        Box::new(planted_leak()),
    ])
}

/// The one implementation of [`Subject`]: `make` makes an input for each class, and `work` does the
/// operation with one of them.
struct Measured<I, M, W> {
    name: &'static str,
    classes: [&'static str; 2],
    backend: String,
    make: M,
    work: W,
    inputs: Vec<I>,
}

impl<I, M, W> Subject for Measured<I, M, W>
where
    M: FnMut(&[Class], &mut Random) -> Vec<I>,
    W: FnMut(&I) -> bool,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn classes(&self) -> [&'static str; 2] {
        self.classes
    }

    fn backend(&self) -> &str {
        &self.backend
    }

    fn prepare(&mut self, classes: &[Class], random: &mut Random) {
        self.inputs = (self.make)(classes, random);
    }

    fn run(&mut self, index: usize) -> bool {
        (self.work)(&self.inputs[index])
    }
}

/// Passes of one request each, on the best backend of this machine. `new` is the constructor of the
/// operation.
fn passes<O: Operation, M: FnMut(&[Class], &mut Random) -> Vec<O::Request>>(
    new: impl FnOnce(Backend) -> Result<O, BackendUnavailable>,
    classes: [&'static str; 2],
    make: M,
) -> Result<impl Subject, Unavailable> {
    let backend = Preference::Auto.resolve()?;
    let operation = new(backend)?;
    Ok(Measured {
        name: operation.name(),
        classes,
        backend: backend.to_string(),
        make,
        work: move |request: &O::Request| {
            let outputs = black_box(operation.pass(slice::from_ref(request)));
            outputs.iter().all(|output| O::Request::failure(output).is_none())
        },
        inputs: Vec::new(),
    })
}

/// RSA-2048 signatures by one of two private keys, of random messages.
fn rsa_signing() -> Result<impl Subject, Unavailable> {
    let keys = [
        sign::Key::from_pem(include_bytes!("../../../crates/crypto/tests/data/rsa2048_a.pem"))?,
        sign::Key::from_pem(include_bytes!("../../../crates/crypto/tests/data/rsa2048_b.pem"))?,
    ];
    let request = move |class: &Class, random: &mut Random| {
        let message = random.number().to_le_bytes();
        let key = &keys[*class as usize];
        let scheme = Scheme::Rsa(rsa::Scheme::PssSha256);
        sign::Request::new(key, scheme, Input::Message(&message)).expect("a padding of SHA-256 fits into 2048 bits")
    };
    passes(
        |backend| rsa::Signing(rsa::Size::Rsa2048).on(backend),
        ["one private key", "another private key"],
        move |classes, random| classes.iter().map(|class| request(class, random)).collect(),
    )
}

/// ECDSA signatures with P-256 by one of two private keys, of random messages.
fn ecdsa_signing() -> Result<impl Subject, Unavailable> {
    // The smallest scalars have almost only zero bits.
    let mut small = [0; 32];
    small[31] = 3;
    let mut large = [0xa5; 32];
    large[0] = 0x7b;
    let curve = ecdsa::Curve::P256;
    let key = |scalar: &[u8; 32]| sign::Key::from_secret(Algorithm::Ecdsa(curve), scalar);
    let keys = [key(&small)?, key(&large)?];
    let request = move |class: &Class, random: &mut Random| {
        let message = random.number().to_le_bytes();
        let (key, input) = (&keys[*class as usize], Input::Message(&message));
        sign::Request::new(key, Scheme::Ecdsa(curve), input).expect("the scheme of the key")
    };
    passes(
        move |backend| ecdsa::Signing(curve).on(backend),
        ["private key 3", "private key with many one bits"],
        move |classes, random| classes.iter().map(|class| request(class, random)).collect(),
    )
}

/// ML-KEM-768 decapsulation of ciphertexts for this key, and of ciphertexts that must be rejected
/// implicitly (FIPS 203, section 6.3).
fn decapsulation() -> Result<impl Subject, Unavailable> {
    let size = mlkem::Size::MlKem768;
    let expanded = include_bytes!("../../../crates/crypto/tests/data/mlkem768.bin");
    let key = mlkem::DecapsulationKey::from_expanded(size, expanded)?;
    let encapsulation = mlkem::Encapsulation(size).on(Preference::Auto.resolve()?)?;
    let make = move |classes: &[Class], random: &mut Random| {
        let request = mlkem::Encapsulate {
            size,
            key: key.encapsulation_key().to_vec(),
        };
        let made = encapsulation.pass(&vec![request.into(); classes.len()]);
        let made = made.into_iter().zip(classes);
        made.map(|(made, class)| {
            let mut ciphertext = made.expect("the key is sound").into_share();
            let bit = random.number() as usize % (8 * ciphertext.len());
            // The other class flips a bit twice, so that both do the same.
            ciphertext[bit / 8] ^= 1 << (bit % 8);
            let again = u8::from(*class == Class::A);
            ciphertext[bit / 8] ^= again << (bit % 8);
            let key = key.clone();
            agreement::Request::from(mlkem::Decapsulate { key, ciphertext })
        })
        .collect()
    };
    passes(
        move |backend| mlkem::Decapsulation(size).on(backend),
        ["ciphertext for this key", "ciphertext with a wrong bit"],
        make,
    )
}

/// Records with a wrong tag: wrong in its first byte, or in its last.
fn tag_comparison() -> Result<impl Subject, Unavailable> {
    let key = tag_key()?;
    Ok(Measured {
        name: "tag-comparison",
        classes: ["first byte of the tag is wrong", "last byte of the tag is wrong"],
        backend: format!("ChaCha20-Poly1305, {:?}", key.form()),
        make: {
            let key = tag_key()?;
            move |classes: &[Class], random: &mut Random| {
                let record = |class: &Class| wrong_record(&key, *class, random);
                classes.iter().map(record).collect()
            }
        },
        work: move |record: &[u8; RECORD]| {
            (0..TAGS).fold(true, |refused, _| refused & !black_box(opens(&key, *record)))
        },
        inputs: Vec::new(),
    })
}

fn tag_key() -> Result<Key, Unavailable> {
    Ok(Cipher::new(Choice::Auto)?.key(&[0x42; 32]))
}

/// A record of random bytes whose tag is wrong in the byte of this class.
fn wrong_record(key: &Key, class: Class, random: &mut Random) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let (text, tag) = record.split_at_mut(RECORD - TAG_LEN);
    random.fill(text);
    if let Ok(right) = key.seal_in_place(&NONCE, b"", text) {
        tag.copy_from_slice(&right);
    }
    record[wrong_byte(class)] ^= WRONG;
    record
}

fn wrong_byte(class: Class) -> usize {
    match class {
        Class::A => RECORD - TAG_LEN,
        Class::B => RECORD - 1,
    }
}

fn opens(key: &Key, mut record: [u8; RECORD]) -> bool {
    key.open_in_place(&NONCE, b"", &mut record).is_ok()
}

/// A comparison that stops at the first difference: the test must find it.
fn planted_leak() -> impl Subject {
    Measured {
        name: "planted-leak",
        classes: ["first byte differs", "last byte differs"],
        backend: "a comparison that stops early, on purpose".into(),
        make: |classes: &[Class], _: &mut Random| {
            let inputs = classes.iter().map(|class| differing(*class));
            inputs.collect::<Vec<_>>()
        },
        work: |input: &[u8; 64]| {
            (0..TAGS).fold(true, |differ, _| {
                differ & (black_box(steps(black_box(input), black_box(&SECRET))) > 0)
            })
        },
        inputs: Vec::new(),
    }
}

/// Number of bytes that the planted comparison looks at.
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
const NONCE: [u8; NONCE_LEN] = [1; NONCE_LEN];
/// The bit of a tag that is wrong.
const WRONG: u8 = 0x80;
/// Bytes of a record with its tag: the comparison is a large part of opening it.
const RECORD: usize = 32 + TAG_LEN;
/// Comparisons in one measurement, since the clock ticks in nanoseconds.
const TAGS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise one class would be quick because it is refused, or because it is not.
    #[test]
    fn every_subject_has_the_expected_outcome_with_inputs_of_both_classes() {
        let mut random = Random::from_seed(1);
        let mut names = Vec::new();
        for mut subject in subjects().expect("keys") {
            subject.prepare(&[Class::A, Class::B, Class::A], &mut random);
            for index in 0..3 {
                assert!(subject.run(index), "{} {index}", subject.name());
            }
            names.push(subject.name());
        }
        let expected = [
            "rsa2048-sign",
            "p256-ecdsa-sign",
            "mlkem768-decaps",
            "tag-comparison",
            "planted-leak",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn one_bit_of_a_record_is_wrong_in_the_byte_of_its_class() {
        let mut random = Random::from_seed(2);
        let key = tag_key().expect("a cipher");
        for class in [Class::A, Class::B] {
            let wrong = wrong_record(&key, class, &mut random);
            let mut right = wrong;
            right[wrong_byte(class)] ^= WRONG;
            assert!(opens(&key, right) && !opens(&key, wrong));
        }
        let steps = [Class::A, Class::B].map(steps_until_difference);
        assert_eq!(steps, [1, 64]);
    }
}
