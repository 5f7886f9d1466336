//! Stands for the tracer if the programs for the kernel are not in this build.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::error::TraceError;
use crate::event::Event;
use crate::filter::Filter;
use crate::table::Table;
use crate::want::{Count, Want};

/// Cannot be made: this build has no programs for the kernel.
#[derive(Debug)]
pub enum Tracer {}

/// Result of [`Tracer::wait`].
#[derive(Debug, Default)]
pub struct Seen {
    /// Events in the order in which the kernel reported them.
    pub events: Vec<Event>,
    /// True if the caller's descriptor has become readable.
    pub stopped: bool,
}

impl Tracer {
    /// Says what is missing.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn start(_: Filter, _: Table, _: Want) -> Result<Self, TraceError> {
        let reason = include_str!(concat!(env!("OUT_DIR"), "/reason"));
        Err(TraceError::LeftOut { reason })
    }

    /// Cannot be called.
    ///
    /// # Errors
    ///
    /// None: there is no tracer.
    pub fn wait(&mut self, _: Instant, _: BorrowedFd<'_>) -> Result<Seen, TraceError> {
        match *self {}
    }

    /// Cannot be called.
    pub fn traced(&self) -> (usize, usize) {
        match *self {}
    }

    /// Cannot be called.
    pub fn notes(&mut self) -> Vec<String> {
        match *self {}
    }

    /// Cannot be called.
    pub fn lost(&self) -> u64 {
        match *self {}
    }

    /// Cannot be called.
    pub fn cpu_time(&self) -> u64 {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    ///
    /// None: there is no tracer.
    pub fn counts(&self) -> Result<Vec<Count>, TraceError> {
        match *self {}
    }
}
