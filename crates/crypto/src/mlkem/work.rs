//! The three tasks, each of one size.

use super::key::DecapsulationKey;
use super::lanes::Pass;
use super::request::{Decapsulate, Encapsulate, KEY_MODULUS, Keygen};
use super::size::Size;
use crate::agreement::{Answer, Outcome, Request};
use crate::operation::{in_passes, task};
use crate::{AgreeError, Task};
use aws_lc_rs::rand;
use zeroize::Zeroizing;

/// Key generation (FIPS 203, algorithm 19), `mlkem768-keygen` and so on.
#[derive(Clone, Copy, Debug)]
pub struct KeyGeneration(pub Size);

/// Encapsulation (FIPS 203, algorithm 20), `mlkem768-encaps` and so on.
#[derive(Clone, Copy, Debug)]
pub struct Encapsulation(pub Size);

/// Decapsulation (FIPS 203, algorithm 21), `mlkem768-decaps` and so on.
#[derive(Clone, Copy, Debug)]
pub struct Decapsulation(pub Size);

impl Task for KeyGeneration {
    task!(Request as Keygen, in Size);

    fn name(self) -> &'static str {
        self.0.operations()[0]
    }

    fn family(self) -> Size {
        self.0
    }

    fn answers(self, own: &Keygen) -> bool {
        own.size == self.0
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&Keygen]) -> Vec<Outcome> {
        let mut seeds = Zeroizing::new(vec![[0; 64]; requests.len()]);
        if rand::fill(seeds.as_flattened_mut()).is_err() {
            return vec![Err(AgreeError::Entropy); requests.len()];
        }
        let keys = pass.keygen(&seeds).into_iter();
        keys.map(|expanded| Ok(DecapsulationKey::trusted(self.0, expanded).into()))
            .collect()
    }

    fn specimen(self) -> Request {
        Keygen { size: self.0 }.into()
    }
}

impl Task for Encapsulation {
    task!(Request as Encapsulate, in Size);

    fn name(self) -> &'static str {
        self.0.operations()[1]
    }

    fn family(self) -> Size {
        self.0
    }

    fn answers(self, own: &Encapsulate) -> bool {
        own.size == self.0
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&Encapsulate]) -> Vec<Outcome> {
        let keys = requests.iter().map(|request| request.checked());
        in_passes(L, keys.collect(), |keys| {
            let mut randoms = Zeroizing::new(vec![[0; 32]; keys.len()]);
            if rand::fill(randoms.as_flattened_mut()).is_err() {
                return vec![Err(AgreeError::Entropy); keys.len()];
            }
            let inputs: Vec<_> = keys.iter().copied().zip(randoms.iter()).collect();
            let answer = |answer: Option<_>| match answer {
                Some((share, shared)) => Ok(Answer {
                    share,
                    ..Answer::from(shared)
                }),
                None => Err(AgreeError::InvalidPeer(KEY_MODULUS)),
            };
            pass.encapsulate(&inputs).into_iter().map(answer).collect()
        })
    }

    fn specimen(self) -> Request {
        let size = self.0;
        let key = specimen_key(size).encapsulation_key().to_vec();
        Encapsulate { size, key }.into()
    }
}

impl Task for Decapsulation {
    task!(Request as Decapsulate, in Size);

    fn name(self) -> &'static str {
        self.0.operations()[2]
    }

    fn family(self) -> Size {
        self.0
    }

    fn answers(self, own: &Decapsulate) -> bool {
        own.key.size() == self.0
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&Decapsulate]) -> Vec<Outcome> {
        let inputs = requests.iter().map(|request| {
            let ciphertext = request.checked()?;
            Ok((request.key.parts(), ciphertext))
        });
        in_passes(L, inputs.collect(), |inputs| {
            let secrets = pass.decapsulate(inputs).into_iter();
            secrets.map(|shared| Ok(shared.into())).collect()
        })
    }

    fn specimen(self) -> Request {
        let (size, key) = (self.0, specimen_key(self.0));
        let public = key.encapsulation_key().to_vec();
        let ciphertext = Encapsulate { size, key: public }.alone();
        let ciphertext = ciphertext.expect("the key is good").share;
        Decapsulate { key, ciphertext }.into()
    }
}

fn specimen_key(size: Size) -> DecapsulationKey {
    let key = Keygen { size }.alone().ok().and_then(|answer| answer.key);
    key.expect("aws-lc-rs aborts the process rather than go without random bytes")
}
