//! The policy of Widelane: which pass runs next, whether a pass is worth it, whether to wait for
//! more jobs, and when to refuse work.
//!
//! Every function here is pure and total: it looks at counts, times and sequence numbers, uses no clock,
//! thread, I/O or memory of the heap, and returns an answer for every input. The compiler sees to that: the crate is
//! `no_std`, and only the module of [`Line`], a queue, names `alloc`. The engine calls exactly these functions and
//! decides nothing itself, so their tests show what runs.
//!
//! It is *not* the mechanism. Queues, threads, wake-ups and counters live in `widelane-engine`.
//!
//! Start with [`next_pass`], the central rule. A pass costs about the same with one job as with
//! full lanes, so
//!
//! 1. a full pass runs at once, because no later job could join it;
//! 2. a partial pass runs only when its worker has nothing else to do, the cheapest first: what
//!    follows from it may fill the others. No timer is involved: while a pass runs, jobs for the
//!    next one arrive. If no other job can arrive, the worker does not even look for one
//!    ([`quiet`]);
//! 3. a job that too many later jobs have overtaken runs next, even in a partial pass;
//! 4. if there are too few jobs for a pass, the oldest runs alone, and more jobs may arrive
//!    meanwhile.
//!
//! [`Costs`] tells how many jobs are worth a pass, by the costs of passes and single jobs on a
//! machine. [`Methods`] finds the fastest of several ways to run passes. [`Clock`] holds what wide
//! code costs beyond its own time; [`placement()`] decides by it where passes run. [`wake`] and
//! [`Idleness`] decide how many vector cores are at work. [`Overload`] tells when more handshakes arrive
//! than are finished, and [`Line`] who is next then.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod clock;
mod cores;
mod costs;
mod line;
mod methods;
mod overload;
mod passes;
mod placement;

pub use clock::{Clock, ClockPenalty, Core, Records, Width, records, width};
pub use cores::{Idleness, Sleeper, VectorCores, passes, usual_rest, wake};
pub use costs::{Costs, NEVER, Split, saving, worth_in_either};
pub use line::{Line, Place};
pub use methods::{Methods, TRIAL_EVERY};
pub use overload::{Overload, Turn, late, under_way, worth_queueing};
pub use passes::{BYPASS_LIMIT, Idle, Lead, Pass, Waiting, admit, lead, next_pass, quiet};
pub use placement::{Form, Placement, PlacementChoice, PlacementError, Topology, TransferCosts, form, placement};
pub use widelane_affinity::Cpus;
