//! The provider in a program on a CPU without AVX, which qemu emulates: it loads, and handshakes can be signed.

#![forbid(unsafe_code)]

mod common;

use common::{Configuration, Scratch, With, succeeds};
use widelane_testkit::skip::installed;

/// `openssl` on the emulated CPU; `None`, and the reason is printed, if that cannot be done here.
fn emulated(scratch: &Scratch) -> Option<impl Fn(&str) -> String> {
    let emulator = installed("qemu-x86_64")?;
    let program = installed("openssl")?;
    Some(move |line: &str| {
        let line = format!("-cpu Nehalem {} {line}", program.display());
        succeeds(&mut scratch.command(With::Widelane, &emulator, &line))
    })
}

#[test]
fn what_is_signed_on_an_old_cpu_verifies() {
    let Some(scratch) = Scratch::system(Configuration::default()) else {
        return;
    };
    let Some(openssl) = emulated(&scratch) else {
        return;
    };
    let list = openssl("list -providers");
    let (_, ours) = list.split_once("widelane").expect("the provider is listed");
    assert!(ours.contains("status: active"), "{list}");
    scratch.write("text", "a message\n");
    for algorithm in ["rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-256", "ed25519"] {
        let made = format!("req -x509 -nodes -newkey {algorithm} -keyout key.pem -subj /CN=old -out c.pem");
        openssl(&made);
        scratch.succeeds(With::Default, "verify -CAfile c.pem c.pem");
    }
}
