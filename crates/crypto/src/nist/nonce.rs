//! Nonces for ECDSA: RFC 6979, section 3.2, in the variant of section 3.6 with additional data.
//!
//! The nonce follows from key and message, so that a broken random generator gives no key away,
//! and from fresh random bytes as well, so that making the same signature again, with a fault in
//! between, does not either (Aranha, Orlandi, Takahashi and Zaverucha, "Security of hedged
//! Fiat-Shamir signatures under fault attacks", EUROCRYPT 2020).
//!
//! The crate `rfc6979` takes 1.7 to 2 times as long (`docs/decisions/ecdsa-nonces.md`).

use super::{Curve, Scalar, scalar};
use crate::hmac::{Hmac, Sha2, Sha256, Sha384, Value};
use std::sync::LazyLock;

/// Bytes of additional data that a nonce takes: as many random ones as make guessing hopeless, and
/// no more than fit the last block of a hash beside the rest.
pub(crate) const ADDED_BYTES: usize = 16;

/// The nonce for a digest, under the key whose secret is `secret`.
///
/// # Panics
///
/// If the secret or the digest has another length than the curve's scalars.
pub(crate) fn nonce(curve: Curve, secret: &[u8], digest: &[u8], added: &[u8]) -> Scalar {
    // The generator's first key is zero for every nonce.
    static P256: LazyLock<Hmac<Sha256>> = LazyLock::new(|| Hmac::new(&[0; Sha256::LEN]));
    static P384: LazyLock<Hmac<Sha384>> = LazyLock::new(|| Hmac::new(&[0; Sha384::LEN]));
    match curve {
        Curve::P256 => generate(curve, P256.clone(), secret, digest, added),
        Curve::P384 => generate(curve, P384.clone(), secret, digest, added),
    }
}

fn generate<S: Sha2>(curve: Curve, first_key: Hmac<S>, secret: &[u8], digest: &[u8], added: &[u8]) -> Scalar {
    assert!(secret.len() == curve.bytes() && digest.len() == curve.bytes());
    // bits2octets: the digest modulo n, which it exceeds less than once.
    let reduced = reduce(curve, digest);
    // b. and c.
    let mut g = Generator {
        key: first_key,
        v: Value::filled(1),
    };
    // d. to g.
    for separator in [0, 1] {
        g.rekey(&[&[separator], secret, &reduced, added]);
    }
    // h. One output of the hash is as long as the order.
    loop {
        g.next();
        // A value that is refused is never used, so that how many there were tells nothing.
        if let Some(nonce) = scalar(curve, &g.v) {
            return nonce;
        }
        g.rekey(&[&[0]]);
    }
}

/// `digest mod n`, for a digest below `2 n`.
fn reduce(curve: Curve, digest: &[u8]) -> Vec<u8> {
    let mut less = digest.to_vec();
    let mut borrow = 0;
    for (byte, &order) in less.iter_mut().zip(curve.order()).rev() {
        let difference = i16::from(*byte) - i16::from(order) - borrow;
        *byte = difference as u8;
        borrow = difference >> 8 & 1;
    }
    // Digests are not secret.
    if borrow == 1 { digest.to_vec() } else { less }
}

/// The generator's key and value, K and V in RFC 6979.
struct Generator<S: Sha2> {
    key: Hmac<S>,
    v: Value<S>,
}

impl<S: Sha2> Generator<S> {
    /// `K := HMAC(K, V || parts)`, `V := HMAC(K, V)`.
    fn rekey(&mut self, parts: &[&[u8]]) {
        let key = self.key.mac(|hasher| {
            hasher.update(&self.v);
            parts.iter().for_each(|part| hasher.update(part));
        });
        self.key = Hmac::new(&key);
        self.next();
    }

    /// `V := HMAC(K, V)`.
    fn next(&mut self) {
        self.v = self.key.mac(|hasher| hasher.update(&self.v));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::digest;

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<char> = text.chars().collect();
        let byte = |pair: &[char]| {
            let pair: String = pair.iter().collect();
            u8::from_str_radix(&pair, 16).unwrap()
        };
        digits.chunks(2).map(byte).collect()
    }

    /// RFC 6979, appendices A.2.5 and A.2.6.
    #[test]
    fn nonces_of_the_standard() {
        let p256 = "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721";
        let p384 = "6B9D3DAD2E1B8C1C05B19875B6659F4DE23C3B667BF297BA9AA47740787137D8\
                    96D5724E4C70A825F872C9EA60D2EDF5";
        for (curve, secret, message, expected) in [
            (
                Curve::P256,
                p256,
                "sample",
                "A6E3C57DD01ABE90086538398355DD4C3B17AA873382B0F24D6129493D8AAD60",
            ),
            (
                Curve::P256,
                p256,
                "test",
                "D16B6AE827F17175E040871A1C7EC3500192C4C92677336EC2537ACAEE0008E0",
            ),
            (
                Curve::P384,
                p384,
                "sample",
                "94ED910D1A099DAD3254E9242AE85ABDE4BA15168EAF0CA87A555FD56D10FBCA\
                 2907E3E83BA95368623B8C4686915CF9",
            ),
            (
                Curve::P384,
                p384,
                "test",
                "015EE46A5BF88773ED9123A5AB0807962D193719503C527B031B4C2D225092AD\
                 A71F4A459BC0DA98ADB95837DB8312EA",
            ),
        ] {
            let algorithm = match curve {
                Curve::P256 => &digest::SHA256,
                Curve::P384 => &digest::SHA384,
            };
            let digest = digest::digest(algorithm, message.as_bytes());
            let nonce = nonce(curve, &unhex(secret), digest.as_ref(), &[]);
            assert_eq!(*nonce, unhex(expected), "{curve} {message}");
        }
    }

    #[test]
    fn added_data_makes_another_nonce() {
        for curve in Curve::ALL {
            let secret = vec![1; curve.bytes()];
            let digest = vec![0xff; curve.bytes()];
            let one = nonce(curve, &secret, &digest, &[1; ADDED_BYTES]);
            let other = nonce(curve, &secret, &digest, &[2; ADDED_BYTES]);
            assert_ne!(one, other);
            assert_eq!(one, nonce(curve, &secret, &digest, &[1; ADDED_BYTES]));
        }
    }

    /// Nonces of a secret that valgrind follows.
    #[test]
    fn poison_nonces_branch_on_no_secret() {
        crate::secrecy::assert_no_secret_branch(|| {
            for curve in Curve::ALL {
                let secret = vec![1; curve.bytes()];
                let digest = vec![0xff; curve.bytes()];
                let added = [7; ADDED_BYTES];
                widelane_poison::secret(&secret);
                widelane_poison::secret(&added);
                let nonce = nonce(curve, &secret, &digest, &added);
                widelane_poison::public(&nonce);
                assert!(nonce.iter().any(|byte| *byte != 0));
            }
        });
    }
}
