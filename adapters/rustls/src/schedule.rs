//! The key schedule of TLS 1.3: HKDF without set-up.
//!
//! HKDF (RFC 5869) is HMAC over and over with few keys, whose states [`Hmac`] keeps. What that saves,
//! and why nothing more is done, is in docs/decisions/key-schedule.md.
//!
//! The time taken depends on lengths, never on contents. What is to be compared with what a peer
//! sent, the MAC of a Finished message or of a ticket's binder, is compared by rustls, in constant
//! time.

use std::sync::LazyLock;

use rustls::crypto::hash::HashAlgorithm;
use rustls::crypto::hmac::Tag;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use widelane_crypto::hmac::{Hmac, Sha2, Sha256, Sha384, Value};

/// HKDF with this hash function, if it is one of those in TLS 1.3.
pub(crate) fn hkdf(hash: HashAlgorithm) -> Option<&'static dyn Hkdf> {
    match hash {
        HashAlgorithm::SHA256 => Some(&SHA256),
        HashAlgorithm::SHA384 => Some(&SHA384),
        _ => None,
    }
}

static SHA256: Schedule<Sha256> = Schedule::new();
static SHA384: Schedule<Sha384> = Schedule::new();

/// HKDF with a hash function, for rustls.
struct Schedule<S: Sha2> {
    /// Extracted from zeros without a salt: every handshake without a ticket starts there.
    early: LazyLock<Expander<S>>,
}

impl<S: Sha2> Schedule<S> {
    const fn new() -> Self {
        Self {
            early: LazyLock::new(|| extract(&ZEROS[..S::LEN], &ZEROS[..S::LEN])),
        }
    }
}

impl<S: Sha2> Hkdf for Schedule<S> {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        Box::new(match salt {
            None => self.early.clone(),
            Some(salt) => extract::<S>(salt, &ZEROS[..S::LEN]),
        })
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        // RFC 5869, section 2.2: without a salt, zeros.
        Box::new(extract::<S>(salt.unwrap_or(&ZEROS[..S::LEN]), secret))
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(Expander(Hmac::<S>::new(okm.as_ref())))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        Tag::new(&Hmac::<S>::new(key.as_ref()).mac(|hasher| hasher.update(message)))
    }
}

/// HKDF-Extract (RFC 5869, section 2.2), ready to expand.
fn extract<S: Sha2>(salt: &[u8], secret: &[u8]) -> Expander<S> {
    Expander(Hmac::new(&Hmac::<S>::new(salt).mac(|hasher| hasher.update(secret))))
}

/// HMAC with a key that HKDF expands.
#[derive(Clone)]
struct Expander<S: Sha2>(Hmac<S>);

impl<S: Sha2> HkdfExpander for Expander<S> {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        if output.len() > 255 * S::LEN {
            return Err(OutputLengthError);
        }
        // RFC 5869, section 2.3: T(n) = HMAC(PRK, T(n - 1) | info | n).
        let mut last: Option<Value<S>> = None;
        for (n, chunk) in (1..=255_u8).zip(output.chunks_mut(S::LEN)) {
            let term = self.0.mac(|hasher| {
                last.iter().for_each(|last| hasher.update(last));
                info.iter().for_each(|part| hasher.update(part));
                hasher.update(&[n]);
            });
            chunk.copy_from_slice(&term[..chunk.len()]);
            last = Some(term);
        }
        Ok(())
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        OkmBlock::new(&self.0.mac(|hasher| {
            info.iter().for_each(|part| hasher.update(part));
            hasher.update(&[1]);
        }))
    }

    fn hash_len(&self) -> usize {
        S::LEN
    }
}

/// Zeros in the length of the longest hash value.
const ZEROS: [u8; Sha384::LEN] = [0; Sha384::LEN];

#[cfg(test)]
mod tests {
    use rustls::SupportedCipherSuite;
    use rustls::crypto::aws_lc_rs::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};

    use super::*;

    /// Bytes beyond two blocks of either hash function.
    const LONG: usize = 2 * Sha384::BLOCK + 1;

    #[test]
    fn everything_is_what_aws_lc_makes_of_it() {
        is_theirs(&SHA256, TLS13_AES_128_GCM_SHA256, 32);
        is_theirs(&SHA384, TLS13_AES_256_GCM_SHA384, 48);
    }

    fn is_theirs(ours: &dyn Hkdf, suite: SupportedCipherSuite, len: usize) {
        let theirs = suite.tls13().unwrap().hkdf_provider;
        let text: Vec<u8> = (0..400_u16).map(|i| (i * 7) as u8).collect();
        let okm = OkmBlock::new(&text[5..][..len]);
        // Of every length to beyond two blocks: what is extracted from, what is signed, and salts.
        for n in 0..=LONG {
            let message = &text[..n];
            let tags = [ours, theirs].map(|h| h.hmac_sign(&okm, message));
            assert_eq!(tags[0].as_ref(), tags[1].as_ref(), "{n}");
            for (salt, secret) in [(None, message), (Some(message), &text[9..][..len])] {
                let [ours, theirs] = [ours, theirs].map(|h| {
                    let expander = h.extract_from_secret(salt, secret);
                    expander.expand_block(&[b"info"])
                });
                assert_eq!(ours.as_ref(), theirs.as_ref(), "{n}");
            }
        }
        let [ours_from_okm, theirs_from_okm] = [ours, theirs].map(|h| h.expander_for_okm(&okm));
        expands_as(&*ours_from_okm, &*theirs_from_okm, &text);
        for salt in [None, Some(&text[..len])] {
            let [ours, theirs] = [ours, theirs].map(|h| h.extract_from_zero_ikm(salt));
            expands_as(&*ours, &*theirs, &text);
        }
    }

    fn expands_as(ours: &dyn HkdfExpander, theirs: &dyn HkdfExpander, text: &[u8]) {
        assert_eq!(ours.hash_len(), theirs.hash_len());
        for n in 0..=LONG {
            let info = [&text[..n / 3], &[], &text[n / 3..n]];
            let blocks = [ours, theirs].map(|e| e.expand_block(&info));
            assert_eq!(blocks[0].as_ref(), blocks[1].as_ref(), "{n}");
            let slices = [ours, theirs].map(|e| {
                let mut output = vec![0; n];
                e.expand_slice(&info, &mut output).unwrap();
                output
            });
            assert_eq!(slices[0], slices[1], "{n}");
        }
        let longest = 255 * ours.hash_len();
        let [ours, theirs] = [ours, theirs].map(|e| {
            let mut output = vec![0; longest];
            e.expand_slice(&[text], &mut output).unwrap();
            assert!(e.expand_slice(&[], &mut vec![0; longest + 1]).is_err());
            output
        });
        assert_eq!(ours, theirs);
    }

    /// RFC 5869, appendix A.1 to A.3.
    #[test]
    fn published_vectors_of_hkdf() {
        let count = |from: u8, to: u8| (from..=to).collect::<Vec<u8>>();
        let okm = |salt: &[u8], secret: &[u8], info: &[u8], len: usize| {
            let mut okm = vec![0; len];
            let expander = SHA256.extract_from_secret(Some(salt), secret);
            expander.expand_slice(&[info], &mut okm).unwrap();
            okm
        };
        assert_eq!(
            okm(&count(0, 12), &[0x0b; 22], &count(0xf0, 0xf9), 42),
            hex(
                "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b88718
                 5865"
            )
        );
        assert_eq!(
            okm(&count(0x60, 0xaf), &count(0, 0x4f), &count(0xb0, 0xff), 82),
            hex(
                "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac78272
                 71cb41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f
                 1d87"
            )
        );
        assert_eq!(
            okm(&[], &[0x0b; 22], &[], 42),
            hex(
                "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a
                 96c8"
            )
        );
    }

    /// RFC 8448, section 3: a whole handshake.
    #[test]
    fn published_trace_of_a_handshake() {
        let hash_of_nothing = hex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let to_server_hello = hex("860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8");
        let to_server_finished = hex("9608102a0f1ccc6db6250b7b7e417b1a000eaada3daae4777a7686c9ff83df13");
        let to_client_finished = hex("209145a96ee8e2a122ff810047cc952684658d6049e86429426db87c54ad143d");

        let early = SHA256.extract_from_zero_ikm(None);
        let derived = label(&*early, "derived", &hash_of_nothing);
        is(
            &derived,
            "6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba",
        );
        let shared = hex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
        let handshake = SHA256.extract_from_secret(Some(derived.as_ref()), &shared);
        let client = label(&*handshake, "c hs traffic", &to_server_hello);
        is(
            &client,
            "b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21",
        );
        let server = label(&*handshake, "s hs traffic", &to_server_hello);
        is(
            &server,
            "b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38",
        );
        key_and_iv(&server, "3fce516009c21727d0f2e4e86ee403bc", "5d313eb2671276ee13000b30");
        let finished = label(&*SHA256.expander_for_okm(&client), "finished", &[]);
        let verify_data = SHA256.hmac_sign(&finished, &to_server_finished);
        assert_eq!(
            verify_data.as_ref(),
            hex("a8ec436d677634ae525ac1fcebe11a039ec17694fac6e98527b642f2edd5ce61")
        );

        let derived = label(&*handshake, "derived", &hash_of_nothing);
        let master = SHA256.extract_from_zero_ikm(Some(derived.as_ref()));
        let client = label(&*master, "c ap traffic", &to_server_finished);
        key_and_iv(&client, "17422dda596ed5d9acd890e3c63f5051", "5b78923dee08579033e523d9");
        let exporter = label(&*master, "exp master", &to_server_finished);
        is(
            &exporter,
            "fe22f881176eda18eb8f44529e6792c50c9a3f89452f68d8ae311b4309d3cf50",
        );
        let resumption = label(&*master, "res master", &to_client_finished);
        let ticket = label(&*SHA256.expander_for_okm(&resumption), "resumption", &[0, 0]);
        is(
            &ticket,
            "4ecd0eb6ec3b4d87f5d6028f922ca4c5851a277fd41311c9e62d2c9492e1c4f3",
        );
    }

    /// HKDF-Expand-Label (RFC 8446, section 7.1) of a whole hash value.
    fn label(expander: &dyn HkdfExpander, label: &str, context: &[u8]) -> OkmBlock {
        let len = expander.hash_len() as u16;
        let label = [b"tls13 ", label.as_bytes()].concat();
        let context = [&[context.len() as u8], context].concat();
        expander.expand_block(&[&len.to_be_bytes(), &[label.len() as u8], &label, &context])
    }

    fn key_and_iv(secret: &OkmBlock, key: &str, iv: &str) {
        let expander = SHA256.expander_for_okm(secret);
        for (label, expected) in [("tls13 key", hex(key)), ("tls13 iv", hex(iv))] {
            let mut output = vec![0; expected.len()];
            let head = [0, expected.len() as u8, label.len() as u8];
            let info = [&head, label.as_bytes(), &[0]];
            expander.expand_slice(&info, &mut output).unwrap();
            assert_eq!(output, expected, "{label}");
        }
    }

    fn is(okm: &OkmBlock, expected: &str) {
        assert_eq!(okm.as_ref(), hex(expected));
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text
            .chars()
            .filter_map(|c| c.to_digit(16))
            .map(|digit| digit as u8)
            .collect();
        digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
    }

    /// Derives as a handshake does, from secrets that memcheck reports if they choose a branch or
    /// an address.
    #[test]
    fn poison_the_key_schedule_branches_on_no_secret() {
        if !widelane_poison::is_active() {
            println!("SKIP: valgrind does not run this test");
            return;
        }
        let before = widelane_poison::errors();
        for (hash, len) in [(HashAlgorithm::SHA256, 32), (HashAlgorithm::SHA384, 48)] {
            let hkdf = hkdf(hash).unwrap();
            // One that is shorter than a block, and one that is longer.
            for shared in [vec![0x42; 32], vec![0x42; 1184]] {
                widelane_poison::secret(&shared);
                let early = hkdf.extract_from_zero_ikm(None);
                let salt = early.expand_block(&[b"derived"]);
                let handshake = hkdf.extract_from_secret(Some(salt.as_ref()), &shared);
                let traffic = handshake.expand_block(&[b"c hs traffic", &[7; 48]]);
                let finished = hkdf.expander_for_okm(&traffic);
                let mut keys = vec![0; 3 * len + 5];
                finished.expand_slice(&[b"key"], &mut keys).unwrap();
                let tag = hkdf.hmac_sign(&finished.expand_block(&[b"finished"]), b"transcript");
                widelane_poison::public(tag.as_ref());
                widelane_poison::public(&keys);
                assert!(tag.as_ref().iter().chain(&keys).any(|byte| *byte != 0));
            }
        }
        assert_eq!(widelane_poison::errors() - before, 0);
    }
}
