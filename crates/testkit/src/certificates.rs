//! Keys, certificates and authorities.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};

/// Kinds of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of 2048 bits.
    Rsa,
    /// On P-256.
    Ecdsa,
    /// On P-384.
    EcdsaP384,
    /// On edwards25519.
    Ed25519,
    /// ML-DSA-44.
    MlDsa44,
    /// ML-DSA-65.
    MlDsa65,
    /// ML-DSA-87.
    MlDsa87,
}

impl Kind {
    /// A new key.
    pub fn key(self) -> KeyPair {
        let key = KeyPair::generate_for(match self {
            Self::Rsa => &rcgen::PKCS_RSA_SHA256,
            Self::Ecdsa => &rcgen::PKCS_ECDSA_P256_SHA256,
            Self::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            Self::Ed25519 => &rcgen::PKCS_ED25519,
            Self::MlDsa44 => &rcgen::PKCS_ML_DSA_44,
            Self::MlDsa65 => &rcgen::PKCS_ML_DSA_65,
            Self::MlDsa87 => &rcgen::PKCS_ML_DSA_87,
        })
        .expect("a key");
        match self {
            Self::Ed25519 => {
                // OpenSSL 3.0 reads version 1 only (RFC 8410, section 7): without the public key.
                let seed = &key.serialize_der()[ED25519_VERSION_1.len()..][..32];
                let version_1 = [&ED25519_VERSION_1[..], seed].concat();
                KeyPair::try_from(version_1).expect("the same key")
            }
            _ => key,
        }
    }
}

/// Bytes before the seed in a key of version 1; as many as in version 2.
const ED25519_VERSION_1: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// A certificate with its key.
#[derive(Debug)]
pub struct Identity {
    /// The certificate, alone or with others behind it.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key.
    pub key: PrivateKeyDer<'static>,
    /// The certificate in PEM.
    pub pem: String,
    /// The key in PEM.
    pub key_pem: String,
}

impl Identity {
    /// A certificate for `names` that is its own issuer.
    pub fn new(kind: Kind, names: &[&str]) -> Self {
        Self::of(&kind.key(), parameters(names))
    }

    /// As [`Identity::new`], with a key and parameters of the caller.
    pub fn of(key: &KeyPair, parameters: CertificateParams) -> Self {
        Self::made(&parameters.self_signed(key).expect("a certificate"), key)
    }

    /// A certificate of an authority (CA:TRUE) that signs itself and is used for one side of a connection, as
    /// `openssl req -x509` makes it; valid for so many more days.
    pub fn as_authority(name: &str, days: i64, usages: &[ExtendedKeyUsagePurpose]) -> Self {
        let mut parameters = parameters(&[name]);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        valid_for(&mut parameters, days);
        parameters.serial_number = Some(name.as_bytes().to_vec().into());
        parameters.extended_key_usages = usages.to_vec();
        Self::of(&Kind::Ecdsa.key(), parameters)
    }

    fn made(certificate: &Certificate, key: &KeyPair) -> Self {
        Self {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// Writes `NAME.pem` and `NAME.key`, and returns their paths.
    pub fn write(&self, folder: impl AsRef<Path>, name: &str) -> [PathBuf; 2] {
        let file = |end: &str, text: &str| {
            let path = folder.as_ref().join(format!("{name}.{end}"));
            fs::write(&path, text).expect("a file of our own folder");
            path
        };
        [file("pem", &self.pem), file("key", &self.key_pem)]
    }

    /// Certificate and key in one text.
    pub fn both(&self) -> String {
        format!("{}{}", self.pem, self.key_pem)
    }

    /// Trust in this certificate and no other.
    pub fn as_root(&self) -> RootCertStore {
        root(self.chain[0].clone())
    }
}

/// Parameters of a certificate for `names`.
pub fn parameters(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("names")
}

fn valid_for(parameters: &mut CertificateParams, days: i64) {
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now - Duration::days(100);
    parameters.not_after = now + Duration::days(days);
}

fn root(certificate: CertificateDer<'static>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("an authority");
    roots
}

/// An authority that signs certificates.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// With this common name.
    pub fn new(name: &str) -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(parameters, Kind::Ecdsa.key());
        Self(issuer.expect("an authority"))
    }

    /// With this common name, and its certificate in `file`.
    pub fn in_file(name: &str, file: &Path) -> Self {
        let authority = Self::new(name);
        fs::write(file, authority.pem()).expect("a file of our own folder");
        authority
    }

    /// Certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Private key in PEM.
    pub fn key_pem(&self) -> String {
        self.0.key().serialize_pem()
    }

    /// Trust in this authority and no other.
    pub fn as_root(&self) -> RootCertStore {
        root(self.0.der().clone())
    }

    /// Signs a certificate with a new key.
    pub fn sign(&self, kind: Kind, parameters: CertificateParams) -> Identity {
        let key = kind.key();
        let certificate = parameters.signed_by(&key, &self.0).expect("a certificate");
        Identity::made(&certificate, &key)
    }

    /// A server's certificate for `names`, which is valid for so many more days.
    pub fn server(&self, names: &[&str], days: i64) -> Identity {
        let mut parameters = parameters(names);
        valid_for(&mut parameters, days);
        self.sign(Kind::Ecdsa, parameters)
    }

    /// A client's certificate with this common name, and the name as its serial number.
    pub fn client(&self, kind: Kind, common_name: &str) -> Identity {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        parameters.serial_number = Some(common_name.as_bytes().to_vec().into());
        self.sign(kind, parameters)
    }

    /// A list in PEM that revokes the certificate of the client `common_name`, due for an update in `days`.
    pub fn revoke(&self, common_name: &str, days: i64) -> String {
        let now = OffsetDateTime::now_utc();
        let revoked = RevokedCertParams {
            serial_number: common_name.as_bytes().to_vec().into(),
            revocation_time: now - Duration::days(10),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now - Duration::days(10),
            next_update: now + Duration::days(days),
            crl_number: vec![1].into(),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.0).expect("a list");
        list.pem().expect("PEM")
    }
}
