//! Measures how long calls take: a histogram for each function and each result, from the kernel's counts.
//!
//! Times of functions that call each other overlap: that of `SSL_do_handshake` contains that of the
//! signature. So shares of CPU time need not add up to 100 %.

mod histogram;
mod show;

use std::collections::BTreeMap;

pub use histogram::{BUCKETS, Histogram, beginning_of, bucket_of};

use crate::outcome::Outcome;

/// Times from entry to return, by function and outcome. The table of functions bounds their number.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Rows by the family of libraries, the symbol of the function, and the result of the calls.
    rows: BTreeMap<(String, String, Outcome), Histogram>,
}

impl Latencies {
    /// The row of a function and an outcome, to be filled.
    pub fn row(&mut self, library: &str, function: &str, outcome: Outcome) -> &mut Histogram {
        let key = (library.to_owned(), function.to_owned(), outcome);
        self.rows.entry(key).or_default()
    }
}
