//! Loading of private keys: which are accepted, and the errors for the others.

use aws_lc_rs::signature::{self, UnparsedPublicKey};
use pkcs1::RsaPrivateKeyRef;
use pkcs1::der::asn1::UintRef;
use pkcs1::der::{Decode, Encode};
use proptest::prelude::*;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use widelane_crypto::rsa::{OtherSigning, Scheme, Signing, Size};
use widelane_crypto::sign::{self, Algorithm, Input, Key, KeyError, Request};
use widelane_crypto::{Operation, Task};

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("data/", $name)).as_slice()
    };
}

/// Name, PEM, bits, lane size, and whether aws-lc-rs takes the public exponent.
type Sound = (&'static str, &'static [u8], usize, Option<Size>, bool);

/// Every kind of sound key.
const SOUND: &[Sound] = &[
    ("a", data!("rsa2048_a.pem"), 2048, Some(Size::Rsa2048), true),
    (
        "a, PKCS#1",
        data!("rsa2048_a_pkcs1.pem"),
        2048,
        Some(Size::Rsa2048),
        true,
    ),
    ("a, 3072", data!("rsa3072_a.pem"), 3072, Some(Size::Rsa3072), true),
    ("a, 4096", data!("rsa4096_a.pem"), 4096, Some(Size::Rsa4096), true),
    ("e = 3", data!("rsa2048_e3.pem"), 2048, Some(Size::Rsa2048), true),
    ("e = 3, 3072", data!("rsa3072_e3.pem"), 3072, Some(Size::Rsa3072), true),
    (
        "e = 2^31 - 1",
        data!("rsa2048_e31bit.pem"),
        2048,
        Some(Size::Rsa2048),
        true,
    ),
    (
        "e of 33 bits",
        data!("rsa2048_e33bit.pem"),
        2048,
        Some(Size::Rsa2048),
        true,
    ),
    (
        "e of 40 bits",
        data!("rsa4096_e40bit.pem"),
        4096,
        Some(Size::Rsa4096),
        false,
    ),
    (
        "e of 64 bits",
        data!("rsa2048_e64bit.pem"),
        2048,
        Some(Size::Rsa2048),
        false,
    ),
    (
        "e of 255 bits",
        data!("rsa2048_e255bit.pem"),
        2048,
        Some(Size::Rsa2048),
        false,
    ),
    ("p < q", data!("rsa2048_p_below_q.pem"), 2048, Some(Size::Rsa2048), true),
    ("p of 1100 bits", data!("rsa2048_unbalanced.pem"), 2048, None, true),
    ("2049", data!("rsa2049.pem"), 2049, None, true),
    ("2056", data!("rsa2056.pem"), 2056, None, true),
    ("2560", data!("rsa2560.pem"), 2560, None, true),
    ("8192", data!("rsa8192.pem"), 8192, None, true),
];

#[test]
fn sound_keys_are_accepted_and_sign() {
    let backend = widelane_crypto::Backend::AwsLc;
    for &(name, pem, bits, size, aws_lc_verifies) in SOUND {
        let key = Key::from_pem(pem).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(key.algorithm(), Algorithm::Rsa, "{name}");
        assert_eq!(key.signature_len(), bits.div_ceil(8), "{name}");
        assert_eq!(key.clone().in_lanes().is_ok(), size.is_some(), "{name}");
        let public = key.public_key_info_der();
        for scheme in Scheme::ALL {
            let request = request(&key, scheme, name.as_bytes());
            for of in Size::ALL {
                let takes = Signing(of).on(backend).unwrap().takes(&request);
                assert_eq!(takes, size == Some(of), "{name}");
            }
            assert!(OtherSigning.takes(&request));
            let signature = request.alone().unwrap();
            assert_eq!(signature.len(), bits.div_ceil(8), "{name}");
            let verified = UnparsedPublicKey::new(verification(scheme), &public).verify(name.as_bytes(), &signature);
            assert_eq!(verified.is_ok(), aws_lc_verifies, "{name} {scheme:?}");
        }
    }
}

#[test]
fn every_encoding_gives_the_same_key() {
    for (pkcs8, pkcs1) in [
        (data!("rsa2048_a.pem"), data!("rsa2048_a_pkcs1.pem")),
        (data!("rsa3072_a.pem"), data!("rsa3072_a_pkcs1.pem")),
        (data!("rsa4096_a.pem"), data!("rsa4096_a_pkcs1.pem")),
    ] {
        let from_pem = Key::from_pem(pkcs8).unwrap();
        let pkcs8 = PrivateKeyDer::from_pem_slice(pkcs8).unwrap();
        let pkcs1 = PrivateKeyDer::from_pem_slice(pkcs1).unwrap();
        for key in [
            Key::from_pkcs8_der(pkcs8.secret_der()),
            Key::from_pkcs1_der(pkcs1.secret_der()),
            Key::from_der(&pkcs8),
            Key::from_der(&pkcs1),
        ] {
            let key = key.unwrap();
            assert_eq!(key.public_key_info_der(), from_pem.public_key_info_der());
        }
        assert!(Key::from_pkcs8_der(pkcs1.secret_der()).is_err());
        assert!(Key::from_pkcs1_der(pkcs8.secret_der()).is_err());
    }
}

/// Each kind of unusable key gets its own error, and the message says what to do.
#[test]
fn unusable_keys_are_refused_by_name() {
    let cases: &[(&[u8], KeyError, &[&str])] = &[
        (
            data!("encrypted_pkcs8.pem"),
            KeyError::Encrypted,
            &["encrypted", "openssl pkey"],
        ),
        (
            data!("encrypted_traditional.pem"),
            KeyError::Encrypted,
            &["encrypted", "openssl pkey"],
        ),
        (
            data!("rsa2048_pss_oid.pem"),
            KeyError::RestrictedToPss,
            &["id-RSASSA-PSS", "rsaEncryption"],
        ),
        (
            data!("rsa2048_three_primes.pem"),
            KeyError::MultiPrime,
            &["more than two primes", "with two"],
        ),
        (
            data!("rsa1024.pem"),
            KeyError::TooSmall { bits: 1024 },
            &["too small", "1024 bits", "2048", "openssl genpkey"],
        ),
        (
            data!("rsa2047.pem"),
            KeyError::TooSmall { bits: 2047 },
            &["too small", "2047 bits"],
        ),
        (
            data!("rsa8200.pem"),
            KeyError::TooLarge { bits: 8200 },
            &["too large", "8200 bits", "8192"],
        ),
        (
            data!("rsa2048_composite_p.pem"),
            KeyError::TrialSignature,
            &["wrong signatures", "not a prime"],
        ),
        (
            data!("rsa2048_equal_primes.pem"),
            EQUAL_PRIMES,
            &["inconsistent", "equal"],
        ),
        (b"", KeyError::NoKeyInPem, &["no private key", "BEGIN"]),
        (
            b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
            KeyError::NoKeyInPem,
            &["no private key"],
        ),
    ];
    for (pem, expected, said) in cases {
        let error = Key::from_pem(pem).unwrap_err();
        assert_eq!(error, *expected);
        for text in *said {
            assert!(error.to_string().contains(text), "{error}: {text}");
        }
    }
}

/// The algorithm is read from the encoding, and a key tells what it signs.
#[test]
fn keys_of_every_kind_are_read() {
    use widelane_crypto::ecdsa::Curve;
    let p256 = Algorithm::Ecdsa(Curve::P256);
    for (pem, algorithm, len) in [
        (data!("rsa2048_a.pem"), Algorithm::Rsa, 256),
        (data!("ec_p256.pem"), p256, 72),
        (data!("ec_p256_sec1.pem"), p256, 72),
        (data!("ed25519.pem"), Algorithm::Ed25519, 64),
    ] {
        let key = Key::from_pem(pem).unwrap();
        assert_eq!(key.algorithm(), algorithm);
        assert_eq!(key.signature_len(), len);
        for scheme in key.schemes() {
            let request = Request::new(&key, *scheme, Input::Message(b"message"));
            assert!(request.unwrap().alone().unwrap().len() <= len);
        }
    }
    assert_eq!(Algorithm::Ecdsa(Curve::P384).schemes().len(), 1);
}

/// A key for something else is called by its kind.
#[test]
fn keys_without_signatures_are_refused_by_name() {
    let mut der = der(data!("ed25519.pem"));
    // id-X25519 is id-Ed25519 less 2.
    der[11] -= 2;
    let error = Key::from_pkcs8_der(&der).unwrap_err().to_string();
    assert!(error.contains("an X25519 key"), "{error}");
    assert!(error.contains("use an RSA"), "{error}");
}

/// Keys refuse schemes of others, and hash values where they sign messages.
#[test]
fn keys_sign_by_their_own_schemes_only() {
    let [rsa, ec, ed25519] =
        [data!("rsa2048_a.pem"), data!("ec_p256.pem"), data!("ed25519.pem")].map(|pem| Key::from_pem(pem).unwrap());
    let refused = |key: &Key, scheme, input| {
        let refused = Request::new(key, scheme, input).unwrap_err();
        assert_eq!(refused, sign::Error::Scheme);
    };
    let all = [&rsa, &ec, &ed25519];
    for (one, key) in all.iter().enumerate() {
        for (_, stranger) in all.iter().enumerate().filter(|(other, _)| *other != one) {
            let scheme = stranger.schemes()[0];
            refused(key, scheme, Input::Message(b"message"));
        }
    }
    refused(&ed25519, ed25519.schemes()[0], Input::Digest(&[0; 32]));
    assert!(Request::new(&ec, ec.schemes()[0], Input::Digest(&[0; 20])).is_ok());
    let refused = Request::unhashed(&ec, b"data").unwrap_err();
    assert_eq!(refused, sign::Error::Scheme);
}

#[test]
fn an_encrypted_key_in_der_is_recognised() {
    let der = data!("encrypted_pkcs8.der");
    assert_eq!(Key::from_pkcs8_der(der).unwrap_err(), KeyError::Encrypted);
    assert_eq!(Key::from_pkcs1_der(der).unwrap_err(), KeyError::Encrypted);
}

#[test]
fn broken_pem_says_that_it_is_broken() {
    let pem = data!("rsa2048_a.pem");
    let cut = &pem[..pem.len() / 2];
    let error = Key::from_pem(cut).unwrap_err();
    assert!(
        matches!(
            error,
            KeyError::Malformed {
                part: "the PEM text",
                ..
            }
        ),
        "{error}"
    );
}

/// Every prefix, and anything after the end, is malformed and never panics.
#[test]
fn truncated_and_overlong_der_is_malformed() {
    let pkcs8 = der(data!("rsa2048_a.pem"));
    let pkcs1 = der(data!("rsa2048_a_pkcs1.pem"));
    for length in 0..pkcs8.len() {
        let error = Key::from_pkcs8_der(&pkcs8[..length]).unwrap_err();
        assert!(matches!(error, KeyError::Malformed { .. }), "{length}: {error}");
    }
    for length in 0..pkcs1.len() {
        let error = Key::from_pkcs1_der(&pkcs1[..length]).unwrap_err();
        assert!(matches!(error, KeyError::Malformed { .. }), "{length}: {error}");
    }
    for mut long in [pkcs8, pkcs1] {
        long.push(0);
        let error = Key::from_pkcs8_der(&long).unwrap_err();
        assert!(matches!(error, KeyError::Malformed { .. }), "{error}");
        let error = Key::from_pkcs1_der(&long).unwrap_err();
        assert!(matches!(error, KeyError::Malformed { .. }), "{error}");
    }
}

/// The error names the byte at which the encoding is wrong.
#[test]
fn malformed_der_says_where() {
    let mut der = der(data!("rsa2048_a.pem"));
    der.truncate(700);
    let text = Key::from_pkcs8_der(&der).unwrap_err().to_string();
    assert!(text.starts_with("the PKCS#8 key is malformed:"), "{text}");
    assert!(text.contains("byte"), "{text}");
}

/// No single flipped bit survives the checks: every one of them changes the encoding or breaks an
/// equation.
#[test]
fn no_flipped_bit_is_accepted() {
    for pem in [
        data!("rsa2048_a.pem"),
        data!("rsa2048_e3.pem"),
        data!("rsa2048_p_below_q.pem"),
    ] {
        let pristine = PrivateKeyDer::from_pem_slice(pem).unwrap();
        let load = |der: &[u8]| match &pristine {
            PrivateKeyDer::Pkcs8(_) => Key::from_pkcs8_der(der),
            _ => Key::from_pkcs1_der(der),
        };
        let mut der = pristine.secret_der().to_vec();
        assert!(load(&der).is_ok());
        for index in 0..der.len() {
            // One bit a byte keeps the test short; which one changes from byte to byte.
            let bit = 1 << (index * 5 % 8);
            der[index] ^= bit;
            let result = load(&der);
            assert!(result.is_err(), "byte {index}, mask {bit:#x}");
            der[index] ^= bit;
        }
    }
}

/// Each number of the key, changed alone, is found out by the check that is meant for it.
#[test]
fn each_wrong_number_is_named() {
    let der = der(data!("rsa2048_a_pkcs1.pem"));
    let change = |edit: &dyn Fn(&mut Numbers)| {
        let mut numbers = Numbers::of(&der);
        edit(&mut numbers);
        Key::from_pkcs1_der(&numbers.to_der()).map(|_| ()).unwrap_err()
    };
    let flip = |number: &mut Vec<u8>| {
        let middle = number.len() / 2;
        number[middle] ^= 0x10;
    };
    let set = |number: &mut Vec<u8>, value: &[u8]| value.clone_into(number);
    let even = |number: &mut Vec<u8>| *number.last_mut().unwrap() &= 0xfe;

    assert_eq!(change(&|k| flip(&mut k.n)), PRODUCT);
    assert_eq!(change(&|k| flip(&mut k.p)), PRODUCT);
    assert_eq!(change(&|k| flip(&mut k.q)), PRODUCT);
    assert_eq!(change(&|k| even(&mut k.n)), EVEN_MODULUS);
    assert_eq!(change(&|k| even(&mut k.p)), PRODUCT);
    assert_eq!(change(&|k| set(&mut k.p, &[1])), PRODUCT);
    assert_eq!(change(&|k| set(&mut k.q, &[0])), PRODUCT);
    assert_eq!(change(&|k| k.p = k.n.clone()), PRODUCT);
    assert_eq!(change(&|k| k.p = vec![0x7f; 5000]), PRODUCT);
    assert_eq!(change(&|k| k.p = k.q.clone()), EQUAL_PRIMES);
    assert_eq!(change(&|k| even(&mut k.e)), KeyError::EvenExponent);
    assert_eq!(change(&|k| set(&mut k.e, &[0])), KeyError::EvenExponent);
    assert_eq!(change(&|k| set(&mut k.e, &[1])), KeyError::SmallExponent);
    assert_eq!(change(&|k| set(&mut k.e, &[3])), PRIVATE_EXPONENT);
    assert_eq!(
        change(&|k| set(&mut k.e, &[1; 33])),
        KeyError::LargeExponent { bits: 257 }
    );
    assert_eq!(change(&|k| flip(&mut k.d)), PRIVATE_EXPONENT);
    assert_eq!(change(&|k| set(&mut k.d, &[0])), PRIVATE_EXPONENT);
    assert_eq!(change(&|k| set(&mut k.d, &[0x5a; 4000])), PRIVATE_EXPONENT);
    assert_eq!(change(&|k| flip(&mut k.dp)), PRIME_EXPONENT_1);
    assert_eq!(change(&|k| flip(&mut k.dq)), PRIME_EXPONENT_2);
    assert_eq!(change(&|k| set(&mut k.dq, &[0x33; 4000])), PRIME_EXPONENT_2);
    assert_eq!(change(&|k| flip(&mut k.q_inv)), COEFFICIENT);
    assert_eq!(change(&|k| set(&mut k.q_inv, &[0])), COEFFICIENT);
    assert_eq!(change(&|k| k.q_inv = vec![0x71; 4000]), COEFFICIENT);
    // Exchanging the primes alone leaves the exponents behind; exchanging both leaves the
    // coefficient.
    let swap_primes = |k: &mut Numbers| std::mem::swap(&mut k.p, &mut k.q);
    assert_eq!(change(&swap_primes), PRIME_EXPONENT_1);
    let swap_both = |k: &mut Numbers| {
        std::mem::swap(&mut k.p, &mut k.q);
        std::mem::swap(&mut k.dp, &mut k.dq);
    };
    assert_eq!(change(&swap_both), COEFFICIENT);
}

const fn inconsistent(reason: &'static str) -> KeyError {
    KeyError::Inconsistent { key: "RSA", reason }
}

const EVEN_MODULUS: KeyError = inconsistent("its modulus is even");
const EQUAL_PRIMES: KeyError = inconsistent("its two primes are equal");
const PRODUCT: KeyError = inconsistent("its modulus is not the product of its primes");
const PRIVATE_EXPONENT: KeyError = inconsistent("its private exponent does not belong to its public exponent");
const COEFFICIENT: KeyError = inconsistent("its coefficient is not the inverse of prime2 modulo prime1");
const PRIME_EXPONENT_1: KeyError = inconsistent("its exponent1 is not the private exponent modulo prime1 - 1");
const PRIME_EXPONENT_2: KeyError = inconsistent("its exponent2 is not the private exponent modulo prime2 - 1");

#[test]
fn every_message_names_a_remedy() {
    let remedies = ["make", "restore", "decrypt", "use ", "export", "needs"];
    let errors = [
        KeyError::Malformed {
            part: "the key",
            reason: "reason".to_owned(),
        },
        KeyError::NoKeyInPem,
        KeyError::Encrypted,
        KeyError::Unsupported {
            found: "something".to_owned(),
        },
        KeyError::RestrictedToPss,
        KeyError::MultiPrime,
        KeyError::TooSmall { bits: 1 },
        KeyError::TooLarge { bits: 1 },
        KeyError::EvenExponent,
        KeyError::SmallExponent,
        KeyError::LargeExponent { bits: 1 },
        PRODUCT,
        KeyError::TrialSignature,
    ];
    for error in errors {
        let text = error.to_string();
        assert!(remedies.iter().any(|remedy| text.contains(remedy)), "{text}");
    }
}

#[test]
fn debug_shows_the_size_and_nothing_else() {
    let key = Key::from_pem(data!("rsa2048_a.pem")).unwrap();
    let key_shown = "Rsa(PrivateKey { modulus_bits: 2048, .. })";
    assert_eq!(format!("{key:?}"), format!("Key({key_shown})"));
    let request = request(&key, Scheme::PssSha256, b"m");
    assert_eq!(
        format!("{request:?}"),
        "Request { key: PrivateKey { modulus_bits: 2048, .. }, .. }"
    );
}

/// Keys, requests and passes cross threads.
#[test]
fn everything_is_send_and_sync() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Key>();
    check::<Request>();
    check::<Signing>();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Arbitrary bytes are refused in peace.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        prop_assert!(Key::from_pkcs8_der(&bytes).is_err());
        prop_assert!(Key::from_pkcs1_der(&bytes).is_err());
        prop_assert!(Key::from_pem(&bytes).is_err());
    }

    /// Arbitrary numbers in a well-formed structure are refused in peace.
    #[test]
    fn arbitrary_numbers_never_panic(
        numbers in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 8),
        large_modulus in any::<bool>(),
        odd in any::<bool>(),
    ) {
        let mut numbers = Numbers::from_list(numbers);
        if large_modulus {
            numbers.n = vec![0xd5; 256];
        }
        if odd {
            for number in [&mut numbers.e, &mut numbers.p, &mut numbers.q] {
                number.push(1);
            }
        }
        prop_assert!(Key::from_pkcs1_der(&numbers.to_der()).is_err());
    }

    /// Several damaged bytes at once: refused, or, should a change be without effect, the same
    /// key.
    #[test]
    fn damaged_keys_are_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let pristine = der(data!("rsa2048_b.pem"));
        let mut damaged = pristine.clone();
        for (index, value) in changes {
            damaged[index.index(pristine.len())] = value;
        }
        let accepted = Key::from_pkcs8_der(&damaged).is_ok();
        prop_assert_eq!(accepted, damaged == pristine);
    }
}

/// The numbers of a PKCS#1 key as big-endian bytes.
struct Numbers {
    n: Vec<u8>,
    e: Vec<u8>,
    d: Vec<u8>,
    p: Vec<u8>,
    q: Vec<u8>,
    dp: Vec<u8>,
    dq: Vec<u8>,
    q_inv: Vec<u8>,
}

impl Numbers {
    fn of(pkcs1: &[u8]) -> Self {
        let key = RsaPrivateKeyRef::from_der(pkcs1).unwrap();
        let bytes = |number: UintRef<'_>| number.as_bytes().to_vec();
        Self {
            n: bytes(key.modulus),
            e: bytes(key.public_exponent),
            d: bytes(key.private_exponent),
            p: bytes(key.prime1),
            q: bytes(key.prime2),
            dp: bytes(key.exponent1),
            dq: bytes(key.exponent2),
            q_inv: bytes(key.coefficient),
        }
    }

    fn from_list(numbers: Vec<Vec<u8>>) -> Self {
        let [n, e, d, p, q, dp, dq, q_inv] = numbers.try_into().unwrap();
        Self {
            n,
            e,
            d,
            p,
            q,
            dp,
            dq,
            q_inv,
        }
    }

    fn to_der(&self) -> Vec<u8> {
        let number = |bytes| UintRef::new(bytes).unwrap();
        RsaPrivateKeyRef {
            modulus: number(&self.n),
            public_exponent: number(&self.e),
            private_exponent: number(&self.d),
            prime1: number(&self.p),
            prime2: number(&self.q),
            exponent1: number(&self.dp),
            exponent2: number(&self.dq),
            coefficient: number(&self.q_inv),
            other_prime_infos: None,
        }
        .to_der()
        .unwrap()
    }
}

fn request(key: &Key, scheme: Scheme, message: &[u8]) -> Request {
    let scheme = sign::Scheme::Rsa(scheme);
    Request::new(key, scheme, Input::Message(message)).unwrap()
}

fn der(pem: &[u8]) -> Vec<u8> {
    PrivateKeyDer::from_pem_slice(pem).unwrap().secret_der().to_vec()
}

fn verification(scheme: Scheme) -> &'static signature::RsaParameters {
    match scheme {
        Scheme::Pkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Scheme::Pkcs1Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Scheme::Pkcs1Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Scheme::PssSha256 => &signature::RSA_PSS_2048_8192_SHA256,
        Scheme::PssSha384 => &signature::RSA_PSS_2048_8192_SHA384,
        Scheme::PssSha512 => &signature::RSA_PSS_2048_8192_SHA512,
    }
}
