//! The operations that come with the house: one list, [`for_each_work`], and the types of their
//! requests. A new one is a line in each.

use std::any::Any;
use std::collections::HashMap;

use widelane_batching::Clock;
use widelane_crypto::{Backend, BackendUnavailable, Preference, Work};
use widelane_crypto::{ecdh, ecdsa, ed25519, mldsa, mlkem, rsa, x25519};

use crate::{Batched, Operations, Request, StartError};

impl Operations {
    /// Everything that `widelane-crypto` does, with the preferred backend. One that is asked for by
    /// name gets every request; of [`Preference::Auto`], requests that are too few to be worth a
    /// pass go through aws-lc-rs one by one.
    ///
    /// # Errors
    ///
    /// When a backend was asked for by name and this machine cannot run it.
    pub fn standard(preference: Preference) -> Result<Self, StartError> {
        Self::standard_for(preference, Clock::default())
    }

    /// The same on a machine where wide code does this to the clock: with [`Preference::Auto`] each
    /// pass runs in the registers that cost its core least.
    ///
    /// # Errors
    ///
    /// When a backend was asked for by name and this machine cannot run it.
    pub(crate) fn standard_for(preference: Preference, clock: Clock) -> Result<Self, StartError> {
        let backend = preference.resolve()?;
        let free = preference == Preference::Auto;
        let both = free && backend == Backend::Avx512Ifma && !clock.is_free();
        tracing::debug!(%backend, both, "standard operations");
        let mut registration = Registration {
            operations: Self::new(),
            free: free.then_some(backend),
            narrow: Shelf::default(),
            clock,
        };
        if both {
            for_each_work(NARROW, &mut registration.narrow)?;
        }
        for_each_work(backend, &mut registration)?;
        Ok(registration.operations)
    }
}

/// What to do with every work of `widelane-crypto`; for [`for_each_work`].
pub trait Visitor {
    /// Takes one.
    fn visit<W: Work>(&mut self, work: W)
    where
        W::Request: Request<Output = W::Output>;
}

/// Makes every work of `widelane-crypto` on this backend. The first that
/// [takes](Work::takes) a request is the one for it.
///
/// # Errors
///
/// When this machine cannot run the backend.
pub fn for_each_work(
    backend: Backend,
    visitor: &mut impl Visitor,
) -> Result<(), BackendUnavailable> {
    for size in rsa::Size::ALL {
        visitor.visit(rsa::Signing::new(backend, size)?);
    }
    visitor.visit(rsa::OtherSigning);
    visitor.visit(rsa::Verification::new(backend)?);
    for curve in ecdsa::Curve::ALL {
        visitor.visit(ecdsa::Signing::new(backend, curve)?);
        visitor.visit(ecdsa::Verification::new(backend, curve)?);
    }
    visitor.visit(ed25519::Signing::new(backend)?);
    visitor.visit(ed25519::Verification::new(backend)?);
    visitor.visit(x25519::Keygen::new(backend)?);
    visitor.visit(x25519::Derivation::new(backend)?);
    for curve in ecdh::Curve::ALL {
        visitor.visit(ecdh::Keygen::new(backend, curve)?);
        visitor.visit(ecdh::Derivation::new(backend, curve)?);
    }
    for size in mlkem::Size::ALL {
        visitor.visit(mlkem::KeyGeneration::new(backend, size)?);
        visitor.visit(mlkem::Encapsulation::new(backend, size)?);
        visitor.visit(mlkem::Decapsulation::new(backend, size)?);
    }
    for size in mldsa::Size::ALL {
        visitor.visit(mldsa::Signing::new(size, backend)?);
        visitor.visit(mldsa::Verification::new(size, backend)?);
    }
    Ok(())
}

/// Each request, and a work that says what its output is.
macro_rules! requests {
    ($($request:ty => $work:ty,)*) => { $(
        impl Request for $request {
            type Output = <$work as Work>::Output;
        }
    )* };
}

requests! {
    rsa::SignRequest => rsa::Signing,
    rsa::VerifyRequest => rsa::Verification,
    ecdsa::SignRequest => ecdsa::Signing,
    ecdsa::VerifyRequest => ecdsa::Verification,
    ed25519::SignRequest => ed25519::Signing,
    ed25519::VerifyRequest => ed25519::Verification,
    x25519::Public => x25519::Keygen,
    x25519::Derive => x25519::Derivation,
    ecdh::Public => ecdh::Keygen,
    ecdh::Derive => ecdh::Derivation,
    mlkem::Keygen => mlkem::KeyGeneration,
    mlkem::Encapsulate => mlkem::Encapsulation,
    mlkem::Decapsulate => mlkem::Decapsulation,
    mldsa::SignRequest => mldsa::Signing,
    mldsa::VerifyRequest => mldsa::Verification,
}

struct Registration {
    operations: Operations,
    /// The backend, if it is left to us when it is used.
    free: Option<Backend>,
    /// The same works in narrower registers, where each pass has the choice.
    narrow: Shelf,
    clock: Clock,
}

/// Works by name, to be fetched by somebody who knows their type.
#[derive(Default)]
struct Shelf(HashMap<&'static str, Box<dyn Any>>);

impl Shelf {
    fn take<W: Work>(&mut self, name: &str) -> Option<W> {
        let work = self.0.remove(name)?.downcast().ok()?;
        Some(*work)
    }
}

impl Visitor for Shelf {
    fn visit<W: Work>(&mut self, work: W)
    where
        W::Request: Request<Output = W::Output>,
    {
        self.0.insert(work.name(), Box::new(work));
    }
}

impl Visitor for Registration {
    fn visit<W: Work>(&mut self, work: W)
    where
        W::Request: Request<Output = W::Output>,
    {
        let narrow = self.narrow.take::<W>(work.name());
        let batched = match self.free {
            Some(backend) => Batched::cheapest(work, backend),
            None => Batched::always(work),
        };
        self.operations.add(match narrow {
            Some(narrow) => batched.or_narrow(narrow, NARROW, self.clock),
            None => batched,
        });
    }
}

/// The other registers, where each pass has the choice.
const NARROW: Backend = Backend::Avx512Ifma256;
