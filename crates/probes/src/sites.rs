//! The probes, one function each. Their provider is `widelane`; the probe's name is the function's.
//!
//! The only unsafe code is that of [`probe::probe`]: a `nop`, with its arguments in registers. It reads
//! and writes no memory, and every register keeps its value.
//!
//! The probes of jobs and passes are called: the engine is generic, and has a copy of its code for each
//! operation. As parts of these copies they would have two hundred places, and a tracer attaches to
//! each, and waits for the kernel at each when it leaves.

use probe::probe;

/// A job was submitted to an engine: its number as long as it is not done (an address), and its
/// [operation](crate::operations).
#[inline(never)]
pub fn job_submitted(job: usize, operation: u16) {
    probe!(widelane, job_submitted, job, operation);
}

/// A job is done. How it ended: 0 with an answer, which may be the operation's error; 1 by a panic; 2
/// because the engine ended; 3 otherwise.
#[inline(never)]
pub fn job_done(job: usize, ended: u8) {
    probe!(widelane, job_done, job, ended);
}

/// A pass begins on this thread: its operation, its jobs, the most jobs that such a pass takes, how it
/// runs (0 without lanes, through AWS-LC; 1 in lanes; 2 in lanes of narrower registers than the
/// widest), and the nanoseconds that its jobs have waited in the queue, summed.
#[inline(never)]
pub fn pass_begun(operation: u16, jobs: usize, lanes: usize, way: u8, queued_ns: u64) {
    probe!(widelane, pass_begun, operation, jobs, lanes, way, queued_ns);
}

/// The last pass that began on this thread has ended: its operation, its jobs, and 1 if it gave its
/// results, 0 if it panicked.
#[inline(never)]
pub fn pass_ended(operation: u16, jobs: usize, succeeded: bool) {
    probe!(widelane, pass_ended, operation, jobs, succeeded);
}

/// A handshake begins: the connection's number in this process, and 0 for the client's side, 1 for
/// the server's.
#[inline(always)]
pub fn handshake_begun(connection: u64, side: u8) {
    probe!(widelane, handshake_begun, connection, side);
}

/// Marks that this thread goes on with a handshake. The jobs that it submits from now on, until the next step of
/// another connection, belong to this one.
#[inline(always)]
pub fn handshake_step(connection: u64) {
    probe!(widelane, handshake_step, connection);
}

/// A handshake has ended. Version, cipher suite and group are the numbers of IANA's registries, 0 if
/// not known; `resumed` is 0, 1, or -1 if not known; `ending` is an [`Ending`](crate::Ending); `alert` is
/// the number of the alert that the peer sent, or -1. bpftrace reads the first six arguments of a probe.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn handshake_ended(
    connection: u64,
    ending: u8,
    version: u16,
    cipher: u16,
    group: u16,
    resumed: i8,
    side: u8,
    alert: i16,
) {
    probe!(
        widelane,
        handshake_ended,
        connection,
        ending,
        version,
        cipher,
        group,
        resumed,
        side,
        alert
    );
}
