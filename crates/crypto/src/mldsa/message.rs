//! Messages that lanes sign and verify.

/// Message that is signed.
#[derive(Clone, Copy)]
pub(super) enum Message<'a> {
    /// A message and its context, of at most 255 bytes.
    Text { context: &'a [u8], text: &'a [u8] },
    /// `M'`: a message with what stands in front of it.
    #[cfg(test)]
    Formatted(&'a [u8]),
    /// The message representative `mu` itself.
    #[cfg(test)]
    Representative(&'a [u8; 64]),
}

impl<'a> Message<'a> {
    /// A message with an empty context.
    pub(super) fn plain(text: &'a [u8]) -> Self {
        Self::Text { context: &[], text }
    }

    /// Bytes in front of the context (FIPS 204, algorithm 2, step 10).
    pub(super) fn prefix(self) -> [u8; 2] {
        [0, self.parts().0.len() as u8]
    }

    /// Context and text.
    pub(super) fn parts(self) -> (&'a [u8], &'a [u8]) {
        match self {
            Self::Text { context, text } => (context, text),
            #[cfg(test)]
            Self::Formatted(text) => (&[], text),
            #[cfg(test)]
            Self::Representative(_) => (&[], &[]),
        }
    }
}
