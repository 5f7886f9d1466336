//! Keys in every form, and signatures that aws-lc-rs accepts.

use super::*;
use crate::{Backend, Work};
use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der};
use aws_lc_rs::signature::{self as aws, EcdsaKeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer};

fn pair(curve: Curve) -> EcdsaKeyPair {
    EcdsaKeyPair::generate(match curve {
        Curve::P256 => &aws::ECDSA_P256_SHA256_ASN1_SIGNING,
        Curve::P384 => &aws::ECDSA_P384_SHA384_ASN1_SIGNING,
    })
    .unwrap()
}

fn sec1(pair: &EcdsaKeyPair) -> Vec<u8> {
    let der: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().unwrap();
    der.as_ref().to_vec()
}

#[test]
fn both_forms_of_a_key_are_the_same_key() {
    for curve in Curve::ALL {
        let pair = pair(curve);
        let pkcs8 = pair.to_pkcs8v1().unwrap();
        let pkcs8 = PrivateKeyDer::Pkcs8(pkcs8.as_ref().into());
        let sec1 = sec1(&pair);
        let sec1 = PrivateKeyDer::Sec1(sec1.as_slice().into());
        let [one, other] = [pkcs8, sec1].map(|der| PrivateKey::from_der(&der).unwrap());
        assert_eq!(one.curve(), curve);
        assert_eq!(one.public_key(), other.public_key());
        assert_eq!(one.public_key_info_der(), other.public_key_info_der());
        let public = PublicKey::from_spki(&one.public_key_info_der()).unwrap();
        assert_eq!(public, one.public_key());
        assert_eq!(PublicKey::from_point(curve, public.point()), Ok(public));
    }
}

#[test]
fn signatures_verify_and_others_do_not() {
    for curve in Curve::ALL {
        let key = PrivateKey::from_sec1_der(&sec1(&pair(curve))).unwrap();
        let other = PrivateKey::from_sec1_der(&sec1(&pair(curve))).unwrap();
        let signing = Signing::new(Backend::AwsLc, curve).unwrap();
        let verification = Verification::new(Backend::AwsLc, curve).unwrap();
        let signature = signing.alone(&SignRequest::new(&key, b"message")).unwrap();
        let hash = Hash::of(curve);
        let verify = |key: &PrivateKey, message: &[u8], signature: &[u8]| {
            let request = VerifyRequest::new(&key.public_key(), hash, message, signature);
            verification.alone(&request)
        };
        assert_eq!(verify(&key, b"message", &signature), Ok(()));
        assert_eq!(verify(&key, b"massage", &signature), Err(VerifyError));
        assert_eq!(verify(&other, b"message", &signature), Err(VerifyError));
        assert_eq!(verify(&key, b"message", &signature[1..]), Err(VerifyError));
        assert_eq!(verification.alone(&verification.specimen()), Ok(()));
        assert!(signing.alone(&signing.specimen()).is_ok());
    }
}

#[test]
fn damaged_keys_are_refused() {
    let [p256, p384] = Curve::ALL.map(|curve| sec1(&pair(curve)));
    let [_, stranger] = [(); 2].map(|()| sec1(&pair(Curve::P256)));
    // The secret begins at 7, behind a sequence, a version and the octet string's own header.
    let mut mixed = p256.clone();
    mixed[7..39].copy_from_slice(&stranger[7..39]);
    let refused = PrivateKey::from_sec1_der(&mixed).unwrap_err();
    assert_eq!(refused, KeyError::Inconsistent);

    let mut zero = p256.clone();
    zero[7..39].fill(0);
    let refused = PrivateKey::from_sec1_der(&zero).unwrap_err();
    let curve = Curve::P256;
    assert_eq!(refused, KeyError::OutOfRange { curve });

    let refused = PrivateKey::from_sec1_der(&p384[1..]).unwrap_err();
    assert!(matches!(refused, KeyError::Malformed { .. }), "{refused}");

    let rsa = PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(vec![0x30, 0]));
    let refused = PrivateKey::from_der(&rsa).unwrap_err();
    assert!(matches!(refused, KeyError::NotEc { .. }), "{refused}");
}

#[test]
fn points_off_the_curve_are_no_public_keys() {
    for curve in Curve::ALL {
        let mut point = curve.generator().to_vec();
        assert!(PublicKey::from_point(curve, &point).is_ok());
        let refused = PublicKey::from_point(curve, &point[1..]).unwrap_err();
        assert_eq!(refused, PublicKeyError::Form { curve });
        *point.last_mut().unwrap() ^= 1;
        let refused = PublicKey::from_point(curve, &point).unwrap_err();
        assert_eq!(refused, PublicKeyError::OffCurve { curve });
    }
}
