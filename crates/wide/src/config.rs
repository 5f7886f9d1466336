//! Configuration of wide code: its form, and how long waiting threads spin.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use widelane_affinity::{Cpus, ParseCpusError};

/// Configuration of a [`Wide`](crate::Wide).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    /// Form in which closures run.
    pub form: Form,
    /// Time that a thread of the pool looks for the next call before it sleeps. With [`Duration::MAX`] it never sleeps,
    /// and takes its CPU whole.
    pub vector_spin: Duration,
    /// Time that a caller looks for the end of its call before it sleeps.
    pub caller_spin: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Form::default().into()
    }
}

impl Config {
    /// Makes a configuration from the value of [`FORM_VARIABLE`](crate::FORM_VARIABLE), which the program has read. In
    /// place if the variable is not set or blank.
    ///
    /// # Errors
    ///
    /// When the text names no form.
    pub fn from_variable(value: Option<OsString>) -> Result<Self, FormError> {
        let text = value.unwrap_or_default();
        let text = text.to_string_lossy();
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        text.parse::<Form>().map(Self::from)
    }
}

impl From<Form> for Config {
    fn from(form: Form) -> Self {
        Self {
            form,
            vector_spin: SPIN,
            caller_spin: SPIN,
        }
    }
}

/// Form and place in which wide code runs.
///
/// As text: `inline`, `pool:2-3`, `migrate:2,6-7`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Form {
    /// In place, on the calling thread: for machines where wide code does not lower the clock.
    #[default]
    Inline,
    /// On threads of a pool, each pinned to one of the named CPUs. The calling thread waits.
    Pool {
        /// The vector cores.
        cpus: Cpus,
    },
    /// On the calling thread, which moves to the named CPUs and back. Takes longer than the pool,
    /// but keeps thread-locals and priority.
    Migrate {
        /// The vector cores.
        cpus: Cpus,
    },
}

impl FromStr for Form {
    type Err = FormError;

    fn from_str(text: &str) -> Result<Self, FormError> {
        match text.trim().split_once(':') {
            None if text.trim() == "inline" => Ok(Self::Inline),
            Some(("pool", list)) => Ok(Self::Pool {
                cpus: Cpus::named(list)?,
            }),
            Some(("migrate", list)) => Ok(Self::Migrate {
                cpus: Cpus::named(list)?,
            }),
            _ => Err(FormError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline => f.write_str("inline"),
            Self::Pool { cpus } => write!(f, "pool:{cpus}"),
            Self::Migrate { cpus } => write!(f, "migrate:{cpus}"),
        }
    }
}

/// Reason why a text names no form.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// The text is none of the three forms.
    #[error("`{}` is none of `inline`, `pool:CPUS`, `migrate:CPUS`", .0.escape_debug())]
    Unknown(String),
    /// The list of CPUs is wrong.
    #[error(transparent)]
    Cpus(#[from] ParseCpusError),
}

/// About the cost of waking a thread on another CPU. A thread that spins for this long before it
/// sleeps never loses more than twice the cost of the better choice.
const SPIN: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_are_read() {
        let pool = |cpus: &[usize]| Form::Pool {
            cpus: cpus.iter().copied().collect(),
        };
        assert_eq!("inline".parse(), Ok(Form::Inline));
        assert_eq!("pool:2-4,7".parse(), Ok(pool(&[2, 3, 4, 7])));
        assert_eq!("pool:3,1-3".parse(), Ok(pool(&[1, 2, 3])));
        let migrate = Form::Migrate {
            cpus: Cpus::from_iter([1]),
        };
        assert_eq!(" migrate:1\n".parse(), Ok(migrate));
    }

    #[test]
    fn a_variable_that_is_not_set_or_blank_means_in_place() {
        let form = |text: &str| Config::from_variable(Some(text.into())).map(|config| config.form);
        assert_eq!(Config::from_variable(None), Ok(Config::default()));
        assert_eq!(form(" \n"), Ok(Form::Inline));
        assert_eq!(form("pool:2"), "pool:2".parse());
        assert!(form("everywhere").is_err());
    }

    #[test]
    fn what_is_no_form_is_refused_with_the_part_that_is_wrong() {
        let message = |text: &str| text.parse::<Form>().expect_err(text).to_string();
        for text in ["", "vector", "Pool:1", "inline:1", "pool"] {
            assert!(message(text).contains("none of `inline`"), "{text}");
        }
        for (text, part) in [
            ("pool:", "``"),
            ("pool:1,x", "`x`"),
            ("pool:3-2", "`3-2`"),
            ("migrate:1024", "`1024`"),
            ("pool:-1", "`-1`"),
            ("pool:1,", "``"),
        ] {
            let message = message(text);
            assert!(message.starts_with(part), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            cpus in proptest::collection::hash_set(0..Cpus::MOST, 1..20),
            number in 0..3,
        ) {
            let cpus = cpus.into_iter().collect();
            let form = match number {
                0 => Form::Inline,
                1 => Form::Pool { cpus },
                _ => Form::Migrate { cpus },
            };
            prop_assert_eq!(form.to_string().parse(), Ok(form));
        }
    }
}
