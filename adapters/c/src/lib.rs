//! Widelane for C: `run_wide`, as `include/widelane.h` describes it.
//!
//! It translates: pointers to closures, errors to numbers and a text. It also reads the environment
//! variable with the form, as a program in Rust does itself. Everything else is in `widelane-wide`.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod calls;
mod environment;
