//! The beginning of a page: what it is, and for how many CPUs.

use std::io;

/// Fields at the beginning of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Slots that follow, one for each CPU number from 0.
    pub cpus: usize,
    /// The process of the brake.
    pub brake: u32,
    /// The model whose behaviour the CPUs have.
    pub model: String,
}

/// Reason why a page is not used.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The page cannot be opened or mapped.
    #[error("cannot be opened: {0}")]
    System(#[from] io::Error),
    /// Another program could cut it off while it is used.
    #[error("is no memory of a brake: its size is not sealed")]
    NotSealed,
    /// The page is too short, too long, or does not have the length that it claims.
    #[error("has {0} bytes, which no page of a brake has")]
    Size(u64),
    /// The page begins with other bytes than the pages of a brake.
    #[error("does not begin as the page of a brake does")]
    Magic,
    /// Another version of Widelane has made it.
    #[error("has layout {0}, and this program knows layout {LAYOUT}: use one version of Widelane for both")]
    Layout(u32),
    /// A text that is none.
    #[error("names a model that is no text")]
    Model,
}

impl Header {
    /// Bytes of the beginning.
    pub const BYTES: usize = 128;

    /// Reads the beginning of a page that is `size` bytes long.
    ///
    /// # Errors
    ///
    /// When no brake has made it.
    pub fn parse(bytes: &[u8; Self::BYTES], size: u64) -> Result<Self, PageError> {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        if bytes[..8] != MAGIC {
            return Err(PageError::Magic);
        }
        if word(8) != LAYOUT {
            return Err(PageError::Layout(word(8)));
        }
        let cpus = word(12) as usize;
        if cpus == 0 || cpus > MOST_CPUS || size != Self::size(cpus) {
            return Err(PageError::Size(size));
        }
        let text = &bytes[MODEL..];
        let end = text.iter().position(|&byte| byte == 0).ok_or(PageError::Model)?;
        let model = std::str::from_utf8(&text[..end]).map_err(|_| PageError::Model)?;
        if model.is_empty() || model.contains(char::is_control) {
            return Err(PageError::Model);
        }
        Ok(Self {
            cpus,
            brake: word(16),
            model: model.to_owned(),
        })
    }

    /// The bytes that [`Header::parse`] reads. A name that is too long is cut.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        for (at, word) in [(8, LAYOUT), (12, self.cpus as u32), (16, self.brake)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let room = Self::BYTES - MODEL - 1;
        let text = &self.model[..self.model.floor_char_boundary(room)];
        bytes[MODEL..MODEL + text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Bytes of a page for `cpus` CPUs: whole pages of memory.
    pub fn size(cpus: usize) -> u64 {
        ((Self::BYTES + cpus * SLOT) as u64).next_multiple_of(4096)
    }
}

/// Bytes of each CPU's slot.
pub(crate) const SLOT: usize = 128;
/// Most CPUs that a kernel is built for.
pub(crate) const MOST_CPUS: usize = 8192;
const MAGIC: [u8; 8] = *b"WL-BRAKE";
/// The number of this layout. Whatever changes in header or slot changes it.
const LAYOUT: u32 = 2;
/// Offset of the model's name.
const MODEL: usize = 32;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            cpus: 4,
            brake: 17,
            model: "Xeon Silver 4116".to_owned(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = header().to_bytes();
        let read = Header::parse(&bytes, Header::size(4)).expect("it is one");
        assert_eq!(read, header());
    }

    #[test]
    fn what_no_brake_has_made_is_refused() {
        let size = Header::size(4);
        let refused = |at: usize, byte: u8, size: u64| {
            let mut bytes = header().to_bytes();
            bytes[at] = byte;
            Header::parse(&bytes, size).expect_err("it is none")
        };
        assert!(matches!(refused(0, 0, size), PageError::Magic));
        assert!(matches!(refused(8, 9, size), PageError::Layout(9)));
        assert!(matches!(refused(12, 0, size), PageError::Size(_)));
        assert!(matches!(refused(14, 1, size), PageError::Size(_)));
        assert!(matches!(refused(0, b'W', size - 1), PageError::Size(_)));
        assert!(matches!(refused(0, b'W', 1 << 40), PageError::Size(_)));
        assert!(matches!(refused(MODEL, 0, size), PageError::Model));
        assert!(matches!(refused(MODEL, 0xff, size), PageError::Model));
        assert!(matches!(refused(MODEL, b'\n', size), PageError::Model));
        let mut endless = header().to_bytes();
        endless[MODEL..].fill(b'x');
        assert!(matches!(Header::parse(&endless, size), Err(PageError::Model)));
    }

    proptest! {
        #[test]
        fn a_name_of_any_length_is_kept_as_far_as_it_fits(model in "[a-zé]{1,200}") {
            let header = Header { model: model.clone(), ..header() };
            let read = Header::parse(&header.to_bytes(), Header::size(4)).unwrap();
            prop_assert!(model.starts_with(&read.model));
        }
    }
}
