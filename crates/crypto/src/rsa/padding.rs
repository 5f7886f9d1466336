//! Encodings of a message digest as an integer of modulus length (RFC 8017, section 9).
//!
//! An encoded message is public: whoever holds the signature and the public key can compute it.

use aws_lc_rs::digest::{self, Digest};

/// How a digest is padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Padding {
    /// EMSA-PKCS1-v1_5.
    Pkcs1,
    /// EMSA-PSS, salt as long as the digest, MGF1 with the same hash.
    Pss,
}

/// The hash functions that signatures use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// The implementation.
    pub(super) fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }

    /// Bytes in a digest, `hLen`.
    pub(super) const fn output_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// DER of `DigestInfo` up to the digest itself (RFC 8017, section 9.2, note 1).
    const fn digest_info_prefix(self) -> &'static [u8; 19] {
        match self {
            Self::Sha256 => &SHA256_PREFIX,
            Self::Sha384 => &SHA384_PREFIX,
            Self::Sha512 => &SHA512_PREFIX,
        }
    }
}

/// EMSA-PKCS1-v1_5 (RFC 8017, section 9.2) of a message's digest.
///
/// Returns the encoded message as big-endian bytes, as long as the modulus, which must have at
/// least 2048 bits.
pub(super) fn emsa_pkcs1_v1_5(hash: Hash, digest: &[u8], modulus_bits: usize) -> Vec<u8> {
    debug_assert_eq!(digest.len(), hash.output_len());
    let em_len = modulus_bits.div_ceil(8);
    // Step 1, H = Hash(M), was the caller's. Step 2: T = DER of DigestInfo.
    let prefix = hash.digest_info_prefix();
    let t_len = prefix.len() + digest.len();
    // Step 3: "intended encoded message length too short".
    assert!(em_len >= t_len + 11, "a key has at least 2048 bits");
    let mut em = Vec::with_capacity(em_len);
    // Step 5, EM = 0x00 || 0x01 || PS || 0x00 || T; step 4, PS = 0xff repeated.
    em.extend_from_slice(&[0x00, 0x01]);
    em.resize(em_len - t_len - 1, 0xff);
    em.push(0x00);
    em.extend_from_slice(prefix);
    em.extend_from_slice(digest);
    em
}

/// EMSA-PSS (RFC 8017, section 9.1.1) of a message's digest with the given salt.
///
/// Returns the encoded message as big-endian bytes, as long as the modulus, which must have at
/// least 2048 bits: where `emBits` is a multiple of 8, the encoding is one byte shorter than the
/// modulus and a zero byte comes first (RFC 8017, section 8.1.1, step 2c).
pub(super) fn emsa_pss(hash: Hash, digest: &[u8], salt: &[u8], modulus_bits: usize) -> Vec<u8> {
    debug_assert_eq!(digest.len(), hash.output_len());
    let em_bits = modulus_bits - 1;
    let em_len = em_bits.div_ceil(8);
    let h_len = digest.len();
    // Steps 1 and 2, mHash = Hash(M), were the caller's. Step 3: "encoding error".
    assert!(
        em_len >= h_len + salt.len() + 2,
        "a key has at least 2048 bits"
    );
    // Steps 4 to 6: M' = eight zero bytes || mHash || salt, H = Hash(M').
    let mut context = digest::Context::new(hash.algorithm());
    context.update(&[0; 8]);
    context.update(digest);
    context.update(salt);
    let h = context.finish();

    let modulus_len = modulus_bits.div_ceil(8);
    let mut em = vec![0u8; modulus_len];
    let db_len = em_len - h_len - 1;
    let (db, tail) = em[modulus_len - em_len..].split_at_mut(db_len);
    // Steps 7 and 8: DB = PS || 0x01 || salt, PS = zero bytes.
    db[db_len - salt.len() - 1] = 0x01;
    db[db_len - salt.len()..].copy_from_slice(salt);
    // Steps 9 and 10: maskedDB = DB xor MGF1(H).
    xor_mgf1(hash, h.as_ref(), db);
    // Step 11: the leftmost 8 * emLen - emBits bits of maskedDB become zero.
    db[0] &= 0xff >> (8 * em_len - em_bits);
    // Step 12: EM = maskedDB || H || 0xbc.
    tail[..h_len].copy_from_slice(h.as_ref());
    tail[h_len] = 0xbc;
    em
}

/// Xors MGF1 (RFC 8017, appendix B.2.1) of `seed` into `mask`.
fn xor_mgf1(hash: Hash, seed: &[u8], mask: &mut [u8]) {
    let mut seeded = digest::Context::new(hash.algorithm());
    seeded.update(seed);
    // Step 3: T = Hash(seed || counter) for counter = 0, 1, …
    for (counter, block) in (0u32..).zip(mask.chunks_mut(hash.output_len())) {
        let mut context = seeded.clone();
        context.update(&counter.to_be_bytes());
        let digest: Digest = context.finish();
        for (byte, mask) in block.iter_mut().zip(digest.as_ref()) {
            *byte ^= mask;
        }
    }
}

const SHA256_PREFIX: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];
const SHA384_PREFIX: [u8; 19] = [
    0x30, 0x41, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05,
    0x00, 0x04, 0x30,
];
const SHA512_PREFIX: [u8; 19] = [
    0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05,
    0x00, 0x04, 0x40,
];
