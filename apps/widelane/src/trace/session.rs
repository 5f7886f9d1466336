//! Tracing from its start to its end: what every view does.

use std::fs;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use widelane_threads::Proc;
use widelane_trace::{Count, Event, Filter, Table, Tracer, Want};

use super::Common;
use crate::screen::Screen;
use widelane_cli::failure::Failure;
use widelane_cli::output;

/// Events of the processes that were asked for, until the end that was asked for.
pub(super) struct Session {
    pub(super) tracer: Tracer,
    pub(super) screen: Screen,
    /// The end that was asked for; `None` waits for a signal or a key.
    pub(super) end: Option<Instant>,
    ended: bool,
    /// Number of lost events that were printed so far.
    told: u64,
    /// The processes that were asked for.
    filter: Filter,
}

impl Session {
    /// Starts to trace. With `tables`, they replace each other on a terminal.
    pub(super) fn open(common: &Common, want: Want, tables: bool) -> Result<Self, Failure> {
        let mut session = Self::start(common, want, tables)?;
        session.say_notes();
        session.say_start();
        Ok(session)
    }

    /// Starts to trace without a word of what is traced.
    pub(super) fn start(common: &Common, want: Want, tables: bool) -> Result<Self, Failure> {
        let table = match &common.functions {
            Some(path) => Table::builtin().with_file(path)?,
            None => Table::builtin(),
        };
        for &pid in &common.pid {
            if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
                return Err(Failure::Failed(format!(
                    "there is no process {pid}; `ps -e` lists those that there are, and --comm NAME \
                     traces also those that start later"
                )));
            }
        }
        let filter = Filter {
            pids: common.pid.clone(),
            comms: common.comm.clone(),
            cgroups: common.cgroup.clone(),
            exes: common.exe.iter().flat_map(written_and_real).collect(),
        };
        // Caught before the first probe: a signal must not leave the terminal as it is not.
        let screen = Screen::open(tables)?;
        let tracer = Tracer::start(filter.clone(), table, want)?;
        Ok(Self {
            tracer,
            screen,
            end: common.duration.map(|duration| Instant::now() + duration),
            ended: false,
            told: 0,
            filter,
        })
    }

    /// Events, as soon as there are some, or none when the time has passed; `None` at the end.
    pub(super) fn events(&mut self, at_most: Duration) -> Result<Option<Vec<Event>>, Failure> {
        if self.ended {
            return Ok(None);
        }
        let now = Instant::now();
        let until = now.checked_add(at_most).unwrap_or(now + LONGEST);
        let until = self.end.map_or(until, |end| end.min(until));
        let seen = self.tracer.wait(until, self.screen.signals())?;
        let over = self.end.is_some_and(|end| Instant::now() >= end);
        self.ended = seen.stopped || over || self.screen.ended_before(now)?;
        self.say_notes();
        self.say_lost();
        Ok(Some(seen.events))
    }

    /// Takes events until `period` has passed. Returns false at the end.
    pub(super) fn take_for(&mut self, period: Duration, mut take: impl FnMut(&Event)) -> Result<bool, Failure> {
        let due = Instant::now().checked_add(period);
        let left = || due.map(|due| due.saturating_duration_since(Instant::now()));
        loop {
            let Some(events) = self.events(left().unwrap_or(Duration::MAX))? else {
                return Ok(false);
            };
            events.iter().for_each(&mut take);
            if left() == Some(Duration::ZERO) {
                return Ok(true);
            }
        }
    }

    /// Takes events after the end that have happened and not been taken, as they may come late. More happen
    /// meanwhile, so that this ends after a while.
    pub(super) fn rest(&mut self, mut take: impl FnMut(Vec<Event>)) -> Result<(), Failure> {
        let limit = Instant::now() + MOST_REST;
        while Instant::now() < limit {
            let seen = self.tracer.wait(Instant::now(), self.screen.signals())?;
            if seen.events.is_empty() {
                break;
            }
            take(seen.events);
        }
        Ok(())
    }

    /// Calls that were counted in the kernel since the start.
    pub(super) fn counts(&self) -> Result<Vec<Count>, Failure> {
        Ok(self.tracer.counts()?)
    }

    fn say_start(&self) {
        let text = match self.tracer.traced() {
            (0, _) => format!("no process to trace yet{}", self.why_none()),
            (processes, functions) => {
                format!("traces {functions} functions in {processes} processes")
            }
        };
        let text = format!("widelane: {text}\n");
        if !self.screen.live {
            output::complain(&text);
        }
    }

    /// Reason why no process is traced, and what is waited for.
    fn why_none(&self) -> String {
        if self.filter == Filter::default() {
            return "; waits for one to start".to_owned();
        }
        let chosen = self.filter.processes(&Proc::here()).unwrap_or_default();
        match chosen.len() {
            0 => ": none is as --pid, --comm, --exe and --cgroup say; waits for one to start".to_owned(),
            chosen => {
                format!(": of {chosen} that are chosen, none has a TLS library that is known; waits for one to load it")
            }
        }
    }

    fn say_notes(&mut self) {
        for note in self.tracer.notes() {
            if !self.screen.live {
                output::complain(&format!("widelane: {note}\n"));
            }
        }
    }

    fn say_lost(&mut self) {
        let lost = self.tracer.lost();
        if lost > self.told && !self.screen.live {
            output::complain(&format!(
                "widelane: {} events were lost, {lost} since the start: they came faster than they \
                 were taken; trace fewer processes\n",
                lost - self.told
            ));
        }
        self.told = lost;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if std::io::stderr().is_terminal() {
            output::complain("widelane: the kernel removes the probes: some seconds\n");
        }
    }
}

/// A program as it was written, and where links and a relative path lead to: the kernel knows only that. In a
/// container, the path may be another one there.
fn written_and_real(exe: &PathBuf) -> Vec<PathBuf> {
    let real = fs::canonicalize(exe).ok();
    let is_path = exe.as_os_str().as_encoded_bytes().contains(&b'/');
    let real = real.filter(|real| is_path && real != exe);
    std::iter::once(exe.clone()).chain(real).collect()
}

/// Time in which events are taken that come late.
const MOST_REST: Duration = Duration::from_secs(1);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
