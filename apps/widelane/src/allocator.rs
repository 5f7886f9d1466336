//! The memory allocator of this program, and how memory goes back to the system.
//!
//! A handshake allocates some hundred times: see `docs/decisions/allocator.md`.

#![allow(unsafe_code)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives free memory of the calling thread and of the whole process back to the system. mimalloc
/// does so by itself only when threads go on to allocate, which those of a quiet server do not.
pub(crate) fn give_back_free_memory() {
    // SAFETY: `mi_collect` takes a plain flag and may be called on any thread at any time; it frees
    // only what is not in use.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
