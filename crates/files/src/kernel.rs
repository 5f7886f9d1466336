//! Files of the kernel: `/proc` and `/sys`.

use crate::read::{READ, bounded};
use rustix::fs::{CWD, Mode, openat};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// The content of a file of the kernel. No user can lay anything there, so nothing is checked.
///
/// # Errors
///
/// When it is not there, may not be read, or is longer than any is.
pub fn kernel(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    bounded(open_kernel(path)?, MOST)
}

/// Reads a file of the kernel as text.
///
/// # Errors
///
/// As with [`kernel`], and when it is no text.
pub fn kernel_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(kernel(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The beginning of a file of the kernel, as far as it can be read.
pub fn kernel_beginning(path: impl AsRef<Path>, most: u64) -> Vec<u8> {
    let mut content = Vec::new();
    let _ = open_kernel(path).map(|file| file.take(most).read_to_end(&mut content));
    content
}

/// Opens a file of the kernel, also one of `/dev`.
///
/// # Errors
///
/// When it is not there or may not be read.
pub fn open_kernel(path: impl AsRef<Path>) -> io::Result<File> {
    Ok(openat(CWD, path.as_ref(), READ, Mode::empty())?.into())
}

/// Writes to a file of the kernel.
///
/// # Errors
///
/// When it is not there, or the kernel refuses the value.
pub fn set_kernel(path: impl AsRef<Path>, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// The mappings of a process are the longest: 65,530 lines, each with a path.
const MOST: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_read() {
        assert!(kernel_text("/proc/self/status").unwrap().contains("Umask"));
        assert!(!kernel("/proc/self/maps").unwrap().is_empty());
        assert_eq!(kernel_beginning("/proc/self/maps", 9).len(), 9);
        assert!(kernel("/proc/self/none").is_err());
        assert!(set_kernel("/proc/self/none", "1").is_err());
    }
}
