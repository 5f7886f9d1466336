//! Finds wide code in programs and libraries: which functions have instructions on 256-bit and
//! 512-bit registers, of which [`Class`], and which clock they ask for.
//!
//! It disassembles what could run; it does not say what does run. A function with wide code may
//! never be called on a CPU that has a better or a safer one.
//!
//! Start with [`scan_file`] and [`scan_process`]. Functions are those that symbols name; where a
//! file is stripped, those that its `.eh_frame` delimits, which for hand-written assembly is often
//! all there is. Such functions have no name, but what a library exports keeps its own, and
//! [`Function::used_by`] tells which of that leads there; and libraries of cryptography label
//! their modules with text beside the code, which [`Function::near`] quotes.

#![forbid(unsafe_code)]

mod callers;
mod classify;
mod elf;
mod process;

pub use elf::{Function, Image, ScanError, scan_bytes, scan_file};
pub use process::{Process, scan_process};
pub use widelane_cpu::licence::{Class, Generation, Level};
