//! What is needed to ask etcd: the configuration, and the contents of the files that it names.

use std::path::Path;

use zeroize::Zeroizing;

use super::sealed::Secret;
use crate::config::{Etcd, Fault, SecretFile};
use crate::{material, ticket_files};

/// The contents of the files that one `[listener.tickets.etcd]` names.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) secret: Secret,
    pub(crate) password: Option<Zeroizing<String>>,
    /// In PEM: authorities, own certificate and its key.
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
}

impl Settings {
    /// Reads and checks them. Files with secrets may belong to root, to the user of this process, and to
    /// `user`, which it will be.
    pub(crate) fn read(key: &str, etcd: &Etcd, user: Option<u32>) -> Result<Self, Fault> {
        let secret = |name: &str, file: &SecretFile, missing: &str| {
            let key = format!("{key}.{name}");
            let path = file.path().map_err(|problem| {
                let remedy = "write `LoadCredential=` into the unit, or name a file";
                Fault::new(&key, problem, remedy)
            })?;
            let bytes = ticket_files::read_secret(&key, &path, user, missing)?;
            Ok::<_, Fault>((key, path, bytes))
        };
        let (at, path, bytes) = secret("key_file", &etcd.key_file, NO_KEY_FILE)?;
        let key_file = Secret::parse(&bytes).map_err(|problem| {
            Fault::new(
                at,
                format!("no key in {}: {problem}", path.display()),
                "make one, and give the same to all machines: widelane tickets etcd-key FILE",
            )
        })?;
        let password = etcd.password_file.as_ref().map(|file| {
            let (at, path, bytes) = secret("password_file", file, NO_PASSWORD_FILE)?;
            let text = std::str::from_utf8(&bytes).ok();
            let text = text.map(|text| text.trim_end_matches(['\r', '\n']));
            match text.filter(|text| !text.is_empty()) {
                Some(text) => Ok(Zeroizing::new(text.to_owned())),
                None => {
                    let problem = format!("no password in {}", path.display());
                    Err(Fault::new(at, problem, "write it there as one line"))
                }
            }
        });
        let plain =
            |name: &str, path: &Path| material::read_pem_chain(&format!("{key}.{name}"), path);
        let ca = etcd.ca.as_ref().map(|path| plain("ca", path)).transpose()?;
        let identity = match (&etcd.cert, &etcd.key) {
            (Some(cert), Some(file)) => {
                let cert = plain("cert", cert)?;
                let (at, path, bytes) = secret("key", file, NO_FILE)?;
                material::check_pem_key(&at, &path, &bytes)?;
                Some((cert, bytes))
            }
            _ => None,
        };
        Ok(Self {
            secret: key_file,
            password: password.transpose()?,
            ca,
            identity,
        })
    }

    /// Whether both are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let same = |one: Option<&[u8]>, other: Option<&[u8]>| match (one, other) {
            (Some(one), Some(other)) => {
                aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
            }
            (None, None) => true,
            _ => false,
        };
        let password = |settings: &Self| settings.password.clone();
        let key = |settings: &Self| settings.identity.clone();
        self.secret.is(&other.secret)
            && same(
                password(self).as_ref().map(|text| text.as_bytes()),
                password(other).as_ref().map(|text| text.as_bytes()),
            )
            && self.ca == other.ca
            && same(
                key(self).as_ref().map(|(_, key)| &key[..]),
                key(other).as_ref().map(|(_, key)| &key[..]),
            )
            && self.identity.as_ref().map(|(cert, _)| cert)
                == other.identity.as_ref().map(|(cert, _)| cert)
    }
}

const NO_KEY_FILE: &str = "correct the path, mount the Secret, or make a key and give the same to all machines: \
    widelane tickets etcd-key FILE";
const NO_PASSWORD_FILE: &str = "correct the path, or write the password there as one line";
const NO_FILE: &str = "correct the path, or mount the Secret that has the file";

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Settings")
    }
}
