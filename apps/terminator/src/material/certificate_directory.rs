//! Directories of certificates, as hitch and HAProxy have them.
//!
//! A file `NAME.pem`, `.crt`, `.cer` or `.cert` has a certificate chain. Its key is in `NAME.key`, in the file's
//! own name with `.key` behind it, or in the file itself; its OCSP response is in `NAME.ocsp`, or in the
//! file's own name with `.ocsp` behind it. Other files are not read; a line in the log names them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{Certificate, Fault, OcspSource};
use crate::material::certificate::Facts;
use crate::material::read::{pem_fault, read_file, unreadable};
use crate::material::ticket_files;

/// The certificates in a directory, in the order of their files' names.
pub(crate) fn list(key: &str, directory: &Path) -> Result<Vec<Certificate>, Fault> {
    let shown = directory.display();
    if !fs::metadata(directory)
        .map_err(|error| unreadable(key, directory, &error))?
        .is_dir()
    {
        let problem = format!("{shown} is no directory");
        let remedy = "name a directory; one certificate is a section [[listener.certificate]]";
        return Err(Fault::new(key, problem, remedy));
    }
    let files = ticket_files::files(directory).map_err(|error| unreadable(key, directory, &error))?;
    // As the operator knows them. What Kubernetes mounts is elsewhere after each update.
    let names = files.iter().filter_map(|file| file.file_name());
    let files: Vec<PathBuf> = names.map(|name| directory.join(name)).collect();
    let known: HashSet<&PathBuf> = files.iter().collect();
    let mut used: HashSet<PathBuf> = HashSet::new();
    let mut certificates = Vec::new();
    for file in files.iter().filter(|file| is_chain(file)) {
        used.insert(file.clone());
        let beside = |ending: &str| {
            let longer = PathBuf::from([file.as_os_str(), ending.as_ref()].join("".as_ref()));
            let places = [longer, file.with_extension(&ending[1..])];
            places.into_iter().find(|place| known.contains(place))
        };
        let text = read_file(key, file)?;
        let contents = widelane_pem::contents(&text).map_err(|fault| pem_fault(key, file, fault))?;
        if contents.certificates == 0 && contents.keys > 0 {
            tracing::warn!(file = %file.display(), "not served: it has a private key and no certificate");
            continue;
        }
        let key_file = match beside(".key") {
            Some(private) => {
                used.insert(private.clone());
                if contents.keys > 0 {
                    tracing::warn!(
                        file = %file.display(),
                        "the private key in it is not used: {} is beside it",
                        private.display()
                    );
                }
                private
            }
            None if contents.keys > 0 => file.clone(),
            None => {
                let chain = widelane_pem::chain(&text).map_err(|fault| pem_fault(key, file, fault))?;
                let first = Facts::of(&chain[0].value);
                // cert-manager puts the issuer's beside the server's own.
                if first.is_some_and(|facts| facts.is_authority) {
                    tracing::info!(file = %file.display(), "not served: it has an authority's certificate and no key");
                    continue;
                }
                let name = file.with_extension("key");
                return Err(Fault::new(
                    key,
                    format!("there is no key for {}", file.display()),
                    format!("put it into that file, or into {}", name.display()),
                ));
            }
        };
        let mut certificate = Certificate::new(file, key_file);
        if let Some(response) = beside(".ocsp") {
            used.insert(response.clone());
            certificate.ocsp = Some(OcspSource::File(response));
        }
        certificates.push(certificate);
    }
    for file in files.iter().filter(|file| !used.contains(*file)) {
        let why = match ending(file) {
            "key" | "ocsp" => "not used: there is no certificate of that name",
            _ => "not read: names of certificates end in .pem, .crt, .cer or .cert, those of keys in .key",
        };
        tracing::warn!(file = %file.display(), "{why}");
    }
    ticket_files::tell_strangers(directory);
    if certificates.is_empty() {
        return Err(Fault::new(
            key,
            format!("there is no certificate in {shown}"),
            "put files there that have a chain and its key, or NAME.crt and NAME.key",
        ));
    }
    tracing::info!(directory = %shown, certificates = certificates.len(), "read");
    Ok(certificates)
}

fn is_chain(file: &Path) -> bool {
    ["pem", "crt", "cer", "cert"].contains(&ending(file))
}

fn ending(file: &Path) -> &str {
    let ending = file.extension().and_then(|ending| ending.to_str());
    ending.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use tempfile::TempDir;

    use super::*;

    struct Place(TempDir);

    impl Place {
        fn write(&self, name: &str, text: impl AsRef<[u8]>) {
            fs::write(self.0.path().join(name), text).unwrap();
        }

        /// The names of the files of each certificate.
        fn list(&self) -> Result<Vec<String>, String> {
            let found = list("c", self.0.path());
            let found = found.map_err(|fault| format!("{}; {}", fault.problem, fault.remedy))?;
            let name = |path: &Path| path.strip_prefix(&self.0).unwrap().display().to_string();
            let shown = found.iter().map(|one| {
                let response = match &one.ocsp {
                    Some(OcspSource::File(path)) => name(path),
                    _ => "none".into(),
                };
                format!("{} {} {response}", name(&one.cert), name(&one.key))
            });
            Ok(shown.collect())
        }
    }

    fn pair(is_authority: bool) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn files_are_found_by_their_names_in_order() {
        let place = Place(TempDir::new().unwrap());
        let (cert, key) = pair(false);
        let both = format!("{cert}{key}");
        for (name, text) in [
            ("d.pem", &both),
            ("b.crt", &cert),
            ("b.key", &key),
            ("b.ocsp", &key),
            ("c.pem", &cert),
            ("c.pem.key", &key),
            ("c.pem.ocsp", &key),
            ("a.cer", &both),
            (".hidden.pem", &cert),
            ("README", &cert),
            ("lone.key", &key),
            ("lone.pem", &key),
        ] {
            place.write(name, text);
        }
        // As cert-manager writes them, and as Kubernetes mounts them.
        place.write("ca.crt", pair(true).0);
        fs::create_dir(place.0.path().join("folder")).unwrap();
        let found = [
            "a.cer a.cer none",
            "b.crt b.key b.ocsp",
            "c.pem c.pem.key c.pem.ocsp",
            "d.pem d.pem none",
        ];
        assert_eq!(place.list().unwrap(), found);
        let mount = Place(TempDir::new().unwrap());
        fs::create_dir(mount.0.path().join("..1")).unwrap();
        symlink("..1", mount.0.path().join("..data")).unwrap();
        for (name, text) in [("tls.crt", &cert), ("tls.key", &key)] {
            mount.write(&format!("..1/{name}"), text);
            symlink(format!("..data/{name}"), mount.0.path().join(name)).unwrap();
        }
        assert_eq!(mount.list().unwrap(), ["tls.crt tls.key none"]);
    }

    #[test]
    fn a_certificate_without_a_key_is_no_smaller_directory() {
        let place = Place(TempDir::new().unwrap());
        let message = place.list().unwrap_err();
        assert!(message.starts_with("there is no certificate in "), "{message}");
        let (cert, key) = pair(false);
        place.write("a.pem", format!("{cert}{key}"));
        place.write("b.crt", &cert);
        let message = place.list().unwrap_err();
        assert!(
            message.contains("no key for ") && message.contains("b.key"),
            "{message}"
        );
        place.write("b.crt", "nothing");
        assert!(place.list().unwrap_err().contains("b.crt has no certificate"));
        let file = list("c", &place.0.path().join("a.pem")).unwrap_err();
        assert!(file.problem.contains("is no directory"), "{}", file.problem);
    }
}
