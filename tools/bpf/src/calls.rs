//! The system call `bpf` for what aya does not ask of it: to load a program for multi-probes, and to attach
//! it. What other rooms see of it takes and gives only Rust's own types.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya_obj::generated::bpf_insn;

/// Loads a program that multi-probes can run. `log` receives what the verifier says; if it is empty,
/// the verifier says nothing.
pub(crate) fn load(instructions: &[bpf_insn], licence: &CStr, log: &mut [u8]) -> io::Result<OwnedFd> {
    let attributes = Load {
        program_type: PROGRAM_KPROBE,
        instructions: count(instructions.len())?,
        instructions_at: address(instructions.as_ptr()),
        licence_at: address(licence.as_ptr()),
        log_level: u32::from(!log.is_empty()),
        log_size: count(log.len())?,
        log_at: match log.is_empty() {
            true => 0,
            false => address(log.as_mut_ptr()),
        },
        kernel_version: 0,
        flags: 0,
        name: [0; 16],
        interface: 0,
        expected_attach_type: TRACE_UPROBE_MULTI,
    };
    // SAFETY: the fields have the layout of the kernel's `union bpf_attr` for this command, and the kernel
    // reads only `size_of` bytes of it. It reads as many instructions as are in the slice, and the
    // licence up to its zero; it writes at most `log_size` bytes to `log`, which is borrowed mutably. All
    // three outlive the call, after which the kernel keeps no address.
    unsafe { bpf(PROGRAM_LOAD, &attributes) }
}

/// Attaches a loaded program to places of the file that the path leads to. Each has a cookie. `pid` is the
/// process in which they are met, 0: all.
///
/// # Panics
///
/// When there are not as many cookies as offsets.
pub(crate) fn link(
    program: BorrowedFd<'_>,
    path: &CStr,
    (offsets, cookies): (&[u64], &[u64]),
    pid: u32,
) -> io::Result<OwnedFd> {
    assert_eq!(offsets.len(), cookies.len(), "a cookie for each offset");
    let attributes = Link {
        program: program.as_raw_fd().cast_unsigned(),
        target: 0,
        attach_type: TRACE_UPROBE_MULTI,
        flags: 0,
        path_at: address(path.as_ptr()),
        offsets_at: address(offsets.as_ptr()),
        reference_counters_at: 0,
        cookies_at: address(cookies.as_ptr()),
        count: count(offsets.len())?,
        multi_flags: 0,
        pid,
        unused: 0,
    };
    // SAFETY: the fields have the layout of the kernel's `union bpf_attr` for this command, and the kernel
    // reads only `size_of` bytes of it. It reads the path up to its zero, and `count` numbers from
    // each of both slices, which have as many. All three outlive the call, after which the kernel keeps
    // no address.
    unsafe { bpf(LINK_CREATE, &attributes) }
}

/// A command that makes a descriptor.
///
/// # Safety
///
/// The attributes are what the command expects: the addresses in them are valid during the call for all
/// that the kernel reads and writes there.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: by the contract of this function, the kernel touches only memory that is ours, and it reads
    // `size_of` bytes of the attributes.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    match i32::try_from(result) {
        // SAFETY: both commands return a new descriptor, which nothing else owns.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Address in the form that the kernel takes.
fn address<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64
}

fn count(of: usize) -> io::Result<u32> {
    u32::try_from(of).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Arguments of `BPF_PROG_LOAD`, as far as they are used here.
#[repr(C)]
struct Load {
    program_type: u32,
    instructions: u32,
    instructions_at: u64,
    licence_at: u64,
    log_level: u32,
    log_size: u32,
    log_at: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

/// Arguments of `BPF_LINK_CREATE` for multi-probes.
#[repr(C)]
struct Link {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path_at: u64,
    offsets_at: u64,
    reference_counters_at: u64,
    cookies_at: u64,
    count: u32,
    multi_flags: u32,
    pid: u32,
    unused: u32,
}

// The numbers of linux/bpf.h.
const PROGRAM_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const PROGRAM_KPROBE: u32 = 2;
const TRACE_UPROBE_MULTI: u32 = 48;
