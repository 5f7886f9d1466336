//! Multi-probes: many places of a file have a probe by one system call, and lose it by one.
//!
//! The kernel has them since Linux 6.6 (`uprobe_multi`). It takes a program for them only if that was loaded
//! for them, which aya does not do: so the programs are loaded a second time here, with aya's maps.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya::maps::Map;
use aya::{Btf, Ebpf};
use aya_obj::Object;
use rustix::io::Errno;

use crate::{calls, persistently};

/// A program of which multi-probes can be made.
#[derive(Debug)]
pub struct MultiProgram {
    descriptor: OwnedFd,
}

/// The places of one link. They lose their probes when it is dropped.
#[derive(Debug)]
pub struct MultiLink {
    // Nothing reads it: closing it is what it is for.
    _descriptor: OwnedFd,
}

/// A place in a file, and what the program gets to know there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Offset in the file.
    pub offset: u64,
    /// Value that `bpf_get_attach_cookie` returns.
    pub cookie: u64,
}

impl MultiProgram {
    /// Loads programs of an object file that aya has loaded before: each by its name.
    ///
    /// # Errors
    ///
    /// What the kernel says, with the last words of its verifier.
    pub fn load<const N: usize>(object: &[u8], btf: &Btf, loaded: &Ebpf, names: [&str; N]) -> io::Result<[Self; N]> {
        let mut object = Object::parse(object).map_err(io::Error::other)?;
        object.relocate_btf(btf).map_err(io::Error::other)?;
        let maps = std::mem::take(&mut object.maps);
        let known = maps.iter().filter_map(|(name, map)| {
            let descriptor = descriptor(loaded.map(name)?)?;
            Some((name.as_str(), descriptor, map))
        });
        let sections = object.functions.keys().map(|(section, _)| *section);
        let sections: HashSet<usize> = sections.collect();
        object
            .relocate_maps(known, &sections)
            .and_then(|()| object.relocate_calls(&sections))
            .map_err(io::Error::other)?;
        let mut programs = Vec::with_capacity(N);
        for name in names {
            let missing = || io::Error::other(format!("no program {name}"));
            let program = object.programs.get(name).ok_or_else(missing)?;
            let function = object.functions.get(&program.function_key());
            let instructions = &function.ok_or_else(missing)?.instructions;
            let load = || calls::load(instructions, &program.license, &mut []);
            let descriptor = persistently(load).map_err(|error| said(error, instructions, &program.license))?;
            programs.push(Self { descriptor });
        }
        programs
            .try_into()
            .map_err(|_| io::Error::other("a program is missing"))
    }

    /// Puts probes on places of the file that a path leads to, in one process, or in all where its
    /// number is 0.
    ///
    /// # Errors
    ///
    /// When one of them cannot have one: then none has.
    pub fn attach(&self, pid: u32, path: &Path, points: &[Point]) -> io::Result<MultiLink> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let offsets: Vec<u64> = points.iter().map(|point| point.offset).collect();
        let cookies: Vec<u64> = points.iter().map(|point| point.cookie).collect();
        let both = (&offsets[..], &cookies[..]);
        let descriptor = calls::link(self.descriptor.as_fd(), &path, both, pid)?;
        Ok(MultiLink {
            _descriptor: descriptor,
        })
    }

    /// Returns whether this kernel has multi-probes that see all threads of a process. Those of Linux 6.6 saw one of
    /// them until that was repaired, in Linux 6.10 and in updates of older ones.
    pub fn sees_all_threads(&self) -> bool {
        let point = Point { offset: 0, cookie: 0 };
        let refused = |pid| {
            let link = self.attach(pid, Path::new("/"), &[point]);
            link.err().and_then(|error| Errno::from_io_error(&error))
        };
        // Tests as libbpf does: a kernel that knows multi-probes says that this path is no file, and one that was
        // repaired says before that no process has this number.
        refused(0) == Some(Errno::BADF) && refused(u32::MAX) == Some(Errno::INVAL)
    }
}

/// The error of a program that was not loaded, with what the verifier says of it.
fn said(error: io::Error, instructions: &[aya_obj::generated::bpf_insn], licence: &CStr) -> io::Error {
    let mut log = vec![0; LOG];
    let _ = calls::load(instructions, licence, &mut log);
    let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
    let log = log.to_string_lossy();
    match log.lines().rfind(|line| !line.is_empty()) {
        Some(last) => io::Error::new(error.kind(), format!("{error}: {last}")),
        None => error,
    }
}

/// The kinds of maps that our programs have.
fn descriptor(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::LruHashMap(data) | Map::PerCpuArray(data) | Map::RingBuf(data) => {
            Some(data.fd().as_fd().as_raw_fd())
        }
        _ => None,
    }
}

/// Enough for the end of what the verifier says of a program that it refuses.
const LOG: usize = 1 << 20;
