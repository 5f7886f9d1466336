//! Established connections: their calls go to the originals at once.
//!
//! An entry means that a call has found the handshake of the connection over, and no call of this library's under way
//! for it. [`remove`] comes before anything that could change that in a way that matters: before a call for the
//! connection returns that it wants to read. Otherwise an entry may be too old, because OpenSSL frees connections and
//! uses their addresses again without asking us: then OpenSSL does what could have been suspended.
//!
//! Each connection has one place, by its address, and keeps it until another one takes it.

use std::arch::asm;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use crate::originals::Ssl;

/// Returns whether nothing is to be done before and after a call for the connection: it is established, and no call is
/// under way for any other one in the process.
#[inline(always)]
pub(crate) fn is_alone(ssl: Ssl) -> bool {
    // SAFETY: the address of one of two variables that live as long as the process.
    is_in(unsafe { &*ALONE.load(Relaxed) }, ssl)
}

/// Returns whether a question about the connection's last call is the original's: no call of an established connection
/// returns by us that it wants to read, unless the program moves connections from thread to thread.
#[inline(always)]
pub(crate) fn is_unmoved(ssl: Ssl) -> bool {
    // SAFETY: as above.
    is_in(unsafe { &*UNMOVED.load(Relaxed) }, ssl)
}

/// Returns whether the connection is established, also while calls for others are under way.
pub(crate) fn has(ssl: Ssl) -> bool {
    is_in(&ALL, ssl)
}

pub(crate) fn insert(ssl: Ssl) {
    ALL[place(ssl)].store(ssl.addr(), Relaxed);
}

pub(crate) fn remove(ssl: Ssl) {
    if has(ssl) {
        ALL[place(ssl)].store(0, Relaxed);
    }
}

/// Chooses what [`is_alone`] and [`is_unmoved`] see: nothing while a call is under way, or once the program has moved
/// a connection.
pub(crate) fn show(calls: usize, moved: bool) {
    for (place, is_shown) in [(&ALONE, calls == 0 && !moved), (&UNMOVED, !moved)] {
        let shown = ptr::from_ref(if is_shown { &ALL } else { &NONE }).cast_mut();
        // A store would have other CPUs fetch it anew.
        if place.load(Relaxed) != shown {
            place.store(shown, Relaxed);
        }
    }
}

/// Addresses of connections; 0: a free place.
type Places = [AtomicUsize; 1 << BITS];

const BITS: u32 = 12;

/// Looks in assembly: an atomic load and a comparison would be two instructions, and most calls of a program are little
/// more than this look.
#[inline(always)]
fn is_in(places: &Places, ssl: Ssl) -> bool {
    // SAFETY: reads a word of the array: no place is outside.
    unsafe {
        asm!(
            "cmp qword ptr [{places} + 8 * {place}], {ssl}",
            "jne {}",
            label { return false },
            places = in(reg) places,
            place = in(reg) place(ssl),
            ssl = in(reg) ssl,
            options(readonly, nostack),
        );
    }
    true
}

/// Place of a connection: the upper bits of a product depend on all bits of the address' lower half (Fibonacci
/// hashing).
#[inline(always)]
fn place(ssl: Ssl) -> usize {
    ((ssl.addr() as u32).wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS)) as usize
}

static ALL: Places = [const { AtomicUsize::new(0) }; 1 << BITS];
/// Stays empty, so that one look tells both that a connection is established and that nothing else is under way.
static NONE: Places = [const { AtomicUsize::new(0) }; 1 << BITS];
static ALONE: AtomicPtr<Places> = AtomicPtr::new((&raw const ALL).cast_mut());
static UNMOVED: AtomicPtr<Places> = AtomicPtr::new((&raw const ALL).cast_mut());

#[cfg(test)]
mod tests {
    use super::*;

    fn ssl(address: usize) -> Ssl {
        ptr::without_provenance_mut(address)
    }

    #[test]
    fn a_connection_keeps_its_place_until_another_one_takes_it() {
        let one = ssl(0x7f00_1234_5670);
        let of_its_place = |address: &usize| place(ssl(*address)) == place(one);
        let other = ssl((one.addr() + 16..)
            .step_by(16)
            .find(of_its_place)
            .expect("places are few"));
        insert(one);
        assert!(has(one) && !has(other) && !is_in(&NONE, one));
        remove(other);
        assert!(has(one), "the place was not the other's");
        insert(other);
        assert!(has(other) && !has(one));
        remove(other);
        assert!(!has(other));
    }

    #[test]
    fn connections_at_neighbouring_addresses_have_places_of_their_own() {
        for distance in [16, 0x1b10, 0x4000, 1 << 21] {
            let places = (0..64).map(|i| place(ssl(0x5555_5550_0000 + i * distance)));
            let different = std::collections::HashSet::<_>::from_iter(places).len();
            assert!(different > 48, "{different} places at a distance of {distance}");
        }
    }
}
