//! A process that forks while its threads sign, as a small program in C.

#![forbid(unsafe_code)]

mod common;

use common::{Folder, has_openssl, succeeds};

/// The child has a copy of what a thread of the parent was changing, and no such thread.
#[test]
fn the_child_of_a_process_that_signs_signs() {
    let folder = Folder::new();
    let Some(program) = folder.build("forks").filter(|_| has_openssl()) else {
        return;
    };
    // Lanes take the first size; with the other one, OpenSSL signs in both.
    for bits in [2048, 1024] {
        succeeds(&folder.openssl(&format!(
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:{bits} -out key.pem"
        )));
        let ended = folder.command(&program, "key.pem 50").output();
        succeeds(&ended.expect("it starts"));
    }
}
