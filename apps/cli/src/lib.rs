//! The parts of a command line that `widelane` and `widelane-lab` share.
//!
//! Ends of commands ([`failure`]), output for people and pipes ([`output`]), files of the machine
//! ([`places`], [`machine`]), values of arguments ([`values`]), the text of `--version`
//! ([`version`]), and with the feature `speed` the command of that name.
//!
//! Parts that one program alone needs live in that program.

#![forbid(unsafe_code)]

pub mod failure;
pub mod machine;
pub mod output;
pub mod places;
#[cfg(feature = "speed")]
pub mod speed;
mod stderr;
pub mod values;
pub mod version;
