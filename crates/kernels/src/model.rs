//! Calls of kernels in portable Rust, with the feature `model` only: the oracle of tests.
//!
//! The functions that run a kernel are not generic, so that no crate above compiles all kernels anew.

use widelane_lanes::{Definition, Kernel};

/// Runs a kernel on the arrays that it writes and those that it only reads.
///
/// # Panics
///
/// If there are neither 4 nor 8 lanes, or a claim of the kernel fails and
/// [claims are checked](claims_are_checked).
pub(crate) fn run<const L: usize>(kernel: Kernel, written: &mut [&mut [[u64; L]]], read: &[&[[u64; L]]]) {
    let written = written.iter_mut().map(|array| array.as_flattened_mut());
    let read = read.iter().map(|array| array.as_flattened());
    let (mut written, read): (Vec<_>, Vec<_>) = (written.collect(), read.collect());
    match L {
        4 => on_4_lanes(kernel, &mut written, &read),
        8 => on_8_lanes(kernel, &mut written, &read),
        _ => panic!("no registers have {L} lanes"),
    }
}

#[inline(never)]
fn on_4_lanes(kernel: Kernel, written: &mut [&mut [u64]], read: &[&[u64]]) {
    on_lanes::<4>(kernel, written, read);
}

#[inline(never)]
fn on_8_lanes(kernel: Kernel, written: &mut [&mut [u64]], read: &[&[u64]]) {
    on_lanes::<8>(kernel, written, read);
}

fn on_lanes<const L: usize>(kernel: Kernel, written: &mut [&mut [u64]], read: &[&[u64]]) {
    let written = written.iter_mut().map(|array| array.as_chunks_mut().0);
    let read = read.iter().map(|array| array.as_chunks().0);
    let (mut written, read): (Vec<&mut [[u64; L]]>, Vec<_>) = (written.collect(), read.collect());
    if claims_are_checked() {
        kernel.model(&mut written, &read);
    } else {
        kernel.model_without_claims(&mut written, &read);
    }
}

#[cfg(feature = "fault-injection")]
use crate::faults::claims_are_checked;

#[cfg(not(feature = "fault-injection"))]
fn claims_are_checked() -> bool {
    true
}
