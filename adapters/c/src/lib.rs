//! Widelane for C: `run_wide`, as `include/widelane.h` describes it.
//!
//! It translates: pointers to closures, errors to numbers and a text. What it does is in
//! `widelane-wide`.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod calls;
