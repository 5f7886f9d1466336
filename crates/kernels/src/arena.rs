//! Memory for kernels: page-aligned, so that speed never depends on where buffers happen to lie.
#![allow(unsafe_code)]

use zeroize::Zeroize;

/// Vectors of `L` lanes in page-aligned memory, zeroised when dropped.
pub struct Arena<const L: usize> {
    pages: Box<[Page]>,
    len: usize,
}

/// A constant that begins a page.
#[repr(C, align(4096))]
pub(crate) struct PageAligned<T>(pub(crate) T);

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u64; PAGE_WORDS]);

impl<const L: usize> Arena<L> {
    /// `len` vectors, all zero.
    pub fn new(len: usize) -> Self {
        let pages = vec![Page([0; PAGE_WORDS]); (len * L).div_ceil(PAGE_WORDS)];
        Self {
            pages: pages.into_boxed_slice(),
            len,
        }
    }

    /// The vectors, to read.
    pub(crate) fn as_vectors(&self) -> &[[u64; L]] {
        // SAFETY: as for `vectors`; they are borrowed shared for as long as `self` is.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }

    /// The vectors.
    pub fn vectors(&mut self) -> &mut [[u64; L]] {
        // SAFETY: a `Page` is `repr(C)` and nothing but its words, without padding, as 4096 bytes
        // are a multiple of its alignment; so the pages are consecutive initialised words, at
        // least `len * L` of them, and `[u64; L]` is that many words with the alignment of one.
        // They are borrowed mutably for as long as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }

    /// Zeroises the vectors.
    pub fn wipe(&mut self) {
        // At the speed of memory. The compiler may remove these stores only if the arena is dropped
        // without another read; `drop` then zeroises, and the compiler must keep that.
        self.vectors().fill([0; L]);
    }
}

impl<const L: usize> Drop for Arena<L> {
    fn drop(&mut self) {
        self.vectors().as_flattened_mut().zeroize();
    }
}

impl<const L: usize> std::fmt::Debug for Arena<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("len", &self.len).finish_non_exhaustive()
    }
}

const PAGE_WORDS: usize = 512;
