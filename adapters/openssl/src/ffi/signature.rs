//! SIGNATURE: how OpenSSL signs with our keys (`provider-signature(7)`).
//!
//! Lanes sign whole messages. A context only takes notice of what is asked until the message is there:
//! in one shot, or as a short stream, of which OpenSSL ends a copy ([`crate::signers`]). At
//! the first question that lanes have no answer to, the default provider's context takes over, with
//! everything that was said before; verification, long streams and other hash functions are such
//! questions.
//!
//! A context for hash values (`EVP_PKEY_sign`) may sign many of them. So the
//! default provider's context stands beside it, and signs those that lanes do not.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use crate::family::Family;
use crate::ffi::abi::{Dispatch, Object, Param, dispatch};
use crate::ffi::defaults::{Defaults, Offered, lists};
use crate::ffi::keys::Key;
use crate::ffi::libcrypto::{INTERNAL_ERROR, LibCrypto};
use crate::ffi::objects::{self, borrow, bytes, counted, guarded, on};
use crate::ffi::params::Params;
use crate::ffi::signature_context::{Context, State, settable};
use crate::signers::{DigestSigner, MessageSigner};

/// The functions that the family with this number offers: those that the default
/// provider of this OpenSSL has, too, because what it lacks it must be seen to lack. So OpenSSL makes
/// streams of messages where it does so by itself, and calls follow each other as without us.
pub(crate) fn offered<const FAMILY: usize>() -> &'static [Dispatch] {
    static OFFERED: Offered = Offered::new();
    let family = Family::numbered(FAMILY);
    let theirs = Defaults::get().signature(family);
    OFFERED.of(family, theirs.map(|functions| &functions.algorithm), &table::<FAMILY>())
}

const fn table<const FAMILY: usize>() -> [Dispatch; 32] {
    dispatch![signature:
        newctx::<FAMILY>, freectx = objects::free::<Context>, dupctx, sign_init, sign,
        verify_init, verify, verify_recover_init, verify_recover, digest_sign_init,
        digest_sign_update, digest_sign_final, digest_sign, digest_verify_init,
        digest_verify_update, digest_verify_final, digest_verify, get_ctx_params,
        gettable_ctx_params::<FAMILY>, set_ctx_params, settable_ctx_params::<FAMILY>,
        get_ctx_md_params, gettable_ctx_md_params, set_ctx_md_params, settable_ctx_md_params,
        sign_message_init, sign_message_update, sign_message_final, verify_message_init,
        verify_message_update, verify_message_final
    ]
}

unsafe extern "C" fn newctx<const FAMILY: usize>(_: Object, properties: *const c_char) -> Object {
    guarded(ptr::null_mut(), || {
        let properties = match properties.is_null() {
            true => None,
            // SAFETY: OpenSSL passes a string of C, and it is not null.
            false => Some(unsafe { CStr::from_ptr(properties) }.to_owned()),
        };
        objects::give(Some(Context {
            family: Family::numbered(FAMILY),
            properties,
            state: State::New,
            signs: None,
        }))
    })
}

unsafe extern "C" fn dupctx(object: Object) -> Object {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
    let context = unsafe { borrow::<Context>(object) };
    guarded(ptr::null_mut(), || {
        objects::give(context.and_then(|context| context.copy()))
    })
}

unsafe extern "C" fn sign_init(object: Object, key: Object, params: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, a key that it has not freed and a list
    // that ends; each may be null.
    let (context, key, list) = unsafe { (borrow::<Context>(object), counted::<Key>(key), Params::new(params)) };
    on(context, |context| {
        // Without a key, the operation begins anew with the one that it has.
        let key = match (key, &context.state) {
            (None, State::Digest(signer, _)) => Some(Arc::clone(&signer.key)),
            (key, _) => key,
        };
        if let Some(key) = &key
            && let Some(signer) = DigestSigner::new(Arc::clone(key), list)
        {
            context.state = State::Digest(signer, None);
            return 1;
        }
        context.begin(key, |functions, object, key| {
            // SAFETY: the default provider's function with a context and a key of its own, and what
            // the caller passed.
            Some(unsafe { functions.sign_init?(object, key, params) })
        })
    })
}

unsafe extern "C" fn sign(
    object: Object,
    signature: *mut u8,
    len: *mut usize,
    room: usize,
    value: *const u8,
    value_len: usize,
) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now and `value_len` bytes; each may be null.
    let (context, hash_value) = unsafe { (borrow::<Context>(object), bytes(value, value_len)) };
    on(context, |context| {
        // SAFETY: the caller gives `room` bytes at `signature`, or null, and a place for the length.
        if let Some(answer) = unsafe { context.sign_digest(signature, len, room, hash_value) } {
            return answer;
        }
        context.continue_inner(|functions, inner| {
            // SAFETY: the default provider's function with a context of its own, and what the
            // caller passed.
            Some(unsafe { functions.sign?(inner, signature, len, room, value, value_len) })
        })
    })
}

unsafe extern "C" fn digest_sign_init(
    object: Object,
    digest: *const c_char,
    key: Object,
    params: *const Param,
) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, a key that it has not freed, a list
    // that ends and a string of C; each may be null.
    let (context, key, list, name) = unsafe {
        let name = (!digest.is_null()).then(|| CStr::from_ptr(digest));
        (
            borrow::<Context>(object),
            counted::<Key>(key),
            Params::new(params),
            name,
        )
    };
    on(context, |context| {
        // Without a key, the operation begins anew with the one that it has.
        let key = match (key, &context.state) {
            (None, State::Message(signer)) => Some(Arc::clone(&signer.key)),
            (key, _) => key,
        };
        if let Some(key) = &key
            && let Some(signer) = MessageSigner::new(Arc::clone(key), name, list)
        {
            context.state = State::Message(signer);
            return 1;
        }
        if key.is_some() {
            context.signs = key.clone();
        }
        context.begin(key, |functions, object, key| {
            // SAFETY: the default provider's function with a context and a key of its own, and what
            // the caller passed.
            Some(unsafe { (functions.digest_sign_init)(object, digest, key, params) })
        })
    })
}

unsafe extern "C" fn digest_sign(
    object: Object,
    signature: *mut u8,
    len: *mut usize,
    room: usize,
    message: *const u8,
    message_len: usize,
) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now and `message_len` bytes; each may be
    // null.
    let (context, text) = unsafe { (borrow::<Context>(object), bytes(message, message_len)) };
    on(context, |context| {
        // SAFETY: the caller gives `room` bytes at `signature`, or null, and a place for the length.
        if let Some(answer) = unsafe { context.sign_message(signature, len, room, text) } {
            return answer;
        }
        let since = Instant::now();
        let result = context.continue_inner(|functions, inner| {
            // SAFETY: the default provider's function with a context of its own, and what the
            // caller passed.
            Some(unsafe { functions.digest_sign?(inner, signature, len, room, message, message_len) })
        });
        context.signed(since, result, signature);
        result
    })
}

/// Functions that begin an operation of the default provider.
macro_rules! beginnings {
    ($($name:ident($object:ident, $key:ident $(, $argument:ident: $type:ty)*)
        = |$functions:ident, $inner:ident, $inner_key:ident| $call:expr;)*) => {$(
        unsafe extern "C" fn $name($object: Object, $($argument: $type,)*) -> c_int {
            // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now and a key that it has not
            // freed; each may be null.
            let (context, $key) = unsafe { (borrow::<Context>($object), counted::<Key>($key)) };
            on(context, |context| {
                context.begin($key, |$functions, $inner, $inner_key| {
                    // SAFETY: the default provider's function with a context and a key of its own,
                    // and what the caller passed.
                    unsafe { $call }
                })
            })
        }
    )*};
}

beginnings! {
    verify_init(object, key, key: Object, params: *const Param)
        = |functions, inner, inner_key| Some(functions.verify_init?(inner, inner_key, params));
    verify_recover_init(object, key, key: Object, params: *const Param)
        = |functions, inner, inner_key| Some(functions.verify_recover_init?(inner, inner_key, params));
    sign_message_init(object, key, key: Object, params: *const Param)
        = |functions, inner, inner_key| Some(functions.sign_message_init?(inner, inner_key, params));
    verify_message_init(object, key, key: Object, params: *const Param)
        = |functions, inner, inner_key| Some(functions.verify_message_init?(inner, inner_key, params));
    digest_verify_init(object, key, digest: *const c_char, key: Object, params: *const Param)
        = |functions, inner, inner_key|
            Some(functions.digest_verify_init?(inner, digest, inner_key, params));
}

/// Functions that the default provider's context does.
macro_rules! continuations {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(object: Object $(, $argument: $type)*) -> c_int {
            // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
            let context = unsafe { borrow::<Context>(object) };
            on(context, |context| {
                context.continue_inner(|functions, inner| {
                    // SAFETY: the default provider's function with a context of its own, and what
                    // the caller passed.
                    Some(unsafe { functions.$name?(inner $(, $argument)*) })
                })
            })
        }
    )*};
}

continuations! {
    verify(signature: *const u8, len: usize, text: *const u8, text_len: usize);
    verify_recover(out: *mut u8, len: *mut usize, room: usize, signature: *const u8, signature_len: usize);
    sign_message_update(text: *const u8, len: usize);
    sign_message_final(signature: *mut u8, len: *mut usize, room: usize);
    verify_message_update(text: *const u8, len: usize);
    verify_message_final();
    digest_verify_update(text: *const u8, len: usize);
    digest_verify_final(signature: *const u8, len: usize);
    digest_verify(signature: *const u8, len: usize, text: *const u8, text_len: usize);
    get_ctx_params(params: *mut Param);
    get_ctx_md_params(params: *mut Param);
    set_ctx_md_params(params: *const Param);
}

/// A short stream is kept, and signed as in one shot. What is longer goes to the default provider.
unsafe extern "C" fn digest_sign_update(object: Object, text: *const u8, len: usize) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now and `len` bytes; each may be null.
    let (context, piece) = unsafe { (borrow::<Context>(object), bytes(text, len)) };
    on(context, |context| {
        if let State::Message(signer) = &mut context.state {
            if signer.ended {
                LibCrypto::get().raise(INTERNAL_ERROR, "the stream has been signed");
                return 0;
            }
            if signer.has_room_for(len) && signer.signature_len().is_some() {
                signer.streamed.extend_from_slice(piece);
                return 1;
            }
        }
        context.continue_inner(|functions, inner| {
            // SAFETY: the default provider's function with a context of its own, and what the
            // caller passed.
            Some(unsafe { functions.digest_sign_update?(inner, text, len) })
        })
    })
}

unsafe extern "C" fn digest_sign_final(object: Object, signature: *mut u8, len: *mut usize, room: usize) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
    let context = unsafe { borrow::<Context>(object) };
    on(context, |context| {
        if let State::Message(signer) = &context.state
            && signer.ended
        {
            LibCrypto::get().raise(INTERNAL_ERROR, "the stream has been signed");
            return 0;
        }
        // SAFETY: the caller gives `room` bytes at `signature`, or null, and a place for the length.
        if let Some(answer) = unsafe { context.sign_message(signature, len, room, &[]) } {
            if let State::Message(signer) = &mut context.state
                && !signature.is_null()
            {
                signer.ended = true;
            }
            return answer;
        }
        let since = Instant::now();
        let result = context.continue_inner(|functions, inner| {
            // SAFETY: the default provider's function with a context of its own, and what the
            // caller passed.
            Some(unsafe { functions.digest_sign_final?(inner, signature, len, room) })
        });
        context.signed(since, result, signature);
        result
    })
}

unsafe extern "C" fn set_ctx_params(object: Object, params: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now and a list that ends; each may be null.
    let (context, list) = unsafe { (borrow::<Context>(object), Params::new(params)) };
    on(context, |context| {
        let taken = match &mut context.state {
            State::Message(signer) => signer.settings.set_params(list),
            State::Digest(signer, beside) => {
                let taken = signer.settings.set_params(list);
                if taken {
                    // It would sign as was said before.
                    *beside = None;
                }
                taken
            }
            _ => false,
        };
        if taken {
            return 1;
        }
        let Some((functions, inner)) = context.inner() else {
            return 0;
        };
        context.take_over();
        // SAFETY: the default provider's function with a context of its own and the caller's list.
        (functions.set_ctx_params).map_or(list.iter().next().is_none().into(), |set| unsafe { set(inner, params) })
    })
}

lists! {
    signature:
    gettable_ctx_params(_context: Object, _provider: Object)
        = |functions, context| Some(functions?.gettable_ctx_params?(ptr::null_mut(), context));
}

unsafe extern "C" fn settable_ctx_params<const FAMILY: usize>(object: Object, _: Object) -> *const Param {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
    let context = unsafe { borrow::<Context>(object) };
    guarded(ptr::null(), || match context {
        Some(context) => context.settable(),
        None => settable(ptr::null_mut(), Family::numbered(FAMILY)),
    })
}

/// Lists of what the default provider's context takes of its hash function, or tells.
macro_rules! digest_lists {
    ($($name:ident)+) => { $(
        unsafe extern "C" fn $name(object: Object) -> *const Param {
            // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
            let context = unsafe { borrow::<Context>(object) };
            guarded(ptr::null(), || {
                let called = || {
                    let (functions, inner) = context?.inner()?;
                    // SAFETY: the default provider's function with a context of its own.
                    Some(unsafe { functions.$name?(inner) })
                };
                called().unwrap_or(ptr::null())
            })
        }
    )+ };
}

digest_lists!(gettable_ctx_md_params settable_ctx_md_params);
