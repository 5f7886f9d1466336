//! Context of [`crate::ffi::signature`]: what was said so far, or the default provider's context, or
//! both.

use std::ffi::{CStr, CString, c_int};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use std::{ptr, slice};

use crate::family::Family;
use crate::ffi::abi::{MOST, Object, Param};
use crate::ffi::defaults::{Defaults, Inner, SignatureFunctions};
use crate::ffi::keys::Key;
use crate::ffi::status;
use crate::log;
use crate::signers::{Attempt, DigestSigner, MessageSigner};

/// A signature or verification under way.
pub(crate) struct Context {
    pub(crate) family: Family,
    /// The property query that the default provider's context gets.
    pub(crate) properties: Option<CString>,
    pub(crate) state: State,
    /// The key with which the default provider signs a message, until it has.
    pub(crate) signs: Option<Arc<Key>>,
}

pub(crate) enum State {
    /// No operation has begun.
    New,
    /// A signature in one shot, which lanes can do.
    Message(MessageSigner),
    /// Signatures of hash values, and what makes those that lanes do not: nothing until it is needed.
    Digest(DigestSigner, Option<Inner>),
    /// The default provider's context does it.
    Inner(Inner),
}

/// A list of the default provider's constants.
struct Constant(*const Param);

// SAFETY: nothing changes a constant.
unsafe impl Send for Constant {}
// SAFETY: nothing changes a constant.
unsafe impl Sync for Constant {}

/// The values that one of the default provider's contexts takes now; what there can be for any, if that is null.
pub(crate) fn settable(object: Object, family: Family) -> *const Param {
    let settable = Defaults::get()
        .signature(family)
        .and_then(|functions| functions.settable_ctx_params);
    // SAFETY: the default provider's function with a context of its own or none.
    settable.map_or(ptr::null(), |settable| unsafe {
        settable(object, Defaults::get().context())
    })
}

/// A new context of the default provider's.
fn new_inner(family: Family, properties: Option<&CStr>) -> Option<Inner> {
    let functions = Defaults::get().signature(family)?;
    let properties = properties.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: the default provider's functions with its own context and a string of C.
    unsafe {
        let inner = (functions.newctx)(Defaults::get().context(), properties);
        Inner::new(inner, functions.freectx)
    }
}

impl Context {
    /// A copy, of which the caller makes another operation.
    pub(crate) fn copy(&self) -> Option<Self> {
        let state = match &self.state {
            State::New => State::New,
            State::Message(signer) => State::Message(signer.clone()),
            // What stands beside it follows from it.
            State::Digest(signer, _) => State::Digest(signer.clone(), None),
            State::Inner(inner) => {
                let functions = Defaults::get().signature(self.family)?;
                // SAFETY: the default provider's function for such contexts.
                State::Inner(unsafe { inner.copy(functions.dupctx)? })
            }
        };
        Some(Self {
            family: self.family,
            properties: self.properties.clone(),
            state,
            signs: self.signs.clone(),
        })
    }

    /// Begins an operation of the default provider.
    pub(crate) fn begin(
        &mut self,
        key: Option<Arc<Key>>,
        begin: impl FnOnce(&SignatureFunctions, Object, Object) -> Option<c_int>,
    ) -> c_int {
        let begun = || {
            let functions = Defaults::get().signature(self.family)?;
            if !matches!(self.state, State::Inner(_)) {
                let inner = new_inner(self.family, self.properties.as_deref())?;
                self.state = State::Inner(inner);
            }
            let State::Inner(inner) = &self.state else {
                return None;
            };
            let object = inner.get();
            match key {
                Some(key) => key.with_inner(|_, key| begin(functions, object, key))?,
                None => begin(functions, object, ptr::null_mut()),
            }
        };
        begun().unwrap_or(0)
    }

    /// Goes on with the default provider's context; 0 if no operation has begun, or the default provider
    /// has no such function.
    pub(crate) fn continue_inner(&mut self, call: impl FnOnce(&SignatureFunctions, Object) -> Option<c_int>) -> c_int {
        let called = self.inner();
        let called = called.and_then(|(functions, inner)| call(functions, inner));
        called.unwrap_or(0)
    }

    /// Signs what a stream has brought and `text` after it, if lanes can; with no place for the
    /// signature, only tells its length.
    ///
    /// # Safety
    ///
    /// `signature` must be null or have `room` bytes, and `len` be null or a place for a length.
    pub(crate) unsafe fn sign_message(
        &mut self,
        signature: *mut u8,
        len: *mut usize,
        room: usize,
        text: &[u8],
    ) -> Option<c_int> {
        let State::Message(signer) = &self.state else {
            return None;
        };
        let wanted = signer.signature_len()?;
        if len.is_null() {
            return None;
        }
        if signature.is_null() {
            // SAFETY: the caller gives a place for the length.
            unsafe { *len = wanted };
            return Some(1);
        }
        // OpenSSL wants a place for the longest signature, also if this one is shorter.
        if room < wanted {
            return None;
        }
        let since = Instant::now();
        let made = match signer.streamed.is_empty() {
            true => signer.sign(text),
            false => signer.sign(&[&signer.streamed, text].concat()),
        };
        // SAFETY: the caller's promise.
        let answer = unsafe { hand_over(made, signature, len, room) };
        if answer == Some(1) {
            status::count_signed(since.elapsed());
        }
        answer
    }

    /// Signs a hash value, if lanes can; with no place for the signature, only tells its length.
    ///
    /// # Safety
    ///
    /// As for [`sign_message`](Self::sign_message).
    pub(crate) unsafe fn sign_digest(
        &self,
        signature: *mut u8,
        len: *mut usize,
        room: usize,
        value: &[u8],
    ) -> Option<c_int> {
        let State::Digest(signer, _) = &self.state else {
            return None;
        };
        if len.is_null() {
            return None;
        }
        if signature.is_null() {
            let wanted = signer.signature_len()?;
            // SAFETY: the caller gives a place for the length.
            unsafe { *len = wanted };
            return Some(1);
        }
        // SAFETY: the caller's promise.
        unsafe { hand_over(signer.sign(value, room), signature, len, room) }
    }

    /// The values that it takes now. After a hash function was named, it cannot be changed.
    pub(crate) fn settable(&self) -> *const Param {
        static PLANNED: [OnceLock<Constant>; MOST] = [const { OnceLock::new() }; MOST];
        let all = || settable(ptr::null_mut(), self.family);
        match &self.state {
            State::New | State::Digest(..) => all(),
            State::Inner(inner) => settable(inner.get(), self.family),
            // TLS asks twice for each signature with PSS.
            State::Message(signer) => {
                let list = PLANNED[self.family.number()].get_or_init(|| {
                    let mut same = Self {
                        family: self.family,
                        properties: self.properties.clone(),
                        state: State::Message(signer.clone()),
                        signs: None,
                    };
                    Constant(match same.inner() {
                        Some((_, inner)) => settable(inner, self.family),
                        None => all(),
                    })
                });
                list.0
            }
        }
    }

    /// The default provider has signed a message since then, if `result` says so and there was a place for it.
    pub(crate) fn signed(&mut self, since: Instant, result: c_int, signature: *mut u8) {
        if result == 1 && !signature.is_null() {
            status::count_signed(since.elapsed());
            if let Some(key) = self.signs.take() {
                key.signed();
            }
        }
    }

    /// Lets the context that signs hash values, beside the one for lanes, take over.
    pub(crate) fn take_over(&mut self) {
        if let State::Digest(_, beside) = &mut self.state {
            self.state = beside.take().map_or(State::New, State::Inner);
        }
    }

    /// The default provider's context, which takes over from a message signer, and stands beside one for hash
    /// values. `None` if no operation has begun.
    pub(crate) fn inner(&mut self) -> Option<(&'static SignatureFunctions, Object)> {
        if let State::Message(signer) = &self.state {
            let MessageSigner {
                key,
                digest,
                settings,
                streamed,
                ..
            } = signer.clone();
            let params = settings.as_params();
            let begun = self.begin(Some(key), |functions, object, key| {
                let digest = digest.as_ref().map_or(ptr::null(), |text| text.as_ptr());
                // SAFETY: the default provider's function with a context and a key of its own, a
                // string of C and a whole list.
                let begun = unsafe { (functions.digest_sign_init)(object, digest, key, params.as_ptr()) };
                if begun != 1 || streamed.is_empty() {
                    return Some(begun);
                }
                // SAFETY: the default provider's function with a context of its own, and the bytes of the stream.
                Some(unsafe { functions.digest_sign_update?(object, streamed.as_ptr(), streamed.len()) })
            });
            if begun != 1 {
                self.state = State::New;
            }
        }
        if let State::Digest(signer, beside @ None) = &mut self.state {
            let inner = new_inner(self.family, self.properties.as_deref())?;
            let functions = Defaults::get().signature(self.family)?;
            let params = signer.settings.as_params();
            let begun = signer.key.with_inner(|_, key| {
                // SAFETY: the default provider's function with a context and a key of its own, and a
                // whole list.
                functions
                    .sign_init
                    .map(|begin| unsafe { begin(inner.get(), key, params.as_ptr()) })
            });
            *beside = (begun == Some(Some(1))).then_some(inner);
        }
        match &self.state {
            State::Inner(inner) | State::Digest(_, Some(inner)) => {
                Some((Defaults::get().signature(self.family)?, inner.get()))
            }
            _ => None,
        }
    }
}

/// Gives the caller a signature that lanes have made. `None` if the default provider is to make it.
///
/// # Safety
///
/// `signature` must have `room` bytes, and `len` be a place for a length.
unsafe fn hand_over(attempt: Attempt, signature: *mut u8, len: *mut usize, room: usize) -> Option<c_int> {
    let made = match attempt {
        Attempt::Signed(made) if made.len() <= room => made,
        Attempt::Signed(_) | Attempt::NotInLanes => return None,
        Attempt::Withheld(reason) => {
            log::reason(&format!("OpenSSL signs by itself: {reason}"));
            return None;
        }
        Attempt::Failed(failure) => return (!failure.falls_back()).then_some(0),
    };
    // SAFETY: the caller gives `room` bytes at `signature`, which are enough, and a place for
    // the length.
    unsafe {
        slice::from_raw_parts_mut(signature, made.len()).copy_from_slice(&made);
        *len = made.len();
    }
    Some(1)
}
