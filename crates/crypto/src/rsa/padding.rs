//! Encodings of a message digest as an integer of modulus length (RFC 8017, section 9).
//!
//! An encoded message is public: it follows from the signature and the public key.

use crate::Hash;
use aws_lc_rs::digest::{self, Digest};

/// Padding of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Padding {
    /// EMSA-PKCS1-v1_5.
    Pkcs1,
    /// EMSA-PSS, salt as long as the digest, MGF1 with the same hash.
    Pss,
}

/// EMSA-PKCS1-v1_5 (RFC 8017, section 9.2) of a message's digest.
///
/// Returns the encoded message as big-endian bytes, as long as the modulus, which must have at
/// least 2048 bits.
pub(super) fn emsa_pkcs1_v1_5(hash: Hash, digest: &[u8], modulus_bits: usize) -> Vec<u8> {
    debug_assert_eq!(digest.len(), hash.output_len());
    // Step 1, H = Hash(M), was the caller's. Step 2: T = DER of DigestInfo.
    pad_pkcs1(&[digest_info_prefix(hash), digest], modulus_bits)
}

/// Steps 3 to 6 of EMSA-PKCS1-v1_5: pads `T`, which comes in parts and has room.
pub(super) fn pad_pkcs1(t: &[&[u8]], modulus_bits: usize) -> Vec<u8> {
    let em_len = modulus_bits.div_ceil(8);
    let t_len = t.iter().map(|part| part.len()).sum::<usize>();
    // Step 3: "intended encoded message length too short".
    assert!(
        t_len <= room_in_pkcs1(modulus_bits),
        "a key has at least 2048 bits, and callers look at the length of other data"
    );
    let mut em = Vec::with_capacity(em_len);
    // Step 5, EM = 0x00 || 0x01 || PS || 0x00 || T; step 4, PS = 0xff repeated.
    em.extend_from_slice(&[0x00, 0x01]);
    em.resize(em_len - t_len - 1, 0xff);
    em.push(0x00);
    t.iter().for_each(|part| em.extend_from_slice(part));
    em
}

/// Most bytes of `T` that a modulus of `modulus_bits` bits has room for.
pub(super) const fn room_in_pkcs1(modulus_bits: usize) -> usize {
    modulus_bits.div_ceil(8).saturating_sub(11)
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
    assert!(em_len >= h_len + salt.len() + 2, "a key has at least 2048 bits");
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

/// EMSA-PSS (RFC 8017, section 9.1.2): whether an encoding is one of a message's digest, with a
/// salt as long as that.
///
/// Both are public, so is what goes wrong. The encoding is as [`emsa_pss`] returns it.
pub(super) fn emsa_pss_verify(hash: Hash, digest: &[u8], em: &[u8], modulus_bits: usize) -> bool {
    debug_assert_eq!(digest.len(), hash.output_len());
    debug_assert_eq!(em.len(), modulus_bits.div_ceil(8));
    let em_bits = modulus_bits - 1;
    let em_len = em_bits.div_ceil(8);
    let (above, em) = em.split_at(em.len() - em_len);
    let (h_len, salt_len) = (digest.len(), digest.len());
    // Step 3.
    assert!(em_len >= h_len + salt_len + 2, "a key has at least 2048 bits");
    // Steps 4 and 5.
    let db_len = em_len - h_len - 1;
    let (masked, tail) = em.split_at(db_len);
    let (h, trailer) = tail.split_at(h_len);
    // Step 6, and what does not fit into em_len (RFC 8017, section 8.1.2, step 2c).
    let unused = !(0xff >> (8 * em_len - em_bits));
    if trailer != [0xbc] || masked[0] & unused != 0 || above.iter().any(|byte| *byte != 0) {
        return false;
    }
    // Steps 7 to 9.
    let mut db = masked.to_vec();
    xor_mgf1(hash, h, &mut db);
    db[0] &= !unused;
    // Step 10.
    let (padding, salt) = db.split_at(db_len - salt_len);
    let (one, zeros) = padding.split_last().expect("of at least a byte by step 3");
    if *one != 0x01 || zeros.iter().any(|byte| *byte != 0) {
        return false;
    }
    // Steps 11 to 14.
    let mut context = digest::Context::new(hash.algorithm());
    context.update(&[0; 8]);
    context.update(digest);
    context.update(salt);
    context.finish().as_ref() == h
}

/// DER of `DigestInfo` up to the digest itself (RFC 8017, section 9.2, note 1).
const fn digest_info_prefix(hash: Hash) -> &'static [u8; 19] {
    match hash {
        Hash::Sha256 => &SHA256_PREFIX,
        Hash::Sha384 => &SHA384_PREFIX,
        Hash::Sha512 => &SHA512_PREFIX,
    }
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
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20,
];
const SHA384_PREFIX: [u8; 19] = [
    0x30, 0x41, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00, 0x04, 0x30,
];
const SHA512_PREFIX: [u8; 19] = [
    0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05, 0x00, 0x04, 0x40,
];

/// Recovers the salt from an encoded message with a salt of this length. The caller learns whether
/// it is right by encoding anew.
#[cfg(test)]
pub(super) fn pss_salt(hash: Hash, em: &[u8], salt_len: usize, modulus_bits: usize) -> Vec<u8> {
    let em_len = (modulus_bits - 1).div_ceil(8);
    let em = &em[em.len() - em_len..];
    let (masked, tail) = em.split_at(em_len - hash.output_len() - 1);
    let mut db = masked.to_vec();
    xor_mgf1(hash, &tail[..hash.output_len()], &mut db);
    db[db.len() - salt_len..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::chain::{keys, request};
    use crate::rsa::{Scheme, Size, portable, vectors};

    const HASHES: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

    #[test]
    fn encodings_are_those_of_published_signatures() {
        for size in Size::ALL {
            let bits = size.modulus_bits();
            for group in vectors::pkcs1(bits) {
                let hash = group.scheme.hash();
                for vector in &group.vectors {
                    let digest = digest::digest(hash.algorithm(), &vector.message);
                    assert_eq!(
                        emsa_pkcs1_v1_5(hash, digest.as_ref(), bits),
                        portable::open(group.key.parts(), &vector.signature)
                    );
                }
            }
            let mut salt_lengths = Vec::new();
            for (group, salt_len) in vectors::pss_any_salt(bits) {
                let hash = group.scheme.hash();
                for vector in &group.vectors {
                    let digest = digest::digest(hash.algorithm(), &vector.message);
                    assert_eq!(
                        emsa_pss(hash, digest.as_ref(), &vector.salt, bits),
                        portable::open(group.key.parts(), &vector.signature)
                    );
                }
                salt_lengths.push(salt_len);
            }
            assert!(salt_lengths.contains(&32), "{size}: {salt_lengths:?}");
        }
    }

    /// aws-lc-rs pads by itself; its padding opens to ours.
    #[test]
    fn encodings_are_those_of_aws_lc_rs() {
        for size in Size::ALL {
            let [key, ..] = keys(size);
            for scheme in Scheme::ALL {
                let hash = scheme.hash();
                let digest = digest::digest(hash.algorithm(), b"message");
                let signature = request(&key, scheme, b"message").alone().unwrap();
                let opened = portable::open(key.parts(), &signature);
                let bits = size.modulus_bits();
                let ours = match scheme.padding() {
                    Padding::Pkcs1 => emsa_pkcs1_v1_5(hash, digest.as_ref(), bits),
                    Padding::Pss => {
                        let salt = pss_salt(hash, &opened, hash.output_len(), bits);
                        emsa_pss(hash, digest.as_ref(), &salt, bits)
                    }
                };
                assert_eq!(ours, opened, "{size} {scheme:?}");
            }
        }
    }

    #[test]
    fn digest_info_is_der_of_the_algorithm() {
        use pkcs8::ObjectIdentifier;
        use pkcs8::der::asn1::{AnyRef, OctetStringRef};
        use pkcs8::der::{Decode, Reader, SliceReader};
        use pkcs8::spki::AlgorithmIdentifierRef;

        let oids = [
            "2.16.840.1.101.3.4.2.1",
            "2.16.840.1.101.3.4.2.2",
            "2.16.840.1.101.3.4.2.3",
        ];
        for (hash, oid) in HASHES.into_iter().zip(oids) {
            let digest = vec![0xa5; hash.output_len()];
            let em = emsa_pkcs1_v1_5(hash, &digest, 2048);
            let end_of_ps = em.iter().skip(2).position(|byte| *byte == 0).unwrap() + 2;
            assert_eq!(em[..2], [0, 1]);
            assert!(em[2..end_of_ps].iter().all(|byte| *byte == 0xff));
            let mut reader = SliceReader::new(&em[end_of_ps + 1..]).unwrap();
            let (algorithm, value) = reader
                .sequence(|inner| {
                    let algorithm = AlgorithmIdentifierRef::decode(inner)?;
                    pkcs8::der::Result::Ok((algorithm, <&OctetStringRef>::decode(inner)?))
                })
                .unwrap();
            assert_eq!(algorithm.oid, ObjectIdentifier::new_unwrap(oid));
            assert_eq!(algorithm.parameters, Some(AnyRef::NULL));
            assert_eq!(value.as_bytes(), digest);
        }
    }

    /// Lengths, the zero bits at the top and the salt, for moduli of any size.
    #[test]
    fn pss_fits_any_modulus() {
        for hash in HASHES {
            let digest = vec![0x3c; hash.output_len()];
            for bits in 2048..2048 + 17 {
                for seed in 0..8u8 {
                    let salt = vec![seed; hash.output_len()];
                    let em = emsa_pss(hash, &digest, &salt, bits);
                    assert_eq!(em.len(), bits.div_ceil(8));
                    assert_eq!(em.last(), Some(&0xbc));
                    let used = em.iter().position(|byte| *byte != 0).unwrap();
                    let top = (em.len() - used) * 8 - em[used].leading_zeros() as usize;
                    assert!(top < bits, "{bits}: {top}");
                    assert_eq!(pss_salt(hash, &em, salt.len(), bits), salt);
                    assert!(emsa_pss_verify(hash, &digest, &em, bits));
                    for place in 0..em.len() {
                        let mut other = em.clone();
                        other[place] ^= 1 << (place % 8);
                        assert!(!emsa_pss_verify(hash, &digest, &other, bits), "{bits} {place}");
                    }
                    let longer = emsa_pss(hash, &digest, &vec![seed; salt.len() + 1], bits);
                    assert!(!emsa_pss_verify(hash, &digest, &longer, bits));
                }
            }
        }
    }
}
