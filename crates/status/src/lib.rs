//! The page of memory on which a process counts what it does in lanes, and its reader.
//!
//! A process maps a [`Page`] that other processes can find by its name, [`NAME`], and writes into it
//! with atomics. Who looks at it takes the bytes from the process's memory and gives them to
//! [`Report::parse`]: the process is not stopped, asked or locked out.
//!
//! Two things go the other way: by its [`Switch`] an operator or a proof takes lanes from a process and gives them
//! back, and a proof leaves its result in [`Proved`].
//!
//! What it is not: it finds no processes. It depends on nothing of ours, because it is inside of other
//! people's servers.
//!
//! The bytes come from another process, which may be hostile: the reader refuses what a page cannot
//! hold, and never panics.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod mapping;
mod overload;
mod page;
mod proved;
mod report;
mod switch;
mod times;
mod way;

pub use mapping::{map, map_over};
pub use overload::{Overload, OverloadCounters};
pub use page::{Facts, MOST_DECISIONS, MOST_OPERATIONS, MOST_REASONS, Page, Totals};
pub use proved::{Found, Proved};
pub use report::{BadPage, Operation, PROVED, Reason, Report, SWITCH, SWITCH_IN_PROOF};
pub use switch::{Asked, InProof, LONGEST, Switch};
pub use times::Times;
pub use way::Way;

/// Name of the page's memory, for `memfd_create(2)`.
pub const NAME: &str = "widelane-status";

/// Bytes of a page.
pub const SIZE: usize = size_of::<Page>();
