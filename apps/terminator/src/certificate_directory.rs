//! Directories of certificates, as hitch and HAProxy have them.
//!
//! A file `NAME.pem`, `.crt`, `.cer` or `.cert` has a certificate chain. Its key is in `NAME.key`, in the file's
//! own name with `.key` behind it, or in the file itself; its OCSP response is in `NAME.ocsp`, or in the
//! file's own name with `.ocsp` behind it. Other files are not read, and that is told.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::certificate::Facts;
use crate::config::{Certificate, Fault, OcspSource};
use crate::material::{pem_fault, read_file, unreadable};
use crate::ticket_files;

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
    let files =
        ticket_files::files(directory).map_err(|error| unreadable(key, directory, &error))?;
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
        let contents =
            widelane_pem::contents(&text).map_err(|fault| pem_fault(key, file, fault))?;
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
            None if contents.certificates == 0 && contents.keys > 0 => {
                tracing::warn!(file = %file.display(), "not served: it has a private key and no certificate");
                continue;
            }
            None if contents.keys > 0 => file.clone(),
            None => {
                let chain =
                    widelane_pem::chain(&text).map_err(|fault| pem_fault(key, file, fault))?;
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
            _ => {
                "not read: names of certificates end in .pem, .crt, .cer or .cert, those of keys in .key"
            }
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
