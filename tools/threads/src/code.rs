//! The code that a process has mapped, and the files behind it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::file::RegularFile;
use crate::patience::{Patience, SHORT};

/// The mappings of a process with the right to execute.
#[derive(Debug)]
pub struct Code {
    /// Mappings in the order of their addresses; those of the kernel itself are left out.
    pub mappings: Vec<Mapping>,
    folder: PathBuf,
    paths: Paths,
    patience: Patience,
}

/// A part of a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// The place in the file where it begins.
    pub offset: u64,
    /// The file, as the kernel names it; none for what the process has made at run time.
    pub path: Option<PathBuf>,
}

/// The place from which the paths of a process's files lead.
#[derive(Debug)]
enum Paths {
    /// The same as here: the process sees the same file systems.
    Here,
    /// Something below this directory, its root.
    Below(OwnedFd),
    /// Unknown: the system does not show us its root.
    Unknown,
}

impl Mapping {
    /// Reads `/proc/PID/maps`: what may be executed. Lines that are not understood are left out.
    ///
    /// `procfs-core` takes this file for text, but paths are bytes: one file with an odd name would
    /// hide all others.
    pub fn parse(maps: &[u8]) -> Vec<Self> {
        let is_code = |permissions: &str| permissions.contains('x');
        Self::parse_those(maps, is_code)
    }

    /// The same of all memory, also of what may not be executed.
    pub fn parse_all(maps: &[u8]) -> Vec<Self> {
        Self::parse_those(maps, |_| true)
    }

    fn parse_those(maps: &[u8], wanted: impl Fn(&str) -> bool) -> Vec<Self> {
        maps.split(|&byte| byte == b'\n')
            .filter_map(|line| mapping(line, &wanted))
            .collect()
    }
}

impl Code {
    /// The code of a process.
    ///
    /// # Errors
    ///
    /// When there is no such process, or it belongs to another user.
    pub fn of(pid: u32) -> io::Result<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let path = folder.join("maps");
        let patience = Patience::with(&folder);
        let maps = patience.within(SHORT, || widelane_files::kernel(path))?;
        Ok(Self {
            mappings: Mapping::parse(&maps),
            patience,
            paths: Paths::of(&folder),
            folder,
        })
    }

    /// The file of the program itself, also if it was deleted or replaced since it began.
    ///
    /// # Errors
    ///
    /// When the process has ended, or may not be looked at.
    pub fn program(&self) -> io::Result<RegularFile> {
        let link = self.folder.join("exe");
        self.patience.within(SHORT, move || RegularFile::behind(&link))
    }

    /// The file behind a mapping.
    ///
    /// The kernel's link to the mapped file itself is tried first: it leads to the right file even
    /// if that was deleted or replaced. Following it takes root. Otherwise the path must do, seen
    /// as the process sees it: what a path of a container means here is another file.
    ///
    /// # Errors
    ///
    /// When no file is behind it, the file cannot be reached, or it is no regular file.
    pub fn open(&self, mapping: &Mapping) -> io::Result<RegularFile> {
        let Some(path) = &mapping.path else {
            return Err(io::Error::other("it was made at run time"));
        };
        let Range { start, end } = mapping.range;
        let link = self.folder.join(format!("map_files/{start:x}-{end:x}"));
        match self.patience.within(SHORT, move || RegularFile::behind(&link)) {
            Err(error) if unreachable(&error) => self.paths.open(path),
            found => found,
        }
    }

    /// The files, each once, with what it takes to open them.
    pub fn files(&self) -> Vec<&Mapping> {
        let mut files: HashMap<&Path, &Mapping> = HashMap::new();
        for mapping in &self.mappings {
            if let Some(path) = &mapping.path {
                files.entry(path).or_insert(mapping);
            }
        }
        let mut files: Vec<_> = files.into_values().collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }
}

impl Paths {
    fn of(process: &Path) -> Self {
        let namespace = |folder: &Path| {
            let status = fs::metadata(folder.join("ns/mnt")).ok()?;
            Some((status.dev(), status.ino()))
        };
        let (own, its) = (namespace(Path::new("/proc/self")), namespace(process));
        if own.is_some() && own == its {
            return Self::Here;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, process.join("root"), flags, Mode::empty());
        root.map_or(Self::Unknown, Self::Below)
    }

    fn open(&self, path: &Path) -> io::Result<RegularFile> {
        match self {
            Self::Here => RegularFile::at(path),
            Self::Below(root) => RegularFile::below(root, path),
            Self::Unknown => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

/// Returns whether the link to a mapped file could not be followed, for lack of rights or since the process
/// has just ended. Anything else is about the file itself, and its path would lead no further.
fn unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | PermissionDenied)
}

fn mapping(line: &[u8], wanted: impl Fn(&str) -> bool) -> Option<Mapping> {
    // address permissions offset device inode path, which may contain spaces.
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = text()?.split_once('-')?;
    let permissions = text()?;
    let offset = text()?;
    let path = fields.nth(2).unwrap_or_default().trim_ascii_start();
    if !wanted(permissions) || path.starts_with(b"[v") {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    let path = path.starts_with(b"/").then(|| OsStr::from_bytes(path));
    Some(Mapping {
        range: number(start)?..number(end)?,
        offset: number(offset)?,
        path: path.map(PathBuf::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, mknodat};
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, ChildStdout, Command, Stdio};

    #[test]
    fn code_is_told_from_data_and_paths_are_bytes() {
        let maps = b"\
5581-5582 r--p 00000000 fe:00 12  /usr/bin/some server\n\
5582-5583 r-xp 00001000 fe:00 12                         /usr/bin/some server\n\
6000-6001 r-xp 00000000 fe:00 12                         /tmp/\xff\n\
7f00-7f01 rwxp 00000000 00:00 0 \n\
7f01-7f02 rw-p 00000000 00:00 0 \n\
7ffd-7ffe r-xp 00000000 00:00 0                          [vdso]\n\
nonsense\n";
        let mapping = |range, offset, path: Option<&[u8]>| Mapping {
            range,
            offset,
            path: path.map(|path| PathBuf::from(OsStr::from_bytes(path))),
        };
        let expected = [
            mapping(0x5582..0x5583, 0x1000, Some(b"/usr/bin/some server")),
            mapping(0x6000..0x6001, 0, Some(b"/tmp/\xff")),
            mapping(0x7f00..0x7f01, 0, None),
        ];
        assert_eq!(Mapping::parse(maps), expected);
        let all = Mapping::parse_all(maps);
        let data = mapping(0x5581..0x5582, 0, Some(b"/usr/bin/some server"));
        assert_eq!((&all[0], &all[1..4]), (&data, &expected[..]));
        assert_eq!(all[4..], [mapping(0x7f01..0x7f02, 0, None)]);
    }

    #[test]
    fn this_process_has_its_own_program() {
        let code = Code::of(std::process::id()).unwrap();
        let own = std::env::current_exe().unwrap();
        let mapping = code.files().into_iter().find(|mapping| {
            let path = mapping.path.as_deref();
            path == Some(&own)
        });
        let file = code.open(mapping.unwrap()).unwrap();
        assert_eq!(file.identity().inode, fs::metadata(&own).unwrap().ino());
        assert_eq!(code.program().unwrap().identity(), file.identity());
    }

    /// A `cat` that waits for input, in a mount namespace of its own. It has other files in a
    /// folder than there are here.
    struct Contained {
        child: Child,
        said: BufReader<ChildStdout>,
    }

    impl Contained {
        /// `None` if this system does not let us make one.
        fn start(folder: &Path) -> Option<Self> {
            let script = "mount -t tmpfs none \"$1\" && cp \"$(command -v cat)\" \"$1/program\" \
                          && exec \"$1/program\"";
            let child = Command::new("unshare")
                .args(["--mount", "--map-root-user", "sh", "-c", script, "sh"])
                .arg(folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn();
            let mut child = child.ok()?;
            let said = BufReader::new(child.stdout.take()?);
            let mut contained = Self { child, said };
            contained.answers().then_some(contained)
        }

        /// Returns whether it runs and answers.
        fn answers(&mut self) -> bool {
            let mut line = String::new();
            let asked = self.child.stdin.as_mut().map(|to| to.write_all(b"x\n"));
            let heard = self.said.read_line(&mut line);
            matches!(asked, Some(Ok(()))) && heard.is_ok_and(|length| length > 0)
        }
    }

    impl Drop for Contained {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// At the path of the contained program, there is a trap here.
    #[test]
    fn a_path_of_another_mount_namespace_is_never_looked_up_here() {
        let folder = tempfile::tempdir().unwrap();
        let [trap, secret] = ["program", "secret"].map(|name| folder.path().join(name));
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &trap, FileType::Fifo, mode, 0).unwrap();
        fs::write(&secret, "only here").unwrap();
        let Some(contained) = Contained::start(folder.path()) else {
            println!("SKIP: it takes unshare and the right to make a mount namespace");
            return;
        };
        let code = Code::of(contained.child.id()).unwrap();
        assert!(matches!(code.paths, Paths::Below(_)), "{:?}", code.paths);
        let program = code.mappings.iter().find(|mapping| {
            let path = mapping.path.as_deref();
            path == Some(&trap)
        });
        let program = program.expect("the kernel names it by the path that it has in there");
        let length = fs::metadata("/bin/cat").unwrap().len();
        for file in [code.open(program), code.paths.open(&trap)] {
            assert_eq!(file.unwrap().identity().length, length);
        }
        let error = code.paths.open(&secret).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(Paths::Here.open(&secret).is_ok());
    }
}
