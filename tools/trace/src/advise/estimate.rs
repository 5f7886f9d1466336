//! Estimates savings by passes: compares the server's own costs with those of passes on this machine.

use std::collections::BTreeMap;

use widelane_batching::{Costs, Split};

use super::ready::Ready;
use super::tally::Operation;
use super::watch::Observed;
use crate::functions::Role;

/// Costs of this machine's lanes.
#[derive(Clone, Debug)]
pub enum Lanes {
    /// A machine with lanes.
    Costs {
        /// Costs of passes here, in nanoseconds, by the engine's names of operations.
        passes: BTreeMap<String, Costs>,
        /// Cost in nanoseconds of a thread that sleeps until a pass has ended: [`hand_over`](super::hand_over).
        hand_over: f64,
    },
    /// A CPU without lanes that Widelane uses, and the reason.
    None(widelane_cpu::Lanes),
}

/// Reason why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unestimated {
    /// No handshake was seen.
    NoHandshakes,
    /// The handshakes used too little CPU time.
    NoTime,
    /// A CPU without lanes that Widelane uses.
    NoLanes(widelane_cpu::Lanes),
    /// The costs of passes are not known.
    NoCosts,
    /// Widelane is in the server already: its calls contain the wait for their passes.
    Loaded,
    /// No operation was seen that passes do.
    NoOperations,
    /// The program has a process for each connection: they share no passes.
    Alone,
}

/// Cost of one operation, for each handshake.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name of the operation, as `rsa-2048 sign`.
    pub name: String,
    /// Role of the operation, without the algorithm.
    pub role: Role,
    /// Number of such operations in a handshake.
    pub count: f64,
    /// Cost of one operation now, in nanoseconds.
    pub own: f64,
    /// Cost of one operation in passes as full as they would be, in nanoseconds; `None` if Widelane does not do it.
    pub shared: Option<f64>,
}

/// Gain by Widelane under some load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// Number of handshakes that would be ready at the same time.
    pub ready: f64,
    /// CPU time of a handshake with Widelane, in nanoseconds.
    pub with: f64,
    /// CPU time that each handshake would save, in nanoseconds.
    pub saved: f64,
}

/// Gain by Widelane.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// CPU time of a handshake now, in nanoseconds, without what tracing adds.
    pub own: f64,
    /// CPU time that tracing adds to a handshake, in nanoseconds.
    pub tracing: f64,
    /// Operations of a handshake.
    pub parts: Vec<Part>,
    /// True if the server is at its limit.
    pub at_limit: bool,
    /// Gain if handshakes come as now: at the limit, clients come as fast as they are served.
    pub now: Gain,
    /// Gain if enough handshakes come to fill passes.
    pub full: Gain,
}

impl Estimate {
    /// Estimates the gain of a server from the costs of `lanes`.
    ///
    /// # Errors
    ///
    /// When too little is known.
    pub fn of(observed: &Observed, lanes: &Lanes) -> Result<Self, Unestimated> {
        if observed.program.loaded {
            return Err(Unestimated::Loaded);
        }
        if observed.program.shares_nothing() {
            return Err(Unestimated::Alone);
        }
        if observed.done == 0 {
            return Err(Unestimated::NoHandshakes);
        }
        if observed.cpu < LEAST_CPU {
            return Err(Unestimated::NoTime);
        }
        let (costs, hand_over) = match lanes {
            Lanes::Costs { passes, hand_over } => (passes, hand_over),
            Lanes::None(here) => return Err(Unestimated::NoLanes(*here)),
        };
        // A loop puts the handshake aside and goes on with another; a thread that waits has to sleep.
        let sleep = match observed.program.has_loops() {
            true => 0.0,
            false => *hand_over,
        };
        if costs.is_empty() {
            return Err(Unestimated::NoCosts);
        }
        let done = observed.done as f64;
        let traced = observed.cpu as f64 / done;
        let own = observed.untraced.unwrap_or_else(|| {
            // Nearly as much as within such a call happens around it, and not every call takes as much.
            let calls = observed.calls as f64 / done;
            traced - calls * observed.trivial.unwrap_or(0.0)
        });
        let works: Vec<Work> = observed
            .operations
            .iter()
            .map(|operation| Work::of(operation, done, costs, sleep))
            .collect();
        if works.iter().all(|work| work.steps.is_empty()) {
            return Err(Unestimated::NoOperations);
        }
        // Tracing may add less than was reckoned.
        let least: f64 = works.iter().map(|work| work.part.count * work.part.own).sum();
        let own = own.max(least);
        let tracing = (traced - own).max(0.0);
        let gain = |counts: &[f64]| Gain::of(&works, own, counts);
        let at_limit = observed.ready.is_at_limit();
        let counts = match at_limit {
            true => observed.ready.counts.clone(),
            false => settled(&observed.ready, own, &works),
        };
        let (now, full) = (gain(&counts), gain(&[FULL]));
        let parts = works.into_iter().map(|work| Part {
            shared: (!work.steps.is_empty()).then(|| work.shared(&counts)),
            ..work.part
        });
        Ok(Self {
            own,
            tracing,
            parts: parts.collect(),
            at_limit,
            now,
            full,
        })
    }

    /// The share of a handshake's CPU time that operations with the server's private key take.
    pub fn private_share(&self) -> f64 {
        self.share(|part| part.role == Role::Sign || part.name.ends_with("decrypt"))
    }

    /// The share that the key exchange takes.
    pub fn exchange_share(&self) -> f64 {
        self.share(|part| {
            let exchange = matches!(
                part.role,
                Role::Generate | Role::Derive | Role::Encapsulate | Role::Decapsulate
            );
            exchange && !part.name.ends_with("decrypt")
        })
    }

    fn share(&self, counts: impl Fn(&Part) -> bool) -> f64 {
        let parts = self.parts.iter().filter(|part| counts(part));
        parts.map(|part| part.count * part.own).sum::<f64>() / self.own
    }
}

impl Gain {
    fn of(works: &[Work], own: f64, counts: &[f64]) -> Self {
        let saved = saved(works, counts);
        Self {
            ready: counts.iter().sum::<f64>() / counts.len().max(1) as f64,
            with: own - saved,
            saved,
        }
    }

    /// Ratio of the handshakes per CPU time with Widelane to those without.
    pub fn quotient(&self) -> f64 {
        (self.with + self.saved) / self.with
    }
}

/// An operation of the server, and what passes do in its place.
struct Work {
    /// The operation, without its cost in passes.
    part: Part,
    /// The engine's operations, each with its share of the server's own cost. None: Widelane does not do it.
    steps: Vec<(Costs, f64)>,
    /// Cost of waiting for a pass, in nanoseconds.
    sleep: f64,
}

impl Work {
    fn of(operation: &Operation, done: f64, costs: &BTreeMap<String, Costs>, sleep: f64) -> Self {
        let own = operation.typical;
        let names = engine_operations(&operation.name, operation.group.as_deref());
        let steps: Option<Vec<Costs>> = names.iter().map(|&name| costs.get(name).copied()).collect();
        let steps = steps.unwrap_or_default();
        let alone: f64 = steps.iter().map(|costs| costs.alone as f64).sum();
        let share = |costs: Costs| (costs, own * costs.alone as f64 / alone.max(1.0));
        Self {
            part: Part {
                name: operation.name.clone(),
                role: operation.role,
                count: operation.count as f64 / done,
                own,
                shared: None,
            },
            steps: steps.into_iter().map(share).collect(),
            sleep,
        }
    }

    /// Cost of one operation in passes: the mean over moments at which `counts` handshakes are ready.
    fn shared(&self, counts: &[f64]) -> f64 {
        let at = |count: f64| -> f64 {
            let steps = self.steps.iter();
            steps.map(|(costs, own)| shared(costs, *own, self.sleep, count)).sum()
        };
        counts.iter().map(|&count| at(count)).sum::<f64>() / counts.len().max(1) as f64
    }
}

fn saved(works: &[Work], counts: &[f64]) -> f64 {
    let works = works.iter().filter(|work| !work.steps.is_empty());
    works
        .map(|work| work.part.count * (work.part.own - work.shared(counts)))
        .sum()
}

/// Cost of one of `count` requests. Requests that are too few for a pass cost what they cost the server; of those in a
/// pass, all but the one that fills it wait.
fn shared(costs: &Costs, own: f64, sleep: f64, count: f64) -> f64 {
    let whole = |count: usize| {
        let split = costs.split(count);
        let passes = costs.total(Split { alone: 0, ..split }) as f64;
        let waiting = split.in_lanes - split.in_lanes.div_ceil(costs.lanes.max(1));
        (passes + waiting as f64 * sleep + split.alone as f64 * own) / count.max(1) as f64
    };
    let below = count.clamp(1.0, FULL).floor();
    let part = count.clamp(1.0, FULL) - below;
    let below = below as usize;
    whole(below) * (1.0 - part) + whole(below + 1) * part
}

/// Estimates how many handshakes would be ready at each look, if they came at the same times and took less.
///
/// A server that needs less time has shorter queues. With random arrivals and equal times, the others
/// that wait are in proportion to `busy / (1 - busy)`.
fn settled(ready: &Ready, own: f64, works: &[Work]) -> Vec<f64> {
    if ready.counts.is_empty() {
        return vec![1.0];
    }
    let queue = |busy: f64| busy / (1.0 - busy.min(MOST_BUSY));
    let (before, mut factor) = (ready.busy(), 1.0f64);
    let mut counts = Vec::new();
    for _ in 0..ROUNDS {
        let others = |count: &f64| 1.0 + (count - 1.0) * factor;
        counts = ready.counts.iter().map(others).collect();
        let with = (own - saved(works, &counts)) / own;
        let next = queue(before * with) / queue(before);
        factor = ((factor + next) / 2.0).clamp(0.0, 1.0);
    }
    counts
}

/// The engine's operations in the place of a library's. None: Widelane does not do it.
fn engine_operations(name: &str, group: Option<&str>) -> &'static [&'static str] {
    match (name, group) {
        ("rsa-2048 sign", _) => &["rsa2048-sign"],
        ("rsa-3072 sign", _) => &["rsa3072-sign"],
        ("rsa-4096 sign", _) => &["rsa4096-sign"],
        ("ecdsa-p256 sign", _) => &["p256-ecdsa-sign"],
        ("ecdsa-p384 sign", _) => &["p384-ecdsa-sign"],
        ("ed25519 sign", _) => &["ed25519-sign"],
        ("ml-dsa-44 sign", _) => &["mldsa44-sign"],
        ("ml-dsa-65 sign", _) => &["mldsa65-sign"],
        ("ml-dsa-87 sign", _) => &["mldsa87-sign"],
        ("x25519 generate", _) | ("generate", Some("x25519")) => &["x25519-keygen"],
        ("generate", Some("secp256r1")) => &["p256-keygen"],
        ("generate", Some("secp384r1")) => &["p384-keygen"],
        ("x25519 derive", _) => &["x25519-derive"],
        ("ecdh derive", Some("secp256r1")) => &["p256-ecdh"],
        ("ecdh derive", Some("secp384r1")) => &["p384-ecdh"],
        ("ml-kem-768 encapsulate", Some("X25519MLKEM768")) => &["mlkem768-encaps", "x25519-keygen", "x25519-derive"],
        ("ml-kem-768 encapsulate", Some("SecP256r1MLKEM768")) => &["mlkem768-encaps", "p256-keygen", "p256-ecdh"],
        ("ml-kem-1024 encapsulate", Some("SecP384r1MLKEM1024")) => &["mlkem1024-encaps", "p384-keygen", "p384-ecdh"],
        ("ml-kem-512 encapsulate", _) => &["mlkem512-encaps"],
        ("ml-kem-768 encapsulate", _) => &["mlkem768-encaps"],
        ("ml-kem-1024 encapsulate", _) => &["mlkem1024-encaps"],
        _ => &[],
    }
}

/// The kernel counts in ticks of some milliseconds: less CPU time than this, in nanoseconds, says little.
const LEAST_CPU: u64 = 200_000_000;
/// Number of ready handshakes that fills passes.
const FULL: f64 = 64.0;
/// Greatest share of busy time in the formula for the length of queues.
const MOST_BUSY: f64 = 0.99;
/// Most rounds until queues and times, which depend on each other, agree. Fewer are enough.
const ROUNDS: usize = 40;
