//! CIPHER: ChaCha20-Poly1305 in wide registers (`provider-cipher(7)`).
//!
//! Each context has one of the default provider's inside, which is told everything, and does what is
//! short. Longer messages and records are done here: a record of TLS 1.2 in one call, any other
//! message piece by piece, as it comes. The length of the first piece decides, because a message
//! cannot change hands.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};
use std::{ptr, slice};

use widelane_crypto::chacha20poly1305::{Cipher, Key, Message, NONCE_LEN, TAG_LEN};
use zeroize::Zeroizing;

use crate::ffi::abi::{self, Dispatch, Object, Param, dispatch};
use crate::ffi::defaults::{CipherFunctions, Defaults, Inner};
use crate::ffi::libcrypto::{INTERNAL_ERROR, LibCrypto};
use crate::ffi::objects::{self, borrow, guarded};
use crate::ffi::params::Params;

/// The functions, for this code; `None` if the default provider has no such cipher.
pub(crate) fn offered(cipher: Cipher) -> Option<&'static [Dispatch]> {
    static OFFERED: OnceLock<Vec<Dispatch>> = OnceLock::new();
    let theirs = Defaults::get().cipher()?.algorithm.implementation;
    CIPHER.get_or_init(|| cipher);
    let table = dispatch![cipher:
        newctx, freectx = objects::free::<Context>, dupctx, encrypt_init, decrypt_init, update,
        finish, cipher = in_one, get_params, gettable_params, get_ctx_params, gettable_ctx_params,
        set_ctx_params, settable_ctx_params
    ];
    // SAFETY: the default provider's table of this cipher.
    Some(OFFERED.get_or_init(|| unsafe { abi::in_both(&table, theirs) }))
}

/// The code that was chosen.
static CIPHER: OnceLock<Cipher> = OnceLock::new();

/// A cipher under way.
struct Context {
    inner: Inner,
    work: Work,
}

/// State of a message: what was said of it so far, and its result.
#[derive(Clone, Default)]
struct Work {
    secret: Option<Zeroizing<[u8; 32]>>,
    /// Key in the form of our code, once it was needed.
    key: Option<Arc<Key>>,
    opens: bool,
    /// A nonce that no message has used yet.
    nonce: Option<[u8; NONCE_LEN]>,
    /// Base to which the numbers of TLS 1.2's records are added.
    base: Option<[u8; NONCE_LEN]>,
    /// The header of the record that comes next.
    header: Option<[u8; HEADER]>,
    /// The tag to be compared, and how many bytes of it.
    expected: ([u8; TAG_LEN], usize),
    /// Additional data that neither code has taken yet.
    aad: Vec<u8>,
    state: State,
}

#[derive(Clone, Default)]
enum State {
    /// No text has come.
    #[default]
    Fresh,
    /// The default provider's context does it.
    Inner,
    Lanes(Box<Message>),
    /// The message has ended, with this tag.
    Sealed([u8; TAG_LEN]),
    /// A message has been opened, or refused.
    Opened,
}

/// Input of a caller, and the place for its output.
struct Piece {
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    text: *const u8,
    len: usize,
}

impl Piece {
    /// Copies the text to its place, where it is worked on.
    ///
    /// # Safety
    ///
    /// The caller of the provider gives `len` bytes of text, and place for as many, which may be the
    /// same or overlap; `room` has been looked at.
    unsafe fn in_place<'a>(&self) -> &'a mut [u8] {
        // SAFETY: the caller's promise. OpenSSL does not touch the place during the call.
        unsafe {
            if !ptr::eq(self.out, self.text) {
                ptr::copy(self.text, self.out, self.len);
            }
            slice::from_raw_parts_mut(self.out, self.len)
        }
    }

    fn tell(&self, len: usize) {
        // SAFETY: OpenSSL gives a place for the length.
        unsafe { *self.out_len = len };
    }
}

/// The function that takes text: `update` or `cipher` of the default provider.
type Taking = abi::cipher::update::F;

impl Context {
    fn functions() -> Option<&'static CipherFunctions> {
        Defaults::get().cipher()
    }

    fn key(&mut self) -> Option<Arc<Key>> {
        if self.work.key.is_none() {
            let key = CIPHER.get()?.key(self.work.secret.as_deref()?);
            self.work.key = Some(Arc::new(key));
        }
        self.work.key.clone()
    }

    /// Begins anew.
    fn begin(&mut self) {
        self.work.state = State::Fresh;
        self.work.header = None;
        self.work.aad.clear();
    }

    /// Takes notice of values that the default provider has accepted.
    fn notice(&mut self, list: Params<'_>) {
        for value in list.iter() {
            match (value.key().to_bytes(), value.octets()) {
                (b"tag", Some(tag)) if self.work.opens => {
                    let len = tag.len().min(TAG_LEN);
                    self.work.expected.0[..len].copy_from_slice(&tag[..len]);
                    self.work.expected.1 = len;
                }
                (b"tlsaad", Some(header)) => {
                    self.begin();
                    self.work.header = header.try_into().ok();
                    // Its length includes the tag of a record that is opened.
                    if let Some(header) = &mut self.work.header
                        && self.work.opens
                    {
                        let len = u16::from_be_bytes([header[11], header[12]]);
                        let text = len.saturating_sub(TAG_LEN as u16);
                        header[11..].copy_from_slice(&text.to_be_bytes());
                    }
                }
                (b"tlsivfixed", Some(base)) => self.work.base = base.try_into().ok(),
                _ => {}
            }
        }
    }

    /// Takes additional data or text.
    fn take(&mut self, piece: &Piece, taking: Taking) -> c_int {
        match &mut self.work.state {
            State::Inner => self.leave(piece, taking),
            State::Sealed(_) | State::Opened => refuse("the message has ended; set a new nonce"),
            State::Lanes(_) if piece.out.is_null() => refuse("additional data comes before the text"),
            State::Lanes(_) => self.go_on(piece),
            State::Fresh if piece.text.is_null() || piece.len == 0 => self.leave(piece, taking),
            State::Fresh if piece.out.is_null() => {
                if self.work.header.is_some() || self.work.aad.len() + piece.len > MOST_AAD {
                    self.leave(piece, taking)
                } else {
                    // SAFETY: the caller gives `len` bytes.
                    let aad = unsafe { slice::from_raw_parts(piece.text, piece.len) };
                    self.work.aad.extend_from_slice(aad);
                    piece.tell(piece.len);
                    1
                }
            }
            State::Fresh if piece.room < piece.len || piece.len < WORTH_IT => self.leave(piece, taking),
            State::Fresh => match self.work.header.take() {
                Some(header) => self.record(piece, header, taking),
                None => self.first(piece, taking),
            },
        }
    }

    /// The first text of a message.
    fn first(&mut self, piece: &Piece, taking: Taking) -> c_int {
        let message = self.key().zip(self.work.nonce);
        let message = message.and_then(|(key, nonce)| key.message(&nonce));
        let Some(mut message) = message else {
            return self.leave(piece, taking);
        };
        self.work.nonce = None;
        message.aad(&self.work.aad);
        self.work.aad.clear();
        self.work.state = State::Lanes(Box::new(message));
        self.go_on(piece)
    }

    /// The next text of a message.
    fn go_on(&mut self, piece: &Piece) -> c_int {
        let (Some(key), opens) = (self.key(), self.work.opens) else {
            return 0;
        };
        let State::Lanes(message) = &mut self.work.state else {
            return 0;
        };
        if piece.text.is_null() || piece.len == 0 {
            piece.tell(0);
            return 1;
        }
        if piece.room < piece.len {
            return refuse("the place for the text is small");
        }
        // SAFETY: OpenSSL passes `len` bytes of text and `room` bytes for the result, which was compared above.
        let text = unsafe { piece.in_place() };
        let done = match opens {
            false => key.encrypt(message, text),
            true => key.decrypt(message, text),
        };
        match done {
            Ok(()) => {
                piece.tell(piece.len);
                1
            }
            Err(error) => refuse(&error.to_string()),
        }
    }

    /// A record of TLS 1.2: text and place for its tag, or text and tag.
    fn record(&mut self, piece: &Piece, header: [u8; HEADER], taking: Taking) -> c_int {
        let len = usize::from(u16::from_be_bytes([header[11], header[12]]));
        let (Some(key), Some(mut nonce), true) = (self.key(), self.work.base, piece.len == len + TAG_LEN) else {
            return self.leave(piece, taking);
        };
        for (byte, number) in nonce[4..].iter_mut().zip(&header[..8]) {
            *byte ^= number;
        }
        // SAFETY: OpenSSL passes `len` bytes of text and `room` bytes for the result, which was compared above.
        let record = unsafe { piece.in_place() };
        if !self.work.opens {
            let (text, tag) = record.split_at_mut(len);
            match key.seal_in_place(&nonce, &header, text) {
                Ok(made) => tag.copy_from_slice(&made),
                Err(error) => return refuse(&error.to_string()),
            }
            piece.tell(piece.len);
            return 1;
        }
        match key.open_in_place(&nonce, &header, record) {
            Ok(_) => {
                piece.tell(len);
                1
            }
            Err(_) => 0,
        }
    }

    /// Leaves it to the default provider's context, which gets the additional data first.
    fn leave(&mut self, piece: &Piece, taking: Taking) -> c_int {
        if !self.hand_over() {
            return 0;
        }
        // SAFETY: the default provider's function with a context of its own, and what the caller
        // passed.
        unsafe {
            taking(
                self.inner.get(),
                piece.out,
                piece.out_len,
                piece.room,
                piece.text,
                piece.len,
            )
        }
    }

    fn hand_over(&mut self) -> bool {
        let is_record = self.work.header.take().is_some();
        if !matches!(self.work.state, State::Fresh) || is_record {
            // A record is a message by itself: the next one may be ours.
            return true;
        }
        let Some(functions) = Self::functions() else {
            return false;
        };
        self.work.state = State::Inner;
        let aad = std::mem::take(&mut self.work.aad);
        let mut taken = 0;
        // SAFETY: the default provider's function with a context of its own; no place means
        // additional data.
        aad.is_empty()
            || unsafe {
                (functions.update)(
                    self.inner.get(),
                    ptr::null_mut(),
                    &mut taken,
                    // As OpenSSL says it where there is no place.
                    aad.len(),
                    aad.as_ptr(),
                    aad.len(),
                )
            } == 1
    }

    /// The end of a message of ours; `None` if it is none.
    fn end(&mut self) -> Option<bool> {
        let State::Lanes(message) = std::mem::replace(&mut self.work.state, State::Opened) else {
            return None;
        };
        let tag = message.tag();
        if !self.work.opens {
            self.work.state = State::Sealed(tag);
            return Some(true);
        }
        let (expected, len) = &self.work.expected;
        let differ = (tag.iter().zip(expected).take(*len)).fold(0, |sum, (a, b)| sum | (a ^ b));
        // Without a tag nothing is authentic.
        Some(*len > 0 && std::hint::black_box(differ) == 0)
    }
}

/// Puts an error into OpenSSL's queue.
fn refuse(reason: &str) -> c_int {
    LibCrypto::get().raise(INTERNAL_ERROR, reason);
    0
}

unsafe extern "C" fn newctx(_: Object) -> Object {
    guarded(ptr::null_mut(), || {
        let made = || {
            let functions = Context::functions()?;
            // SAFETY: the default provider's functions with its own context.
            let inner = unsafe {
                let inner = (functions.newctx)(Defaults::get().context());
                Inner::new(inner, functions.freectx)
            };
            Some(Context {
                inner: inner?,
                work: Work::default(),
            })
        };
        objects::give(made())
    })
}

unsafe extern "C" fn dupctx(object: Object) -> Object {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
    let context = unsafe { borrow::<Context>(object) };
    guarded(ptr::null_mut(), || {
        let copy = || {
            let context = context?;
            // SAFETY: the default provider's function for such contexts.
            let inner = unsafe { context.inner.copy(Context::functions()?.dupctx) };
            Some(Context {
                inner: inner?,
                work: context.work.clone(),
            })
        };
        objects::give(copy())
    })
}

/// The beginning of a message: key and nonce may come at once or one after the other.
macro_rules! beginnings {
    ($($name:ident: $opens:literal;)*) => {$(
        unsafe extern "C" fn $name(
            object: Object,
            key: *const u8,
            key_len: usize,
            nonce: *const u8,
            nonce_len: usize,
            params: *const Param,
        ) -> c_int {
            // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now and a list that ends; each may
            // be null.
            let (context, list) = unsafe { (borrow::<Context>(object), Params::new(params)) };
            guarded(0, || {
                let (Some(context), Some(functions)) = (context, Context::functions()) else {
                    return 0;
                };
                let inner = context.inner.get();
                // SAFETY: the default provider's function with a context of its own, and what the
                // caller passed.
                if unsafe { (functions.$name)(inner, key, key_len, nonce, nonce_len, params) } != 1 {
                    return 0;
                }
                context.work.opens = $opens;
                // SAFETY: the default provider has accepted both with these lengths, which it knows.
                unsafe {
                    if !key.is_null() {
                        let mut secret = Zeroizing::new([0; 32]);
                        ptr::copy_nonoverlapping(key, secret.as_mut_ptr(), key_len.min(32));
                        context.work.secret = Some(secret);
                        context.work.key = None;
                        context.begin();
                    }
                    if !nonce.is_null() && nonce_len == NONCE_LEN {
                        let nonce = *nonce.cast::<[u8; NONCE_LEN]>();
                        (context.work.nonce, context.work.base) = (Some(nonce), Some(nonce));
                        context.begin();
                    }
                }
                context.notice(list);
                1
            })
        }
    )*};
}

beginnings! {
    encrypt_init: false;
    decrypt_init: true;
}

/// Calls `work` with the context and the default provider's functions.
///
/// # Safety
///
/// `object` must be a context of `newctx` that no other call uses now, or null.
unsafe fn with_context(object: Object, work: impl FnOnce(&mut Context, &CipherFunctions) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    let context = unsafe { borrow::<Context>(object) };
    guarded(0, || match (context, Context::functions()) {
        (Some(context), Some(functions)) => work(context, functions),
        _ => 0,
    })
}

/// Functions that take a piece of text, each with its work on a context.
macro_rules! of_pieces {
    ($($(#[$doc:meta])* $name:ident: $work:expr;)*) => {$(
        $(#[$doc])*
        unsafe extern "C" fn $name(
            object: Object,
            out: *mut u8,
            out_len: *mut usize,
            room: usize,
            text: *const u8,
            len: usize,
        ) -> c_int {
            let piece = Piece {
                out,
                out_len,
                room,
                text,
                len,
            };
            // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null, and to `update` a
            // place for the length, `len` bytes of text and `room` bytes for the result.
            unsafe { with_context(object, |context, functions| $work(context, functions, &piece)) }
        }
    )*};
}

of_pieces! {
    update: |context: &mut Context, functions: &CipherFunctions, piece| {
        context.take(piece, functions.update)
    };
    /// `EVP_Cipher`: as `update`, and without text as `final`.
    in_one: |context: &mut Context, functions: &CipherFunctions, piece: &Piece| {
        if piece.text.is_null() && matches!(context.work.state, State::Lanes(_)) {
            piece.tell(0);
            return context.end().unwrap_or(false).into();
        }
        context.take(piece, functions.cipher.unwrap_or(functions.update))
    };
}

unsafe extern "C" fn finish(object: Object, out: *mut u8, out_len: *mut usize, room: usize) -> c_int {
    // SAFETY: OpenSSL passes a context that no other call uses now, and a place for the length. The default
    // provider's function gets a context of its own, and what the caller passed.
    unsafe {
        with_context(object, |context, functions| match context.work.state {
            State::Lanes(_) => {
                *out_len = 0;
                context.end().unwrap_or(false).into()
            }
            State::Sealed(_) | State::Opened => refuse("the message has ended; set a new nonce"),
            State::Fresh | State::Inner => match context.hand_over() {
                true => (functions.finish)(context.inner.get(), out, out_len, room),
                false => 0,
            },
        })
    }
}

unsafe extern "C" fn get_params(params: *mut Param) -> c_int {
    // SAFETY: the default provider's function with the caller's list.
    Context::functions().map_or(0, |functions| unsafe { (functions.get_params)(params) })
}

unsafe extern "C" fn get_ctx_params(object: Object, params: *mut Param) -> c_int {
    // SAFETY: OpenSSL passes a context that no other call uses now, and the caller's list, which the default
    // provider's function gets with a context of its own.
    unsafe {
        let list = Params::new(params);
        with_context(object, |context, functions| {
            if let (State::Sealed(tag), Some(wanted)) = (&context.work.state, list.get(c"tag")) {
                // Others are not asked together with the tag.
                let len = wanted.room();
                return ((1..=TAG_LEN).contains(&len) && wanted.set_octets(&tag[..len])).into();
            }
            (functions.get_ctx_params)(context.inner.get(), params)
        })
    }
}

unsafe extern "C" fn set_ctx_params(object: Object, params: *const Param) -> c_int {
    // SAFETY: as in `get_ctx_params`.
    unsafe {
        let list = Params::new(params);
        with_context(object, |context, functions| {
            let set = (functions.set_ctx_params)(context.inner.get(), params);
            if set == 1 {
                context.notice(list);
            }
            set
        })
    }
}

unsafe extern "C" fn gettable_params(_: Object) -> *const Param {
    let gettable = Context::functions().and_then(|functions| functions.gettable_params);
    // SAFETY: the default provider's function with its own context.
    gettable.map_or(ptr::null(), |gettable| unsafe { gettable(Defaults::get().context()) })
}

unsafe extern "C" fn gettable_ctx_params(_: Object, _: Object) -> *const Param {
    let gettable = Context::functions().and_then(|functions| functions.gettable_ctx_params);
    // SAFETY: the default provider's function, which takes no context for all that there can be.
    gettable.map_or(ptr::null(), |gettable| unsafe {
        gettable(ptr::null_mut(), Defaults::get().context())
    })
}

unsafe extern "C" fn settable_ctx_params(_: Object, _: Object) -> *const Param {
    let settable = Context::functions().and_then(|functions| functions.settable_ctx_params);
    // SAFETY: as in `gettable_ctx_params`.
    settable.map_or(ptr::null(), |settable| unsafe {
        settable(ptr::null_mut(), Defaults::get().context())
    })
}

/// Bytes of what TLS 1.2 authenticates beside a record (RFC 5246, section 6.2.3.3).
const HEADER: usize = 13;
/// Bytes of additional data that are kept until it is known who takes them.
const MOST_AAD: usize = 4096;
/// Bytes of the shortest first piece, and of the shortest record, that are not left to OpenSSL. On Zen 4
/// its own code is faster up to half of a record, and as fast with a whole one.
const WORTH_IT: usize = 16384;
