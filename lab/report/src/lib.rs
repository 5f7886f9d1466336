//! One HTML file out of records of measurements and the profile of this machine.
//!
//! [`records`] reads files of JSON lines, [`report`] makes the page. Its first screen answers
//! whether this machine has the problem that Widelane is about; below are the profile, single
//! operations, handshakes and experiments. Each number on the page says on which machine, of which
//! commit, when and with which interval it was measured, and in which lines of which file it is
//! found again. [`Report::json`] has the same numbers for programs. [`picture`] draws a profile, [`latency`]
//! how long handshakes take at which load, [`goodput`] how many are served under overload, [`proof`] the blocks of
//! proofs, [`time_line`] what a simulated core does.
//!
//! It measures nothing and computes no number that does not follow from its sources by a median, a
//! quotient or a sum.
//!
//! Start with [`report`].

#![forbid(unsafe_code)]

mod answer;
mod block;
mod chart;
mod experiments;
mod handshakes;
mod latency;
mod operations;
mod order;
mod overload;
mod page;
mod profile;
mod proof;
mod records;
mod source;
mod sources;
mod time_line;

pub use latency::latency;
pub use overload::goodput;
pub use profile::picture;
pub use proof::proof;
pub use records::records;
pub use time_line::time_line;

use block::Section;
use order::RecordList;
use std::fmt::Write as _;
use std::path::PathBuf;
use widelane_cpu::Lanes;
use widelane_frequency::Profile;
use widelane_samples::{Fault, Record};
use widelane_sim::Comparison;

/// Inputs of a report.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The name of this machine's CPU.
    pub machine: String,
    /// The lanes that Widelane uses here.
    pub lanes: Lanes,
    /// True if processors of its generation have licence levels, if that is published.
    pub licences: Option<bool>,
    /// The profile of this machine with its file, or why there is none.
    pub profile: Result<(PathBuf, Profile), String>,
    /// Measurements, here and elsewhere.
    pub records: Vec<Record>,
    /// Faults of records, for the page.
    pub faults: Vec<Fault>,
    /// Predictions of a simulator for published numbers.
    pub predictions: Vec<Comparison>,
    /// The commit of this program, of which the predictions are.
    pub commit: Option<String>,
    /// Place of the page: addresses of records are relative to it.
    pub page: PathBuf,
    /// Time at which the page is made, in seconds since 1970.
    pub made: u64,
}

/// A report, as a page and as figures.
pub struct Report {
    page: String,
    sections: Vec<Section>,
}

/// Makes a report.
pub fn report(inputs: &Inputs) -> Report {
    let made = source::date(inputs.made);
    let list = RecordList::new(&inputs.records, &inputs.machine, &inputs.page);
    let kept = inputs
        .profile
        .as_ref()
        .map(|(path, profile)| (profile, source::of_profile(path, profile, &inputs.page)));
    let kept = kept
        .as_ref()
        .map(|(profile, source)| (*profile, source))
        .map_err(|why| &why[..]);
    let simulator = source::of_program(SIMULATOR, inputs.commit.as_deref(), &made);
    let section = |id, title, blocks| Section { id, title, blocks };
    let sections = vec![
        section(
            "answer",
            "Do I have this problem?",
            answer::blocks(kept.ok(), inputs, &list),
        ),
        section("machine", "This machine", profile::blocks(kept)),
        section("operations", "Operations a second", operations::blocks(&list)),
        section("handshakes", "Handshakes beside peers", handshakes::blocks(&list)),
        section(
            "experiments",
            "Experiments",
            experiments::blocks(&list, &inputs.predictions, &simulator),
        ),
        section("records", "Records", sources::blocks(&list, &inputs.faults)),
    ];
    Report {
        page: page::page(&inputs.machine, &made, &sections),
        sections,
    }
}

impl Report {
    /// The page: HTML that needs no other file.
    pub fn html(&self) -> &str {
        &self.page
    }

    /// The numbers of the page, a JSON object a line, in the order of the page.
    pub fn json(&self) -> String {
        let mut text = String::new();
        for section in &self.sections {
            for figure in section.figures() {
                let _ = writeln!(text, "{}", figure.json(section.id));
            }
        }
        text
    }
}

/// Command that makes predictions.
const SIMULATOR: &str = "widelane-lab simulate --all --json";
