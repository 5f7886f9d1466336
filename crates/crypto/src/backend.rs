//! Names of the code that can do the arithmetic, and the choice among them.

use std::fmt;
use std::str::FromStr;
use widelane_cpu::{Target, lanes};

/// The code that does the arithmetic of a pass.
///
/// A caller that runs passes on a vector backend may leave too few requests to aws-lc-rs.
///
/// The spelling of [`Display`](fmt::Display) and [`FromStr`] is stable; programs, configuration
/// files and records use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// One request after the other through aws-lc-rs; runs on every CPU. Spelt `aws-lc`.
    AwsLc,
    /// Several requests in one pass, in the lanes of a target. Spelt like the target.
    Lanes(Target),
}

impl Backend {
    /// Every backend, in the order of preference: of those that run, the last is used unless
    /// measurements say otherwise.
    pub const ALL: [Self; 1 + Target::ALL.len()] = {
        let mut all = [Self::AwsLc; 1 + Target::ALL.len()];
        let mut place = 0;
        while place < Target::ALL.len() {
            all[1 + place] = Self::Lanes(Target::ALL[place]);
            place += 1;
        }
        all
    };

    /// Returns whether this CPU and process can run the backend now.
    pub fn is_available(self) -> bool {
        self.target().is_none_or(Target::is_available)
    }

    /// The kind of lanes; `None` for aws-lc-rs.
    pub const fn target(self) -> Option<Target> {
        match self {
            Self::AwsLc => None,
            Self::Lanes(target) => Some(target),
        }
    }

    /// The backend that measurements compare with this one, the preferred of those that run here: one with narrower
    /// registers or, if there is none, one with as wide registers that was never measured.
    ///
    /// An engine measures the preferred one of all, this, and aws-lc-rs, however many more run here: VPMADD52 is
    /// never slower than multiply-adds in registers of the same width.
    pub fn alternative(self) -> Option<Self> {
        let this = self.target()?;
        let narrower = |target: &Target| target.bits() < this.bits();
        let unmeasured = |target: &Target| target.bits() == this.bits() && *target != this && target.caveat().is_some();
        let target = Target::available()
            .rfind(narrower)
            .or_else(|| Target::available().rfind(unmeasured))?;
        Some(Self::Lanes(target))
    }

    /// The spellings of [`Preference`], for people.
    pub fn choices() -> String {
        let backends = Self::ALL.into_iter().rev();
        let mut names: Vec<&str> = backends.map(Self::name).collect();
        let last = names.pop().unwrap_or_default();
        format!("{AUTO}, {} or {last}", names.join(", "))
    }

    /// The stable spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            Self::Lanes(target) => target.name(),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = ParseBackendError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.name() == text)
            .ok_or_else(|| ParseBackendError(text.to_owned()))
    }
}

/// Choice of the operator: the preferred backend of those that run here, or one in particular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preference {
    /// The preferred backend of those that this machine runs. Spelt `auto`.
    #[default]
    Auto,
    /// Exactly this one, or an error. Spelt like the [`Backend`].
    Exactly(Backend),
}

impl Preference {
    /// Chooses the backend.
    ///
    /// # Errors
    ///
    /// When a backend was asked for by name and this machine cannot run it.
    pub fn resolve(self) -> Result<Backend, BackendUnavailable> {
        match self {
            Self::Auto => Ok(Backend::ALL
                .into_iter()
                .rfind(|backend| backend.is_available())
                .unwrap_or(Backend::AwsLc)),
            Self::Exactly(backend) if backend.is_available() => Ok(backend),
            Self::Exactly(backend) => Err(BackendUnavailable { backend }),
        }
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad(AUTO),
            Self::Exactly(backend) => backend.fmt(f),
        }
    }
}

impl FromStr for Preference {
    type Err = ParseBackendError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == AUTO {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Exactly)
    }
}

/// The backend asked for by name does not run on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the backend {backend} does not run here: {}; use auto or aws-lc", lanes())]
pub struct BackendUnavailable {
    /// The backend that was asked for.
    pub backend: Backend,
}

/// A text that names no backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown backend `{}`; use {}", .0.escape_debug(), Backend::choices())]
pub struct ParseBackendError(String);

const AUTO: &str = "auto";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_is_stable_and_round_trips() {
        let spelt: Vec<String> = Backend::ALL.iter().map(Backend::to_string).collect();
        let expected = ["aws-lc", "avxifma", "avx2", "avx512f", "avx512ifma-256", "avx512ifma"];
        assert_eq!(spelt, expected);
        for backend in Backend::ALL {
            assert_eq!(backend.name().parse(), Ok(backend));
            let preference = Preference::Exactly(backend);
            assert_eq!(preference.to_string().parse(), Ok(preference));
        }
        assert_eq!("auto".parse(), Ok(Preference::Auto));
        assert_eq!(Preference::default().to_string(), "auto");
    }

    #[test]
    fn unknown_names_are_refused_with_the_choices() {
        for text in ["", "AWS-LC", "avx512", "Auto", "aws-lc "] {
            let error = text.parse::<Preference>().unwrap_err();
            let message = format!(
                "unknown backend `{text}`; use auto, avx512ifma, avx512ifma-256, avx512f, avx2, \
                 avxifma or aws-lc"
            );
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn choice_is_always_available() {
        assert!(Preference::Auto.resolve().unwrap().is_available());
        assert_eq!(Preference::Exactly(Backend::AwsLc).resolve(), Ok(Backend::AwsLc));
        for backend in Backend::ALL {
            let resolved = Preference::Exactly(backend).resolve();
            assert_eq!(resolved.is_ok(), backend.is_available());
        }
    }
}
