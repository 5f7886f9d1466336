//! Established clients of one server, which send requests by the clock, or each as soon as it is answered.

use crate::relay::traffic::{Client, Session};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Established clients.
pub(crate) struct Crowd {
    epoll: OwnedFd,
    sessions: Vec<Session>,
    /// Clients without a request under way.
    idle: VecDeque<usize>,
    /// The request of each client, with the time at which it was due.
    asked: Vec<(Instant, &'static Request)>,
    requests: &'static [Request],
}

/// Text of a request, and of its answer.
pub(crate) struct Request {
    pub(crate) asks: &'static [u8],
    pub(crate) hears: &'static [u8],
}

impl Crowd {
    /// Connects `clients`, each of which says `first` and then gets an answer to the first of `requests`.
    pub(crate) fn new(
        client: &Client<'_>,
        clients: usize,
        first: &[u8],
        requests: &'static [Request],
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut sessions = Vec::with_capacity(clients);
        for index in 0..clients {
            let mut session = client.connect()?;
            session.send(first)?;
            session.send(requests[0].asks)?;
            session.receive(requests[0].hears.len() as u64)?;
            let data = EventData::new_u64(index as u64);
            epoll::add(&epoll, &session.socket, data, EventFlags::IN)?;
            sessions.push(session);
        }
        Ok(Self {
            epoll,
            sessions,
            idle: (0..clients).collect(),
            asked: vec![(Instant::now(), &requests[0]); clients],
            requests,
        })
    }

    /// Sends the requests in turn for a `duration`, waits until all are answered, and gives the latencies of the first
    /// one in nanoseconds. `rate` requests are due a second, and wait for a client that has none under way; without a
    /// rate, one is due whenever a client has none.
    pub(crate) fn run(&mut self, client: &Client<'_>, rate: Option<f64>, duration: Duration) -> io::Result<Vec<u32>> {
        let start = Instant::now();
        let end = start + duration;
        let mut latencies = Vec::new();
        let mut events: Vec<Event> = Vec::with_capacity(self.sessions.len());
        let mut sent = 0usize;
        loop {
            client.go_on()?;
            let now = Instant::now();
            if now > end + PATIENCE {
                return Err(io::Error::new(ErrorKind::TimedOut, "requests are not answered"));
            }
            let next = loop {
                let due = match rate {
                    Some(rate) => start + Duration::from_secs_f64(sent as f64 / rate),
                    None => Instant::now(),
                };
                if due >= end || rate.is_some() && due > now {
                    break due;
                }
                let Some(index) = self.idle.pop_front() else {
                    break now + LOOK_EVERY;
                };
                self.asked[index] = (due, &self.requests[sent % self.requests.len()]);
                self.sessions[index].send(self.asked[index].1.asks)?;
                sent += 1;
            };
            if now >= end && next >= end && self.idle.len() == self.sessions.len() {
                return Ok(latencies);
            }
            let wait = next.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
            let mut wait = Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(wait.subsec_nanos()),
            };
            if rate.is_some() {
                // epoll waits for whole milliseconds.
                poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&wait))?;
                wait = Timespec::default();
            }
            let space = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&self.epoll, space, Some(&wait))?;
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                let (due, request) = self.asked[index];
                let expected = request.hears.len() as u64;
                if self.sessions[index].receive(expected)?.0 != expected {
                    return Err(io::Error::other("an answer is not the one that was expected"));
                }
                self.idle.push_back(index);
                if std::ptr::eq(request, &self.requests[0]) {
                    let latency = due.elapsed().as_nanos();
                    latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
                }
            }
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest time for the answers to requests after the last was due.
const PATIENCE: Duration = Duration::from_secs(10);
