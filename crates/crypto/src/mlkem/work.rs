//! The three operations, each of one size on one backend.

use super::key::DecapsulationKey;
use super::pass::Passes;
use super::request::{Decapsulate, Encapsulate, KEY_MODULUS, Keygen};
use super::size::{SEED_LEN, Size};
use crate::operation::requests;
use crate::passes;
use crate::{AgreeError, Backend, BackendUnavailable, Operation, Shared};
use zeroize::Zeroizing;

/// Key generation (FIPS 203, algorithm 19), `mlkem768-keygen` and so on.
#[derive(Debug)]
pub struct KeyGeneration {
    code: Code,
}

/// Encapsulation (FIPS 203, algorithm 20), `mlkem768-encaps` and so on.
#[derive(Debug)]
pub struct Encapsulation {
    code: Code,
}

/// Decapsulation (FIPS 203, algorithm 21), `mlkem768-decaps` and so on.
#[derive(Debug)]
pub struct Decapsulation {
    code: Code,
}

impl KeyGeneration {
    /// The operation of one size on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        let code = Code::new(backend, size)?;
        Ok(Self { code })
    }
}

impl Encapsulation {
    /// The operation of one size on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        let code = Code::new(backend, size)?;
        Ok(Self { code })
    }
}

impl Decapsulation {
    /// The operation of one size on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        let code = Code::new(backend, size)?;
        Ok(Self { code })
    }
}

requests! {
    Keygen => (DecapsulationKey, Vec<u8>), AgreeError;
    Encapsulate => (Vec<u8>, Shared), AgreeError;
    Decapsulate => Shared, AgreeError;
}

impl Operation for KeyGeneration {
    type Request = Keygen;

    fn name(&self) -> &'static str {
        match self.code.size {
            Size::MlKem512 => "mlkem512-keygen",
            Size::MlKem768 => "mlkem768-keygen",
            Size::MlKem1024 => "mlkem1024-keygen",
        }
    }

    fn lanes(&self) -> usize {
        self.code.lanes()
    }

    fn takes(&self, request: &Keygen) -> bool {
        request.size == self.code.size
    }

    fn pass(&self, requests: &[Keygen]) -> Vec<Result<(DecapsulationKey, Vec<u8>), AgreeError>> {
        let Some(passes) = &self.code.passes else {
            return requests.iter().map(Keygen::alone).collect();
        };
        let keygen = |requests: &[&Keygen]| {
            let mut seeds = Zeroizing::new(vec![[0; SEED_LEN]; requests.len()]);
            if aws_lc_rs::rand::fill(seeds.as_flattened_mut()).is_err() {
                return vec![Err(AgreeError::Entropy); requests.len()];
            }
            let answer = |(expanded, &seed): (_, &_)| {
                let seed = Some(Zeroizing::new(seed));
                let key = DecapsulationKey::trusted(self.code.size, expanded, seed);
                let public = key.encapsulation_key().to_vec();
                Ok((key, public))
            };
            let keys = passes.keygen(&seeds);
            keys.into_iter().zip(seeds.iter()).map(answer).collect()
        };
        self.code.answer(requests, |_| Ok(()), keygen)
    }

    fn alone(&self, request: &Keygen) -> Result<(DecapsulationKey, Vec<u8>), AgreeError> {
        request.alone()
    }

    fn specimen(&self) -> Keygen {
        Keygen {
            size: self.code.size,
        }
    }
}

impl Operation for Encapsulation {
    type Request = Encapsulate;

    fn name(&self) -> &'static str {
        match self.code.size {
            Size::MlKem512 => "mlkem512-encaps",
            Size::MlKem768 => "mlkem768-encaps",
            Size::MlKem1024 => "mlkem1024-encaps",
        }
    }

    fn lanes(&self) -> usize {
        self.code.lanes()
    }

    fn takes(&self, request: &Encapsulate) -> bool {
        request.size == self.code.size
    }

    fn pass(&self, requests: &[Encapsulate]) -> Vec<Result<(Vec<u8>, Shared), AgreeError>> {
        let Some(passes) = &self.code.passes else {
            return requests.iter().map(Encapsulate::alone).collect();
        };
        let encapsulate = |requests: &[&Encapsulate]| {
            let mut randoms = Zeroizing::new(vec![[0; 32]; requests.len()]);
            if aws_lc_rs::rand::fill(randoms.as_flattened_mut()).is_err() {
                return vec![Err(AgreeError::Entropy); requests.len()];
            }
            let keys = requests.iter().map(|request| request.key.as_slice());
            let inputs: Vec<_> = keys.zip(randoms.iter()).collect();
            let answer = |answer: Option<_>| answer.ok_or(AgreeError::InvalidPeer(KEY_MODULUS));
            passes
                .encapsulate(&inputs)
                .into_iter()
                .map(answer)
                .collect()
        };
        self.code.answer(requests, Encapsulate::check, encapsulate)
    }

    fn alone(&self, request: &Encapsulate) -> Result<(Vec<u8>, Shared), AgreeError> {
        request.alone()
    }

    fn specimen(&self) -> Encapsulate {
        let (_, key) = specimen_key(self.code.size);
        Encapsulate {
            size: self.code.size,
            key,
        }
    }
}

impl Operation for Decapsulation {
    type Request = Decapsulate;

    fn name(&self) -> &'static str {
        match self.code.size {
            Size::MlKem512 => "mlkem512-decaps",
            Size::MlKem768 => "mlkem768-decaps",
            Size::MlKem1024 => "mlkem1024-decaps",
        }
    }

    fn lanes(&self) -> usize {
        self.code.lanes()
    }

    fn takes(&self, request: &Decapsulate) -> bool {
        request.key.size() == self.code.size
    }

    fn pass(&self, requests: &[Decapsulate]) -> Vec<Result<Shared, AgreeError>> {
        let Some(passes) = &self.code.passes else {
            return requests.iter().map(Decapsulate::alone).collect();
        };
        let decapsulate = |requests: &[&Decapsulate]| {
            let inputs: Vec<_> = requests
                .iter()
                .map(|request| (request.key.parts(), request.ciphertext.as_slice()))
                .collect();
            passes.decapsulate(&inputs).into_iter().map(Ok).collect()
        };
        self.code.answer(requests, Decapsulate::check, decapsulate)
    }

    fn alone(&self, request: &Decapsulate) -> Result<Shared, AgreeError> {
        request.alone()
    }

    fn specimen(&self) -> Decapsulate {
        let size = self.code.size;
        let (key, public) = specimen_key(size);
        let (ciphertext, _) = Encapsulate { size, key: public }
            .alone()
            .expect("the key is good");
        Decapsulate { key, ciphertext }
    }
}

/// One size on one backend.
#[derive(Debug)]
struct Code {
    size: Size,
    /// Absent where there are no lanes.
    passes: Option<Box<dyn Passes>>,
}

impl Code {
    fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        let passes: Option<Box<dyn Passes>> = match passes::Passes::new(backend, size)? {
            passes::Passes::None => None,
            passes::Passes::Four(pass) => Some(pass),
            passes::Passes::Eight(pass) => Some(pass),
        };
        Ok(Self { size, passes })
    }

    fn lanes(&self) -> usize {
        self.passes.as_ref().map_or(1, |passes| passes.lanes())
    }

    /// Answers the requests that pass the check by `run`, as many at a time as there are lanes,
    /// and the others by the error of the check.
    fn answer<R, T>(
        &self,
        requests: &[R],
        check: impl Fn(&R) -> Result<(), AgreeError>,
        run: impl Fn(&[&R]) -> Vec<Result<T, AgreeError>>,
    ) -> Vec<Result<T, AgreeError>> {
        let good: Vec<&R> = requests.iter().filter(|&r| check(r).is_ok()).collect();
        let mut answers = good.chunks(self.lanes()).flat_map(run);
        let answer = |request| {
            check(request)?;
            answers.next().expect("one answer for each request")
        };
        requests.iter().map(answer).collect()
    }
}

fn specimen_key(size: Size) -> (DecapsulationKey, Vec<u8>) {
    Keygen { size }
        .alone()
        .expect("aws-lc-rs aborts the process rather than go without random bytes")
}
