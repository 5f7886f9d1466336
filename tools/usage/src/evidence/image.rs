//! The 512-bit code of one file: where it is, and what it is for.

use std::borrow::Cow;
use std::path::Path;

use object::{Object, ObjectSegment};
use widelane_scan::{Class, Image, scan_bytes};
use widelane_threads::RegularFile;

/// Knowledge about a file.
pub(super) enum FileCode {
    /// Functions of the file with 512-bit code, and the places of its segments.
    Code(Wide),
    /// The file is not looked at, for this reason.
    Refused(&'static str),
}

/// Functions with 512-bit code of a file.
#[derive(Debug, Default)]
pub(super) struct Wide {
    pub(super) functions: Vec<Function>,
    /// Offset, length and address of each segment.
    pub(super) segments: Vec<(u64, u64, u64)>,
}

/// A function with 512-bit code.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) title: String,
    /// True if the function copies memory or looks at strings.
    pub(super) copies: bool,
}

impl Wide {
    /// The function at a place in the file.
    pub(super) fn at(&self, offset: u64) -> Option<&Function> {
        let inside = |&&(from, length, _): &&(u64, u64, u64)| offset.checked_sub(from).is_some_and(|at| at < length);
        let &(from, _, address) = self.segments.iter().find(inside)?;
        let address = address.wrapping_add(offset - from);
        self.functions.iter().find(|function| {
            let at = address.checked_sub(function.address);
            at.is_some_and(|at| at < function.size)
        })
    }
}

/// Disassembles a file; `path` says what it is called. `None` if it cannot be read.
pub(super) fn look_at(file: &RegularFile, path: &Path) -> Option<FileCode> {
    if file.identity().length > MOST_BYTES {
        return Some(FileCode::Refused("a file of its code is too large to look at"));
    }
    let data = file.read(MOST_BYTES).ok()?;
    match scan_bytes(path, &data) {
        Ok(image) => Some(FileCode::Code(wide(path, &image, &data))),
        Err(_) => Some(FileCode::Refused("a file of its code is no ELF file for x86-64")),
    }
}

fn wide(path: &Path, image: &Image, data: &[u8]) -> Wide {
    let library = base(path);
    let whole = |function: &&widelane_scan::Function| function.class() >= Class::Light512;
    let functions = image.functions.iter().filter(whole).map(|function| {
        let title = match (&function.name, &function.near) {
            (Some(name), _) => name.clone(),
            (None, Some(near)) => format!("a function near \"{near}\""),
            (None, None) => format!("the function at {:#x}", function.address),
        };
        Function {
            address: function.address,
            size: function.size,
            copies: only_copies(&library, function.name.as_deref()),
            title,
        }
    });
    let segments = object::File::parse(data).map_or_else(
        |_| Vec::new(),
        |file| {
            let segment = |segment: object::Segment<'_, '_>| {
                let (offset, length) = segment.file_range();
                (offset, length, segment.address())
            };
            file.segments().map(segment).collect()
        },
    );
    Wide {
        functions: functions.collect(),
        segments,
    }
}

/// Returns whether a function with wide code is one that copies memory or looks at strings: all of them are in C
/// libraries; in programs that contain one, by the names that these give them.
fn only_copies(library: &str, function: Option<&str>) -> bool {
    if LIBRARIES.iter().any(|stem| library.starts_with(stem)) {
        return true;
    }
    let Some(name) = function else {
        return false;
    };
    let stem = name.trim_start_matches('_');
    let known = STRINGS.iter().any(|prefix| stem.starts_with(prefix));
    known && (name.contains("_evex") || name.contains("_avx512"))
}

/// The last part of a path.
pub(super) fn base(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Files of C libraries begin so.
const LIBRARIES: [&str; 6] = ["libc.so.", "libc-", "ld-linux", "ld-2", "libc.musl", "ld-musl"];
/// Memory and string functions begin so.
const STRINGS: [&str; 8] = ["mem", "str", "stp", "wcs", "wmem", "rawmem", "bzero", "bcopy"];
/// Larger files are not looked at: it would take seconds, and twice their size of memory.
const MOST_BYTES: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_copy_are_known_by_library_or_name() {
        assert!(only_copies("libc.so.6", None));
        assert!(only_copies("ld-linux-x86-64.so.2", None));
        assert!(only_copies("program", Some("__memmove_avx512_unaligned_erms")));
        assert!(only_copies("program", Some("__strlen_evex512")));
        assert!(!only_copies("program", Some("memory_hard_hash")));
        assert!(!only_copies("libcrypto.so.3", None));
        assert!(!only_copies("libmvec.so.1", Some("_ZGVeN8v_exp_avx512")));
    }
}
