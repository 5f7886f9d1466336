//! Shared memory as slots. All unsafe code of this crate is here.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::header::Header;
use crate::slot::Slot;

/// A mapping that is never undone.
#[derive(Debug)]
pub(crate) struct Memory {
    first: NonNull<Slot>,
    count: usize,
}

// SAFETY: slots are atomics alone, and the mapping stays until the process ends.
unsafe impl Send for Memory {}
// SAFETY: slots are atomics alone, and the mapping stays until the process ends.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `size` bytes of a file that cannot get shorter: a header and `count` slots.
    pub(crate) fn map(file: BorrowedFd<'_>, size: usize, count: usize) -> io::Result<Self> {
        assert!(Header::BYTES + count * size_of::<Slot>() <= size);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { mmap(ptr::null_mut(), size, protection, MapFlags::SHARED, file, 0)? };
        let first = base.wrapping_byte_add(Header::BYTES).cast::<Slot>();
        let first = NonNull::new(first).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { first, count })
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        // SAFETY: the mapping has room for that many slots behind the header, as was checked, and
        // begins at a page of memory, so that they are aligned. Callers have checked that the file is
        // sealed against becoming shorter. Any bytes are a slot, and all of it is atomics, which
        // other processes may change at any time.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

const _: () = assert!(Header::BYTES.is_multiple_of(align_of::<Slot>()));
