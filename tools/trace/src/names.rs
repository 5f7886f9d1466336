//! Names of functions in lists, from their role and the size of what they returned.

use crate::functions::{Function, Role};
use crate::tls::Facts;

/// Sizes of signatures, from and to, in bytes. Those of ECDSA vary, as DER leaves out zeros.
const SIGNATURES: &[(u64, u64, &str)] = &[
    (128, 128, "rsa-1024"),
    (256, 256, "rsa-2048"),
    (384, 384, "rsa-3072"),
    (512, 512, "rsa-4096"),
    (64, 64, "ed25519"),
    (8, 72, "ecdsa-p256"),
    (102, 104, "ecdsa-p384"),
    (114, 114, "ed448"),
    (137, 139, "ecdsa-p521"),
    (2420, 2420, "ml-dsa-44"),
    (3309, 3309, "ml-dsa-65"),
    (4627, 4627, "ml-dsa-87"),
];

/// Sizes of the ciphertexts of ML-KEM.
const CIPHERTEXTS: &[(u64, &str)] = &[(768, "ml-kem-512"), (1088, "ml-kem-768"), (1568, "ml-kem-1024")];

/// Groups: which curve, which size its secret has, and which ML-KEM is in them.
const GROUPS: &[(u16, &str, u64, Option<&str>)] = &[
    (29, "x25519", 32, None),
    (30, "x448", 56, None),
    (0x0100, "ffdh", 256, None),
    (0x0101, "ffdh", 384, None),
    (0x0102, "ffdh", 512, None),
    (0x0103, "ffdh", 768, None),
    (0x0104, "ffdh", 1024, None),
    (0x0200, "", 0, Some("ml-kem-512")),
    (0x0201, "", 0, Some("ml-kem-768")),
    (0x0202, "", 0, Some("ml-kem-1024")),
    (0x11eb, "", 0, Some("ml-kem-768")),
    (0x11ec, "x25519", 32, Some("ml-kem-768")),
    (0x11ed, "", 0, Some("ml-kem-1024")),
];

/// The name of a call of a function, in a handshake of which this is known.
pub(crate) fn operation(function: &Function, size: Option<u64>, facts: &Facts) -> String {
    let name = size_name(function.role, size, facts);
    if let Some(pattern) = &function.name {
        let text = pattern.replace("{size}", name.unwrap_or_default());
        let words: Vec<&str> = text.split_whitespace().collect();
        return words.join(" ");
    }
    let verb = match function.role {
        Role::Sign => "sign",
        Role::Verify => "verify",
        Role::Generate => "generate",
        Role::Derive => "derive",
        Role::Encapsulate => "encapsulate",
        Role::Decapsulate => "decapsulate",
        _ => return function.symbol.clone(),
    };
    match name {
        Some(name) => format!("{name} {verb}"),
        None => verb.to_owned(),
    }
}

/// The algorithm.
fn size_name(role: Role, size: Option<u64>, facts: &Facts) -> Option<&'static str> {
    let group = facts.group.and_then(|group| {
        let mut groups = GROUPS.iter();
        groups.find(|(number, ..)| *number == group)
    });
    match role {
        Role::Sign | Role::Verify => {
            let size = size?;
            let mut sizes = SIGNATURES.iter();
            let row = sizes.find(|(from, to, _)| (*from..=*to).contains(&size))?;
            Some(row.2)
        }
        Role::Derive => {
            let curve = group.filter(|(_, _, secret, _)| size == Some(*secret));
            Some(curve.map_or("ecdh", |(_, curve, ..)| *curve))
        }
        Role::Encapsulate | Role::Decapsulate => {
            let row = CIPHERTEXTS.iter().find(|(length, _)| size == Some(*length));
            let by_size = row.map(|(_, name)| *name);
            by_size.or_else(|| group.and_then(|(_, _, _, kem)| *kem))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimens::function;

    fn named(role: Role, size: u64, group: u16) -> String {
        let facts = Facts {
            group: Some(group),
            ..Facts::default()
        };
        operation(&function("f", role), Some(size), &facts)
    }

    #[test]
    fn sizes_give_algorithms() {
        for (size, name) in [
            (256, "rsa-2048 sign"),
            (384, "rsa-3072 sign"),
            (512, "rsa-4096 sign"),
            (64, "ed25519 sign"),
            (63, "ecdsa-p256 sign"),
            (72, "ecdsa-p256 sign"),
            (103, "ecdsa-p384 sign"),
            (114, "ed448 sign"),
            (139, "ecdsa-p521 sign"),
            (3309, "ml-dsa-65 sign"),
            (7, "sign"),
            (u64::MAX, "sign"),
        ] {
            assert_eq!(named(Role::Sign, size, 29), name);
        }
        assert_eq!(named(Role::Derive, 32, 29), "x25519 derive");
        assert_eq!(named(Role::Derive, 32, 23), "ecdh derive");
        assert_eq!(named(Role::Derive, 32, 0x11ec), "x25519 derive");
        assert_eq!(named(Role::Derive, 512, 0x0102), "ffdh derive");
        assert_eq!(named(Role::Encapsulate, 1088, 0), "ml-kem-768 encapsulate");
        assert_eq!(named(Role::Decapsulate, 32, 0x11ed), "ml-kem-1024 decapsulate");
        assert_eq!(named(Role::Decapsulate, 48, 23), "decapsulate");
        assert_eq!(named(Role::Generate, 32, 29), "generate");
    }

    #[test]
    fn rows_of_the_table_have_names_of_their_own() {
        let mut row = (*function("f", Role::Sign)).clone();
        row.name = Some("{size} private".into());
        let facts = Facts::default();
        assert_eq!(operation(&row, Some(256), &facts), "rsa-2048 private");
        assert_eq!(operation(&row, None, &facts), "private");
        row.name = Some("certificate chain".into());
        assert_eq!(operation(&row, Some(256), &facts), "certificate chain");
    }
}
