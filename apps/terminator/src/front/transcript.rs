//! The transcript of a handshake whose ClientHello rustls gets in another form.
//!
//! rustls refuses a client that asks for a host name that it cannot parse, and has no setting for that. So
//! [`opening`](crate::front::opening) hands it a ClientHello in which the extension server_name has another, unknown
//! type: two bytes differ, no length. Both sides hash all messages of the handshake, and must hash the same. rustls
//! hashes with the provider's functions, so the one here hashes the client's bytes in place of those that rustls
//! got. All that follows from the transcript (keys, signatures, Finished, the binders of tickets) is therefore bound
//! to what the client has sent, as without any of this: the client notices nothing, and who changes its
//! ClientHello on the way is found out as ever.
//!
//! rustls does not say for which connection it hashes: see [`resumption`](crate::material::resumption).

use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};

use crate::as_inside::as_inside;
use crate::material::resumption::with_changed;

/// The beginning of a ClientHello in two forms of the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Form for rustls: from the type of the message to behind the bytes that differ. The client's random is in
    /// it, so that nothing else in a transcript begins like this.
    pub(crate) given: Vec<u8>,
    /// Form that the client has sent.
    pub(crate) sent: Vec<u8>,
}

impl Changed {
    /// Returns the bytes as the client has sent them, in up to three pieces.
    fn restored<'a>(&'a self, bytes: &'a [u8]) -> [&'a [u8]; 3] {
        let mut windows = bytes.windows(self.given.len());
        match windows.position(|window| window == self.given) {
            Some(at) => [&bytes[..at], &self.sent, &bytes[at + self.given.len()..]],
            None => [bytes, &[], &[]],
        }
    }

    /// The messages that a client of TLS 1.2 has signed.
    pub(crate) fn restore(&self, messages: &[u8]) -> Vec<u8> {
        self.restored(messages).concat()
    }
}

/// The hash function of a suite, for transcripts of servers.
pub(crate) struct Restoring(pub(crate) &'static dyn Hash);

impl Hash for Restoring {
    /// Most connections need nothing of this.
    fn start(&self) -> Box<dyn Context> {
        let inner = self.0.start();
        match with_changed(|_| ()) {
            None => inner,
            Some(()) => Box::new(Transcript(inner)),
        }
    }

    as_inside! { 0:
        fn hash(data: &[u8]) -> Output;
        fn output_len() -> usize;
        fn algorithm() -> HashAlgorithm;
        fn fips() -> bool;
    }
}

struct Transcript(Box<dyn Context>);

impl Context for Transcript {
    as_inside! { 0: fn fork_finish() -> Output; }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Self(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    fn update(&mut self, data: &[u8]) {
        let inner = &mut self.0;
        let restored = with_changed(|changed| {
            let pieces = changed.restored(data);
            pieces.iter().for_each(|piece| inner.update(piece));
        });
        if restored.is_none() {
            self.0.update(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_restored_wherever_it_is() {
        let changed = Changed {
            given: b"hello-XX".to_vec(),
            sent: b"hello-00".to_vec(),
        };
        for (given, sent) in [
            (&b"hello-XX-and-more"[..], &b"hello-00-and-more"[..]),
            (b"before hello-XX", b"before hello-00"),
            (b"hello-X", b"hello-X"),
            (b"", b""),
        ] {
            assert_eq!(changed.restore(given), sent);
        }
    }
}
