//! The one interface of all operations whose requests can share a pass.

use std::error::Error;
use std::fmt;

use crate::passes::{Family, Pass, Passes, with_pass};
use crate::{Backend, BackendUnavailable};
use widelane_cpu::Target;

/// One job's input.
///
/// It owns copies of its input and counted references to its keys, so it outlives its submitter.
/// The type chooses the operation; where several operations share a type, [`Operation::takes`]
/// says which of them serves a request.
pub trait Request: Send + 'static {
    /// Result of one job, usually a `Result`: a job that fails for its own reasons returns its error here.
    type Output: Send + 'static;

    /// Reason why `output` is a failure; `None` if it is an answer.
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
    /// Request that the operation answers.
    type Request: Request;

    /// The operation's name in counters, records and errors, such as `x25519-derive`.
    fn name(&self) -> &'static str;

    /// Requests that one pass takes; 1 if the operation has no lanes. The same for every call.
    fn lanes(&self) -> usize;

    /// Returns whether the operation serves this request. The first operation that returns `true` gets the request, if
    /// several have the same type of request.
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
    fn pass_by(&self, _method: usize, requests: &[Self::Request]) -> Vec<<Self::Request as Request>::Output> {
        self.pass(requests)
    }

    /// Answers one request without lanes: the operations of this crate call aws-lc-rs.
    fn alone(&self, request: &Self::Request) -> <Self::Request as Request>::Output {
        let mut outputs = self.pass(std::slice::from_ref(request));
        outputs.pop().expect("one output for one request")
    }

    /// Returns whether this request needs a pass even if it is the only one, because aws-lc-rs refuses it.
    fn needs_lanes(&self, _request: &Self::Request) -> bool {
        false
    }

    /// A typical request, for measurements. It is new in each call where requests usually are, and
    /// its key has been used before where keys usually have. The keys may be public knowledge.
    fn specimen(&self) -> Self::Request;
}

/// Operation of this crate, without its backend: [`on`](Self::on) makes an [`Operation`] of it.
pub trait Task: Copy + fmt::Debug + Send + Sync + 'static {
    /// Requests of this and of other tasks.
    type Request: Requests;
    /// Request of this task.
    type Own: Form<Self::Request>;
    /// Passes that answer them.
    type Family: Family;

    /// The name of the operation.
    fn name(self) -> &'static str;

    /// The passes.
    fn family(self) -> Self::Family;

    /// Returns whether this task answers the request, and not another one of the same kind.
    fn answers(self, _request: &Self::Own) -> bool {
        true
    }

    /// The request, if this task answers it.
    fn own(self, request: &Self::Request) -> Option<&Self::Own> {
        Self::Own::of(request).filter(|own| self.answers(own))
    }

    /// Answers requests in one pass.
    fn pass<const L: usize>(
        self,
        pass: &Pass<Self::Family, L>,
        requests: &[&Self::Own],
    ) -> Vec<<Self::Request as Request>::Output>;

    /// Makes a specimen: see [`Operation::specimen`].
    fn specimen(self) -> Self::Request;

    /// Lanes that one request takes.
    const LANES_EACH: usize = 1;

    /// Lists methods as [`Operation::methods`] does, in the lanes of a target, if there are lanes.
    fn methods(self, _target: Option<Target>) -> &'static [&'static str] {
        &["only"]
    }

    /// Runs a [`pass`](Self::pass) by one of the methods.
    fn pass_by<const L: usize>(
        self,
        _method: usize,
        pass: &Pass<Self::Family, L>,
        requests: &[&Self::Own],
    ) -> Vec<<Self::Request as Request>::Output> {
        self.pass(pass, requests)
    }

    /// Returns whether the request needs lanes: see [`Operation::needs_lanes`].
    fn needs_lanes(_request: &Self::Own) -> bool {
        false
    }

    /// The operation on a backend. Each task has this method and the types above from `task!`.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    fn on(self, backend: Backend) -> Result<OnBackend<Self>, BackendUnavailable>;
}

/// Defines the types of a [`Task`] (requests, the form in which it takes them, the family of its passes) and
/// [`Task::on`]. A method of the trait would be generic, and the code of all passes would be compiled anew in each crate
/// that calls it.
macro_rules! task {
    ($request:ty as $own:ty, in $family:ty) => {
        type Request = $request;
        type Own = $own;
        type Family = $family;

        #[inline(never)]
        fn on(self, backend: $crate::Backend) -> Result<$crate::OnBackend<Self>, $crate::BackendUnavailable> {
            $crate::OnBackend::new(self, backend)
        }
    };
}
pub(crate) use task;

/// Requests of several tasks, which aws-lc-rs answers, too.
pub trait Requests: Request<Output = Result<Self::Answer, Self::Error>> {
    /// An answer.
    type Answer: Send + 'static;
    /// The reason for which there is none.
    type Error: Error + Send + 'static;

    /// Answers the request without lanes.
    fn answer_alone(&self) -> Self::Output;

    /// The error of a request in a pass of another operation.
    fn misplaced(operation: &'static str) -> Self::Error;
}

/// A request in the form of its family.
pub trait Form<R>: Sized {
    /// The request, if it has this form.
    fn of(request: &R) -> Option<&Self>;
}

impl<R> Form<R> for R {
    fn of(request: &R) -> Option<&Self> {
        Some(request)
    }
}

/// A [`Task`] on a backend.
#[derive(Debug)]
pub struct OnBackend<T: Task> {
    task: T,
    /// The lanes of its passes, if it has any.
    target: Option<Target>,
    pub(crate) passes: Passes<T::Family>,
    run: Run<T>,
}

/// Answers requests in passes, by one of the methods.
type Run<T> = fn(&OnBackend<T>, usize, &[<T as Task>::Request]) -> Vec<<<T as Task>::Request as Request>::Output>;

impl<T: Task> OnBackend<T> {
    pub(crate) fn new(task: T, backend: Backend) -> Result<Self, BackendUnavailable> {
        Ok(Self {
            task,
            target: backend.target(),
            passes: Passes::new(backend, task.family())?,
            run: Self::run,
        })
    }

    fn run(&self, method: usize, requests: &[T::Request]) -> Vec<<T::Request as Request>::Output> {
        let own = |request| {
            let own = self.task.own(request);
            own.ok_or_else(|| T::Request::misplaced(self.name()))
        };
        with_pass!(&self.passes, pass => {
            let own = requests.iter().map(own).collect();
            in_passes(self.lanes(), own, |some| self.task.pass_by(method, pass, some))
        }, else {
            let alone = |request| own(request).and_then(|_| request.answer_alone());
            requests.iter().map(alone).collect()
        })
    }
}

#[cfg(test)]
impl<T: Task> OnBackend<T> {
    /// The task in portable Rust, which is slow.
    pub(crate) fn model(task: T) -> Self {
        let passes = Passes::Four(Box::new(Pass::model(task.family())));
        Self {
            task,
            target: None,
            passes,
            run: Self::run,
        }
    }

    /// The model, and lanes of every target that there is here, by name.
    pub(crate) fn subjects(task: T) -> Vec<(&'static str, Self)> {
        let mut subjects = vec![("model", Self::model(task))];
        for target in widelane_cpu::Target::ALL {
            match task.on(Backend::Lanes(target)) {
                Ok(operation) => subjects.push((target.name(), operation)),
                Err(_) => target.tell_skipped(),
            }
        }
        subjects
    }

    /// The task on every backend that there is here.
    pub(crate) fn everywhere(task: T) -> impl Iterator<Item = Self> {
        Backend::ALL.into_iter().filter_map(move |backend| {
            let made = task.on(backend);
            if let (Err(_), Some(target)) = (&made, backend.target()) {
                target.tell_skipped();
            }
            made.ok()
        })
    }

    /// Answers these requests.
    pub(crate) fn answers<R>(&self, requests: &[R]) -> Vec<<T::Request as Request>::Output>
    where
        R: Clone + Into<T::Request>,
    {
        let requests: Vec<_> = requests.iter().cloned().map(Into::into).collect();
        self.pass(&requests)
    }
}

impl<T: Task> Operation for OnBackend<T> {
    type Request = T::Request;

    fn name(&self) -> &'static str {
        self.task.name()
    }

    fn lanes(&self) -> usize {
        self.passes.lanes().div_ceil(T::LANES_EACH)
    }

    fn takes(&self, request: &T::Request) -> bool {
        self.task.own(request).is_some()
    }

    fn pass(&self, requests: &[T::Request]) -> Vec<<T::Request as Request>::Output> {
        self.pass_by(0, requests)
    }

    fn methods(&self) -> &'static [&'static str] {
        self.task.methods(self.target)
    }

    fn pass_by(&self, method: usize, requests: &[T::Request]) -> Vec<<T::Request as Request>::Output> {
        (self.run)(self, method, requests)
    }

    fn alone(&self, request: &T::Request) -> <T::Request as Request>::Output {
        request.answer_alone()
    }

    fn needs_lanes(&self, request: &T::Request) -> bool {
        self.task.own(request).is_some_and(T::needs_lanes)
    }

    fn specimen(&self) -> T::Request {
        self.task.specimen()
    }
}

/// Declares a type of requests: those of several families, each in its own form.
macro_rules! requests {
    (
        $(#[$meta:meta])*
        $name:ident($form:ident) => $answer:ty, $error:ty, $misplaced:expr;
        $($family:ident($request:ty),)+
    ) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $name(pub(crate) $form);

        /// A request in the form of its family.
        #[derive(Clone)]
        pub(crate) enum $form {
            $($family($request),)+
        }

        impl $crate::Request for $name {
            type Output = Result<$answer, $error>;

            fn failure(output: &Self::Output) -> Option<&(dyn std::error::Error + 'static)> {
                output.as_ref().err().map(|error| error as _)
            }
        }

        impl $crate::operation::Requests for $name {
            type Answer = $answer;
            type Error = $error;

            fn answer_alone(&self) -> Self::Output {
                match &self.0 {
                    $($form::$family(request) => request.alone(),)+
                }
            }

            fn misplaced(operation: &'static str) -> $error {
                let misplaced: fn(&'static str) -> $error = $misplaced;
                misplaced(operation)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match &self.0 {
                    $($form::$family(request) => request.fmt(f),)+
                }
            }
        }

        $(
            impl $crate::operation::Form<$name> for $request {
                fn of(request: &$name) -> Option<&Self> {
                    match &request.0 {
                        $form::$family(own) => Some(own),
                        _ => None,
                    }
                }
            }

            impl From<$request> for $name {
                fn from(request: $request) -> Self {
                    Self($form::$family(request))
                }
            }
        )+
    };
}

pub(crate) use requests;

/// Runs the problems that there are in passes of `lanes`, and puts the results into the places of
/// the problems, among the errors that took the place of others.
pub(crate) fn in_passes<P, T, E>(
    lanes: usize,
    problems: Vec<Result<P, E>>,
    pass: impl Fn(&[P]) -> Vec<Result<T, E>>,
) -> Vec<Result<T, E>> {
    let count = problems.len();
    let mut good = Vec::with_capacity(problems.len());
    let mut errors = Vec::new();
    for (place, problem) in problems.into_iter().enumerate() {
        match problem {
            Ok(problem) => good.push(problem),
            Err(error) => errors.push((place, error)),
        }
    }
    if errors.is_empty() && (1..=lanes).contains(&good.len()) {
        return pass(&good);
    }
    let mut results: Vec<Result<T, E>> = Vec::with_capacity(count);
    for some in good.chunks(lanes) {
        results.extend(pass(some));
    }
    for (place, error) in errors {
        results.insert(place, Err(error));
    }
    results
}
