//! An OCSP response can be anything: every router on the way from the responder can change it. Reading it never
//! panics; a refusal says on one line why; and what is taken is about the certificate, is valid now, and
//! has the bytes that the issuer has signed, so that it says what a response of the corpus says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rustls_pki_types::{CertificateDer, UnixTime};
use std::sync::LazyLock;
use std::time::Duration;
use widelane_ocsp::{Subject, check};

fuzz_target!(
    |response: &[u8]| match check(&SUBJECT, response, UnixTime::since_unix_epoch(Duration::from_secs(NOW))) {
        Err(refusal) => {
            let problem = refusal.to_string();
            assert!(!problem.is_empty() && !problem.contains('\n'), "{problem:?}");
        }
        Ok(verdict) => {
            let (from, until) = (verdict.this_update, verdict.next_update);
            assert!(from <= NOW + 300 && NOW < until);
            assert_eq!((from, until), (NOW - 86_400, NOW + 6 * 86_400));
        }
    }
);

static SUBJECT: LazyLock<Subject> = LazyLock::new(|| {
    let chain = [LEAF, ISSUER].map(CertificateDer::from);
    Subject::of(&chain).expect("a certificate and its issuer")
});

/// The certificate that the corpus is about, and the one of its issuer.
const LEAF: &[u8] = include_bytes!("ocsp/leaf.der");
const ISSUER: &[u8] = include_bytes!("ocsp/issuer.der");
const NOW: u64 = 1_800_000_000;
