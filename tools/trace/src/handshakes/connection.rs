//! One connection: the calls on its object.

use std::cmp::Reverse;

use super::{Ending, Handshake, Operations};
use crate::clock::Clock;
use crate::event::{Bytes, Call, Direction, Stack};
use crate::functions::Side;
use crate::names::operation;
use crate::nesting::{Child, ChildKind, DEEPEST_OF_COROUTINES, InnerCall, Job, Nesting, Place, Stacks};
use crate::outcome::{Meaning, meaning};
use crate::text::thread_name;
use crate::tls::{Alert, CLIENT_HELLO, Facts, Flights, HANDSHAKE, HEADER, names};

/// A call without bytes and functions that is shorter, in nanoseconds, cannot have been a handshake:
/// the connection was there before the trace began, and the program asks once more.
const TOO_SHORT: u64 = 10_000;
/// Most functions with different names or sizes that are counted apart in a handshake.
const MOST_FUNCTIONS: usize = 64;

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// The last call, as long as something may tell more about it.
    held: Option<OpenCall>,
    /// A stack pointer of the job that does the handshake, if one does.
    job: Option<u64>,
    socket: Socket,
    state: State,
}

/// Descriptor through which the bytes of a connection go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Socket {
    /// No call has shown it.
    #[default]
    Unknown,
    /// The library reads and writes.
    Inside,
    /// The program does, beside its calls: the descriptor.
    Beside(u32),
}

#[derive(Debug, Default)]
enum State {
    /// No call is complete.
    #[default]
    New,
    UnderWay(Box<Progress>),
    /// Further calls do nothing.
    Ended,
}

/// A call that goes on with a handshake.
#[derive(Debug)]
pub(super) struct OpenCall {
    meaning: Meaning,
    call: Call,
    place: Place,
    children: Vec<Child>,
    /// Bytes that the program moved by itself before the call.
    beside: Vec<Child>,
}

/// Calls of one function with the same size.
#[derive(Debug)]
struct Row {
    /// The first of them, with the sum of the times of the innermost.
    call: InnerCall,
    count: u64,
    ns: u64,
}

/// A handshake under way.
#[derive(Debug)]
struct Progress {
    first: Call,
    /// Thread of the last call.
    tid: u32,
    comm: [u8; 16],
    end: u64,
    calls: u64,
    again: u64,
    /// Sums over the calls.
    wall: u64,
    cpu: Option<u64>,
    side: Option<Side>,
    flights: Flights,
    bytes: bool,
    functions: Vec<Row>,
    /// Descriptor of the first records.
    socket: Option<u32>,
    /// Descriptor that was read to its end: the connection, or a file, as of certificates.
    ended: Option<u32>,
}

impl OpenCall {
    pub(super) fn new(call: &Call, place: Place, children: Vec<Child>, beside: Vec<Child>) -> Self {
        let meaning = meaning(call);
        let mut call = call.clone();
        call.data = Vec::new();
        Self {
            meaning,
            call,
            place,
            children,
            beside,
        }
    }

    /// Returns whether the call ends the handshake by itself.
    pub(super) fn is_last(&self) -> bool {
        !matches!(self.meaning, Meaning::Again | Meaning::Unexplained)
    }

    /// A stack pointer of the job that it went on with.
    fn job(&self) -> Option<u64> {
        let (Stack::Pointer(inner), Stack::Pointer(own)) = (self.children.last()?.place.stack, self.place.stack) else {
            return None;
        };
        (inner.abs_diff(own) > DEEPEST_OF_COROUTINES).then_some(inner)
    }

    /// Facts that the call's own bytes show.
    fn facts(&self) -> Facts {
        let mut flights = Flights::default();
        let children = self.beside.iter().chain(&self.children);
        children.filter_map(Child::bytes).for_each(|bytes| flights.take(bytes));
        flights.facts().clone()
    }
}

impl Connection {
    pub(super) fn held_place(&self) -> Option<Place> {
        self.held.as_ref().map(|held| held.place)
    }

    /// The job that does the handshake, as far as earlier calls tell.
    pub(super) fn job(&self) -> Option<Job> {
        let since = match (&self.held, &self.state) {
            (Some(held), _) => held.place.end,
            (None, State::UnderWay(progress)) => progress.end,
            (None, State::New | State::Ended) => return None,
        };
        self.job.map(|stack| Job { stack, since })
    }

    /// Bytes that the program has read and written by itself for this connection before a call. Some programs move all
    /// bytes (a memory BIO): Node.js and Python's asyncio, for example.
    pub(super) fn beside(&mut self, nesting: &mut Nesting, pid: u32, call: &Place, inside: &[Child]) -> Vec<Child> {
        // A program that moves the bytes may do so in functions that the library calls, too: Node.js, when
        // the handshake is done. Bytes of another descriptor show that the library does it.
        let mut moved = inside.iter().filter_map(Child::bytes);
        if moved.any(|bytes| self.socket != Socket::Beside(bytes.descriptor)) {
            self.socket = Socket::Inside;
        }
        match self.socket {
            Socket::Inside => Vec::new(),
            Socket::Beside(socket) => nesting.take_of_socket(pid, call, socket),
            Socket::Unknown => {
                // asyncio calls a server's handshake before it has read anything. Then the last bytes are of
                // another connection.
                let socket = nesting.socket_before(pid, call);
                let taken = socket.and_then(|socket| {
                    let taken = nesting.take_handshake_of_socket(pid, call, socket, is_client_hello)?;
                    self.socket = Socket::Beside(socket);
                    Some(taken)
                });
                taken.unwrap_or_default()
            }
        }
    }

    /// Time of the return of a call that ends the handshake and is held.
    pub(super) fn held_until(&self) -> Option<u64> {
        let held = self.held.as_ref()?;
        held.is_last().then_some(held.place.end)
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.held.is_some() || matches!(self.state, State::UnderWay(_))
    }

    /// Holds a call. One that is held already is inside it.
    pub(super) fn hold(&mut self, mut call: OpenCall, stacks: &Stacks, clock: Clock) -> Option<Handshake> {
        if let Some(inner) = self.held.take() {
            call.children.extend(inner.children);
            call.beside.splice(0..0, inner.beside);
        }
        self.job = call.job().or(self.job);
        let pid = call.call.pid;
        let key = |child: &Child| (child.place.start, Reverse(child.place.stack));
        call.children.sort_by_key(key);
        call.children = outermost(call.children, pid, stacks);

        let mut ended = None;
        match &mut self.state {
            State::New => {}
            // The address belongs to another connection now if a Hello goes through it.
            State::Ended => {
                let facts = call.facts();
                if !facts.client_hello && !facts.server_hello {
                    return None;
                }
                self.state = State::New;
            }
            State::UnderWay(progress) => {
                let answered = progress.flights.facts().server_hello;
                if answered && call.facts().client_hello {
                    ended = Some(progress.handshake(Ending::Closed, clock));
                    self.state = State::New;
                }
            }
        }
        self.held = Some(call);
        ended
    }

    /// Applies the result of `SSL_get_error` to the call that is held.
    pub(super) fn explain(&mut self, meaning: Meaning, clock: Clock) -> Option<Handshake> {
        let held = self.held.as_ref()?;
        match held.meaning {
            Meaning::Unexplained => self.apply(Some(meaning), clock),
            _ => None,
        }
    }

    /// Ends the wait for what tells about the call that is held; a call that nothing has explained means `otherwise`.
    pub(super) fn apply(&mut self, otherwise: Option<Meaning>, clock: Clock) -> Option<Handshake> {
        let held = self.held.take()?;
        let mut meaning = held.meaning;
        if meaning == Meaning::Unexplained {
            meaning = otherwise.unwrap_or(Meaning::Closed);
        }
        let mut progress = match std::mem::take(&mut self.state) {
            State::UnderWay(progress) => progress,
            State::New | State::Ended => Box::new(Progress::new(&held.call)),
        };
        progress.add(held, meaning);
        let ending = match meaning {
            Meaning::Again => {
                self.state = State::UnderWay(progress);
                return None;
            }
            Meaning::Ok => Ending::Ok,
            Meaning::Closed | Meaning::Unexplained => progress.closed(),
            Meaning::Failed => progress.failed(),
        };
        self.state = State::Ended;
        let nothing = ending == Ending::Ok && progress.is_nothing();
        (!nothing).then(|| progress.handshake(ending, clock))
    }

    /// Ends the handshake, because the object was freed or the process has ended.
    pub(super) fn close(mut self, clock: Clock) -> Option<Handshake> {
        if let Some(ended) = self.apply(Some(Meaning::Closed), clock) {
            return Some(ended);
        }
        match self.state {
            State::UnderWay(mut progress) => {
                let ending = progress.closed();
                Some(progress.handshake(ending, clock))
            }
            State::New | State::Ended => None,
        }
    }
}

/// Returns whether bytes begin with a ClientHello, in a record of its own or cut off from its header.
fn is_client_hello(bytes: &Bytes) -> bool {
    bytes.bytes.first() == Some(&HANDSHAKE) && bytes.bytes.get(HEADER) == Some(&CLIENT_HELLO)
}

/// Leaves out functions that are called by other functions. All bytes stay.
fn outermost(children: Vec<Child>, pid: u32, stacks: &Stacks) -> Vec<Child> {
    let mut kept: Vec<Child> = Vec::new();
    // Calls that may be around the next, and where they are kept: they come first in the order of their
    // entries.
    let mut around: Vec<(Place, usize)> = Vec::new();
    for child in children {
        let place = child.place;
        if child.bytes().is_none() {
            around.retain(|(outer, _)| outer.end >= place.start);
            let is_around = |(outer, _): &&(Place, usize)| stacks.is_inside(pid, &place, outer);
            if let Some((_, at)) = around.iter().find(is_around) {
                kept.get_mut(*at).into_iter().for_each(|outer| outer.contain(&child));
                continue;
            }
            around.push((place, kept.len()));
        }
        kept.push(child);
    }
    kept
}

impl Progress {
    fn new(first: &Call) -> Self {
        Self {
            first: first.clone(),
            tid: first.tid,
            comm: first.comm,
            end: first.start,
            calls: 0,
            again: 0,
            wall: 0,
            cpu: Some(0),
            side: None,
            flights: Flights::default(),
            bytes: false,
            functions: Vec::new(),
            socket: None,
            ended: None,
        }
    }

    fn add(&mut self, held: OpenCall, meaning: Meaning) {
        let OpenCall {
            call,
            place,
            children,
            beside,
            ..
        } = held;
        self.tid = call.tid;
        self.comm = call.comm;
        self.end = self.end.max(place.end);
        self.calls += 1;
        self.again += u64::from(meaning == Meaning::Again);
        self.wall = self.wall.saturating_add(call.wall);
        let cpu = self.cpu.zip(call.cpu);
        self.cpu = cpu.map(|(sum, cpu)| sum.saturating_add(cpu));
        self.side = call.function.side.or(self.side);
        for child in beside.into_iter().chain(children) {
            match child.what {
                ChildKind::Bytes(bytes) => {
                    self.bytes = true;
                    if bytes.length == 0 {
                        self.ended = Some(bytes.descriptor);
                    }
                    // OpenSSL answers with an alert to a peer that has gone away. That is no reason.
                    let too_late = self.ended == Some(bytes.descriptor);
                    if bytes.direction == Direction::Read || !too_late {
                        self.flights.take(&bytes);
                    }
                    if !too_late {
                        self.socket.get_or_insert(bytes.descriptor);
                    }
                }
                ChildKind::Call(call) => self.count(call, child.place.end.saturating_sub(child.place.start)),
            }
        }
    }

    fn count(&mut self, call: InnerCall, ns: u64) {
        let mut rows = self.functions.iter_mut();
        let same = |row: &&mut Row| row.call.function == call.function && row.call.size == call.size;
        if let Some(row) = rows.find(same) {
            row.count += 1;
            row.ns = row.ns.saturating_add(ns);
            row.call.innermost = row.call.innermost.saturating_add(call.innermost);
        } else if self.functions.len() < MOST_FUNCTIONS {
            self.functions.push(Row { call, count: 1, ns });
        }
    }

    /// Returns whether the peer has ended the connection.
    fn is_ended_by_peer(&self) -> bool {
        let is_socket = |ended| self.socket.is_none_or(|socket| socket == ended);
        self.ended.is_some_and(is_socket)
    }

    /// Returns whether there was no handshake at all.
    fn is_nothing(&self) -> bool {
        let silent = !self.bytes && self.functions.is_empty();
        silent && self.calls == 1 && self.wall < TOO_SHORT
    }

    /// Result of a handshake whose connection was closed.
    fn closed(&mut self) -> Ending {
        match self.flights.facts().alert {
            Some(alert) if alert.is_fatal() => Ending::Alert,
            _ => Ending::Closed,
        }
    }

    /// Result of a failed handshake. OpenSSL returns the same error for a connection that ends too early.
    fn failed(&mut self) -> Ending {
        match self.is_ended_by_peer() {
            true => self.closed(),
            false => Ending::Alert,
        }
    }

    fn handshake(&mut self, result: Ending, clock: Clock) -> Handshake {
        let facts = self.flights.facts().clone();
        let mut functions: Vec<Operations> = Vec::new();
        for Row { call, count, ns } in &self.functions {
            let (name, role) = (operation(&call.function, call.size, &facts), call.function.role);
            match functions
                .iter_mut()
                .find(|known| known.name == name && known.role == role)
            {
                Some(known) => {
                    known.count += count;
                    known.ns = known.ns.saturating_add(*ns);
                    known.innermost_ns = known.innermost_ns.saturating_add(call.innermost);
                }
                None => functions.push(Operations {
                    name,
                    role,
                    count: *count,
                    ns: *ns,
                    innermost_ns: call.innermost,
                }),
            }
        }
        let wall = self.end.saturating_sub(self.first.start);
        // A read that ended the handshake may also have read that the client says farewell.
        let of_handshake = |alert: &Alert| result != Ending::Ok || alert.plain.is_some();
        let alert = facts.alert.filter(of_handshake);
        let alert = alert.map(|alert| alert.name().unwrap_or_else(|| "encrypted".to_owned()));
        Handshake {
            time: self.first.start,
            time_s: clock.seconds(self.first.start),
            pid: self.first.pid,
            tid: self.tid,
            comm: thread_name(&self.comm),
            library: self.first.function.library.clone(),
            side: self.side.or(facts.side),
            version: facts.version.map(names::version),
            cipher: facts.cipher.map(names::cipher),
            group: facts.group.map(names::group),
            resumed: facts.resumed,
            server_name: facts.server_name,
            result,
            alert,
            calls: self.calls,
            again: self.again,
            wall,
            cpu: self.cpu,
            waiting: Some(wall.saturating_sub(self.wall)),
            functions,
        }
    }
}
