//! Static probes (USDT): places in our code at which tracers see handshakes, jobs and passes.
//!
//! A probe is one `nop` and a note in the ELF section `.note.stapsdt`, which says where the `nop` is
//! and in which registers the arguments are. A tracer (`widelane trace`, bpftrace, perf, SystemTap)
//! replaces the `nop` by a breakpoint. Without a tracer the `nop` is all that runs, in a function that is
//! called for it: about a nanosecond. A caller passes what it has at hand, and computes nothing for a
//! probe.
//!
//! It is *not* a log, and no argument is a secret: numbers, addresses, times and what a handshake
//! shows on the wire.
//!
//! The compiler may copy code with a probe, so that one probe has several places. Tracers attach to all
//! of them.
//!
//! Start with [`sites`]: one function for each probe. `docs/trace.md` lists them for users.

#![deny(unsafe_code)]

mod connection;
pub mod operations;
#[allow(unsafe_code)]
pub mod sites;

pub use connection::{Agreed, Connection, Ending, Side};
