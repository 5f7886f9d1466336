//! Numbers of the operations. A number keeps its meaning: new operations get new ones.

/// Operations that the engine knows by another name, or that a program has added.
pub const OTHER: u16 = 0;

/// Number, name in the engine, and what it is to a reader of handshakes.
const OPERATIONS: &[(u16, &str, &str)] = &[
    (1, "rsa2048-sign", "rsa-2048 sign"),
    (2, "rsa3072-sign", "rsa-3072 sign"),
    (3, "rsa4096-sign", "rsa-4096 sign"),
    (4, "rsa-sign", "rsa sign"),
    (5, "rsa2048-verify", "rsa-2048 verify"),
    (6, "p256-ecdsa-sign", "ecdsa-p256 sign"),
    (7, "p256-ecdsa-verify", "ecdsa-p256 verify"),
    (8, "p384-ecdsa-sign", "ecdsa-p384 sign"),
    (9, "p384-ecdsa-verify", "ecdsa-p384 verify"),
    (10, "ed25519-sign", "ed25519 sign"),
    (11, "ed25519-verify", "ed25519 verify"),
    (12, "x25519-keygen", "x25519 generate"),
    (13, "x25519-derive", "x25519 derive"),
    (14, "p256-keygen", "p256 generate"),
    (15, "p256-ecdh", "p256 derive"),
    (16, "p384-keygen", "p384 generate"),
    (17, "p384-ecdh", "p384 derive"),
    (18, "mlkem512-keygen", "ml-kem-512 generate"),
    (19, "mlkem512-encaps", "ml-kem-512 encapsulate"),
    (20, "mlkem512-decaps", "ml-kem-512 decapsulate"),
    (21, "mlkem768-keygen", "ml-kem-768 generate"),
    (22, "mlkem768-encaps", "ml-kem-768 encapsulate"),
    (23, "mlkem768-decaps", "ml-kem-768 decapsulate"),
    (24, "mlkem1024-keygen", "ml-kem-1024 generate"),
    (25, "mlkem1024-encaps", "ml-kem-1024 encapsulate"),
    (26, "mlkem1024-decaps", "ml-kem-1024 decapsulate"),
    (27, "mldsa44-sign", "ml-dsa-44 sign"),
    (28, "mldsa44-verify", "ml-dsa-44 verify"),
    (29, "mldsa65-sign", "ml-dsa-65 sign"),
    (30, "mldsa65-verify", "ml-dsa-65 verify"),
    (31, "mldsa87-sign", "ml-dsa-87 sign"),
    (32, "mldsa87-verify", "ml-dsa-87 verify"),
];

/// The number of an operation, by its name in the engine; [`OTHER`] if it has none.
pub fn number(name: &str) -> u16 {
    let row = OPERATIONS.iter().find(|(_, known, _)| *known == name);
    row.map_or(OTHER, |(number, ..)| *number)
}

/// The name of an operation in the engine, its counters and `widelane speed`.
pub fn name(number: u16) -> Option<&'static str> {
    row(number).map(|(_, name, _)| *name)
}

/// Description of an operation: algorithm and verb, as in `rsa-2048 sign`.
pub fn description(number: u16) -> Option<&'static str> {
    row(number).map(|(.., description)| *description)
}

fn row(number: u16) -> Option<&'static (u16, &'static str, &'static str)> {
    OPERATIONS.iter().find(|(known, ..)| *known == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_a_number_of_its_own() {
        for (expected, (known, name, description)) in (1..).zip(OPERATIONS) {
            assert_eq!(*known, expected, "{name}");
            assert_eq!(number(name), *known);
            assert_eq!(self::name(*known), Some(*name));
            assert_eq!(self::description(*known), Some(*description));
        }
        assert_eq!(number("square"), OTHER);
        assert_eq!((name(OTHER), description(u16::MAX)), (None, None));
    }
}
