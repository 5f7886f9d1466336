//! Connections that have not said anything yet, on one worker.
//!
//! They hold places that others may need. The oldest of them makes room when all are taken.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::admission::Admission;

/// The silent connections of one worker, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Silent {
    next: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    admission: Admission,
    waker: Option<Waker>,
}

/// One silent connection. Its places are given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    list: Rc<Silent>,
    number: u64,
}

/// A silent connection's places were needed by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MadeRoom;

impl Silent {
    /// Adds a connection.
    pub(crate) fn enter(self: &Rc<Self>, admission: Admission) -> Guest {
        let number = self.next.get();
        self.next.set(number + 1);
        let waiting = Waiting {
            admission,
            waker: None,
        };
        self.waiting.borrow_mut().insert(number, waiting);
        Guest {
            list: self.clone(),
            number,
        }
    }

    /// Ends the oldest connection and gives back its places. `false`: there is none.
    pub(crate) fn make_room(&self) -> bool {
        let oldest = self.waiting.borrow_mut().pop_first();
        let Some((_, Waiting { admission, waker })) = oldest else {
            return false;
        };
        drop(admission);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl Guest {
    /// Waits for the client's first bytes, which `receive` takes in.
    pub(crate) async fn until<T>(
        self,
        mut receive: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<(Admission, T), MadeRoom> {
        let received = poll_fn(|cx| match receive(cx) {
            Poll::Ready(received) => Poll::Ready(Some(received)),
            Poll::Pending => self.poll_made_room(cx).map(|()| None),
        });
        let received = received.await;
        self.leave().zip(received).ok_or(MadeRoom)
    }

    fn poll_made_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.list.waiting.borrow_mut().get_mut(&self.number) {
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

    fn leave(&self) -> Option<Admission> {
        let waiting = self.list.waiting.borrow_mut().remove(&self.number);
        waiting.map(|waiting| waiting.admission)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
