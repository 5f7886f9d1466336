//! The settings of an agent, and the contents of the files that they name.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;
use ureq::http::Uri;
use ureq::http::uri::Scheme;
use ureq::tls::{Certificate, ClientCert, PrivateKey};
use zeroize::Zeroizing;

use crate::sealed::Secret;

/// Sources of keys, and how to ask them.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Members of etcd, 1 to 16, each `https://HOST:PORT`, or `http://` without TLS.
    pub endpoints: Vec<String>,
    /// Beginning of the names of the keys in etcd, without `/` at the end. Agents with the same one share keys.
    pub prefix: String,
    /// Time for which one key encrypts, 10 s to six hours in whole seconds.
    pub rotation: Duration,
    /// File of the secret under which the keys in etcd are encrypted.
    pub key_file: PathBuf,
    /// User of etcd, with the file of the password.
    pub user: Option<String>,
    /// File of the user's password.
    pub password_file: Option<PathBuf>,
    /// PEM file of the authorities that sign etcd's certificates.
    pub ca: Option<PathBuf>,
    /// PEM file of this client's own certificate.
    pub cert: Option<PathBuf>,
    /// PEM file of its key.
    pub key: Option<PathBuf>,
    /// File that gets metrics as Prometheus' text after each look.
    pub metrics: Option<PathBuf>,
}

/// A setting that cannot be used, with its remedy.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct OptionsError {
    /// The option, or the file or directory.
    place: String,
    problem: String,
    remedy: String,
}

impl OptionsError {
    pub(crate) fn new(place: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// The contents of the files.
pub(crate) struct Secrets {
    pub(crate) secret: Secret,
    pub(crate) password: Option<Zeroizing<String>>,
    pub(crate) authorities: Vec<Certificate<'static>>,
    pub(crate) identity: Option<ClientCert>,
}

impl Options {
    /// Finds mistakes that show without looking at files.
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        let fault =
            |name: &str, problem: String, remedy: &str| Err(OptionsError::new(format!("--{name}"), problem, remedy));
        if !ROTATIONS.contains(&self.rotation) || self.rotation.subsec_nanos() != 0 {
            let problem = "etcd counts whole seconds, and all machines need time to learn a key";
            return fault("rotation", problem.into(), "give 10 to 21600 seconds");
        }
        if !(1..=MOST_ENDPOINTS).contains(&self.endpoints.len()) {
            let problem = format!("{} endpoints", self.endpoints.len());
            let remedy = "give 1 to 16, for example https://etcd1.example.org:2379";
            return fault("endpoint", problem, remedy);
        }
        for endpoint in &self.endpoints {
            if !is_endpoint(endpoint) {
                let problem = format!("`{}` is no endpoint of etcd", endpoint.escape_debug());
                let remedy = "give for example https://etcd1.example.org:2379";
                return fault("endpoint", problem, remedy);
            }
            let tls = endpoint.starts_with("https:");
            if tls && self.ca.is_none() {
                let problem = format!("no authority is named that may sign the certificate of {endpoint}");
                let remedy = "give --ca, with a private etcd its own authority";
                return fault("endpoint", problem, remedy);
            }
            if !tls && self.password_file.is_some() && !is_loopback(endpoint) {
                let problem = format!("the password would cross the network to {endpoint} unencrypted");
                let remedy = "give https:// and --ca, or an etcd on this machine by its loopback address";
                return fault("endpoint", problem, remedy);
            }
            if !tls && (self.ca.is_some() || self.cert.is_some()) {
                let problem = format!("{endpoint} is without TLS, and --ca or --cert is given");
                let remedy = "give https://, or leave out --ca, --cert and --key";
                return fault("endpoint", problem, remedy);
            }
        }
        let prefix = &self.prefix;
        if !(1..=MOST_PREFIX).contains(&prefix.len())
            || !prefix.bytes().all(|byte| byte.is_ascii_graphic())
            || prefix.ends_with('/')
        {
            let problem = format!("`{}` is no prefix of names in etcd", prefix.escape_debug());
            let remedy = "give for example /widelane/tickets: at most 256 characters, no `/` at the end";
            return fault("prefix", problem, remedy);
        }
        let pairs = [
            (
                ["user", "password-file"],
                [self.user.is_some(), self.password_file.is_some()],
            ),
            (["cert", "key"], [self.cert.is_some(), self.key.is_some()]),
        ];
        for ([one, other], given) in pairs {
            if given[0] != given[1] {
                let problem = format!("it and --{other} belong together");
                return fault(one, problem, "give both or none");
            }
        }
        Ok(())
    }

    /// Reads the files. Those with secrets belong to root or to the user of this process, and no other user can
    /// read them.
    pub(crate) fn read(&self) -> Result<Secrets, OptionsError> {
        let (place, bytes) = read_secret("key-file", &self.key_file, MAKE_KEY)?;
        let secret = Secret::parse(&bytes)
            .map_err(|problem| OptionsError::new(place, format!("no key: {problem}"), MAKE_KEY))?;
        let password = self.password_file.as_ref().map(|file| {
            let remedy = "write the password there as one line";
            let (place, bytes) = read_secret("password-file", file, remedy)?;
            let text = std::str::from_utf8(&bytes).ok();
            let text = text.map(|text| text.trim_end_matches(['\r', '\n']));
            match text.filter(|text| !text.is_empty()) {
                Some(text) => Ok(Zeroizing::new(text.to_owned())),
                None => Err(OptionsError::new(place, "no password", remedy)),
            }
        });
        let identity = self.cert.as_ref().zip(self.key.as_ref()).map(|(cert, key)| {
            let chain = certificates("cert", cert)?;
            let (place, bytes) = read_secret("key", key, CORRECT)?;
            widelane_pem::private_key(&bytes)
                .map_err(|fault| OptionsError::new(&place, fault.in_file(key), fault.remedy))?;
            let key =
                PrivateKey::from_pem(&bytes).map_err(|error| OptionsError::new(&place, error.to_string(), CORRECT))?;
            Ok(ClientCert::new_with_certs(&chain, key))
        });
        let authorities = self.ca.as_ref().map(|ca| certificates("ca", ca));
        Ok(Secrets {
            secret,
            password: password.transpose()?,
            authorities: authorities.transpose()?.unwrap_or_default(),
            identity: identity.transpose()?,
        })
    }
}

/// `http://` or `https://`, a host, a port, nothing behind.
fn is_endpoint(endpoint: &str) -> bool {
    endpoint.parse::<Uri>().is_ok_and(|address| {
        let has_host = address.host().is_some_and(|host| !host.is_empty());
        let schemes = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)];
        let is_plain = address.path() == "/" && address.query().is_none() && !endpoint.contains('@');
        schemes.contains(&address.scheme()) && has_host && address.port().is_some() && is_plain
    })
}

/// Returns whether the host is this machine, by an address or by the name that is always its own (RFC 6761, 6.3).
fn is_loopback(endpoint: &str) -> bool {
    let address = endpoint.parse::<Uri>();
    address.is_ok_and(|address| {
        let host = address.host().unwrap_or_default();
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        ip.map_or(host.eq_ignore_ascii_case("localhost"), |ip| {
            ip.to_canonical().is_loopback()
        })
    })
}

fn certificates(option: &str, path: &Path) -> Result<Vec<Certificate<'static>>, OptionsError> {
    let place = format!("--{option} {}", path.display());
    let text = widelane_files::read_named(path, LONGEST_CHAIN)
        .map_err(|error| OptionsError::new(&place, error.to_string(), CORRECT))?;
    let chain =
        widelane_pem::chain(&text).map_err(|fault| OptionsError::new(&place, fault.in_file(path), fault.remedy))?;
    Ok(chain
        .iter()
        .map(|one| Certificate::from_der(&one.value).to_owned())
        .collect())
}

/// The place for messages, and the content of a file with a secret.
fn read_secret(option: &str, path: &Path, missing: &str) -> Result<(String, Zeroizing<Vec<u8>>), OptionsError> {
    let place = format!("--{option} {}", path.display());
    let fault = |problem: String, remedy: &str| OptionsError::new(&place, problem, remedy);
    let read = |file: &mut File| -> io::Result<Zeroizing<Vec<u8>>> {
        // In memory that never moves, so that no copy stays behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST_SECRET + 1));
        file.take(LONGEST_SECRET as u64 + 1).read_to_end(&mut bytes)?;
        match bytes.len() > LONGEST_SECRET {
            true => Err(io::Error::other("it is too long")),
            false => Ok(bytes),
        }
    };
    let opened = widelane_files::open_named(path).and_then(|file| Ok((file.metadata()?, file)));
    let (metadata, mut file) = opened.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let user = geteuid().as_raw();
            fault(
                error.to_string(),
                &format!("let user {user} read it: chown {user} {}", path.display()),
            )
        }
        _ => fault(error.to_string(), missing),
    })?;
    let (owner, own) = (metadata.uid(), geteuid().as_raw());
    if owner != 0 && owner != own {
        let remedy = format!("chown {own} {}, and make a new one", path.display());
        return Err(fault(format!("it belongs to user {owner}, who knows it"), &remedy));
    }
    if metadata.mode() & READ_BY_OTHERS != 0 {
        let mode = metadata.mode() & 0o7777;
        let problem = format!("it has mode {mode:04o}, so that other users can read or change it");
        let remedy = format!(
            "chmod 600 {} (in Kubernetes: `defaultMode: 0400`, or 0440 with `fsGroup`), and make a new one",
            path.display()
        );
        return Err(fault(problem, &remedy));
    }
    let bytes = read(&mut file).map_err(|error| fault(error.to_string(), missing))?;
    Ok((place, bytes))
}

/// Shorter, and a slow machine or a change of etcd's leader could take as long.
const ROTATIONS: std::ops::RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(21_600);
const MOST_ENDPOINTS: usize = 16;
const MOST_PREFIX: usize = 256;
const LONGEST_SECRET: usize = 16 * 1024;
const LONGEST_CHAIN: u64 = 1024 * 1024;
/// Reading or writing by others, writing by the group.
const READ_BY_OTHERS: u32 = 0o026;
const MAKE_KEY: &str =
    "correct the path, or make a key and give the same to all machines: widelane tickets etcd-key FILE";
const CORRECT: &str = "correct the path, or mount the Secret that has the file";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn all() -> Options {
        let endpoints = ["https://etcd1.example.org:2379", "https://etcd2.example.org:2379"];
        Options {
            endpoints: endpoints.map(String::from).to_vec(),
            prefix: "/widelane/tickets".into(),
            rotation: Duration::from_secs(21_600),
            key_file: "etcd.key".into(),
            user: Some("widelane".into()),
            password_file: Some("password".into()),
            ca: Some("ca.pem".into()),
            cert: Some("client.pem".into()),
            key: Some("client.key".into()),
            metrics: None,
        }
    }

    #[test]
    fn mistakes_are_named_with_their_remedy() {
        all().check().unwrap();
        let plain = |options: &mut Options, endpoint: &str| {
            options.endpoints = vec![endpoint.into()];
            (options.ca, options.cert, options.key) = (None, None, None);
        };
        for local in ["http://127.0.0.1:2379", "http://[::1]:1", "http://localhost:1"] {
            let mut options = all();
            plain(&mut options, local);
            options.check().unwrap();
        }
        type Mistake<'a> = (&'a dyn Fn(&mut Options), &'a str);
        let mistakes: [Mistake<'_>; 13] = [
            (&|o| o.endpoints.clear(), "--endpoint: 0 endpoints"),
            (&|o| o.endpoints[1] = "etcd1:2379".into(), "is no endpoint of etcd"),
            (&|o| o.endpoints[0] = "https://u@e:1".into(), "is no endpoint of etcd"),
            (&|o| o.endpoints[0] = "https://e:1/v3".into(), "is no endpoint of etcd"),
            (&|o| o.endpoints[0] = "http://127.0.0.1:1".into(), "is without TLS"),
            (
                &|o| plain(o, "http://etcd1.example.org:2379"),
                "would cross the network",
            ),
            (&|o| o.ca = None, "no authority is named"),
            (&|o| o.password_file = None, "--user: it and --password-file"),
            (&|o| o.user = None, "--user: it and --password-file"),
            (&|o| o.cert = None, "--cert: it and --key"),
            (&|o| o.prefix.push('/'), "is no prefix"),
            (&|o| o.rotation = Duration::from_secs(9), "10 to 21600"),
            (&|o| o.rotation = Duration::from_millis(10_500), "whole seconds"),
        ];
        for (change, said) in mistakes {
            let mut options = all();
            change(&mut options);
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn files_with_secrets_are_refused_if_others_can_read_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etcd.key");
        let options = Options {
            key_file: path.clone(),
            password_file: None,
            ca: None,
            cert: None,
            ..all()
        };
        let refused = |options: &Options| match options.read() {
            Ok(_) => panic!("it is read"),
            Err(error) => error.to_string(),
        };
        assert!(refused(&options).contains("widelane tickets etcd-key"));
        crate::make_key_file(&path).unwrap();
        options.read().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = refused(&options);
        assert!(error.contains("mode 0644") && error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        options.read().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short").unwrap();
        assert!(refused(&options).contains("no key: it has 5 bytes"));
        let password = directory.path().join("password");
        fs::write(&password, "\n").unwrap();
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
        crate::make_key_file(&directory.path().join("second")).unwrap();
        let options = Options {
            key_file: directory.path().join("second"),
            password_file: Some(password),
            ..options
        };
        assert!(refused(&options).contains("no password"));
    }
}
