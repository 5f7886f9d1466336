//! The form from the environment. `widelane-wide` leaves that to programs, and for a program in C
//! this library does it, so that an operator can choose the form of every such program.

use std::sync::Once;

use widelane::{Config, FORM_VARIABLE, configure};

/// Reads the configuration from the variable. The error names the variable.
pub(crate) fn config() -> Result<Config, String> {
    Config::from_variable(std::env::var_os(FORM_VARIABLE)).map_err(|error| format!("{FORM_VARIABLE}: {error}"))
}

/// Configures the process as the variable says, in the first call and unless the program has done
/// it. After a mistake in the variable the process is not configured, and runs everything in place.
pub(crate) fn configure_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Ok(config) = config() {
            // It fails if the program has configured a form, which is then in force, or if the CPUs
            // cannot be used.
            let _ = configure(config);
        }
    });
}
