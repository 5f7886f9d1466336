//! The files of a running process.

use std::io::ErrorKind;
use std::path::PathBuf;

use widelane_threads::Code;

use crate::elf::{MOST_BYTES, scan_bytes};
use crate::{Image, ScanError};

/// Wide code in the program and the libraries of a process.
#[derive(Debug)]
pub struct Process {
    /// One for each file with code, the program and its libraries.
    pub images: Vec<Image>,
    /// Files that could not be scanned, with the reason: deleted since, for example.
    pub skipped: Vec<ScanError>,
}

/// Scans every file that process `pid` has mapped as code.
///
/// The process may be hostile: what it has put at the paths of its files is neither opened nor
/// followed. The paths of a process in another mount namespace are looked up there only.
///
/// # Errors
///
/// When there is no such process, or it belongs to another user.
pub fn scan_process(pid: u32) -> Result<Process, ScanError> {
    let code = Code::of(pid).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => ScanError::NoProcess { pid },
        ErrorKind::PermissionDenied => ScanError::NotAllowed { pid },
        _ => ScanError::Read {
            path: PathBuf::from(format!("/proc/{pid}/maps")),
            cause,
        },
    })?;
    let mut process = Process {
        images: Vec::new(),
        skipped: Vec::new(),
    };
    let files = code.files();
    if files.is_empty() {
        return Err(ScanError::NoProgram { pid });
    }
    for mapping in files {
        let path = mapping.path.clone().unwrap_or_default();
        let data = code.open(mapping).and_then(|file| file.read(MOST_BYTES));
        let scanned = match data {
            Ok(data) => scan_bytes(&path, &data),
            Err(cause) => Err(ScanError::Read { path, cause }),
        };
        match scanned {
            Ok(image) => process.images.push(image),
            Err(error) => process.skipped.push(error),
        }
    }
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::Object;
    use std::fs;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_scanned() {
        let process = scan_process(std::process::id()).unwrap();
        let own = std::env::current_exe().unwrap();
        let image = process.images.iter().find(|image| image.path == own);
        let image = image.unwrap_or_else(|| panic!("{process:?}"));
        assert!(image.examined > 100, "{image:?}");
        // Some profiles strip the program.
        let data = fs::read(&own).unwrap();
        let file = object::File::parse(&*data).unwrap();
        assert_eq!(image.symbols, file.symbols().next().is_some());
    }

    /// Programs are replaced while they run.
    #[test]
    fn a_program_that_was_deleted_is_scanned_if_it_can_be_reached() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("gone");
        fs::copy("/usr/bin/cat", &program).unwrap();
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 1];
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        fs::remove_file(&program).unwrap();
        let process = scan_process(child.id());
        let reachable = fs::read_dir(format!("/proc/{}/map_files", child.id()))
            .ok()
            .and_then(|mut links| fs::metadata(links.next()?.ok()?.path()).ok());
        drop(child.stdin.take());
        child.wait().unwrap();
        if reachable.is_none() {
            println!("SKIP: it takes root to reach what was deleted");
            return;
        }
        let process = process.unwrap();
        let gone = |image: &Image| image.path.to_string_lossy().ends_with("/gone (deleted)");
        assert!(process.images.iter().any(gone), "{:?}", process.skipped);
    }

    #[test]
    fn a_process_without_a_program_is_named() {
        // A child that has ended and was not waited for.
        let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        let _ = child.stdout.take().unwrap().read(&mut [0]);
        let error = loop {
            match scan_process(child.id()) {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        child.wait().unwrap();
        assert!(error.to_string().contains("no program"), "{error}");
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = scan_process(u32::MAX).unwrap_err();
        assert!(error.to_string().contains(&u32::MAX.to_string()), "{error}");
    }
}
