//! The one interface of all operations whose requests can share a pass.

use std::error::Error;

/// One job's input.
///
/// It owns copies of its input and counted references to its keys, so it outlives its submitter.
/// The type chooses the operation; where several operations share a type, [`Operation::takes`]
/// says which of them serves a request.
pub trait Request: Send + 'static {
    /// What one job yields, usually a `Result`: a job that fails for its own reasons returns its
    /// error here.
    type Output: Send + 'static;

    /// Why `output` is a failure; `None` if it is an answer.
    fn failure(_output: &Self::Output) -> Option<&(dyn Error + 'static)> {
        None
    }
}

/// One operation: one algorithm, one size and, usually, one [`Backend`](crate::Backend), chosen
/// when the value is made.
///
/// An operation says how requests are answered. `engine` decides when, and in which of two ways:
/// together in a [`pass`](Self::pass), or one request [`alone`](Self::alone). It measures the cost
/// of both with [`specimen`](Self::specimen)s.
///
/// In both ways, a request that fails gets its own error and does not affect the others.
pub trait Operation: Send + Sync + 'static {
    /// What is answered.
    type Request: Request;

    /// The operation's name in counters, records and errors, such as `x25519-derive`.
    fn name(&self) -> &'static str;

    /// Requests that one pass takes; 1 if the operation has no lanes. The same for every call.
    fn lanes(&self) -> usize;

    /// Whether the operation serves this request. Of the operations with the same type of request,
    /// the first that returns `true` gets it.
    fn takes(&self, _request: &Self::Request) -> bool {
        true
    }

    /// Answers requests in lanes: exactly one output for each, in order. Takes any number of
    /// requests; an engine gives it at most [`lanes`](Self::lanes), which fit one pass.
    ///
    /// Runs on an ordinary thread stack. Requests are borrowed, because after a panic the engine
    /// runs each request of the pass by itself.
    fn pass(&self, requests: &[Self::Request]) -> Vec<<Self::Request as Request>::Output>;

    /// Ways to run passes, by name. All give the same answers and take times of their own, which
    /// depend on the CPU; an engine measures them and uses the fastest.
    fn methods(&self) -> &'static [&'static str] {
        &["only"]
    }

    /// A [`pass`](Self::pass) by the method in this place of [`methods`](Self::methods).
    fn pass_by(
        &self,
        _method: usize,
        requests: &[Self::Request],
    ) -> Vec<<Self::Request as Request>::Output> {
        self.pass(requests)
    }

    /// Answers one request without lanes: the operations of this crate call aws-lc-rs.
    fn alone(&self, request: &Self::Request) -> <Self::Request as Request>::Output {
        let mut outputs = self.pass(std::slice::from_ref(request));
        outputs.pop().expect("one output for one request")
    }

    /// Whether this request needs a pass even if it is the only one, because aws-lc-rs refuses it.
    fn needs_lanes(&self, _request: &Self::Request) -> bool {
        false
    }

    /// A typical request, for measurements. It is new in each call where requests usually are, and
    /// its key has been used before where keys usually have. The keys may be public knowledge.
    fn specimen(&self) -> Self::Request;
}

/// Makes types requests whose output is a `Result`.
macro_rules! requests {
    ($($request:ty => $answer:ty, $error:ty;)+) => { $(
        impl $crate::Request for $request {
            type Output = Result<$answer, $error>;

            fn failure(output: &Self::Output) -> Option<&(dyn std::error::Error + 'static)> {
                output.as_ref().err().map(|error| error as _)
            }
        }
    )+ };
}

pub(crate) use requests;

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
