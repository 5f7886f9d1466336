//! The memory of a process.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::code::Mapping;
use crate::patience::{Patience, SHORT};

/// The mappings of a process, and their content.
///
/// Both are of the same process, even if it ends and its number is given to another. What is read and written from the
/// first read on is of one program: if the process has another one run in its place (`execve(2)`), both fail.
#[derive(Debug)]
pub struct Memory {
    /// Mappings in the order of their addresses; those of the kernel itself are left out.
    pub mappings: Vec<Mapping>,
    folder: OwnedFd,
    /// Opened where it is needed: a system may note in its log that a user was refused.
    content: OnceLock<Arc<File>>,
    access: OFlags,
    patience: Patience,
}

impl Memory {
    /// The memory of a process.
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
            open(&own, "maps", OFlags::RDONLY)?.read_to_end(&mut maps)?;
            Ok(maps)
        })?;
        Ok(Self {
            mappings: Mapping::parse_all(&maps),
            folder,
            content: OnceLock::new(),
            access: OFlags::RDONLY,
            patience,
        })
    }

    /// Has it opened for writing, too.
    #[must_use]
    pub fn to_write(self) -> Self {
        Self {
            access: OFlags::RDWR,
            ..self
        }
    }

    /// The content of one mapping. The process goes on meanwhile, and does not notice.
    ///
    /// # Errors
    ///
    /// When it may not be read, is longer than `most` bytes, or is gone; when the read hangs.
    pub fn read(&self, mapping: &Mapping, most: usize) -> io::Result<Vec<u8>> {
        let length = mapping.range.end.saturating_sub(mapping.range.start);
        let length = usize::try_from(length).ok().filter(|&length| length <= most);
        let Some(length) = length else {
            return Err(io::Error::other(format!("it is longer than {most} bytes")));
        };
        let (memory, start) = (self.content()?, mapping.range.start);
        self.patience.within(SHORT, move || {
            let mut content = vec![0; length];
            memory.read_exact_at(&mut content, start)?;
            Ok(content)
        })
    }

    /// Writes one number at this place of a mapping of memory that was opened [`to_write`](Self::to_write), which takes
    /// the rights that [`read`](Self::read) takes. The process goes on meanwhile, and sees the number whole if the
    /// place is a multiple of eight.
    ///
    /// # Errors
    ///
    /// When it may not be written, or is gone; when the write hangs.
    pub fn write(&self, mapping: &Mapping, place: usize, number: u64) -> io::Result<()> {
        let at = mapping.range.start.saturating_add(place as u64);
        if at.saturating_add(8) > mapping.range.end {
            return Err(io::Error::other("it ends before that place"));
        }
        let memory = self.content()?;
        self.patience
            .within(SHORT, move || memory.write_all_at(&number.to_ne_bytes(), at))
    }

    fn content(&self) -> io::Result<Arc<File>> {
        if let Some(content) = self.content.get() {
            return Ok(content.clone());
        }
        let (folder, access) = (self.folder.try_clone()?, self.access);
        let opened = self.patience.within(SHORT, move || open(&folder, "mem", access))?;
        Ok(self.content.get_or_init(|| Arc::new(opened)).clone())
    }
}

fn open(folder: &OwnedFd, name: &str, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    fn a_number_is_written_where_it_belongs() {
        let numbers: Vec<AtomicU64> = (0..3).map(AtomicU64::new).collect();
        let memory = Memory::of(std::process::id()).unwrap().to_write();
        let at = numbers.as_ptr().addr() as u64;
        let mapping = Mapping {
            range: at..at + 16,
            offset: 0,
            path: None,
        };
        memory.write(&mapping, 8, 7).unwrap();
        let after = numbers.iter().map(|number| number.load(Relaxed));
        assert_eq!(after.collect::<Vec<_>>(), [0, 7, 2]);
        assert!(memory.write(&mapping, 9, 7).is_err());
        let to_read = Memory::of(std::process::id()).unwrap();
        assert!(to_read.write(&mapping, 8, 7).is_err());
    }

    /// The same program at the same addresses: without a look at the program, it would be taken for the one before.
    #[test]
    fn what_runs_in_place_of_a_program_is_neither_read_nor_written() {
        let mut shell = Command::new("setarch");
        shell.args(["-R", "sh", "-c", "echo begun; read x; exec sh -c 'echo again; read x'"]);
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut shell) = shell else {
            println!("SKIP: no setarch");
            return;
        };
        let mut said = BufReader::new(shell.stdout.take().unwrap()).lines();
        if said.next().is_none() {
            println!("SKIP: addresses cannot be chosen here");
            return;
        }
        let memory = Memory::of(shell.id()).unwrap().to_write();
        let mapping = memory.mappings[0].clone();
        let length = (mapping.range.end - mapping.range.start) as usize;
        let before = memory.read(&mapping, length).unwrap();
        let mut keys = shell.stdin.take().unwrap();
        keys.write_all(b"x\n").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "again");
        let error = memory.read(&mapping, length).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = memory.write(&mapping, 0, 7).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
        let anew = Memory::of(shell.id()).unwrap();
        assert_eq!(anew.read(&mapping, length).unwrap(), before);
        drop(keys);
        shell.wait().unwrap();
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
