//! A process that forks while its threads sign, as a small program in C.

#![forbid(unsafe_code)]

mod common;

use common::{Configuration, Scratch, With, has_lanes, succeeds};

/// The child has a copy of what a thread of the parent was changing, and no such thread.
#[test]
fn the_child_of_a_process_that_signs_signs() {
    let Some(scratch) = Scratch::system(Configuration::default()) else {
        return;
    };
    let Some(program) = scratch.build("forks") else {
        return;
    };
    if !has_lanes() {
        return println!("SKIP: OpenSSL's own signatures wait for a lock of the parent");
    }
    let make = "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem";
    scratch.succeeds(With::Widelane, make);
    succeeds(&mut scratch.command(With::Widelane, &program, "key.pem 50"));
}
