//! Identity of this process, and memory that a fork empties.
//!
//! What one process has made (threads, locks, random bytes) is not its child's. [`process_id`] tells them apart for
//! the price of two reads of memory, where `getpid` is a system call: a handshake asks forty times. [`wiped_word`]
//! is for callers that keep more than that.
//!
//! Both rest on a page that the kernel fills with zeroes in each child (`MADV_WIPEONFORK`, madvise(2), Linux 4.14).
//! The child of `vfork` has the memory of its parent, and neither tells it apart: it may only start another program.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod wiped;

pub use wiped::{process_id, wiped_word};
