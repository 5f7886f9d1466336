//! Reads files of the configuration, and says why one cannot be read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

use crate::config::{Fault, is_shortage};

/// Opens a regular file to be read. Anything else is an error: a named pipe, for example, would hold the server until
/// another program writes into it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    widelane_files::open_named(path)
}

/// The contents of a file, which is a secret if there is a key in it, in whatever file one looks for one.
pub(crate) fn read_file(key: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let mut contents = Zeroizing::new(Vec::new());
    let read = open(path).and_then(|mut file| {
        // With room for all, so that no part of a key is left in memory.
        let size = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        contents.try_reserve_exact(size.saturating_add(1))?;
        file.read_to_end(&mut contents)
    });
    match read {
        Ok(_) => Ok(contents),
        Err(error) => Err(unreadable(key, path, &error)),
    }
}

/// The fault of a file that cannot be read.
pub(crate) fn unreadable(key: &str, path: &Path, error: &io::Error) -> Fault {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "let the user of this process read it ({}; in Kubernetes: `fsGroup` and `defaultMode: \
                 0440`); note that a reload runs after root privileges were dropped",
            widelane_files::this_user()
        ),
        io::ErrorKind::NotFound if path.is_relative() => format!(
            "correct the path: it counts from {}, and `~` and variables mean nothing in it",
            std::env::current_dir().map_or_else(
                |_| "the folder of this process".into(),
                |folder| folder.display().to_string()
            )
        ),
        io::ErrorKind::NotFound => "correct the path (in Kubernetes: mount the Secret that has the file)".into(),
        _ if path.is_dir() => {
            "name a file; for all certificates in a directory, set `certificates` of the listener".into()
        }
        _ => "correct the path".into(),
    };
    Fault::new(key, format!("cannot read {}: {error}", path.display()), remedy).because_of(error)
}

pub(crate) fn read_key(key: &str, path: &Path) -> Result<Zeroizing<PrivateKeyDer<'static>>, Fault> {
    let text = read_file(key, path)?;
    widelane_pem::private_key(&text).map_err(|fault| pem_fault(key, path, fault))
}

/// An OCSP response, with one byte more than it may have if it is too long.
pub(crate) fn read_response(key: &str, path: &Path) -> Result<Vec<u8>, Fault> {
    let mut response = Vec::new();
    let read = open(path).and_then(|file| {
        let most = widelane_ocsp::LONGEST as u64 + 1;
        file.take(most).read_to_end(&mut response)
    });
    read.map_err(|error| Fault {
        // Nothing else is a reason to keep back what is good, such as a renewed certificate.
        passing: is_shortage(&error),
        ..unreadable(key, path, &error)
    })?;
    Ok(response)
}

/// The fault of a PEM file, at the key that names it.
pub(crate) fn pem_fault(key: &str, path: &Path, fault: widelane_pem::Fault) -> Fault {
    Fault::new(key, fault.in_file(path), fault.remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_at_the_moment_is_no_bad_one() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("empty"), "").unwrap();
        let fault = |path: &Path| read_key("key", path).unwrap_err();
        let missing = fault(&path("missing"));
        assert!(!missing.passing);
        assert!(missing.remedy.contains("mount the Secret"), "{missing:?}");
        assert!(!fault(&path("empty")).passing);
        // Nothing is mapped at address 0: EIO.
        let fault = fault(Path::new("/proc/self/mem"));
        assert!(fault.passing, "{}", fault.problem);
        // A response is no reason to wait, on a disk that fails or as a directory.
        for path in [Path::new("/proc/self/mem"), directory.path()] {
            let fault = read_response("ocsp", path).unwrap_err();
            assert!(!fault.passing, "{}", fault.problem);
        }
    }

    #[test]
    fn a_named_pipe_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        for path in [&path, folder.path(), Path::new("/dev/zero")] {
            let error = open(path).unwrap_err();
            assert_eq!(error.to_string(), "it is no regular file", "{path:?}");
        }
        std::fs::write(folder.path().join("file"), "text").unwrap();
        assert!(open(&folder.path().join("file")).is_ok());
    }
}
