//! The profile of a machine, for whoever decides by it.

use crate::failure::Failure;
use std::path::Path;
use widelane_cpu::licence::turbo_of;
use widelane_engine::Clock;
use widelane_frequency::{Machine, Profile, Subject, clock as clock_of};

/// What wide code does to the clock here: by the named profile or model, else by the profile that
/// `widelane probe` left if it is of this machine, else nothing.
pub(crate) fn clock(named: Option<&str>) -> Result<Clock, Failure> {
    match named {
        Some(name) => by_name(name),
        None => Ok(by_default()),
    }
}

fn by_name(name: &str) -> Result<Clock, Failure> {
    let path = Path::new(name);
    // With all cores active, as on a busy server.
    if let Some(model) = turbo_of(name).last()
        && !path.exists()
    {
        return Ok(clock_of(Subject::Published(model)));
    }
    let profile = Profile::load(path).map_err(|error| {
        Failure::Usage(format!(
            "--profile: {error}, and no model with published figures; `widelane advise x` lists those"
        ))
    })?;
    if profile.stale(&Machine::here()).is_some() {
        tracing::warn!(
            profile = name,
            "is of another machine, and taken as it was asked for"
        );
    }
    Ok(clock_of(Subject::Measured(&profile)))
}

fn by_default() -> Clock {
    let Some(path) = Profile::default_path().filter(|path| path.exists()) else {
        tracing::debug!("no machine profile: wide code is taken to cost nothing");
        return Clock::default();
    };
    match Profile::load(&path) {
        Ok(profile) if profile.stale(&Machine::here()).is_none() => {
            clock_of(Subject::Measured(&profile))
        }
        Ok(_) => {
            tracing::warn!(
                profile = %path.display(),
                "is of another machine and not used; measure this one with `widelane probe`"
            );
            Clock::default()
        }
        Err(error) => {
            tracing::warn!(%error, "the machine profile is not used");
            Clock::default()
        }
    }
}
