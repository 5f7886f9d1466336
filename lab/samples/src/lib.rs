//! Records of measurements as they are read again, and the tables that follow from their rounds.
//!
//! [`Record`] reads a file of JSON lines that `handshakes` or another program wrote: what is wrong in
//! it becomes a [`Fault`] with file and line, and the rest is kept. [`kinds`] says for each kind of line
//! which [`Table`] it becomes. A table writes itself for a terminal ([`Table::text`]) and in Markdown
//! ([`Table::markdown`]); `report` writes it in HTML. Each number in it is a [`Figure`], which knows the lines
//! that it follows from. [`renew`] writes tables into documents, and [`faults`] finds figures there that no record has.
//!
//! It measures nothing, and writes no records.

#![forbid(unsafe_code)]

mod figure;
mod figures;
pub mod kinds;
pub mod names;
mod operations;
mod record;
mod rows;
mod table;

pub use figure::{Figure, Interval, MODIFIED, Origin, Source, Statistic, Unit, ranges};
pub use figures::{faults, renew};
pub use operations::{TIMES, beside_peers, beside_the_ports};
pub use record::{Fault, Line, Record};
pub use rows::{Group, Kind, NOT_THERE, Of, groups, pairs};
pub use table::{Cell, Column, Piece, Table, cell, figure_or, number, plain, text};
pub use widelane_statistics::{interval_of_median, median, quotients};
pub use widelane_text::named;
