//! Finds which call is inside which.
//!
//! Calls arrive when they return, so what a call has called comes before it. [`Nesting`] keeps that
//! until the enclosing call arrives. Nothing here takes the calls of a thread to be nested: a thread
//! with coroutines suspends one call and runs others meanwhile, on other stacks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::event::{Bytes, Call, Stack};
use crate::functions::Function;

/// Most bytes of stack between a call and the calls inside it.
const DEEPEST: u64 = 256 << 10;
/// Most bytes of stack between them on a thread that has several stacks, and between threads.
pub(crate) const DEEPEST_OF_COROUTINES: u64 = 32 << 10;
/// Longest time that an inner call is kept until its outer call returns, in nanoseconds.
const LONGEST: u64 = 10_000_000_000;
/// Longest time between a program's read and the call that gets the bytes, in nanoseconds.
const MOMENT: u64 = 100_000_000;
/// Longest time by which events arrive in another order than they ended, in nanoseconds.
const SKEW: u64 = 10_000_000;
/// Most calls and pieces of bytes that are kept for a process.
const MOST: usize = 4096;
/// Most bytes of the network that are kept for a process.
const MOST_BYTES: usize = 4 << 20;
/// Most processes for which something is kept.
const MOST_PROCESSES: usize = 1024;
/// Most threads with several stacks that are remembered.
const MOST_THREADS: usize = 4096;

/// Stack and time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Thread of the event.
    pub(crate) tid: u32,
    /// Stack of the event.
    pub(crate) stack: Stack,
    /// Begin, in nanoseconds of the monotonic clock.
    pub(crate) start: u64,
    /// End, in nanoseconds of the monotonic clock.
    pub(crate) end: u64,
}

impl Place {
    /// Place of a call.
    pub(crate) fn of(call: &Call) -> Self {
        Self {
            tid: call.tid,
            stack: call.stack,
            start: call.start,
            end: call.start.saturating_add(call.wall),
        }
    }

    /// Place of a call of the system.
    pub(crate) fn of_bytes(bytes: &Bytes) -> Self {
        Self {
            tid: bytes.tid,
            stack: bytes.stack,
            start: bytes.time,
            end: bytes.time,
        }
    }

    fn during(&self, outer: &Self) -> bool {
        self.start >= outer.start && self.end <= outer.end
    }

    /// Returns whether this was done in the job that a call went on with: on another stack of the thread, until a
    /// moment during the call; or on the stack of the job, since the call before.
    fn is_in_job(&self, outer: &Self, job: Option<Job>) -> bool {
        let (Stack::Pointer(inner), Stack::Pointer(own)) = (self.stack, outer.stack) else {
            return false;
        };
        if self.tid != outer.tid || self.end > outer.end {
            return false;
        }
        let apart = inner.abs_diff(own) > DEEPEST_OF_COROUTINES;
        let known = job.is_some_and(|job| self.end >= job.since && inner.abs_diff(job.stack) <= DEEPEST_OF_COROUTINES);
        apart && (self.end >= outer.start || known)
    }

    /// Returns whether the two share time, and neither is a part of the other.
    fn crosses(&self, other: &Self) -> bool {
        let apart = self.end <= other.start || other.end <= self.start;
        !apart && !self.during(other) && !other.during(self)
    }
}

/// A coroutine that does what the program's calls on a connection ask for: a job of OpenSSL's
/// (`SSL_MODE_ASYNC`), or a handshake that Widelane suspends.
///
/// The program's call returns when the coroutine is left in the middle. Another call, or none, goes on
/// with it. So what it does is on another stack than the program's calls, and may last over several
/// of them or happen between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// A stack pointer of it.
    pub(crate) stack: u64,
    /// Time of the return of the call before.
    pub(crate) since: u64,
}

/// Threads that are known to have several stacks.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    several: HashSet<(u32, u32)>,
}

impl Stacks {
    /// Returns whether `inner` is inside `outer`, both of process `pid`.
    pub(crate) fn is_inside(&self, pid: u32, inner: &Place, outer: &Place) -> bool {
        if !inner.during(outer) {
            return false;
        }
        match (inner.stack, outer.stack) {
            (Stack::Goroutine(one), Stack::Goroutine(other)) => {
                one == other && (inner.start, inner.end) != (outer.start, outer.end)
            }
            (Stack::Pointer(deep), Stack::Pointer(high)) => {
                let same = inner.tid == outer.tid;
                let deepest = match same && !self.several.contains(&(pid, outer.tid)) {
                    true => DEEPEST,
                    false => DEEPEST_OF_COROUTINES,
                };
                // A function that ends in a jump to another has its stack pointer.
                let apart = deep < high || (inner.start, inner.end) != (outer.start, outer.end);
                deep <= high && apart && high - deep <= deepest
            }
            _ => false,
        }
    }

    /// Looks whether two calls of process `pid` are on two stacks of one thread.
    pub(crate) fn compare(&mut self, pid: u32, one: &Place, other: &Place) {
        let pointers = matches!((one.stack, other.stack), (Stack::Pointer(_), Stack::Pointer(_)));
        if pointers && one.tid == other.tid && one.crosses(other) {
            if self.several.len() >= MOST_THREADS {
                self.several.clear();
            }
            self.several.insert((pid, one.tid));
        }
    }

    /// Forgets a process.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.several.retain(|(of, _)| *of != pid);
    }
}

/// Something that waits for the call around it.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    /// Stack and time.
    pub(crate) place: Place,
    /// Kind of the child.
    pub(crate) what: ChildKind,
}

/// Kind of a [`Child`].
#[derive(Clone, Debug)]
pub(crate) enum ChildKind {
    /// A call of a function.
    Call(InnerCall),
    /// Bytes that were read or written.
    Bytes(Bytes),
}

/// A call of a function inside another call.
#[derive(Clone, Debug)]
pub(crate) struct InnerCall {
    /// The function.
    pub(crate) function: Arc<Function>,
    /// The size of what it returned.
    pub(crate) size: Option<u64>,
    /// CPU time of the innermost call inside it that does the same: its own if there is none.
    pub(crate) innermost: u64,
}

impl Child {
    /// Notes a call that is inside this one.
    pub(crate) fn contain(&mut self, inner: &Self) {
        if let (ChildKind::Call(outer), ChildKind::Call(inner)) = (&mut self.what, &inner.what)
            && outer.function.role == inner.function.role
        {
            outer.innermost = outer.innermost.min(inner.innermost);
        }
    }

    /// Bytes that the child is, if it is no call.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match &self.what {
            ChildKind::Call(_) => None,
            ChildKind::Bytes(bytes) => Some(bytes),
        }
    }

    fn weight(&self) -> usize {
        self.bytes().map_or(0, |bytes| bytes.bytes.len())
    }
}

/// Inner calls and bytes that are kept until their outer calls return.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    /// Waiting children by process, in the order of arrival.
    waiting: HashMap<u32, Waiting>,
    stacks: Stacks,
    swept: u64,
    lost: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    children: VecDeque<Child>,
    bytes: usize,
}

impl Nesting {
    /// Keeps something that process `pid` did until the call around it arrives.
    pub(crate) fn add(&mut self, pid: u32, child: Child) {
        self.sweep(child.place.end);
        if !self.waiting.contains_key(&pid) && self.waiting.len() >= MOST_PROCESSES {
            self.lost += 1;
            return;
        }
        let waiting = self.waiting.entry(pid).or_default();
        for earlier in waiting.children.iter().rev().take(64) {
            self.stacks.compare(pid, &earlier.place, &child.place);
        }
        waiting.bytes += child.weight();
        waiting.children.push_back(child);
        while waiting.children.len() > MOST || waiting.bytes > MOST_BYTES {
            let first = waiting.children.pop_front();
            waiting.bytes -= first.map_or(0, |first| first.weight());
            self.lost += 1;
        }
    }

    /// Takes out what is inside a call that has just arrived, in the order of arrival; or what its job
    /// has done. `job` is what is known of the job from earlier calls on the connection.
    pub(crate) fn take_inside(&mut self, pid: u32, outer: &Place, job: Option<Job>) -> Vec<Child> {
        self.sweep(outer.end);
        let Some(waiting) = self.waiting.get_mut(&pid) else {
            return Vec::new();
        };
        for child in waiting.children.iter().rev().take(64) {
            self.stacks.compare(pid, &child.place, outer);
        }
        // Children that ended before are skipped: there may be many.
        let since = job.map_or(outer.start, |job| job.since.min(outer.start));
        let before = |child: &Child| child.place.end.saturating_add(SKEW) < since;
        let first = waiting.children.iter().rposition(before);
        let recent = waiting.children.split_off(first.map_or(0, |last| last + 1));
        let stacks = &self.stacks;
        let (mut inside, mut rest): (Vec<_>, Vec<_>) = recent
            .into_iter()
            .partition(|child| stacks.is_inside(pid, &child.place, outer));
        if inside.is_empty() {
            let is_done_in_job = |child: &Child| child.place.is_in_job(outer, job);
            (inside, rest) = rest.into_iter().partition(is_done_in_job);
        }
        waiting.children.extend(rest);
        waiting.bytes -= inside.iter().map(Child::weight).sum::<usize>();
        inside
    }

    /// The socket of the last bytes that a thread read or wrote outside of all calls before this one, if
    /// that was a moment ago. A program that moves the bytes of its connections by itself does so right before
    /// it calls the library.
    pub(crate) fn socket_before(&self, pid: u32, call: &Place) -> Option<u32> {
        let children = self.waiting.get(&pid)?.children.iter().rev();
        let mut before = children.filter(|child| child.place.tid == call.tid && child.place.end <= call.start);
        let (end, bytes) = before.find_map(|child| Some((child.place.end, child.bytes()?)))?;
        let recent = end.saturating_add(MOMENT) >= call.start;
        (recent && matches!(call.stack, Stack::Pointer(_))).then_some(bytes.descriptor)
    }

    /// Takes out the bytes that a thread read from a socket or wrote to it, outside of all calls, before a
    /// call.
    pub(crate) fn take_of_socket(&mut self, pid: u32, call: &Place, socket: u32) -> Vec<Child> {
        let Some(waiting) = self.waiting.get_mut(&pid) else {
            return Vec::new();
        };
        let (taken, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut waiting.children)
            .into_iter()
            .partition(|child| is_of_socket(child, call, socket));
        waiting.children = rest.into();
        waiting.bytes -= taken.iter().map(Child::weight).sum::<usize>();
        taken
    }

    /// Takes the bytes of a socket from the last ones on that `begin` a handshake. Without such bytes, all stay: they
    /// are of another connection.
    pub(crate) fn take_handshake_of_socket(
        &mut self,
        pid: u32,
        call: &Place,
        socket: u32,
        begin: impl Fn(&Bytes) -> bool,
    ) -> Option<Vec<Child>> {
        let begins = |child: &Child| is_of_socket(child, call, socket) && child.bytes().is_some_and(&begin);
        if !self.waiting.get(&pid)?.children.iter().any(begins) {
            return None;
        }
        let mut taken = self.take_of_socket(pid, call, socket);
        // The descriptor may have been that of another connection before.
        let first = taken.iter().rposition(begins)?;
        Some(taken.split_off(first))
    }

    /// Threads that have several stacks.
    pub(crate) fn stacks(&mut self) -> &mut Stacks {
        &mut self.stacks
    }

    /// Forgets a process that has ended.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.waiting.remove(&pid);
        self.stacks.forget(pid);
    }

    /// Number of children that were dropped because too many were kept. Those that were kept for ten seconds are not
    /// counted: most of them are outside of all handshakes.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Drops what has waited for too long, once a second.
    fn sweep(&mut self, now: u64) {
        if now < self.swept.saturating_add(1_000_000_000) {
            return;
        }
        self.swept = now;
        let oldest = now.saturating_sub(LONGEST);
        self.waiting.retain(|_, waiting| {
            waiting.children.retain(|child| child.place.end >= oldest);
            waiting.bytes = waiting.children.iter().map(Child::weight).sum();
            !waiting.children.is_empty()
        });
    }
}

/// Returns whether the thread of a call read this from a socket or wrote it there before the call.
fn is_of_socket(child: &Child, call: &Place, socket: u32) -> bool {
    let before = child.place.tid == call.tid && child.place.end <= call.start;
    before && child.bytes().is_some_and(|bytes| bytes.descriptor == socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::Role;
    use crate::specimens::function;

    fn place(tid: u32, sp: u64, start: u64, end: u64) -> Place {
        let stack = Stack::Pointer(sp);
        Place { tid, stack, start, end }
    }

    fn child(place: Place) -> Child {
        let what = ChildKind::Call(InnerCall {
            function: function("SSL_sign", Role::Sign),
            size: None,
            innermost: 0,
        });
        Child { place, what }
    }

    /// HAProxy with `ssl-mode-async`: a signature lasts over several calls of the program. nginx with
    /// Widelane: it goes on between them.
    #[test]
    fn what_a_job_does_belongs_to_the_calls_on_its_connection() {
        let mut nesting = Nesting::default();
        let (first, second) = (place(1, 0x7f_0000, 100, 200), place(1, 0x7f_0000, 300, 400));
        let derived = child(place(1, 0x1_0000, 110, 150));
        let signed = child(place(1, 0x1_0100, 160, 350));
        let between = child(place(1, 0x1_0100, 220, 260));
        let of_another = child(place(1, 0x9_0000, 220, 260));
        nesting.add(7, derived);
        let took = |nesting: &mut Nesting, outer: &Place, job| nesting.take_inside(7, outer, job).len();
        assert_eq!(
            took(&mut nesting, &place(2, 0x7f_0000, 100, 200), None),
            0,
            "another thread"
        );
        assert_eq!(took(&mut nesting, &first, None), 1);
        nesting.add(7, signed);
        assert_eq!(took(&mut nesting, &second, None), 1);
        nesting.add(7, between.clone());
        nesting.add(7, of_another);
        assert_eq!(took(&mut nesting, &second, None), 0, "outside of it");
        let job = |since| Some(Job { stack: 0x1_0000, since });
        assert_eq!(took(&mut nesting, &second, job(270)), 0, "before the call before");
        assert_eq!(nesting.take_inside(7, &second, job(200)).len(), 1);
        // A call with something on its own stack is no call of a job.
        nesting.add(7, child(place(1, 0x7e_ff00, 310, 320)));
        nesting.add(7, between);
        assert_eq!(took(&mut nesting, &second, job(200)), 1);
    }

    /// Node.js and Python's asyncio read and write by themselves.
    #[test]
    fn bytes_outside_of_calls_belong_to_a_socket() {
        let mut nesting = Nesting::default();
        let of = |socket: u32, tid: u32, at: u64| {
            let mut bytes = crate::specimens::bytes(crate::event::Direction::Read, &[22], 0x7f_0000, at);
            (bytes.descriptor, bytes.tid) = (socket, tid);
            Child {
                place: Place::of_bytes(&bytes),
                what: ChildKind::Bytes(bytes),
            }
        };
        for (socket, tid, at) in [(5, 7, 100), (6, 7, 200), (5, 8, 250), (5, 7, 500)] {
            nesting.add(7, of(socket, tid, at));
        }
        let call = place(7, 0x7f_0000, 300, 400);
        assert_eq!(nesting.socket_before(7, &call), Some(6));
        assert_eq!(nesting.socket_before(7, &place(7, 0x7f_0000, 50, 60)), None);
        let late = place(7, 0x7f_0000, MOMENT + 501, MOMENT + 502);
        assert_eq!(nesting.socket_before(7, &late), None, "too long ago");
        let mut goroutine = call;
        goroutine.stack = Stack::Goroutine(1);
        assert_eq!(nesting.socket_before(7, &goroutine), None, "Go reads inside");
        assert_eq!(
            nesting.take_of_socket(7, &call, 5).len(),
            1,
            "the others are not its own"
        );
        assert_eq!(nesting.take_of_socket(7, &call, 5).len(), 0, "it is taken");
        assert_eq!(nesting.take_of_socket(7, &call, 6).len(), 1);
        assert_eq!(nesting.socket_before(7, &call), None);
    }

    #[test]
    fn inner_calls_are_deeper_and_within_the_time() {
        let stacks = Stacks::default();
        let outer = place(1, 0x10_0000, 100, 200);
        let inside = |inner| stacks.is_inside(7, &inner, &outer);
        assert!(inside(place(1, 0xf_ff00, 100, 200)));
        assert!(!inside(place(1, 0x10_0000, 100, 200)), "the same call");
        assert!(inside(place(1, 0x10_0000, 120, 200)), "by a jump at its end");
        assert!(!inside(place(1, 0x10_0100, 120, 130)), "above");
        assert!(!inside(place(1, 0xf_ff00, 99, 130)), "before");
        assert!(!inside(place(1, 0xf_ff00, 120, 201)), "after");
        assert!(!inside(place(1, 0x8_0000, 120, 130)), "another stack");
        assert!(!inside(place(2, 0xe_0000, 120, 130)), "another thread");
        assert!(inside(place(2, 0xf_f000, 120, 130)), "moved with its coroutine");
        let mut goroutine = place(1, 0, 120, 130);
        goroutine.stack = Stack::Goroutine(5);
        assert!(!inside(goroutine));
        let all = Place {
            start: 0,
            end: 300,
            ..goroutine
        };
        assert!(stacks.is_inside(7, &goroutine, &all));
    }

    #[test]
    fn a_thread_whose_calls_cross_has_several_stacks() {
        let mut stacks = Stacks::default();
        let (one, other) = (place(1, 0x10_0000, 0, 100), place(1, 0xf_0000, 50, 150));
        let inner = place(1, 0xf_0000, 20, 30);
        assert!(stacks.is_inside(7, &inner, &one));
        stacks.compare(7, &one, &other);
        assert!(!stacks.is_inside(7, &inner, &one), "more than 32 KiB away");
        assert!(stacks.is_inside(8, &inner, &one), "of another process");
        stacks.forget(7);
        assert!(stacks.is_inside(7, &inner, &one));
    }

    #[test]
    fn what_waits_is_bounded_in_number_bytes_and_time() {
        let mut nesting = Nesting::default();
        for number in 0..MOST as u64 + 10 {
            nesting.add(7, child(place(1, 0xf_0000, number, number)));
        }
        assert_eq!(nesting.lost(), 10);
        let all = place(1, 0xf_1000, 0, 100_000);
        assert_eq!(nesting.take_inside(7, &all, None).len(), MOST);
        // Children outside of the call stay, before and after.
        let at = |ms: u64| place(1, 0xf_0000, ms * 1_000_000, ms * 1_000_000);
        for ms in [1, 40, 50, 60] {
            nesting.add(7, child(at(ms)));
        }
        let some = place(1, 0xf_1000, 45_000_000, 55_000_000);
        assert_eq!(nesting.take_inside(7, &some, None).len(), 1);
        let rest = place(1, 0xf_1000, 0, 60_000_000);
        assert_eq!(nesting.take_inside(7, &rest, None).len(), 3);
        nesting.add(7, child(place(1, 0xf_0000, 5, 5)));
        nesting.add(8, child(place(1, 0xf_0000, LONGEST + 10, LONGEST + 10)));
        let longer = place(1, 0xf_1000, 0, LONGEST + 11);
        assert!(nesting.take_inside(7, &longer, None).is_empty());
        assert_eq!(nesting.lost(), 10);
    }
}
