//! Connections that others may take the place of, on one worker: those that have cost nothing yet, since their
//! ClientHello is not whole, and those that have had their answer and linger.
//!
//! When all places are taken, one of them makes room: one that lingers before one that is silent, and the oldest of
//! its kind.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::front::admission::Admission;
use crate::front::site::Site;
use crate::observe::stats::Refusal;

/// The connections of one worker that can make room, in the order in which they do.
#[derive(Debug, Default)]
pub(crate) struct IdleQueue {
    next: Cell<u64>,
    waiting: RefCell<BTreeMap<(Kind, u64), Waiting>>,
}

/// The reason for which a connection can make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The connection has had its answer; what its client still sends is dropped.
    Lingering,
    /// The ClientHello of the connection is not whole.
    Silent,
}

#[derive(Debug)]
struct Waiting {
    admission: Admission,
    waker: Option<Waker>,
}

/// One of these connections. Its places are given back when it is dropped.
#[derive(Debug)]
pub(crate) struct PendingClient {
    list: Rc<IdleQueue>,
    place: (Kind, u64),
}

/// A connection's places were needed by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted;

impl IdleQueue {
    /// Adds a connection.
    pub(crate) fn enter(self: &Rc<Self>, kind: Kind, admission: Admission) -> PendingClient {
        let place = (kind, self.next.get());
        self.next.set(place.1 + 1);
        let waiting = Waiting { admission, waker: None };
        self.waiting.borrow_mut().insert(place, waiting);
        PendingClient {
            list: self.clone(),
            place,
        }
    }

    /// Ends a connection and gives back its places. `false`: there is none.
    pub(crate) fn evict(&self) -> bool {
        let first = self.waiting.borrow_mut().pop_first();
        let Some((_, Waiting { admission, waker })) = first else {
            return false;
        };
        drop(admission);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl PendingClient {
    /// Waits until `receive` is done with what the client sends.
    pub(crate) async fn until<T>(&self, mut receive: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Result<T, Evicted> {
        let received = poll_fn(|cx| match receive(cx) {
            Poll::Ready(received) => Poll::Ready(Ok(received)),
            Poll::Pending => self.poll_evicted(cx).map(|()| Err(Evicted)),
        });
        received.await
    }

    /// Counts the connection to its source, which was not known before.
    pub(crate) fn attribute(&self, site: &Site, source: IpAddr) -> Result<Result<(), Refusal>, Evicted> {
        let mut waiting = self.list.waiting.borrow_mut();
        let waiting = waiting.get_mut(&self.place).ok_or(Evicted)?;
        Ok(waiting.admission.attribute(site, source))
    }

    /// Ends the need to make room.
    pub(crate) fn leave(&self) -> Result<Admission, Evicted> {
        let waiting = self.list.waiting.borrow_mut().remove(&self.place);
        waiting.map(|waiting| waiting.admission).ok_or(Evicted)
    }

    fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.list.waiting.borrow_mut().get_mut(&self.place) {
            None => Poll::Ready(()),
            Some(waiting) => {
                match &mut waiting.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for PendingClient {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
