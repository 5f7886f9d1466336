//! Records of measurements as they are read again, and what follows from their rounds.
//!
//! [`Record`] reads a file of JSON lines that `handshakes` wrote, or anybody else: what is wrong in
//! it becomes a [`Fault`] with file and line, and the rest is kept. [`median`], [`quotients`] and
//! [`interval_of_median`] are the statistics of every table that is made from records.
//!
//! It writes no records (`handshakes` does) and knows no tables.

#![forbid(unsafe_code)]

mod record;

pub use record::{Fault, Line, Record};
pub use widelane_statistics::{interval_of_median, median, quotients};
