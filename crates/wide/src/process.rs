//! The configuration of the process, which is used without a [`Wide`].

use std::sync::OnceLock;

use widelane_cpu::licence::Class;

use crate::config::Config;
use crate::error::StartError;
use crate::wide::Wide;

/// Runs `closure` where this process runs wide code, and returns its value.
///
/// The form is that of [`configure`]. Without it, the closure runs in place.
///
/// # Panics
///
/// With the panic of `closure`.
#[inline]
pub fn run_wide<R: Send>(closure: impl FnOnce() -> R + Send) -> R {
    PROCESS.get_or_init(Wide::inline).run(closure)
}

/// Runs a closure as [`run_wide`] does, when the caller knows the class of the closure's code: see [`Wide::run_as`].
///
/// # Panics
///
/// With the panic of `closure`.
#[inline]
pub fn run_wide_as<R: Send>(class: Class, closure: impl FnOnce() -> R + Send) -> R {
    PROCESS.get_or_init(Wide::inline).run_as(class, closure)
}

/// Sets how this process runs wide code.
///
/// # Errors
///
/// When it is set already, or when [`Wide::new`] fails.
pub fn configure(config: Config) -> Result<(), StartError> {
    let configured = |wide: &Wide| StartError::Configured {
        form: wide.form().to_string(),
    };
    if let Some(wide) = PROCESS.get() {
        return Err(configured(wide));
    }
    let mut wide = Some(Wide::new(config)?);
    let known = PROCESS.get_or_init(|| wide.take().unwrap_or_else(Wide::inline));
    match wide {
        None => Ok(()),
        Some(_) => Err(configured(known)),
    }
}

/// The environment variable in which operators expect to choose the form of a program: `inline`,
/// `pool:2-3` or `migrate:2-3`. This crate does not read it. A program reads it and passes it to
/// [`Config::from_variable`].
pub const FORM_VARIABLE: &str = "WIDELANE_RUN_WIDE";

static PROCESS: OnceLock<Wide> = OnceLock::new();
