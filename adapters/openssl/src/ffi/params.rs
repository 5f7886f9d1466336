//! Lists of named values, as OpenSSL passes them (`OSSL_PARAM`, OpenSSL's manual page of this
//! name), read and written without further unsafe code.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::marker::PhantomData;
use std::{ptr, slice};

use zeroize::Zeroizing;

use crate::ffi::abi::{self, Dispatch, INTEGER, OCTETS, Param, UNMODIFIED, UNSIGNED, UTF8, UTF8_POINTER};

/// A list that a caller has passed, for the time of one call.
#[derive(Clone, Copy)]
pub(crate) struct Params<'a> {
    list: *const Param,
    lifetime: PhantomData<&'a Param>,
}

impl<'a> Params<'a> {
    /// # Safety
    ///
    /// `list` must be null or a list that ends with a null key, as OpenSSL makes them, and stay
    /// unchanged by others during `'a`.
    pub(crate) unsafe fn new(list: *const Param) -> Self {
        Self {
            list,
            lifetime: PhantomData,
        }
    }

    /// Each value, in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = Value<'a>> {
        let mut next = self.list;
        std::iter::from_fn(move || {
            if next.is_null() {
                return None;
            }
            let value = Value {
                param: next,
                lifetime: PhantomData,
            };
            // SAFETY: `new`'s caller promised a list, which is not past its end yet.
            if unsafe { (*next).key.is_null() } {
                return None;
            }
            // SAFETY: an entry with a key has another one behind it.
            next = unsafe { next.add(1) };
            Some(value)
        })
    }

    #[cfg(test)]
    fn return_size(self, key: &CStr) -> Option<usize> {
        // SAFETY: a value is an entry of a list that lives as long as it.
        self.get(key).map(|value| unsafe { (*value.param).return_size })
    }

    /// The value of this name.
    pub(crate) fn get(self, key: &CStr) -> Option<Value<'a>> {
        self.iter().find(|value| value.key() == key)
    }
}

/// The texts of the provider's section in OpenSSL's configuration, of those settings of `names` that it has.
///
/// # Safety
///
/// `handle` and `functions` must be the core's: its handle, and its table of functions.
pub(crate) unsafe fn settings(
    handle: *const c_void,
    functions: *const Dispatch,
    names: &[&'static CStr],
) -> HashMap<&'static CStr, String> {
    let mut texts = vec![ptr::null::<c_char>(); names.len()];
    let entries = names.iter().zip(&mut texts).map(|(name, text)| Param {
        data: (&raw mut *text).cast(),
        ..described(name, UTF8_POINTER)
    });
    let mut list: Vec<Param> = entries.chain([END]).collect();
    // SAFETY: the core's function with its own handle and a whole list, whose values are pointers
    // that it sets to strings of C, or leaves null.
    unsafe {
        if let Some(get) = abi::core::get_params::find(functions) {
            get(handle, list.as_mut_ptr());
        }
        let found = names.iter().zip(texts).filter(|(_, text)| !text.is_null());
        found
            .map(|(name, text)| (*name, CStr::from_ptr(text).to_string_lossy().into_owned()))
            .collect()
    }
}

/// One named value. By a raw pointer: answers are written to it.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    param: *const Param,
    lifetime: PhantomData<&'a Param>,
}

impl<'a> Value<'a> {
    pub(crate) fn key(self) -> &'a CStr {
        // SAFETY: OpenSSL's names are strings of C that live as long as the list.
        unsafe { CStr::from_ptr((*self.param).key) }
    }

    /// A string of bytes.
    pub(crate) fn octets(self) -> Option<&'a [u8]> {
        (self.data_type() == OCTETS).then(|| self.bytes())?
    }

    /// A text without its terminating zero.
    pub(crate) fn text(self) -> Option<&'a str> {
        let bytes = match self.data_type() {
            UTF8 => self.bytes()?,
            UTF8_POINTER if !self.data().is_null() => {
                // SAFETY: data of this type points to a pointer to a string of C, or to null.
                unsafe {
                    let text = *self.data().cast::<*const c_char>();
                    (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes())?
                }
            }
            _ => return None,
        };
        let end = bytes.iter().position(|byte| *byte == 0);
        str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()
    }

    /// An integer that fits.
    pub(crate) fn integer(self) -> Option<i64> {
        let bytes = self.bytes()?;
        let (low, high) = bytes.split_at_checked(8).unwrap_or((bytes, &[]));
        let negative = self.data_type() == INTEGER && bytes.last()? & 0x80 != 0;
        let fill = if negative { 0xff } else { 0 };
        if !matches!(self.data_type(), INTEGER | UNSIGNED) || high.iter().any(|byte| *byte != fill) {
            return None;
        }
        let mut word = [fill; 8];
        word[..low.len()].copy_from_slice(low);
        let word = i64::from_le_bytes(word);
        ((word < 0) == negative).then_some(word)
    }

    /// A large integer that is not negative, as big-endian bytes.
    pub(crate) fn big(self) -> Option<Zeroizing<Vec<u8>>> {
        if self.data_type() != UNSIGNED {
            return None;
        }
        let mut bytes = Zeroizing::new(self.bytes()?.to_vec());
        bytes.reverse();
        Some(bytes)
    }

    /// Answers with an integer. False if its place is too small or for something else.
    pub(crate) fn set_integer(self, value: u32) -> bool {
        if !matches!(self.data_type(), INTEGER | UNSIGNED) {
            return false;
        }
        let size = match self.data_size() {
            0 => 4,
            size => size,
        };
        let mut bytes = vec![0; size.max(4)];
        bytes[..4].copy_from_slice(&value.to_le_bytes());
        size >= 4 && self.answer(&bytes)
    }

    /// Answers with a string of bytes.
    pub(crate) fn set_octets(self, bytes: &[u8]) -> bool {
        self.data_type() == OCTETS && self.answer(bytes)
    }

    /// Answers with a constant text.
    pub(crate) fn set_text(self, text: &'static CStr) -> bool {
        match self.data_type() {
            UTF8_POINTER if !self.data().is_null() => {
                // SAFETY: data of this type points to a pointer, which the caller lets us write.
                unsafe { *self.data().cast::<*const c_char>() = text.as_ptr() };
                self.set_return_size(text.count_bytes());
                true
            }
            // The caller's place may have no room for the terminating zero.
            UTF8 => {
                let bytes = text.to_bytes_with_nul();
                let room = self.data_size().min(bytes.len());
                let fits = self.data().is_null() || room >= text.count_bytes();
                let answered = fits && self.answer(&bytes[..room.max(text.count_bytes())]);
                self.set_return_size(text.count_bytes());
                answered
            }
            _ => false,
        }
    }

    /// Bytes of the caller's place.
    pub(crate) fn room(self) -> usize {
        self.data_size()
    }

    /// Copies an answer to the caller's place; with none, only tells how long it is.
    fn answer(self, bytes: &[u8]) -> bool {
        self.set_return_size(bytes.len());
        if self.data().is_null() {
            return true;
        }
        if self.data_size() < bytes.len() {
            return false;
        }
        // SAFETY: the caller gives `data_size` bytes at `data` to be written, which are not ours.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.data().cast(), bytes.len()) };
        true
    }

    fn set_return_size(self, size: usize) {
        // SAFETY: OpenSSL passes lists that are to be answered in memory that may be written
        // (`OSSL_PARAM params[]`, not const), and nothing else refers to it during the call.
        unsafe { (&raw mut (*self.param.cast_mut()).return_size).write(size) };
    }

    fn bytes(self) -> Option<&'a [u8]> {
        if self.data().is_null() {
            return (self.data_size() == 0).then_some(&[]);
        }
        // SAFETY: `data` has `data_size` bytes, which nothing changes during the call.
        Some(unsafe { slice::from_raw_parts(self.data().cast(), self.data_size()) })
    }

    fn data_type(self) -> c_uint {
        // SAFETY: a value is an entry of a list that lives as long as it.
        unsafe { (*self.param).data_type }
    }

    fn data(self) -> *mut c_void {
        // SAFETY: a value is an entry of a list that lives as long as it.
        unsafe { (*self.param).data }
    }

    fn data_size(self) -> usize {
        // SAFETY: a value is an entry of a list that lives as long as it.
        unsafe { (*self.param).data_size }
    }
}

/// A list of our own. What it held is wiped when it is dropped.
pub(crate) struct OwnParams {
    /// With its end.
    list: Vec<Param>,
    names: Vec<CString>,
    /// Boxed: their addresses stay.
    values: Vec<Zeroizing<Box<[u8]>>>,
}

// SAFETY: it owns everything that it points to.
unsafe impl Send for OwnParams {}

impl Default for OwnParams {
    fn default() -> Self {
        Self {
            list: vec![END],
            names: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl OwnParams {
    /// A copy of a list of texts, bytes and numbers.
    pub(crate) fn copy(list: Params<'_>) -> Self {
        list.iter().fold(Self::default(), |copy, value| {
            copy.with(value.key(), value.data_type(), value.bytes().unwrap_or_default())
        })
    }

    pub(crate) fn octets(self, key: &CStr, bytes: &[u8]) -> Self {
        self.with(key, OCTETS, bytes)
    }

    pub(crate) fn text(self, key: &CStr, text: &str) -> Self {
        self.with(key, UTF8, text.as_bytes())
    }

    pub(crate) fn integer(self, key: &CStr, value: u32) -> Self {
        self.with(key, UNSIGNED, &value.to_le_bytes())
    }

    pub(crate) fn signed(self, key: &CStr, value: i32) -> Self {
        self.with(key, INTEGER, &value.to_le_bytes())
    }

    /// A large integer from big-endian bytes.
    pub(crate) fn big(self, key: &CStr, bytes: &[u8]) -> Self {
        let mut bytes = Zeroizing::new(bytes.to_vec());
        bytes.reverse();
        self.with(key, UNSIGNED, &bytes)
    }

    /// The values of this list.
    #[cfg(test)]
    pub(crate) fn view(&mut self) -> Params<'_> {
        let list = self.list.as_mut_ptr();
        // SAFETY: the list has its end and lives as long as `self` is borrowed.
        unsafe { Params::new(list) }
    }

    /// The list with its end, until `self` is changed or dropped. Only read.
    pub(crate) fn as_ptr(&self) -> *const Param {
        self.list.as_ptr()
    }

    fn with(mut self, key: &CStr, data_type: c_uint, bytes: &[u8]) -> Self {
        let name = key.to_owned();
        // One more byte: texts end with a zero behind their size.
        let mut value = Zeroizing::new(vec![0; bytes.len() + 1].into_boxed_slice());
        value[..bytes.len()].copy_from_slice(bytes);
        let param = Param {
            key: name.as_ptr(),
            data_type,
            data: value.as_mut_ptr().cast::<c_void>(),
            data_size: bytes.len(),
            return_size: UNMODIFIED,
        };
        self.list.insert(self.list.len() - 1, param);
        self.names.push(name);
        self.values.push(value);
        self
    }
}

/// The end of a list.
pub(crate) const END: Param = Param {
    key: ptr::null(),
    data_type: 0,
    data: ptr::null_mut(),
    data_size: 0,
    return_size: 0,
};

/// An entry of a constant list that says which values there are.
pub(crate) const fn described(key: &'static CStr, data_type: c_uint) -> Param {
    Param {
        key: key.as_ptr(),
        data_type,
        data: ptr::null_mut(),
        data_size: 0,
        return_size: UNMODIFIED,
    }
}

/// Functions that list constant values.
macro_rules! constant_lists {
    ($($name:ident($($argument:ty),*): $($key:literal = $data_type:expr),+;)+) => { $(
        unsafe extern "C" fn $name($(_: $argument),*) -> *const $crate::ffi::abi::Param {
            use $crate::ffi::params::{END, described};
            static LIST: &[$crate::ffi::abi::Param] = &[$(described($key, $data_type),)+ END];
            LIST.as_ptr()
        }
    )+ };
}
pub(crate) use constant_lists;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_what_they_are() {
        let mut list = OwnParams::default()
            .octets(c"bytes", &[1, 2, 3])
            .text(c"text", "digest")
            .integer(c"count", 7)
            .signed(c"below", -1)
            .big(c"large", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let list = list.view();
        assert_eq!(list.iter().count(), 5);
        let get = |key: &CStr| list.get(key).unwrap();
        assert_eq!(get(c"bytes").octets(), Some(&[1, 2, 3][..]));
        assert_eq!(get(c"text").text(), Some("digest"));
        assert_eq!(get(c"text").octets(), None);
        assert_eq!(get(c"count").integer(), Some(7));
        assert_eq!(get(c"below").integer(), Some(-1));
        assert_eq!(get(c"large").integer(), None, "it does not fit");
        assert_eq!(get(c"large").big().unwrap()[..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(list.get(c"absent").is_none());
    }

    #[test]
    fn a_copy_has_values_of_its_own() {
        let mut list = OwnParams::default()
            .text(c"name", "x25519")
            .integer(c"id", 29)
            .signed(c"max", -1);
        let mut copy = OwnParams::copy(list.view());
        assert!(list.view().get(c"id").unwrap().set_integer(30));
        drop(list);
        let copy = copy.view();
        assert_eq!(copy.iter().count(), 3);
        let get = |key: &CStr| copy.get(key).unwrap();
        assert_eq!(get(c"name").text(), Some("x25519"));
        assert_eq!(get(c"id").integer(), Some(29));
        assert_eq!(get(c"max").integer(), Some(-1));
    }

    #[test]
    fn answers_fit_or_are_refused() {
        let mut list = OwnParams::default()
            .octets(c"bytes", &[0; 4])
            .integer(c"count", 0)
            .text(c"text", "      ");
        let list = list.view();
        let get = |key: &CStr| list.get(key).unwrap();
        assert!(get(c"bytes").set_octets(&[9, 8]));
        assert_eq!(get(c"bytes").octets(), Some(&[9, 8, 0, 0][..]));
        assert!(!get(c"bytes").set_octets(&[1; 5]), "longer than its place");
        assert_eq!(list.return_size(c"bytes"), Some(5));
        assert!(get(c"count").set_integer(255));
        assert_eq!(get(c"count").integer(), Some(255));
        assert!(!get(c"count").set_octets(&[1]), "of another type");
        assert!(get(c"text").set_text(c"P-256"));
        assert_eq!(get(c"text").text(), Some("P-256"));
        assert!(!get(c"text").set_text(c"longer text"));
    }

    #[test]
    fn a_list_without_entries_is_empty() {
        // SAFETY: null is a list without entries.
        let none = unsafe { Params::new(ptr::null()) };
        assert_eq!(none.iter().count(), 0);
        assert_eq!(OwnParams::default().view().iter().count(), 0);
    }
}
