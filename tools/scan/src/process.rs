//! The files of a running process.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
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
    let maps = fs::read_to_string(root.join("maps")).map_err(|cause| match cause.kind() {
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
    for path in executable(&maps) {
        // The way through the process's own root also works for those in containers.
        let inside = root
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(&path));
        let file = if inside.exists() {
            inside
        } else {
            path.clone()
        };
        match scan_file(&file) {
            Ok(image) => process.images.push(Image { path, ..image }),
            Err(error) => process.skipped.push(error),
        }
    }
    Ok(process)
}

/// The files that a list of mappings has with the right to execute.
fn executable(maps: &str) -> BTreeSet<PathBuf> {
    let mapping = |line: &str| {
        // address permissions offset device inode path, which may contain spaces.
        let mut fields = line.splitn(6, ' ');
        let permissions = fields.nth(1)?;
        let path = fields.nth(3)?.trim();
        (permissions.contains('x') && path.starts_with('/')).then(|| PathBuf::from(path))
    };
    maps.lines().filter_map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_data() {
        let maps = "\
5581-5582 r--p 00000000 fe:00 12  /usr/bin/some server\n\
5582-5583 r-xp 00001000 fe:00 12                         /usr/bin/some server\n\
7f00-7f01 r-xp 00001000 fe:00 13                         /usr/lib/libcrypto.so.3\n\
7f01-7f02 rw-p 00000000 00:00 0 \n\
7ffd-7ffe r-xp 00000000 00:00 0                          [vdso]\n";
        let files: Vec<_> = executable(maps).into_iter().collect();
        let expected = ["/usr/bin/some server", "/usr/lib/libcrypto.so.3"].map(PathBuf::from);
        assert_eq!(files, expected);
    }

    #[test]
    fn this_process_is_scanned() {
        let process = scan_process(std::process::id()).unwrap();
        let own = std::env::current_exe().unwrap();
        let image = process.images.iter().find(|image| image.path == own);
        assert!(image.is_some_and(|image| image.symbols && image.examined > 100));
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = scan_process(u32::MAX).unwrap_err();
        assert!(error.to_string().contains(&u32::MAX.to_string()), "{error}");
    }
}
