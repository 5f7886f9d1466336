//! Random bytes that a handshake sends in the clear: randoms of hellos, session ids, and nonces and
//! ages of tickets.
//!
//! AWS-LC mixes fresh entropy of the CPU into every request for random bytes. That takes a third of
//! a microsecond, however few bytes are asked for, and rustls asks five times a handshake. So while
//! a [`Driver`](crate::Driver) runs a step of a handshake, its thread takes some hundred bytes at
//! once and hands them out, as arc4random(3) of the BSDs does: each byte once, wiped as it goes, and
//! none after a fork or, where the kernel tells, in a restored snapshot of a virtual machine (see
//! [`Generation`]).
//!
//! Outside of such a step every request goes to AWS-LC, so a program that takes keys from its
//! provider's `secure_random` gets bytes of its own. Keys, masks and the nonces of signatures never
//! come from here: they are AWS-LC's, one request each or one a pass.

use std::cell::RefCell;

use rustls::crypto::{GetRandomFailed, SecureRandom};
use zeroize::{Zeroize, Zeroizing};

use crate::generation::Generation;
use crate::suspend::Frame;

/// AWS-LC's generator, asked for many bytes at once during handshakes.
#[derive(Debug)]
pub(crate) struct Stocked {
    source: &'static dyn SecureRandom,
}

impl Stocked {
    /// A stock of bytes of `source`.
    pub(crate) fn new(source: &'static dyn SecureRandom) -> Self {
        // The process may still open devices now.
        Generation::now();
        Self { source }
    }
}

impl SecureRandom for Stocked {
    fn fill(&self, out: &mut [u8]) -> Result<(), GetRandomFailed> {
        let fresh = |out: &mut [u8]| self.source.fill(out);
        if !Frame::with_current(|frame| frame.is_some()) {
            return fresh(out);
        }
        let now = Generation::now();
        match STOCK.try_with(|stock| stock.borrow_mut().take(&mut *out, now, fresh)) {
            Ok(taken) => taken,
            // The thread is ending, and its stock is gone already.
            Err(_) => fresh(out),
        }
    }
}

thread_local! {
    static STOCK: RefCell<Stock> = RefCell::new(Stock::new());
}

/// Random bytes that have not been used, and the generation that they were made for.
struct Stock {
    bytes: Zeroizing<[u8; STOCK_BYTES]>,
    left: usize,
    made_for: Option<Generation>,
}

impl Stock {
    fn new() -> Self {
        Self {
            bytes: Zeroizing::new([0; STOCK_BYTES]),
            left: 0,
            made_for: None,
        }
    }

    /// Fills `out`, from `fresh` if it is long, and else from the stock, which `fresh` fills again
    /// when too little is left or the generation is another.
    fn take(
        &mut self,
        out: &mut [u8],
        now: Generation,
        fresh: impl Fn(&mut [u8]) -> Result<(), GetRandomFailed>,
    ) -> Result<(), GetRandomFailed> {
        if out.len() > LONG {
            return fresh(out);
        }
        if self.made_for != Some(now) || self.left < out.len() {
            // A stock that was filled in part hands out nothing.
            self.left = 0;
            fresh(&mut *self.bytes)?;
            (self.left, self.made_for) = (STOCK_BYTES, Some(now));
        }
        self.left -= out.len();
        let taken = &mut self.bytes[self.left..][..out.len()];
        out.copy_from_slice(taken);
        taken.zeroize();
        Ok(())
    }
}

const STOCK_BYTES: usize = 512;

/// Longer requests go to the source.
const LONG: usize = 64;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::suspend::tests::on_a_drivers_stack;

    const FIRST: Generation = Generation::numbered(1);
    const SECOND: Generation = Generation::numbered(2);

    /// Bytes that count how often they were asked for.
    fn counting(requests: &Cell<u8>) -> impl Fn(&mut [u8]) -> Result<(), GetRandomFailed> {
        |out| {
            requests.set(requests.get() + 1);
            out.fill(requests.get());
            Ok(())
        }
    }

    #[test]
    fn every_byte_is_handed_out_once_and_wiped() {
        let requests = Cell::new(0);
        let mut stock = Stock::new();
        for taken in 1..=STOCK_BYTES / 32 {
            let mut out = [0; 32];
            stock.take(&mut out, FIRST, counting(&requests)).unwrap();
            assert_eq!(out, [1; 32]);
            assert_eq!(stock.left, STOCK_BYTES - 32 * taken);
            assert!(stock.bytes[stock.left..].iter().all(|&byte| byte == 0));
            assert!(stock.bytes[..stock.left].iter().all(|&byte| byte == 1));
        }
        let mut out = [0; 4];
        stock.take(&mut out, FIRST, counting(&requests)).unwrap();
        assert_eq!(out, [2; 4], "an empty stock is made anew");
    }

    #[test]
    fn a_copy_of_the_process_makes_bytes_of_its_own() {
        let requests = Cell::new(0);
        let mut stock = Stock::new();
        let mut out = [0; 4];
        let turns = [(FIRST, 1), (FIRST, 1), (SECOND, 2), (SECOND, 2), (FIRST, 3)];
        for (generation, made) in turns {
            stock.take(&mut out, generation, counting(&requests)).unwrap();
            assert_eq!(out, [made; 4]);
        }
    }

    #[test]
    fn long_and_empty_requests_leave_the_stock_alone() {
        let requests = Cell::new(0);
        let mut stock = Stock::new();
        let mut out = [0; LONG + 1];
        stock.take(&mut out, FIRST, counting(&requests)).unwrap();
        assert_eq!((out[LONG], stock.left), (1, 0));
        stock.take(&mut out[..LONG], FIRST, counting(&requests)).unwrap();
        let left = stock.left;
        stock.take(&mut [], FIRST, counting(&requests)).unwrap();
        assert_eq!((requests.get(), stock.left), (2, left));
    }

    #[test]
    fn a_failure_is_passed_on_and_leaves_nothing_to_hand_out() {
        let requests = Cell::new(0);
        let mut stock = Stock::new();
        stock.take(&mut [0; 4], FIRST, counting(&requests)).unwrap();
        let mut out = [7; 4];
        let failed = stock.take(&mut out, SECOND, |_| Err(GetRandomFailed));
        assert!(failed.is_err());
        assert_eq!(out, [7; 4]);
        stock.take(&mut out, FIRST, counting(&requests)).unwrap();
        assert_eq!(out, [2; 4], "the first process's bytes are gone too");
    }

    /// A source that counts requests.
    #[derive(Debug, Default)]
    struct Counting(std::sync::atomic::AtomicU8);

    impl SecureRandom for Counting {
        fn fill(&self, out: &mut [u8]) -> Result<(), GetRandomFailed> {
            use std::sync::atomic::Ordering::Relaxed;
            out.fill(self.0.fetch_add(1, Relaxed) + 1);
            Ok(())
        }
    }

    #[test]
    fn requests_outside_of_a_handshake_step_go_to_the_source() {
        let random = Stocked::new(Box::leak(Box::<Counting>::default()));
        let mut out = [0; 32];
        for request in 1..=3 {
            random.fill(&mut out).unwrap();
            assert_eq!(out, [request; 32]);
        }
    }

    #[test]
    fn a_handshake_step_takes_from_the_stock() {
        let random = Stocked::new(Box::leak(Box::<Counting>::default()));
        let taken = on_a_drivers_stack(move || {
            [(); 3].map(|()| {
                let mut out = [0; 32];
                random.fill(&mut out).unwrap();
                out[0]
            })
        });
        assert_eq!(taken, [1; 3], "one request filled the stock");
    }
}
