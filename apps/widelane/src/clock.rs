//! The clock under wide code that `serve`, `trace` and `setup` count with.

use std::path::Path;
use widelane_cli::failure::Failure;
use widelane_cli::machine::kept;
use widelane_cli::places::{Places, profile_name};
use widelane_cpu::licence::turbo_of;
use widelane_engine::Clock;
use widelane_frequency::{Machine, Profile, Subject, clock as clock_of};

/// Effect of wide code on the clock of this machine. The named profile or model says it, or else
/// the profile that `widelane probe` left. `None`: there is none, and wide code counts as free.
pub(crate) fn clock(named: Option<&str>) -> Result<Option<Clock>, Failure> {
    if let Some(name) = named {
        return by_name(name).map(Some);
    }
    match kept(&Places::here().to_read(profile_name()), &Machine::here()) {
        Ok((path, profile)) => {
            tracing::info!(path = %path.display(), "uses the profile of this machine");
            Ok(Some(clock_of(Subject::Measured(&profile))))
        }
        Err(why) => {
            tracing::info!("{why}; until `widelane probe` has measured this machine, wide code counts as free");
            Ok(None)
        }
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
    let profile = Profile::load_named(path).map_err(|error| {
        Failure::Usage(format!(
            "--profile: {error}, and no model with published figures; `widelane advise x` lists those"
        ))
    })?;
    if profile.stale(&Machine::here()).is_some() {
        tracing::warn!(profile = name, "is of another machine, and taken as it was asked for");
    }
    Ok(clock_of(Subject::Measured(&profile)))
}
