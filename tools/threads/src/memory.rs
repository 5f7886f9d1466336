//! The memory of a process.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::code::Mapping;
use crate::patience::{Patience, SHORT};

/// What a process has mapped, and its content.
///
/// Both are of the same process, even if it ends and its number is given to another.
#[derive(Debug)]
pub struct Memory {
    /// In the order of the addresses; those of the kernel itself are left out.
    pub mappings: Vec<Mapping>,
    folder: OwnedFd,
    patience: Patience,
}

impl Memory {
    /// That of a process.
    ///
    /// # Errors
    ///
    /// When there is no such process, or it belongs to another user.
    pub fn of(pid: u32) -> io::Result<Self> {
        let path = format!("/proc/{pid}");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, Path::new(&path), flags, Mode::empty())?;
        let own = folder.try_clone()?;
        let patience = Patience::with(Path::new(&path));
        let maps = patience.within(SHORT, move || {
            let mut maps = Vec::new();
            open(&own, "maps")?.read_to_end(&mut maps)?;
            Ok(maps)
        })?;
        Ok(Self {
            mappings: Mapping::parse_all(&maps),
            folder,
            patience,
        })
    }

    /// The content of one mapping. The process goes on meanwhile, and is not told.
    ///
    /// # Errors
    ///
    /// When it may not be read, is longer than `most` bytes, or is gone; when the read hangs.
    pub fn read(&self, mapping: &Mapping, most: usize) -> io::Result<Vec<u8>> {
        let length = mapping.range.end.saturating_sub(mapping.range.start);
        let length = usize::try_from(length)
            .ok()
            .filter(|&length| length <= most);
        let Some(length) = length else {
            return Err(io::Error::other(format!("it is longer than {most} bytes")));
        };
        let (folder, start) = (self.folder.try_clone()?, mapping.range.start);
        self.patience.within(SHORT, move || {
            let mut content = vec![0; length];
            open(&folder, "mem")?.read_exact_at(&mut content, start)?;
            Ok(content)
        })
    }
}

fn open(folder: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_its_program_in_its_memory() {
        let memory = Memory::of(std::process::id()).unwrap();
        let own = std::env::current_exe().unwrap();
        let mut mappings = memory.mappings.iter();
        let mapping = mappings
            .find(|mapping| mapping.path.as_deref() == Some(&own) && mapping.offset == 0)
            .unwrap();
        let length = (mapping.range.end - mapping.range.start) as usize;
        let content = memory.read(mapping, length).unwrap();
        assert_eq!(&content[..4], b"\x7fELF");
        assert_eq!(content.len(), length);
        let error = memory.read(mapping, length - 1).unwrap_err().to_string();
        assert!(error.contains("longer"), "{error}");
    }

    #[test]
    fn what_is_not_there_cannot_be_read() {
        let error = Memory::of(u32::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let memory = Memory::of(std::process::id()).unwrap();
        let nothing = Mapping {
            range: 0..4096,
            offset: 0,
            path: None,
        };
        assert!(memory.read(&nothing, 4096).is_err());
    }
}
