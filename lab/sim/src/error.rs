//! Errors in a scenario.

/// A scenario cannot be simulated. The operator's file or flags are to blame.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The text is no scenario.
    #[error("{}", .0.to_string().trim_end())]
    Text(#[from] toml::de::Error),
    /// Something in it makes no sense; says what, and what would.
    #[error("{0}")]
    Wrong(String),
    /// A run is in lanes that its processor lacks, or whose costs there are not known; says which there are.
    #[error("{0}")]
    NoLanes(String),
}
