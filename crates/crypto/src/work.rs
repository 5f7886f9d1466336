//! The one interface of all operations whose requests can share passes.

use std::error::Error;

/// One kind of request that can share passes: one operation, one size, one
/// [`Backend`](crate::Backend), chosen when the value is made.
///
/// It says how requests are answered and not when, nor which of the two ways is taken: that is up
/// to `engine`, which measures both with [`specimen`](Self::specimen)s.
///
/// Either way a request that fails gets an error of its own and harms no neighbour.
pub trait Work: Send + Sync + 'static {
    /// What is answered: owns copies of its input and counted references to its keys.
    type Request: Send + 'static;
    /// The answer: a `Result`.
    type Output: Outcome + Send + 'static;

    /// How the operation is spelt everywhere, like `x25519-derive`.
    fn name(&self) -> &'static str;

    /// Requests that one pass takes; 1 where there are no lanes.
    fn lanes(&self) -> usize;

    /// Whether the request is of this operation and size. Others with the same type of request may
    /// take it.
    fn takes(&self, _request: &Self::Request) -> bool {
        true
    }

    /// Answers every request, in order, exactly one output each, in passes of
    /// [`lanes`](Self::lanes) requests, the last of them perhaps fewer. Where there are no lanes,
    /// the same as [`alone`](Self::alone) for each.
    fn pass(&self, requests: &[Self::Request]) -> Vec<Self::Output>;

    /// Answers one request through aws-lc-rs.
    fn alone(&self, request: &Self::Request) -> Self::Output;

    /// Whether this request is for lanes even if it comes by itself, since aws-lc-rs refuses it.
    fn needs_lanes(&self, _request: &Self::Request) -> bool {
        false
    }

    /// A request of the usual kind, for measuring what answers cost: new where requests usually
    /// are, with a key that has been used where keys usually have. The keys may be known to
    /// everybody.
    fn specimen(&self) -> Self::Request;
}

/// An answer of which can be told whether it is one, for whoever knows no more than [`Work`].
pub trait Outcome {
    /// Why there is none.
    fn failure(&self) -> Option<&(dyn Error + 'static)>;
}

impl<T, E: Error + 'static> Outcome for Result<T, E> {
    fn failure(&self) -> Option<&(dyn Error + 'static)> {
        self.as_ref().err().map(|error| error as _)
    }
}

/// Runs the problems that there are in passes of `lanes`, and puts the results into the places of
/// the problems, among the errors that took the place of others.
pub(crate) fn in_passes<P, T, E>(
    lanes: usize,
    problems: Vec<Result<P, E>>,
    pass: impl Fn(&[P]) -> Vec<Result<T, E>>,
) -> Vec<Result<T, E>> {
    let mut results: Vec<Result<T, E>> = Vec::with_capacity(problems.len());
    let mut good = Vec::with_capacity(problems.len());
    let mut errors = Vec::new();
    for (place, problem) in problems.into_iter().enumerate() {
        match problem {
            Ok(problem) => good.push(problem),
            Err(error) => errors.push((place, error)),
        }
    }
    for some in good.chunks(lanes) {
        results.extend(pass(some));
    }
    for (place, error) in errors {
        results.insert(place, Err(error));
    }
    results
}
