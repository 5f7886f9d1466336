//! X25519 (RFC 7748) in lanes: key generation and shared secrets.
//!
//! [`Keygen`] and [`Derivation`] answer the requests of an [`agreement::Secret`] for X25519.
//!
//! A peer's share may be any 32 bytes, as the standard wants it: the highest bit is ignored, and
//! numbers from the prime on are reduced (RFC 7748, section 5). A share of low order, which leads
//! to the all-zero secret, is refused (section 6.1).
//!
//! [`agreement::Secret`]: crate::agreement::Secret

#[cfg(test)]
mod tests;

use crate::agreement::{Answer, Curve, Derive, Outcome, Public, Request};
use crate::lanes25519::{Kind, Pass, divide, get, set};
use crate::operation::task;
use crate::secrecy;
use crate::{AgreeError, Shared, Task};
use zeroize::Zeroizing;

/// Public shares of secrets, `x25519-keygen`.
#[derive(Clone, Copy, Debug)]
pub struct Keygen;

/// Secrets shared with peers, `x25519-derive`.
#[derive(Clone, Copy, Debug)]
pub struct Derivation;

/// Memory for both operations: scalars, points and results, four limbs each.
const AGREEMENT: Kind = Kind {
    vectors: 12,
    is_secret: true,
};

impl Task for Keygen {
    task!(Request as Public, in Kind);

    fn name(self) -> &'static str {
        Curve::X25519.operations()[0]
    }

    fn family(self) -> Kind {
        AGREEMENT
    }

    fn answers(self, own: &Public) -> bool {
        own.secret.curve() == Curve::X25519
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&Public]) -> Vec<Outcome> {
        pass.with_memory(|kernels, vectors, space| {
            let [out, scalar, _] = divide(vectors, [4; 3]);
            for lane in 0..L {
                let request = requests.get(lane).unwrap_or(&requests[0]);
                set(scalar, lane, request.secret.x25519());
            }
            kernels.curve.x25519_base(out, scalar, space);
            // Public, as their name says.
            let share = |lane| secrecy::public(get(out, lane));
            let shares = (0..requests.len()).map(|lane| Ok(Answer::of_share(share(lane))));
            shares.collect()
        })
    }

    fn specimen(self) -> Request {
        Public::specimen(Curve::X25519)
    }
}

impl Task for Derivation {
    task!(Request as Derive, in Kind);

    fn name(self) -> &'static str {
        Curve::X25519.operations()[1]
    }

    fn family(self) -> Kind {
        AGREEMENT
    }

    fn answers(self, own: &Derive) -> bool {
        own.secret.curve() == Curve::X25519
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&Derive]) -> Vec<Outcome> {
        pass.with_memory(|kernels, vectors, space| {
            let [out, scalar, u] = divide(vectors, [4; 3]);
            for lane in 0..L {
                let request = requests.get(lane).unwrap_or(&requests[0]);
                set(scalar, lane, request.secret.x25519());
                set(u, lane, &request.peer);
            }
            kernels.curve.x25519(out, scalar, u, space);
            let answer = |lane| {
                let shared = Zeroizing::new(get(out, lane));
                // RFC 7748, section 6.1: one branch, after all bits have been looked at.
                let bits = shared.iter().fold(0, |bits, byte| bits | byte);
                // Public: a peer that sends such a point knows this itself.
                match secrecy::public(bits == 0) {
                    true => Err(AgreeError::WeakPeer),
                    false => Ok(Shared::new(&*shared).into()),
                }
            };
            (0..requests.len()).map(answer).collect()
        })
    }

    fn specimen(self) -> Request {
        Derive::specimen(Curve::X25519)
    }
}
