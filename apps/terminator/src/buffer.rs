//! Memory through which the bytes of a worker's connections pass.

use std::ops::{Deref, DerefMut};

/// Bytes at a chosen place within their page.
///
/// On Zen 4, `memmove` of a few kilobytes or more runs at a twentieth of its speed if the
/// destination lies 1 to 15 bytes behind the source, modulo 4,096. Memory of that size often begins
/// at the same place of a page, so bad luck is not rare, and it stays for as long as the process
/// runs. `docs/decisions/relay-buffers.md` has the figures.
pub(crate) struct Buffer {
    memory: Box<[u8]>,
    from: usize,
    bytes: usize,
}

impl Buffer {
    /// Makes a buffer for bytes that the kernel writes and rustls copies, behind a header of 5 bytes, into memory
    /// that begins at a multiple of 16: the distance is then a multiple of 16 as well.
    pub(crate) fn for_plaintext(bytes: usize) -> Self {
        Self::new(bytes, PAGE / 2 + RECORD_HEADER)
    }

    /// Makes a buffer for bytes that are copied from the start of allocated memory, and that the kernel reads.
    pub(crate) fn for_decrypted(bytes: usize) -> Self {
        Self::new(bytes, PAGE / 2)
    }

    fn new(bytes: usize, place: usize) -> Self {
        let memory = vec![0; bytes + PAGE].into_boxed_slice();
        let begins = memory.as_ptr().addr() % PAGE;
        Self {
            from: (PAGE + place - begins) % PAGE,
            memory,
            bytes,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.from..][..self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..][..self.bytes]
    }
}

const PAGE: usize = 4096;
const RECORD_HEADER: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_lie_where_copies_are_fast() {
        // Several at once: they cannot all lie there by chance.
        let buffers: Vec<_> = [1, 100, 4096, 300_000]
            .into_iter()
            .flat_map(|bytes| {
                [
                    (Buffer::for_plaintext(bytes), bytes, 2048 + 5),
                    (Buffer::for_decrypted(bytes), bytes, 2048),
                ]
            })
            .collect();
        for (buffer, bytes, place) in &buffers {
            assert_eq!(buffer.len(), *bytes);
            assert_eq!(buffer.as_ptr().addr() % PAGE, *place);
        }
    }
}
