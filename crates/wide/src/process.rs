//! The one configuration that a process has unless it makes a [`Wide`] of its own.

use std::sync::OnceLock;

use crate::config::{Config, Placement};
use crate::error::StartError;
use crate::wide::Wide;

/// Runs `closure` where this process runs wide code, and returns its value.
///
/// Where that is: as [`configure`] was told, else as [`PLACEMENT_VARIABLE`] says when this is first
/// called, else in place. What is wrong in the variable is said in a `tracing` event once.
///
/// # Panics
///
/// With the panic of `closure`.
#[inline]
pub fn run_wide<R: Send>(closure: impl FnOnce() -> R + Send) -> R {
    PROCESS.get_or_init(from_environment_or_inline).run(closure)
}

/// Says how this process runs wide code. `None`: as [`PLACEMENT_VARIABLE`] says, with an error for
/// what is wrong in it.
///
/// # Errors
///
/// When it is known already, or cannot be as asked for; see [`Wide::new`].
pub fn configure(config: Option<Config>) -> Result<(), StartError> {
    let configured = |wide: &Wide| StartError::Configured {
        placement: wide.placement().to_string(),
    };
    if let Some(wide) = PROCESS.get() {
        return Err(configured(wide));
    }
    let wide = match config {
        Some(config) => Wide::new(config)?,
        None => from_environment()?,
    };
    let mut wide = Some(wide);
    let known = PROCESS.get_or_init(|| wide.take().unwrap_or_else(from_environment_or_inline));
    match wide {
        None => Ok(()),
        Some(_) => Err(configured(known)),
    }
}

/// The environment variable with the placement of a process that does not [`configure`] one:
/// `inline`, `pool:2-3` or `migrate:2-3`.
pub const PLACEMENT_VARIABLE: &str = "WIDELANE_RUN_WIDE";

fn from_environment() -> Result<Wide, StartError> {
    let text = std::env::var_os(PLACEMENT_VARIABLE).unwrap_or_default();
    let text = text.to_string_lossy();
    if text.trim().is_empty() {
        return Wide::new(Config::default());
    }
    let placement: Placement = text.parse().map_err(|source| StartError::Placement {
        variable: PLACEMENT_VARIABLE,
        source,
    })?;
    Wide::new(placement.into())
}

fn from_environment_or_inline() -> Wide {
    from_environment().unwrap_or_else(|error| {
        tracing::warn!("wide code runs in place: {error}");
        Wide::inline()
    })
}

static PROCESS: OnceLock<Wide> = OnceLock::new();
