//! Batching of public-key operations, and the placement of passes.

use std::time::Duration;

use serde::Deserialize;
use widelane_affinity::Cpus;
use widelane_batching::PlacementChoice;
use widelane_crypto::Preference;

use super::values::{choice, optional_seconds};

/// How public-key operations of concurrent handshakes are batched, and where passes run
/// ([serve.md](serve.md#batching)). *Restart.*
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Batching {
    /// `false`: AWS-LC does each operation alone, for comparison.
    pub enabled: bool,
    /// Where passes run. `auto`: by the profile. `inline`: on the worker that gathered the operations.
    /// `vector-cores`: on threads of their own, one for each CPU of `vector_cpus`. Values: `auto`, `inline`,
    /// `vector-cores`. Default: `auto`.
    pub placement: PlacementChoice,
    /// CPUs of the vector cores; needed for `vector-cores`. Those that the process may not use are left out with a
    /// warning; if none remains, the server does not start. Values: CPUs, as `"0,2-3"`. Default: with `auto`, those
    /// that `cpus` leaves, else the last quarter.
    pub vector_cpus: Cpus,
    /// How long a vector core is idle before it is lent to workers. A year: never. Default: 0.05, or eight times as
    /// long as the clock stays low by the profile, if that is longer.
    #[serde(rename = "rest_seconds", deserialize_with = "optional_seconds")]
    pub rest: Option<Duration>,
    /// Jobs of one operation (as RSA-2048 signatures) that may wait, for each worker or for all vector cores
    /// together; a connection that needs one more is refused. At least 1.
    pub queue: usize,
    /// Which code computes. A name instead of `auto`: that code does everything, and no costs are measured. `avxifma`
    /// is tested by emulation and was never measured. Values: `auto`, `avx512ifma`, `avx512ifma-256`, `avx512f`,
    /// `avx2`, `avxifma`, `aws-lc`. Default: `auto`.
    #[serde(deserialize_with = "choice")]
    pub backend: Preference,
    /// The machine's profile, by which `auto`, the width of passes and the form of ChaCha20-Poly1305 are decided: a
    /// file, or a CPU model with published figures, as `Gold 6130`. Default: the newest that `widelane probe` kept,
    /// if it is of this machine.
    pub profile: Option<String>,
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
        }
    }
}
