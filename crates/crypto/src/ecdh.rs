//! ECDH on P-256 and P-384 (SP 800-56A revision 3, section 5.7.1.2), for ephemeral keys, in lanes.
//!
//! [`Keygen`] and [`Derivation`] answer the requests of an [`agreement::Secret`] on these curves.
//!
//! [`agreement::Secret`]: crate::agreement::Secret

use crate::agreement::{self, Answer, Derive, NOT_A_POINT, OFF_CURVE, Outcome, Public, Request};
use crate::nist::{Coordinate, Multiple, MultipleError, Pass};
use crate::operation::{in_passes, task};
use crate::{AgreeError, Shared, Task};

pub use crate::nist::Curve;

#[cfg(test)]
mod tests;

/// Public halves of keys on one curve: `p256-keygen`, `p384-keygen`.
#[derive(Clone, Copy, Debug)]
pub struct Keygen(pub Curve);

/// Shared secrets on one curve: `p256-ecdh`, `p384-ecdh`.
#[derive(Clone, Copy, Debug)]
pub struct Derivation(pub Curve);

impl Task for Keygen {
    task!(Request as Public, in Curve);

    fn name(self) -> &'static str {
        agreement::Curve::Nist(self.0).operations()[0]
    }

    fn family(self) -> Curve {
        self.0
    }

    fn answers(self, own: &Public) -> bool {
        own.secret.curve() == self.0.into()
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&Public]) -> Vec<Outcome> {
        let scalars = requests.iter().map(|request| request.secret.value());
        in_passes(L, scalars.collect(), |scalars| {
            let scalars: Vec<&[u8]> = scalars.iter().map(|scalar| scalar.as_slice()).collect();
            let points = pass.base_multiples(&scalars).into_iter();
            points
                .map(|point| point.map(Answer::of_share).map_err(|_| AgreeError::Failed))
                .collect()
        })
    }

    fn specimen(self) -> Request {
        Public::specimen(self.0.into())
    }
}

impl Task for Derivation {
    task!(Request as Derive, in Curve);

    fn name(self) -> &'static str {
        agreement::Curve::Nist(self.0).operations()[1]
    }

    fn family(self) -> Curve {
        self.0
    }

    fn answers(self, own: &Derive) -> bool {
        own.secret.curve() == self.0.into()
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&Derive]) -> Vec<Outcome> {
        let problems = requests.iter().map(|request| {
            let is_point = self.0.is_point(&request.peer);
            let peer = is_point.then(|| &request.peer[1..]).ok_or(NOT_A_POINT)?;
            Ok((request.secret.value()?, peer))
        });
        in_passes(L, problems.collect(), |problems| {
            let problems: Vec<_> = problems
                .iter()
                .map(|&(ref scalar, point)| Multiple { scalar, point })
                .collect();
            let answer = |x: Result<Coordinate, _>| match x {
                Ok(x) => Ok(Shared::new(&x).into()),
                Err(MultipleError::OffCurve) => Err(OFF_CURVE),
                Err(MultipleError::Fault) => Err(AgreeError::Failed),
            };
            pass.multiples(&problems).into_iter().map(answer).collect()
        })
    }

    fn specimen(self) -> Request {
        Derive::specimen(self.0.into())
    }
}
