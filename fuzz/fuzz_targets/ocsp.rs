//! An OCSP response can be anything: every router on the way from the responder can change it. Reading it never
//! panics; a refusal says on one line why; and what is taken is about the certificate, is valid now, and
//! has the bytes that the issuer has signed, so that it says what a response of the corpus says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_terminator::fuzzing::ocsp_response;

fuzz_target!(|response: &[u8]| match ocsp_response(&[LEAF, ISSUER], response, NOW) {
    Err(problem) => assert!(!problem.is_empty() && !problem.contains('\n'), "{problem:?}"),
    Ok((from, until, _)) => {
        assert!(from <= NOW + 300 && NOW < until);
        assert_eq!((from, until), (NOW - 86_400, NOW + 6 * 86_400));
    }
});

/// The certificate that the corpus is about, and the one of its issuer.
const LEAF: &[u8] = include_bytes!("ocsp/leaf.der");
const ISSUER: &[u8] = include_bytes!("ocsp/issuer.der");
const NOW: u64 = 1_800_000_000;
