//! Scheduling: the order in which a trace's operations are printed.
//!
//! CPUs of this class start the oldest instruction that is ready. The instructions of a long chain
//! must therefore stand before independent work, or the chain waits for that work.
//! The schedule is a list schedule (Gibbons and Muchnick 1986) for a simple machine, taken from a
//! window that moves over the order of the source. So the source decides how many values are alive
//! at a time, and the schedule decides the order of neighbours.

use std::collections::HashMap;

use widelane_cpu::Registers;

use crate::machine::Array;
use crate::trace::{CompareOp, Name, Op, ThreeOp, TwoOp};

/// The 512-bit multipliers of the CPUs that an order of operations is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Multipliers {
    /// A multiply-add starts in each cycle: Zen 4.
    One,
    /// Two start in each cycle: Zen 5, Intel's cores for servers.
    Two,
}

/// Formats the multipliers as in names of kernels.
impl std::fmt::Display for Multipliers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Multipliers::One => "one",
            Multipliers::Two => "two",
        })
    }
}

/// Orders the operations so that those on the longest chains come first.
pub(crate) fn schedule(ops: &[Op], multipliers: Multipliers, registers: Registers) -> Vec<Op> {
    let users = users(ops);
    let height = heights(ops, &users);
    // Readers of a vector in memory that are not scheduled yet: stores to it come after them.
    let mut readers: HashMap<(Array, usize), usize> = HashMap::new();
    for op in ops {
        for place in op.reads().filter_map(|name| loaded(ops, name)) {
            *readers.entry(place).or_default() += 1;
        }
    }

    // Masks that later operations read: there are few registers for them.
    let mut wanted: Vec<usize> = users.iter().map(Vec::len).collect();
    let mut masks = 0;

    let mut ready_at: Vec<Option<usize>> = vec![None; ops.len()];
    let mut order = Vec::with_capacity(ops.len());
    let mut left: Vec<usize> = (0..ops.len()).collect();
    // Reads of memory and constants need no slot of their own: they happen where they are used.
    left.retain(|&at| {
        let free = ops[at].is_read();
        if free {
            ready_at[at] = Some(0);
            order.push(at);
        }
        !free
    });

    // Operations that start in a cycle: multiplications, other arithmetic, stores.
    let (starts, window) = match (registers, multipliers) {
        (Registers::Avx2, _) => ([2, 2, 1], WINDOW_OF_FEW),
        _ if ops.iter().any(is_fma) => ([2, 2, 1], WINDOW_OF_FMA),
        (_, Multipliers::One) => ([1, 2, 1], WINDOW),
        (_, Multipliers::Two) if ops.len() < LONG => ([2, 2, 1], WINDOW),
        (_, Multipliers::Two) => ([2, 2, 1], WINDOW_OF_LONG),
    };
    let (mut cycle, mut idle) = (0, 0);
    let mut left = left.into_iter().peekable();
    let mut waiting = Vec::new();
    while left.peek().is_some() || !waiting.is_empty() {
        if waiting.is_empty() {
            // No operation moves into a loop or out of it. A loop keeps the order of its source:
            // its turns overlap in the CPU, so that one turn does not show the longest chain.
            let mut inside = false;
            while let Some(at) = left.next_if(|&at| inside || ops[at].frames_loop()) {
                inside = ops[at] != Op::End;
                ready_at[at] = Some(cycle);
                order.push(at);
                for name in ops[at].reads() {
                    wanted[name.0] -= 1;
                    if let Some(place) = loaded(ops, name) {
                        *readers.get_mut(&place).expect("every reader was counted") -= 1;
                    }
                }
            }
            while let Some(at) = left.next_if(|&at| !ops[at].frames_loop()) {
                waiting.push(at);
            }
        }
        let mut ports = starts;
        loop {
            let ready = |&(_, &at): &(usize, &usize)| {
                let inputs = ops[at]
                    .reads()
                    .all(|name| ready_at[name.0].is_some_and(|ready| ready <= cycle));
                let port = ports[port(ops[at])] > 0;
                let free = match ops[at] {
                    Op::Store(array, index, value) => {
                        let place = (array, index);
                        // A store of the vector that was read there does not wait for itself.
                        let own = usize::from(loaded(ops, value) == Some(place));
                        readers.get(&place).is_none_or(|&left| left <= own)
                    }
                    // Unless no other operation was possible for a while.
                    op if op.makes_mask() => masks < MASKS || idle > LONGEST_LATENCY,
                    _ => true,
                };
                inputs && port && free
            };
            let candidates = waiting.iter().enumerate().take(window);
            // Takes the first in the source of equally urgent operations.
            let best = candidates
                .filter(ready)
                .max_by_key(|&(place, &at)| (height[at], std::cmp::Reverse(place)))
                .map(|(place, _)| place);
            let Some(place) = best else { break };
            let at = waiting.remove(place);
            ports[port(ops[at])] -= 1;
            ready_at[at] = Some(cycle + latency(ops[at]));
            for place in ops[at].reads().filter_map(|name| loaded(ops, name)) {
                *readers.get_mut(&place).expect("every reader was counted") -= 1;
            }
            masks += usize::from(ops[at].makes_mask() && wanted[at] > 0);
            for name in ops[at].reads() {
                wanted[name.0] -= 1;
                masks -= usize::from(ops[name.0].makes_mask() && wanted[name.0] == 0);
            }
            idle = 0;
            order.push(at);
        }
        cycle += 1;
        idle += 1;
    }
    rename(ops, &order)
}

fn users(ops: &[Op]) -> Vec<Vec<usize>> {
    let mut users = vec![Vec::new(); ops.len()];
    for (at, op) in ops.iter().enumerate() {
        for name in op.reads() {
            users[name.0].push(at);
        }
    }
    users
}

/// Cycles from each operation's start to the end of the trace, ports aside.
fn heights(ops: &[Op], users: &[Vec<usize>]) -> Vec<usize> {
    let mut height = vec![0; ops.len()];
    for at in (0..ops.len()).rev() {
        let after = users[at].iter().map(|&user| height[user]).max().unwrap_or(0);
        height[at] = after + latency(ops[at]);
    }
    height
}

/// Place in memory that a name was read from.
fn loaded(ops: &[Op], name: Name) -> Option<(Array, usize)> {
    match ops[name.0] {
        // Scratch memory is read in other parts of the trace than those that write it.
        Op::Load(array, index) if array != Array::SCRATCH => Some((array, index)),
        _ => None,
    }
}

/// Puts operations in order; names are places, so that they change with it.
fn rename(ops: &[Op], order: &[usize]) -> Vec<Op> {
    let mut place = vec![Name(0); ops.len()];
    for (to, &from) in order.iter().enumerate() {
        place[from] = Name(to);
    }
    order.iter().map(|&from| ops[from].map(|name| place[name.0])).collect()
}

fn is_fma(op: &Op) -> bool {
    matches!(op, Op::Three(ThreeOp::Fma, ..))
}

fn port(op: Op) -> usize {
    match op {
        Op::Three(ThreeOp::MaddLo | ThreeOp::MaddHi | ThreeOp::MulLo | ThreeOp::Fma, ..) => 0,
        Op::Two(op, ..) if op.multiplies() => 0,
        Op::Store(..) => 2,
        _ => 1,
    }
}

fn latency(op: Op) -> usize {
    match op {
        Op::Splat(_) | Op::Vector(_) | Op::Load(..) | Op::Broadcast(..) => 0,
        Op::Three(ThreeOp::MaddLo | ThreeOp::MaddHi | ThreeOp::MulLo | ThreeOp::Fma, ..) => 4,
        Op::Two(TwoOp::SubDouble, ..) | Op::Double(_) => 4,
        Op::Three(ThreeOp::Pick2, ..) | Op::Two(TwoOp::Permute32, ..) => 3,
        Op::Two(op, ..) if op.multiplies() => 4,
        Op::Compare(CompareOp::Eq | CompareOp::Test, ..) => 3,
        _ => 1,
    }
}

/// Masks that the schedule keeps alive at a time: fewer than there are registers for them, as some
/// sources want that many at once.
const MASKS: usize = 4;
/// Cycles after which every operation has completed.
const LONGEST_LATENCY: usize = 4;
/// Operations of the source in a window, and in that of a long source for two multipliers. A longer
/// window finds more parallel work, and keeps more values alive than there are registers.
const WINDOW: usize = 48;
const WINDOW_OF_LONG: usize = 32;
/// Window for few registers: they hold nothing that is not needed yet, and CPUs look ahead themselves.
const WINDOW_OF_FEW: usize = 2;
/// Window for products by FMA, which want registers for what their halves have in common.
const WINDOW_OF_FMA: usize = 12;
/// Operations from which on a source is long: it needs more registers than there are.
const LONG: usize = 2500;
