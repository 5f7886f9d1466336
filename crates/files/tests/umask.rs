//! Folders and files that a program makes with a umask of 0, as nginx has one from its start on. A program of its own: a
//! process has one umask.

#![forbid(unsafe_code)]

use rustix::fs::Mode;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[test]
fn no_umask_opens_or_closes_what_is_made() {
    let outer = tempfile::tempdir().unwrap();
    for umask in [0o000, 0o077] {
        let before = rustix::process::umask(Mode::from_raw_mode(umask));
        let above = outer.path().join(format!("{umask:o}"));
        let folder = above.join("widelane");
        let made = widelane_files::folder(&folder);
        let file = folder.join("file");
        let written = widelane_files::replace(&file, b"", 0o644);
        rustix::process::umask(before);
        made.unwrap();
        written.unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!([mode(&above), mode(&folder)], [0o755; 2], "{umask:o}");
        assert_eq!(mode(&file), 0o644, "{umask:o}");
    }
}
