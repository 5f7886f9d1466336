//! The files of a running process.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::{Image, ScanError, scan_file};

/// What was found in the program and the libraries of a process.
#[derive(Debug)]
pub struct Process {
    /// One for each file with code, the program and its libraries.
    pub images: Vec<Image>,
    /// Files that could not be scanned, with the reason: deleted since, for example.
    pub skipped: Vec<ScanError>,
}

/// Scans every file that process `pid` has mapped as code.
///
/// # Errors
///
/// When there is no such process, or it belongs to somebody else.
pub fn scan_process(pid: u32) -> Result<Process, ScanError> {
    let root = PathBuf::from(format!("/proc/{pid}"));
    let maps = fs::read(root.join("maps")).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => ScanError::NoProcess { pid },
        ErrorKind::PermissionDenied => ScanError::NotAllowed { pid },
        _ => ScanError::Read {
            path: root.join("maps"),
            cause,
        },
    })?;
    let mut process = Process {
        images: Vec::new(),
        skipped: Vec::new(),
    };
    let files = executable(&maps);
    if files.is_empty() {
        return Err(ScanError::NoProgram { pid });
    }
    for (path, range) in files {
        // The kernel's link to the mapped file itself leads to those that were deleted, too, but
        // following it takes root; the way through the process's own root also works for those in
        // containers.
        let link = root.join("map_files").join(range);
        let inside = root
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(&path));
        let file = [link, inside].into_iter().find(|file| file.exists());
        match scan_file(file.as_deref().unwrap_or(&path)) {
            Ok(image) => process.images.push(Image { path, ..image }),
            Err(error) => process.skipped.push(error),
        }
    }
    Ok(process)
}

/// The files that a list of mappings has with the right to execute, each with the addresses of one
/// of its mappings.
fn executable(maps: &[u8]) -> BTreeMap<PathBuf, String> {
    let mapping = |line: &[u8]| {
        // address permissions offset device inode path, which may contain spaces, and be no text.
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let addresses = String::from_utf8(fields.next()?.to_vec()).ok()?;
        let permissions = fields.next()?;
        let path = fields.nth(3)?.trim_ascii_start();
        let file = permissions.contains(&b'x') && path.starts_with(b"/");
        file.then(|| (PathBuf::from(OsStr::from_bytes(path)), addresses))
    };
    maps.split(|&byte| byte == b'\n')
        .filter_map(mapping)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn code_is_told_from_data() {
        let maps = b"\
5581-5582 r--p 00000000 fe:00 12  /usr/bin/some server\n\
5582-5583 r-xp 00001000 fe:00 12                         /usr/bin/some server\n\
7f00-7f01 r-xp 00001000 fe:00 13                         /usr/lib/libcrypto.so.3\n\
7f01-7f02 rw-p 00000000 00:00 0 \n\
7ffd-7ffe r-xp 00000000 00:00 0                          [vdso]\n";
        let files: Vec<_> = executable(maps).into_iter().collect();
        let expected = [
            ("/usr/bin/some server", "5582-5583"),
            ("/usr/lib/libcrypto.so.3", "7f00-7f01"),
        ];
        let expected = expected.map(|(path, range)| (PathBuf::from(path), range.to_owned()));
        assert_eq!(files, expected);
    }

    #[test]
    fn this_process_is_scanned() {
        let process = scan_process(std::process::id()).unwrap();
        let own = std::env::current_exe().unwrap();
        let image = process.images.iter().find(|image| image.path == own);
        assert!(image.is_some_and(|image| image.symbols && image.examined > 100));
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
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
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
