//! The configuration of the process, which is used without a [`Wide`].

use std::sync::OnceLock;

use crate::config::{Config, Form};
use crate::error::StartError;
use crate::wide::Wide;

/// Runs `closure` where this process runs wide code, and returns its value.
///
/// The form is that of [`configure`], else that of [`FORM_VARIABLE`] at the first call, else in
/// place. A mistake in the variable is reported once, in a `tracing` event.
///
/// # Panics
///
/// With the panic of `closure`.
#[inline]
pub fn run_wide<R: Send>(closure: impl FnOnce() -> R + Send) -> R {
    PROCESS.get_or_init(from_environment_or_inline).run(closure)
}

/// Sets how this process runs wide code. `None`: as [`FORM_VARIABLE`] says, with an error for a
/// mistake in it.
///
/// # Errors
///
/// When it is set already, or when [`Wide::new`] fails.
pub fn configure(config: Option<Config>) -> Result<(), StartError> {
    let configured = |wide: &Wide| StartError::Configured {
        form: wide.form().to_string(),
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

/// The environment variable with the form of a process that does not [`configure`] one:
/// `inline`, `pool:2-3` or `migrate:2-3`.
pub const FORM_VARIABLE: &str = "WIDELANE_RUN_WIDE";

fn from_environment() -> Result<Wide, StartError> {
    let text = std::env::var_os(FORM_VARIABLE).unwrap_or_default();
    let text = text.to_string_lossy();
    if text.trim().is_empty() {
        return Wide::new(Config::default());
    }
    let form: Form = text.parse().map_err(|source| StartError::Form {
        variable: FORM_VARIABLE,
        source,
    })?;
    Wide::new(form.into())
}

fn from_environment_or_inline() -> Wide {
    from_environment().unwrap_or_else(|error| {
        tracing::warn!("wide code runs in place: {error}");
        Wide::inline()
    })
}

static PROCESS: OnceLock<Wide> = OnceLock::new();
