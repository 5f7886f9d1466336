//! DER of `ECDSA-Sig-Value` (RFC 3279, section 2.2.3): a sequence of two integers.

use pkcs8::der::asn1::UintRef;
use pkcs8::der::{Decode, Reader, SliceReader};

/// The encoding of a signature of big-endian numbers.
pub(super) fn signature(r: &[u8], s: &[u8]) -> Vec<u8> {
    // Two integers of at most 49 bytes each: every length is below 128, in one byte.
    let mut out = vec![SEQUENCE, 0];
    for number in [r, s] {
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        let number = &number[zeros.min(number.len() - 1)..];
        // The highest bit is a sign.
        let sign = usize::from(number[0] >> 7);
        out.extend_from_slice(&[INTEGER, (number.len() + sign) as u8]);
        out.extend(std::iter::repeat_n(0, sign));
        out.extend_from_slice(number);
    }
    out[1] = (out.len() - 2) as u8;
    out
}

/// The numbers of a signature, big endian without leading zeros; `None` unless it is strict DER.
pub(super) fn numbers(signature: &[u8]) -> Option<[&[u8]; 2]> {
    let mut reader = SliceReader::new(signature).ok()?;
    let numbers = reader.sequence(|inner| {
        let (r, s) = (UintRef::decode(inner)?, UintRef::decode(inner)?);
        Ok::<_, pkcs8::der::Error>([r.as_bytes(), s.as_bytes()])
    });
    numbers.ok().filter(|_| reader.is_finished())
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_without_their_zeros() {
        for len in [32, 48] {
            for (first, zeros) in [(0x7f, 0), (0x80, 0), (0xff, 0), (1, 3)] {
                let mut r = vec![0; len];
                r[zeros] = first;
                let mut s = vec![0; len];
                s[len - 1] = 1;
                let der = signature(&r, &s);
                assert_eq!(numbers(&der), Some([&r[zeros..], &[1][..]]));
            }
        }
    }

    #[test]
    fn what_is_not_strict_is_refused() {
        let good = [0x30, 6, 2, 1, 1, 2, 1, 2];
        assert!(numbers(&good).is_some());
        let bad: [&[u8]; 8] = [
            &[],
            &good[..7],
            // Something after the sequence, and in it.
            &[0x30, 6, 2, 1, 1, 2, 1, 2, 0],
            &[0x30, 9, 2, 1, 1, 2, 1, 2, 2, 1, 3],
            // A needless zero, a negative number, an empty one.
            &[0x30, 7, 2, 2, 0, 1, 2, 1, 2],
            &[0x30, 6, 2, 1, 0x81, 2, 1, 2],
            &[0x30, 5, 2, 0, 2, 1, 2],
            // A length in two bytes that fits one.
            &[0x30, 0x81, 6, 2, 1, 1, 2, 1, 2],
        ];
        for signature in bad {
            assert_eq!(numbers(signature), None, "{signature:x?}");
        }
    }
}
