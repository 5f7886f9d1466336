//! What the encodings of private keys of every kind have in common.

use pkcs8::ObjectIdentifier;
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::der::{self, Decode, Reader, SliceReader};
use pkcs8::spki::AlgorithmIdentifierRef;

/// Whether this is `EncryptedPrivateKeyInfo` (RFC 5958, section 3): a sequence of an algorithm
/// identifier and an octet string, where a plain key begins with a version number.
pub(crate) fn is_encrypted(der: &[u8]) -> bool {
    let parse = || -> der::Result<()> {
        let mut reader = SliceReader::new(der)?;
        reader.sequence(|inner| {
            AlgorithmIdentifierRef::decode(inner)?;
            <&OctetStringRef>::decode(inner)?;
            Ok(())
        })
    };
    parse().is_ok()
}

/// What a key of an algorithm is called, for "the key is not … but …".
pub(crate) fn kind_of_key(algorithm: ObjectIdentifier) -> String {
    let known = KINDS.iter().find(|(known, _)| *known == algorithm);
    known.map_or_else(
        || format!("of algorithm {algorithm}"),
        |(_, kind)| (*kind).to_owned(),
    )
}

/// RFC 8017, appendix A.1; RFC 5480, section 2.1; RFC 8410, section 3; RFC 3279, sections 2.3.2 and
/// 2.3.3; RFC 9881, section 2.
const KINDS: [(ObjectIdentifier, &str); 10] = [
    (oid("1.2.840.113549.1.1.1"), "an RSA key"),
    (oid("1.2.840.10045.2.1"), "an elliptic-curve key"),
    (oid("1.3.101.112"), "an Ed25519 key"),
    (oid("1.3.101.113"), "an Ed448 key"),
    (oid("1.3.101.110"), "an X25519 key"),
    (oid("1.2.840.10040.4.1"), "a DSA key"),
    (oid("1.2.840.113549.1.3.1"), "a Diffie-Hellman key"),
    (oid("2.16.840.1.101.3.4.3.17"), "an ML-DSA-44 key"),
    (oid("2.16.840.1.101.3.4.3.18"), "an ML-DSA-65 key"),
    (oid("2.16.840.1.101.3.4.3.19"), "an ML-DSA-87 key"),
];

const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ecdsa, ed25519, mldsa, rsa};

    #[test]
    fn every_kind_tells_an_encrypted_key() {
        let der = include_bytes!("../tests/data/encrypted_pkcs8.der");
        assert!(is_encrypted(der) && !is_encrypted(&der[1..]) && !is_encrypted(&[]));
        let told = [
            rsa::PrivateKey::from_pkcs8_der(der)
                .unwrap_err()
                .to_string(),
            ecdsa::PrivateKey::from_pkcs8_der(der)
                .unwrap_err()
                .to_string(),
            ed25519::PrivateKey::from_pkcs8_der(der)
                .unwrap_err()
                .to_string(),
            mldsa::PrivateKey::from_pkcs8_der(der)
                .unwrap_err()
                .to_string(),
        ];
        for message in told {
            assert!(message.contains("is encrypted; decrypt it"), "{message}");
        }
    }

    #[test]
    fn keys_are_called_by_their_kind() {
        assert_eq!(kind_of_key(oid("1.3.101.112")), "an Ed25519 key");
        assert_eq!(kind_of_key(oid("1.2.3.4")), "of algorithm 1.2.3.4");
    }
}
