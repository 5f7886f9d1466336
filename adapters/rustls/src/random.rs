//! Random bytes for what handshakes show: randoms of hellos, session ids, nonces and ages of
//! tickets.
//!
//! AWS-LC mixes fresh entropy of the CPU into every request for random bytes. That takes a third of
//! a microsecond, however few bytes are asked for, and rustls asks five times a handshake. So a
//! thread takes some hundred bytes at once and hands them out, as arc4random(3) of the BSDs does:
//! each byte once, wiped as it goes, none in a process that was forked since.
//!
//! Secrets do not come from here. Keys, masks and the nonces of signatures are AWS-LC's own bytes,
//! one request each or one a pass.

use std::cell::RefCell;

use rustls::crypto::{GetRandomFailed, SecureRandom};
use zeroize::{Zeroize, Zeroizing};

/// AWS-LC's generator, asked for many bytes at once.
#[derive(Debug)]
pub(crate) struct Stocked(pub(crate) &'static dyn SecureRandom);

impl SecureRandom for Stocked {
    fn fill(&self, out: &mut [u8]) -> Result<(), GetRandomFailed> {
        let process = std::process::id();
        let fresh = |out: &mut [u8]| self.0.fill(out);
        match STOCK.try_with(|stock| stock.borrow_mut().take(&mut *out, process, fresh)) {
            Ok(taken) => taken,
            // The thread is ending, and its stock is gone already.
            Err(_) => fresh(out),
        }
    }
}

thread_local! {
    static STOCK: RefCell<Stock> = RefCell::new(Stock::new());
}

/// Random bytes that nobody has seen, and the process that they were made for.
struct Stock {
    bytes: Zeroizing<[u8; STOCK_BYTES]>,
    left: usize,
    process: u32,
}

impl Stock {
    fn new() -> Self {
        Self {
            bytes: Zeroizing::new([0; STOCK_BYTES]),
            left: 0,
            process: 0,
        }
    }

    /// Fills `out`, from `fresh` if it is long, and else from the stock, which is made anew by
    /// `fresh` when too little is left or when this is another process.
    fn take(
        &mut self,
        out: &mut [u8],
        process: u32,
        fresh: impl Fn(&mut [u8]) -> Result<(), GetRandomFailed>,
    ) -> Result<(), GetRandomFailed> {
        if out.len() > LONG {
            return fresh(out);
        }
        if self.process != process || self.left < out.len() {
            // Nothing is handed out of a stock that was filled in part.
            self.left = 0;
            fresh(&mut *self.bytes)?;
            (self.left, self.process) = (STOCK_BYTES, process);
        }
        self.left -= out.len();
        let taken = &mut self.bytes[self.left..][..out.len()];
        out.copy_from_slice(taken);
        taken.zeroize();
        Ok(())
    }
}

const STOCK_BYTES: usize = 512;

/// More than this is not worth a stock.
const LONG: usize = 64;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

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
            stock.take(&mut out, 1, counting(&requests)).unwrap();
            assert_eq!(out, [1; 32]);
            assert_eq!(stock.left, STOCK_BYTES - 32 * taken);
            assert!(stock.bytes[stock.left..].iter().all(|&byte| byte == 0));
            assert!(stock.bytes[..stock.left].iter().all(|&byte| byte == 1));
        }
        let mut out = [0; 4];
        stock.take(&mut out, 1, counting(&requests)).unwrap();
        assert_eq!(out, [2; 4], "an empty stock is made anew");
    }

    #[test]
    fn a_forked_process_does_not_go_on_with_its_parents_bytes() {
        let requests = Cell::new(0);
        let mut stock = Stock::new();
        let mut out = [0; 4];
        for (process, made) in [(1, 1), (1, 1), (2, 2), (2, 2), (1, 3)] {
            stock.take(&mut out, process, counting(&requests)).unwrap();
            assert_eq!(out, [made; 4]);
        }
    }

    #[test]
    fn long_requests_and_those_that_are_nothing_leave_the_stock_alone() {
        let requests = Cell::new(0);
        let mut stock = Stock::new();
        let mut out = [0; LONG + 1];
        stock.take(&mut out, 1, counting(&requests)).unwrap();
        assert_eq!((out[LONG], stock.left), (1, 0));
        stock
            .take(&mut out[..LONG], 1, counting(&requests))
            .unwrap();
        let left = stock.left;
        stock.take(&mut [], 1, counting(&requests)).unwrap();
        assert_eq!((requests.get(), stock.left), (2, left));
    }

    #[test]
    fn a_failure_is_passed_on_and_leaves_nothing_to_hand_out() {
        let requests = Cell::new(0);
        let mut stock = Stock::new();
        stock.take(&mut [0; 4], 1, counting(&requests)).unwrap();
        let mut out = [7; 4];
        let failed = stock.take(&mut out, 2, |_| Err(GetRandomFailed));
        assert!(failed.is_err());
        assert_eq!(out, [7; 4]);
        stock.take(&mut out, 1, counting(&requests)).unwrap();
        assert_eq!(out, [2; 4], "the first process's bytes are gone too");
    }

    #[test]
    fn randoms_differ() {
        let random = Stocked(rustls::crypto::aws_lc_rs::default_provider().secure_random);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            let mut bytes = [0; 32];
            random.fill(&mut bytes).unwrap();
            assert!(seen.insert(bytes));
        }
        let other = std::thread::spawn(move || {
            let mut bytes = [0; 32];
            random.fill(&mut bytes).unwrap();
            bytes
        });
        assert!(seen.insert(other.join().unwrap()));
    }
}
