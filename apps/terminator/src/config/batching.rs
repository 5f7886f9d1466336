//! How public-key operations are batched, and where passes run.

use std::time::Duration;

use serde::Deserialize;
use widelane_affinity::Cpus;
use widelane_batching::{Clock, PlacementChoice};
use widelane_crypto::Preference;

use super::values::{choice, optional_seconds};

/// How public-key operations are gathered across connections.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Batching {
    /// `false`: each operation is done alone, by AWS-LC, where it is asked for.
    pub enabled: bool,
    /// Where passes run. [`PlacementChoice::Auto`] is decided by `clock`.
    pub placement: PlacementChoice,
    /// CPUs of the vector cores, for [`PlacementChoice::VectorCores`].
    pub vector_cpus: Cpus,
    /// For how long a vector core has nothing to do before it is given back: workers that are not
    /// pinned may run on it until there are passes again. `None`: 50 milliseconds, or eight times as
    /// long as the clock stays low after a pass. Never less than that once.
    #[serde(rename = "rest_seconds", deserialize_with = "optional_seconds")]
    pub rest: Option<Duration>,
    /// Jobs of one operation that may wait, for each worker or for all vector cores together,
    /// before new ones are refused.
    pub queue: usize,
    /// Which code computes.
    #[serde(deserialize_with = "choice")]
    pub backend: Preference,
    /// The machine's profile, by which [`PlacementChoice::Auto`], the width of passes and the form of
    /// ChaCha20-Poly1305 are decided: a file or a processor's name, for the code that sets `clock`.
    pub profile: Option<String>,
    /// What that profile says, `None` if there is none: wide code counts as free then. See
    /// [`Document::set_clock`](super::Document::set_clock).
    #[serde(skip)]
    pub clock: Option<Clock>,
}

impl Batching {
    /// What wide code does to the clock, as far as is known.
    pub(crate) fn clock(&self) -> Clock {
        self.clock.unwrap_or_default()
    }
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            enabled: true,
            placement: PlacementChoice::Auto,
            vector_cpus: Cpus::default(),
            rest: None,
            queue: 4096,
            backend: Preference::Auto,
            profile: None,
            clock: None,
        }
    }
}
