//! A server can say anything before it agrees to TLS. Reading that never panics, does not depend on how it is cut into
//! pieces, ends after some kibibytes, and takes nothing behind the agreement.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_load::fuzzing::starttls;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (protocol, size, replies) = input;
    let protocol = ["smtp", "imap", "postgres"][usize::from(protocol) % 3];
    let protocol = protocol.parse().expect("a known protocol");
    let whole = starttls(protocol, replies, replies.len().max(1));
    assert_eq!(whole, starttls(protocol, replies, usize::from(size).max(1)));
    assert!(whole.is_none() || replies.len() <= 16 * 1024);
    if whole == Some(true) {
        let more = [replies, b"x"].concat();
        assert_eq!(starttls(protocol, &more, more.len()), None);
    }
});
