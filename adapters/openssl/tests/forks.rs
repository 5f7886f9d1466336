//! A process that forks while its threads sign, as a small program in C.

#![forbid(unsafe_code)]

mod common;

use common::{Folder, has_lanes, has_openssl, succeeds};

/// The child has a copy of what a thread of the parent was changing, and no such thread.
#[test]
fn the_child_of_a_process_that_signs_signs() {
    let folder = Folder::new();
    let Some(program) = folder.build("forks").filter(|_| has_openssl()) else {
        return;
    };
    if !has_lanes() {
        return println!("SKIP: OpenSSL's own signatures wait for a lock of the parent");
    }
    let make = "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem";
    succeeds(&folder.openssl(make));
    let ended = folder.command(&program, "key.pem 50").output();
    succeeds(&ended.expect("it starts"));
}
