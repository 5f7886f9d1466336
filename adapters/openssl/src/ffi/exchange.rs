//! KEYEXCH: how OpenSSL agrees on secrets with our keys (`provider-keyexch(7)`).
//!
//! A server's key has already met the client's share when it was made, so the agreement of a
//! handshake only hands out what is known. What agrees on nothing is left to the default provider, whose
//! error is the right one.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{ptr, slice};

use widelane_crypto::agreement::Secret;
use widelane_crypto::{AgreeError, Shared};

use crate::engine;
use crate::family::Family;
use crate::ffi::abi::{Dispatch, Object, Param, dispatch};
use crate::ffi::defaults::{Defaults, ExchangeFunctions, Inner, Offered, lists};
use crate::ffi::keys::{Key, Share};
use crate::ffi::objects::{self, borrow, counted, guarded, on};
use crate::ffi::params::Params;
use crate::ffi::status;
use crate::jobs::waiting;

/// The functions that the family with this number offers: those that the default
/// provider of this OpenSSL has, too. X25519 has no values that could be set.
pub(crate) fn offered<const FAMILY: usize>() -> &'static [Dispatch] {
    static OFFERED: Offered = Offered::new();
    let family = Family::numbered(FAMILY);
    let theirs = Defaults::get().exchange(family);
    OFFERED.of(family, theirs.map(|functions| &functions.algorithm), &table::<FAMILY>())
}

const fn table<const FAMILY: usize>() -> [Dispatch; 11] {
    dispatch![keyexch:
        newctx::<FAMILY>, freectx = objects::free::<Context>, dupctx, init, set_peer, derive,
        set_ctx_params, settable_ctx_params::<FAMILY>, get_ctx_params,
        gettable_ctx_params::<FAMILY>
    ]
}

/// An agreement under way.
struct Context {
    family: Family,
    key: Option<Arc<Key>>,
    peer: Option<Arc<Key>>,
    /// The default provider's context, once something was asked that lanes do not do.
    inner: Option<Inner>,
}

impl Context {
    /// Both shares, if lanes can agree on them.
    fn shares(&self) -> Option<(Share, Share)> {
        let own = self.key.as_ref()?.share()?;
        let peer = self.peer.as_ref()?.share()?;
        let whole = own.secret.is_some() && peer.public.is_some();
        (whole && own.curve == peer.curve).then_some((own, peer))
    }

    /// Goes on with the default provider's context, which gets the same keys.
    fn inner(&mut self) -> Option<(&'static ExchangeFunctions, Object)> {
        let functions = Defaults::get().exchange(self.family)?;
        if self.inner.is_none() {
            // SAFETY: the default provider's functions with its own context.
            let inner = unsafe {
                let inner = (functions.newctx)(Defaults::get().context());
                Inner::new(inner, functions.freectx)?
            };
            let object = inner.get();
            if let Some(key) = &self.key {
                // SAFETY: the default provider's function with a context and a key of its own.
                let ready = key.with_inner(|_, key| unsafe { (functions.init)(object, key, ptr::null()) });
                (ready? == 1).then_some(())?;
            }
            if let Some(peer) = &self.peer {
                // SAFETY: the default provider's function with a context and a key of its own.
                let ready = peer.with_inner(|_, peer| unsafe { (functions.set_peer)(object, peer) });
                (ready? == 1).then_some(())?;
            }
            self.inner = Some(inner);
        }
        Some((functions, self.inner.as_ref()?.get()))
    }
}

/// The secret that both shares agree on, or why they do not agree.
fn agree(own: Share, peer: Share) -> Result<Result<Shared, AgreeError>, engine::Failure> {
    let (Some(secret), Some(public)) = (own.secret, peer.public) else {
        return Ok(Err(AgreeError::InvalidSecret));
    };
    if let Some(agreed) = own.agreed.filter(|agreed| agreed.0 == public) {
        return Ok(Ok(agreed.1.clone()));
    }
    let loaded = own.loaded.map_or_else(|| Secret::from_bytes(own.curve, &secret), Ok);
    let request = loaded.and_then(|secret| secret.derive(&public));
    let answer = match request {
        Ok(request) => waiting::run(request)?,
        Err(error) => Err(error),
    };
    Ok(answer.and_then(|answer| answer.into_shared().ok_or(AgreeError::Failed)))
}

unsafe extern "C" fn newctx<const FAMILY: usize>(_: Object) -> Object {
    guarded(ptr::null_mut(), || {
        objects::give(Some(Context {
            family: Family::numbered(FAMILY),
            key: None,
            peer: None,
            inner: None,
        }))
    })
}

unsafe extern "C" fn dupctx(object: Object) -> Object {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
    let context = unsafe { borrow::<Context>(object) };
    guarded(ptr::null_mut(), || {
        let copy = || {
            let context = context?;
            let inner = match &context.inner {
                None => None,
                Some(inner) => {
                    let functions = Defaults::get().exchange(context.family)?;
                    // SAFETY: the default provider's function for such contexts.
                    Some(unsafe { inner.copy(functions.dupctx)? })
                }
            };
            Some(Context {
                family: context.family,
                key: context.key.clone(),
                peer: context.peer.clone(),
                inner,
            })
        };
        objects::give(copy())
    })
}

unsafe extern "C" fn init(object: Object, key: Object, params: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, a key that it has not freed and a list
    // that ends; each may be null.
    let (context, key, list) = unsafe { (borrow::<Context>(object), counted::<Key>(key), Params::new(params)) };
    guarded(0, || {
        let (Some(context), Some(key)) = (context, key) else {
            return 0;
        };
        context.key = Some(key);
        context.peer = None;
        context.inner = None;
        match list.iter().next() {
            None => 1,
            Some(_) => set(context, params),
        }
    })
}

unsafe extern "C" fn set_peer(object: Object, peer: Object) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now and a key that it has not freed; each
    // may be null.
    let (context, peer) = unsafe { (borrow::<Context>(object), counted::<Key>(peer)) };
    guarded(0, || {
        let (Some(context), Some(peer)) = (context, peer) else {
            return 0;
        };
        if context.inner.is_none() {
            let before = context.peer.replace(peer);
            // Keys that lanes do not take meet in the default provider, which says whether they
            // belong together.
            let fits = context.shares().is_some() || context.inner().is_some();
            if !fits {
                context.peer = before;
            }
            return fits.into();
        }
        let Some((functions, inner)) = context.inner() else {
            return 0;
        };
        // SAFETY: the default provider's function with a context and a key of its own.
        peer.with_inner(|_, peer| unsafe { (functions.set_peer)(inner, peer) })
            .unwrap_or(0)
    })
}

unsafe extern "C" fn derive(object: Object, secret: *mut u8, len: *mut usize, room: usize) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
    let context = unsafe { borrow::<Context>(object) };
    on(context, |context| {
        let since = Instant::now();
        let result = derive_anywhere(context, secret, len, room);
        if result == 1 && !secret.is_null() {
            // In lanes, the agreement is made with the key.
            let key = context.key.as_ref();
            let making = key.map_or(Duration::ZERO, |key| key.made_in);
            status::count_agreed(making + since.elapsed());
        }
        result
    })
}

/// The agreement of lanes, or else of the default provider.
fn derive_anywhere(context: &mut Context, secret: *mut u8, len: *mut usize, room: usize) -> c_int {
    if context.inner.is_some() {
        return derive_inner(context, secret, len, room);
    }
    // The default provider knows what is to be said of keys that are missing, or agree on nothing,
    // and of a place that is too small: ECDH fills it.
    let Some((own, peer)) = context.shares() else {
        return derive_inner(context, secret, len, room);
    };
    let wanted = own.curve.secret_len();
    if len.is_null() {
        return 0;
    }
    if !secret.is_null() {
        if room < wanted {
            return derive_inner(context, secret, len, room);
        }
        let shared = match agree(own, peer) {
            Ok(Ok(shared)) => shared,
            Ok(Err(_)) => return derive_inner(context, secret, len, room),
            Err(failure) if failure.falls_back() => {
                return derive_inner(context, secret, len, room);
            }
            Err(_) => return 0,
        };
        // SAFETY: the caller gives `room` bytes at `secret`, which are enough.
        unsafe { slice::from_raw_parts_mut(secret, wanted) }.copy_from_slice(shared.as_bytes());
    }
    // SAFETY: the caller gives a place for the length.
    unsafe { *len = wanted };
    1
}

/// The default provider's agreement.
fn derive_inner(context: &mut Context, secret: *mut u8, len: *mut usize, room: usize) -> c_int {
    let Some((functions, inner)) = context.inner() else {
        return 0;
    };
    // SAFETY: the default provider's function with a context of its own and the places that the
    // caller of `derive` gives.
    unsafe { (functions.derive)(inner, secret, len, room) }
}

unsafe extern "C" fn set_ctx_params(object: Object, params: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now and a list that ends; each may be null.
    let (context, list) = unsafe { (borrow::<Context>(object), Params::new(params)) };
    guarded(0, || match context {
        None => 0,
        Some(_) if list.iter().next().is_none() => 1,
        Some(context) => set(context, params),
    })
}

/// Key derivation functions and cofactors are the default provider's.
fn set(context: &mut Context, params: *const Param) -> c_int {
    let Some((functions, inner)) = context.inner() else {
        return 0;
    };
    // SAFETY: the default provider's function with a context of its own and the caller's list.
    functions.set_ctx_params.map_or(0, |set| unsafe { set(inner, params) })
}

unsafe extern "C" fn get_ctx_params(object: Object, params: *mut Param) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
    let context = unsafe { borrow::<Context>(object) };
    guarded(0, || {
        let Some((functions, inner)) = context.and_then(Context::inner) else {
            return 0;
        };
        // SAFETY: the default provider's function with a context of its own and the caller's list.
        functions.get_ctx_params.map_or(0, |get| unsafe { get(inner, params) })
    })
}

lists! {
    exchange:
    settable_ctx_params(_context: Object, _provider: Object)
        = |functions, context| Some(functions?.settable_ctx_params?(ptr::null_mut(), context));
    gettable_ctx_params(_context: Object, _provider: Object)
        = |functions, context| Some(functions?.gettable_ctx_params?(ptr::null_mut(), context));
}
