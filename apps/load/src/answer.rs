//! Answer to what the client sends after its handshake.

use crate::error::Fault;
use crate::http;

/// An answer, read in pieces.
#[derive(Debug)]
pub(crate) enum Answer {
    Http(http::Answer),
    Words(Words),
}

impl Answer {
    /// The answer to an HTTP request.
    pub(crate) fn http() -> Self {
        Self::Http(http::Answer::default())
    }

    /// An answer that is complete with these bytes.
    pub(crate) fn with(expected: &[u8]) -> Self {
        Self::Words(Words {
            expected: expected.to_vec(),
            last: Vec::new(),
        })
    }

    /// Reads more bytes. True once the answer is complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        match self {
            Self::Http(answer) => answer.feed(bytes),
            Self::Words(words) => Ok(words.feed(bytes)),
        }
    }

    /// Checks the answer when the connection has ended.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        match self {
            Self::Http(answer) => answer.end(),
            Self::Words(_) => Err(Fault::Truncated),
        }
    }
}

/// Looks for bytes in a stream, of which it keeps no more than their length.
#[derive(Debug)]
pub(crate) struct Words {
    expected: Vec<u8>,
    /// Last bytes of the stream, fewer than are expected.
    last: Vec<u8>,
}

impl Words {
    fn feed(&mut self, bytes: &[u8]) -> bool {
        self.last.extend_from_slice(bytes);
        let length = self.expected.len();
        if self.last.windows(length).any(|window| window == self.expected) {
            return true;
        }
        let keep = length - 1;
        self.last.drain(..self.last.len().saturating_sub(keep));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_in_pieces_of_every_size() {
        let text = b"* OK ready\r\na OK logged in\r\n";
        for size in 1..=text.len() {
            let found = |expected: &[u8]| {
                let mut answer = Answer::with(expected);
                let mut pieces = text.chunks(size);
                let found = pieces.any(|piece| answer.feed(piece).expect("no fault"));
                assert!(answer.end().is_err());
                found
            };
            assert!(found(b"a OK") && found(b"*") && found(text), "{size}");
            assert!(!found(b"a NO") && !found(b"OKa"), "{size}");
        }
    }

    #[test]
    fn a_long_answer_needs_no_memory() {
        let mut words = Words {
            expected: b"end".to_vec(),
            last: Vec::new(),
        };
        assert!(!words.feed(&[b'e'; 100_000]));
        assert_eq!(words.last.len(), 2);
    }
}
