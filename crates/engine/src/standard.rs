//! The operations of `widelane-crypto`: one list, [`for_each_operation`]. A new algorithm is a line
//! in it.

use widelane_batching::Clock;
use widelane_crypto::{Backend, BackendUnavailable, Operation, Preference, Task};
use widelane_crypto::{ecdh, ecdsa, ed25519, mldsa, mlkem, rsa, x25519};

use crate::error::StartError;
use crate::line::Variant;
use crate::operations::Operations;

impl Operations {
    /// All operations of `widelane-crypto`. With a backend asked for by name, every request runs in
    /// its lanes; with [`Preference::Auto`], requests that are too few for a pass run one by one
    /// through aws-lc-rs.
    ///
    /// # Errors
    ///
    /// When a backend was asked for by name and this machine cannot run it.
    pub fn standard(preference: Preference) -> Result<Self, StartError> {
        Self::standard_for(preference, Clock::default())
    }

    /// Standard operations for a machine with this clock: with [`Preference::Auto`], each pass runs in the
    /// registers that cost its core least. Few requests may be cheaper in narrow ones on any machine.
    ///
    /// # Errors
    ///
    /// When a backend was asked for by name and this machine cannot run it.
    pub(crate) fn standard_for(preference: Preference, clock: Clock) -> Result<Self, StartError> {
        let backend = preference.resolve()?;
        let measured = preference == Preference::Auto;
        let clock = backend
            .target()
            .map_or(clock, |target| clock.of_registers(target.bits()));
        let narrow = backend.alternative().filter(|_| measured);
        tracing::debug!(%backend, ?narrow, "standard operations");
        let mut registration = Registration {
            operations: Self::new(),
            backend,
            measured,
            narrow: narrow.map(|narrow| (narrow, clock)),
        };
        for_each_operation(&mut registration)?;
        Ok(registration.operations)
    }
}

/// Visitor of each operation of `widelane-crypto`; for [`for_each_operation`].
pub trait Visitor {
    /// Takes one operation: `make` makes it for a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    fn visit<O: Operation>(
        &mut self,
        make: impl Fn(Backend) -> Result<O, BackendUnavailable>,
    ) -> Result<(), BackendUnavailable>;
}

/// Shows a visitor all operations of `widelane-crypto`. Of those with the same type of request, the
/// first that [takes](Operation::takes) a request serves it.
///
/// # Errors
///
/// The visitor's first error.
pub fn for_each_operation(visitor: &mut impl Visitor) -> Result<(), BackendUnavailable> {
    for size in rsa::Size::ALL {
        visitor.visit(|backend| rsa::Signing(size).on(backend))?;
    }
    visitor.visit(|_| Ok(rsa::OtherSigning))?;
    visitor.visit(|backend| rsa::Verification.on(backend))?;
    for curve in ecdsa::Curve::ALL {
        visitor.visit(|backend| ecdsa::Signing(curve).on(backend))?;
        visitor.visit(|backend| ecdsa::Verification(curve).on(backend))?;
    }
    visitor.visit(|backend| ed25519::Signing.on(backend))?;
    visitor.visit(|backend| ed25519::Verification.on(backend))?;
    visitor.visit(|backend| x25519::Keygen.on(backend))?;
    visitor.visit(|backend| x25519::Derivation.on(backend))?;
    for curve in ecdh::Curve::ALL {
        visitor.visit(|backend| ecdh::Keygen(curve).on(backend))?;
        visitor.visit(|backend| ecdh::Derivation(curve).on(backend))?;
    }
    for size in mlkem::Size::ALL {
        visitor.visit(|backend| mlkem::KeyGeneration(size).on(backend))?;
        visitor.visit(|backend| mlkem::Encapsulation(size).on(backend))?;
        visitor.visit(|backend| mlkem::Decapsulation(size).on(backend))?;
    }
    for size in mldsa::Size::ALL {
        visitor.visit(|backend| mldsa::Signing(size).on(backend))?;
        visitor.visit(|backend| mldsa::Verification(size).on(backend))?;
    }
    Ok(())
}

struct Registration {
    operations: Operations,
    backend: Backend,
    /// True if measured costs decide between the backend and aws-lc-rs.
    measured: bool,
    /// The backend with narrower registers, or an unmeasured one, if there is a choice; and the clock that decides
    /// for each pass.
    narrow: Option<(Backend, Clock)>,
}

impl Visitor for Registration {
    fn visit<O: Operation>(
        &mut self,
        make: impl Fn(Backend) -> Result<O, BackendUnavailable>,
    ) -> Result<(), BackendUnavailable> {
        let wide = make(self.backend)?;
        let wide = match self.measured {
            true => Variant::measured(wide, self.backend),
            false => Variant::without_choice(wide, self.backend),
        };
        let narrow = match self.narrow {
            Some((narrow, clock)) => Some((Variant::measured(make(narrow)?, narrow), clock)),
            None => None,
        };
        self.operations.add(wide, narrow);
        Ok(())
    }
}
