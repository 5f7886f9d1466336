//! Passes: as many requests as there are lanes, each in a lane of its own. Lanes without a request
//! repeat the first one's work.

use super::{Derive, Public};
use crate::lanes25519::{Kind, Pass, divide, get, set};
use crate::secrecy;
use crate::{AgreeError, Shared};
use zeroize::Zeroizing;

/// What both run in: scalars, points and results, four limbs each.
pub(super) const AGREEMENT: Kind = Kind {
    vectors: 12,
    is_secret: true,
};

/// The public shares.
pub(super) fn public<const L: usize>(
    pass: &Pass<L>,
    requests: &[Public],
) -> Vec<Result<[u8; 32], AgreeError>> {
    let mut shares = Vec::with_capacity(requests.len());
    for requests in requests.chunks(L) {
        pass.with_memory(|kernels, vectors, space| {
            let [out, scalar, _] = divide(vectors, [4; 3]);
            for lane in 0..L {
                let request = requests.get(lane).unwrap_or(&requests[0]);
                set(scalar, lane, request.secret.bytes());
            }
            kernels.curve.x25519_base(out, scalar, space);
            // Public, as their name says.
            shares.extend((0..requests.len()).map(|lane| Ok(secrecy::public(get(out, lane)))));
        });
    }
    shares
}

/// The secrets shared with the peers.
pub(super) fn derive<const L: usize>(
    pass: &Pass<L>,
    requests: &[Derive],
) -> Vec<Result<Shared, AgreeError>> {
    let mut secrets = Vec::with_capacity(requests.len());
    for requests in requests.chunks(L) {
        pass.with_memory(|kernels, vectors, space| {
            let [out, scalar, u] = divide(vectors, [4; 3]);
            for lane in 0..L {
                let request = requests.get(lane).unwrap_or(&requests[0]);
                set(scalar, lane, request.secret.bytes());
                set(u, lane, &request.peer);
            }
            kernels.curve.x25519(out, scalar, u, space);
            for lane in 0..requests.len() {
                let shared = Zeroizing::new(get(out, lane));
                // RFC 7748, section 6.1: one branch, after all bits have been looked at.
                let bits = shared.iter().fold(0, |bits, byte| bits | byte);
                // Public: a peer that sends such a point knows this itself.
                secrets.push(match secrecy::public(bits == 0) {
                    true => Err(AgreeError::WeakPeer),
                    false => Ok(Shared::new(&*shared)),
                });
            }
        });
    }
    secrets
}
