//! The three operations as kinds of work, each of one size on one backend.

use super::{Decapsulate, DecapsulationKey, Encapsulate, Keygen, Size};
use crate::{AgreeError, Backend, BackendUnavailable, Preference, Shared, Work};

/// Key generation (FIPS 203, algorithm 19), `mlkem768-keygen` and so on.
#[derive(Debug)]
pub struct KeyGeneration {
    size: Size,
}

/// Encapsulation (FIPS 203, algorithm 20), `mlkem768-encaps` and so on.
#[derive(Debug)]
pub struct Encapsulation {
    size: Size,
}

/// Decapsulation (FIPS 203, algorithm 21), `mlkem768-decaps` and so on.
#[derive(Debug)]
pub struct Decapsulation {
    size: Size,
}

impl KeyGeneration {
    /// The operation of one size on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        Preference::Exactly(backend).resolve()?;
        Ok(Self { size })
    }
}

impl Encapsulation {
    /// The operation of one size on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        Preference::Exactly(backend).resolve()?;
        Ok(Self { size })
    }
}

impl Decapsulation {
    /// The operation of one size on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        Preference::Exactly(backend).resolve()?;
        Ok(Self { size })
    }
}

impl Work for KeyGeneration {
    type Request = Keygen;
    type Output = Result<(DecapsulationKey, Vec<u8>), AgreeError>;

    fn name(&self) -> &'static str {
        match self.size {
            Size::MlKem512 => "mlkem512-keygen",
            Size::MlKem768 => "mlkem768-keygen",
            Size::MlKem1024 => "mlkem1024-keygen",
        }
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &Keygen) -> bool {
        request.size == self.size
    }

    fn pass(&self, requests: &[Keygen]) -> Vec<Self::Output> {
        requests.iter().map(Keygen::alone).collect()
    }

    fn alone(&self, request: &Keygen) -> Self::Output {
        request.alone()
    }

    fn specimen(&self) -> Keygen {
        Keygen { size: self.size }
    }
}

impl Work for Encapsulation {
    type Request = Encapsulate;
    type Output = Result<(Vec<u8>, Shared), AgreeError>;

    fn name(&self) -> &'static str {
        match self.size {
            Size::MlKem512 => "mlkem512-encaps",
            Size::MlKem768 => "mlkem768-encaps",
            Size::MlKem1024 => "mlkem1024-encaps",
        }
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &Encapsulate) -> bool {
        request.size == self.size
    }

    fn pass(&self, requests: &[Encapsulate]) -> Vec<Self::Output> {
        requests.iter().map(Encapsulate::alone).collect()
    }

    fn alone(&self, request: &Encapsulate) -> Self::Output {
        request.alone()
    }

    fn specimen(&self) -> Encapsulate {
        let (_, key) = specimen_key(self.size);
        Encapsulate {
            size: self.size,
            key,
        }
    }
}

impl Work for Decapsulation {
    type Request = Decapsulate;
    type Output = Result<Shared, AgreeError>;

    fn name(&self) -> &'static str {
        match self.size {
            Size::MlKem512 => "mlkem512-decaps",
            Size::MlKem768 => "mlkem768-decaps",
            Size::MlKem1024 => "mlkem1024-decaps",
        }
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &Decapsulate) -> bool {
        request.key.size() == self.size
    }

    fn pass(&self, requests: &[Decapsulate]) -> Vec<Self::Output> {
        requests.iter().map(Decapsulate::alone).collect()
    }

    fn alone(&self, request: &Decapsulate) -> Self::Output {
        request.alone()
    }

    fn specimen(&self) -> Decapsulate {
        let size = self.size;
        let (key, public) = specimen_key(size);
        let (ciphertext, _) = Encapsulate { size, key: public }
            .alone()
            .expect("the key is good");
        Decapsulate { key, ciphertext }
    }
}

fn specimen_key(size: Size) -> (DecapsulationKey, Vec<u8>) {
    Keygen { size }
        .alone()
        .expect("aws-lc-rs aborts the process rather than go without random bytes")
}
