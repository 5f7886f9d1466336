//! Files of certificates, keys and revocation lists can hold anything. Reading them never panics; a fault is one line
//! and shows nothing of the file but labels; and no section vanishes: each first line of one that is
//! in the text is counted, or the file is refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_pem::{Fault, authorities, chain, contents, private_key, revocation_lists};

fn refused(fault: &Fault) {
    let message = fault.to_string();
    assert!(!message.contains(|c: char| c.is_control()), "{message:?}");
    assert!(message.len() < 1000, "{message}");
    assert_ne!(fault.line, Some(0));
}

fn times(text: &[u8], part: &[u8]) -> usize {
    text.windows(part.len()).filter(|window| *window == part).count()
}

fuzz_target!(|text: &[u8]| {
    let counted = contents(text);
    match &counted {
        Err(fault) => refused(fault),
        Ok(found) => {
            assert!(times(text, b"-----BEGIN CERTIFICATE-----") <= found.certificates);
            assert!(times(text, b"-----BEGIN PRIVATE KEY-----") <= found.keys);
            assert!(times(text, b"-----BEGIN X509 CRL-----") <= found.lists);
        }
    }
    for read in [chain, authorities] {
        match read(text) {
            Err(fault) => refused(&fault),
            Ok(certificates) => {
                let found = counted.as_ref().expect("it was read").certificates;
                assert!(found > 0 && certificates.len() == found);
                assert!(certificates.is_sorted_by_key(|one| one.line));
            }
        }
    }
    match revocation_lists(text) {
        Err(fault) => refused(&fault),
        Ok(lists) => assert_eq!(counted.as_ref().expect("it was read").lists, lists.len()),
    }
    match private_key(text) {
        Err(fault) => refused(&fault),
        Ok(key) => assert!(!key.secret_der().is_empty()),
    }
});
