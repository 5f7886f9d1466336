//! Memory for a page, which other processes find by its name.

use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::{NAME, Page, SIZE};

/// Maps an empty page for this process. It stays for ever.
///
/// # Errors
///
/// When the system gives no memory.
pub fn map() -> Result<&'static Page, Errno> {
    at(ptr::null_mut(), MapFlags::empty())
}

/// Maps an empty page in the place of one that a forked process has of its parent.
///
/// # Errors
///
/// When the system gives no memory. Then the old page is still there.
///
/// # Safety
///
/// `inherited` must have come from [`map`], in this process or before a fork.
pub unsafe fn map_over(inherited: NonNull<Page>) -> Result<&'static Page, Errno> {
    at(inherited.as_ptr(), MapFlags::FIXED)
}

fn at(place: *mut Page, fixed: MapFlags) -> Result<&'static Page, Errno> {
    // Systems may insist on memory that is never executed; old ones do not know the flag.
    let flags = MemfdFlags::CLOEXEC;
    let memory = match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(NAME, flags)?,
        made => made?,
    };
    ftruncate(&memory, SIZE as u64)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | fixed;
    // SAFETY: the kernel chooses an address, or the new page takes the place of an old one, which is as
    // large, was mapped here, and is only reached as a `Page` of atomics.
    let page = unsafe { mmap(place.cast(), SIZE, access, flags, &memory, 0)? };
    // SAFETY: `SIZE` bytes, aligned to a page of memory, which stay mapped for ever. Zeros and whatever is
    // written later are a `Page`, because all of it is atomic numbers.
    Ok(unsafe { &*page.cast::<Page>() })
}
