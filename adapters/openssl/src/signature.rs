//! SIGNATURE: how OpenSSL signs with our keys (`provider-signature(7)`).
//!
//! Servers sign in one shot (`EVP_DigestSign`): that is what lanes do. A context only takes notice
//! of what is asked until the shot comes. At the first question that lanes have no answer to, the
//! default provider's context takes over, with everything that was said before; verification,
//! streams and other hash functions are such questions. OpenSSL's contract is that of `keymgmt`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;
use std::{ptr, slice};

use widelane_crypto::{ecdh, ecdsa, ed25519, rsa};

use crate::abi::{self, Dispatch, Object, Param};
use crate::defaults::{Defaults, SignatureFunctions};
use crate::family::Family;
use crate::keymgmt::guarded;
use crate::keys::{Key, Signer};
use crate::libcrypto::{INTERNAL_ERROR, LibCrypto};
use crate::log;
use crate::objects::{self, borrow, counted};
use crate::params::{OwnParams, Params, Value};
use crate::waiting;

/// The table for the family with this number in [`Family::ALL`].
pub(crate) const fn table<const FAMILY: usize>() -> [Dispatch; 26] {
    [
        abi::signature_newctx::of(newctx::<FAMILY>),
        abi::signature_freectx::of(freectx),
        abi::signature_dupctx::of(dupctx),
        abi::signature_sign_init::of(sign_init),
        abi::signature_sign::of(sign),
        abi::signature_verify_init::of(verify_init),
        abi::signature_verify::of(verify),
        abi::signature_verify_recover_init::of(verify_recover_init),
        abi::signature_verify_recover::of(verify_recover),
        abi::signature_digest_sign_init::of(digest_sign_init),
        abi::signature_digest_sign_update::of(digest_sign_update),
        abi::signature_digest_sign_final::of(digest_sign_final),
        abi::signature_digest_sign::of(digest_sign),
        abi::signature_digest_verify_init::of(digest_verify_init),
        abi::signature_digest_verify_update::of(digest_verify_update),
        abi::signature_digest_verify_final::of(digest_verify_final),
        abi::signature_digest_verify::of(digest_verify),
        abi::signature_get_ctx_params::of(get_ctx_params),
        abi::signature_gettable_ctx_params::of(gettable_ctx_params::<FAMILY>),
        abi::signature_set_ctx_params::of(set_ctx_params),
        abi::signature_settable_ctx_params::of(settable_ctx_params::<FAMILY>),
        abi::signature_get_ctx_md_params::of(get_ctx_md_params),
        abi::signature_gettable_ctx_md_params::of(gettable_ctx_md_params),
        abi::signature_set_ctx_md_params::of(set_ctx_md_params),
        abi::signature_settable_ctx_md_params::of(settable_ctx_md_params),
        Dispatch::END,
    ]
}

/// A signature or verification under way.
struct Context {
    family: Family,
    /// The property query that the default provider's context gets.
    properties: Option<CString>,
    state: State,
}

enum State {
    /// No operation has begun.
    New,
    /// A signature in one shot, which lanes can do.
    Planned(Plan),
    /// The default provider's context does it.
    Inner(Inner),
}

/// What was said about a signature that lanes can do.
#[derive(Clone)]
struct Plan {
    key: Arc<Key>,
    /// OpenSSL's name of the hash function, as it was said.
    digest: Option<CString>,
    settings: Settings,
}

/// What decides how an RSA signature is padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    hash: Option<Hash>,
    padding: Padding,
    salt: Salt,
    mgf1: Option<Hash>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Pkcs1,
    Pss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Salt {
    /// OpenSSL's default: as long as fits. Lanes do not do it.
    Longest,
    /// As long as the digest, as in TLS.
    Digest,
}

struct Inner(Object, Family);

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(functions) = Defaults::get().signature(self.1) {
            // SAFETY: the default provider's function with a context of its own, used no more.
            unsafe { (functions.freectx)(self.0) };
        }
    }
}

impl Hash {
    fn named(name: &str) -> Option<Self> {
        let is = |names: &[&str]| names.iter().any(|one| one.eq_ignore_ascii_case(name));
        if is(&["SHA256", "SHA2-256", "SHA-256"]) {
            Some(Self::Sha256)
        } else if is(&["SHA384", "SHA2-384", "SHA-384"]) {
            Some(Self::Sha384)
        } else if is(&["SHA512", "SHA2-512", "SHA-512"]) {
            Some(Self::Sha512)
        } else {
            None
        }
    }

    fn len(self) -> i64 {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

impl Settings {
    /// Takes notice of one value; false if lanes do not know what it asks for.
    fn notice(&mut self, value: Value<'_>) -> bool {
        let text = value.text();
        match (value.key().to_bytes(), text, value.integer()) {
            (b"pad-mode", Some("pkcs1"), _) | (b"pad-mode", _, Some(1)) => {
                self.padding = Padding::Pkcs1;
            }
            (b"pad-mode", Some("pss"), _) | (b"pad-mode", _, Some(6)) => {
                self.padding = Padding::Pss;
            }
            (b"saltlen", text, number) => {
                let number = number.or_else(|| text?.parse().ok());
                let digest = text == Some("digest") || number == Some(-1);
                if !digest && (number.is_none() || number != self.hash.map(Hash::len)) {
                    return false;
                }
                self.salt = Salt::Digest;
            }
            (b"mgf1-digest", Some(name), _) => match Hash::named(name) {
                Some(hash) => self.mgf1 = Some(hash),
                None => return false,
            },
            _ => return false,
        }
        true
    }

    /// The scheme that was asked for, if lanes have it.
    fn rsa_scheme(self) -> Option<rsa::Scheme> {
        use rsa::Scheme;
        let hash = self.hash?;
        match self.padding {
            Padding::Pkcs1 => Some(match hash {
                Hash::Sha256 => Scheme::Pkcs1Sha256,
                Hash::Sha384 => Scheme::Pkcs1Sha384,
                Hash::Sha512 => Scheme::Pkcs1Sha512,
            }),
            Padding::Pss => {
                let fits = self.salt == Salt::Digest && self.mgf1.is_none_or(|mgf1| mgf1 == hash);
                fits.then_some(match hash {
                    Hash::Sha256 => Scheme::PssSha256,
                    Hash::Sha384 => Scheme::PssSha384,
                    Hash::Sha512 => Scheme::PssSha512,
                })
            }
        }
    }

    /// The values that lead the default provider to these settings.
    fn as_params(self) -> OwnParams {
        let mut params = OwnParams::default();
        if self.padding == Padding::Pss {
            params = params.text(c"pad-mode", "pss");
        }
        if self.salt == Salt::Digest {
            params = params.text(c"saltlen", "digest");
        }
        match self.mgf1 {
            None => params,
            Some(Hash::Sha256) => params.text(c"mgf1-digest", "SHA256"),
            Some(Hash::Sha384) => params.text(c"mgf1-digest", "SHA384"),
            Some(Hash::Sha512) => params.text(c"mgf1-digest", "SHA512"),
        }
    }
}

impl Plan {
    /// A plan for this key and hash function; `None` if lanes do not sign so.
    fn new(key: Arc<Key>, digest: Option<&CStr>, params: Params<'_>) -> Option<Self> {
        let name = digest.and_then(|name| name.to_str().ok()).unwrap_or("");
        let hash = Hash::named(name);
        let fits = match key.signer()? {
            Signer::Rsa(_) => hash.is_some(),
            // The only hash functions that TLS 1.3 has for these curves.
            Signer::Ecdsa(key) => match key.curve() {
                ecdh::Curve::P256 => hash == Some(Hash::Sha256),
                ecdh::Curve::P384 => hash == Some(Hash::Sha384),
            },
            // Ed25519 hashes by itself (RFC 8032).
            Signer::Ed25519(_) => name.is_empty(),
        };
        let mut plan = Self {
            digest: digest.map(CStr::to_owned),
            settings: Settings {
                hash,
                padding: Padding::Pkcs1,
                salt: Salt::Longest,
                mgf1: None,
            },
            key,
        };
        (fits && plan.notice(params)).then_some(plan)
    }

    /// Takes notice of values; false, and then nothing is changed, if lanes do not know them all.
    fn notice(&mut self, params: Params<'_>) -> bool {
        let mut settings = self.settings;
        let is_rsa = self.key.family() == Family::Rsa;
        let known = params.iter().all(|value| is_rsa && settings.notice(value));
        if known {
            self.settings = settings;
        }
        known
    }

    /// The most bytes that a signature can have; `None` if lanes do not sign so.
    fn signature_len(&self) -> Option<usize> {
        Some(match self.key.signer()? {
            Signer::Rsa(key) => {
                self.settings.rsa_scheme()?;
                key.modulus_bits().div_ceil(8)
            }
            // SEQUENCE of two INTEGERs, each with a sign byte.
            Signer::Ecdsa(key) => match key.curve() {
                ecdh::Curve::P256 => 72,
                ecdh::Curve::P384 => 104,
            },
            Signer::Ed25519(_) => 64,
        })
    }

    /// The signature; `None` if lanes do not sign so.
    ///
    /// # Errors
    ///
    /// In the inner result, why there is no signature that could leave.
    fn sign(&self, message: &[u8]) -> Result<Option<Result<Vec<u8>, String>>, waiting::Failure> {
        let Some(signer) = self.key.signer() else {
            return Ok(None);
        };
        Ok(Some(match signer {
            Signer::Rsa(key) => {
                let Some(scheme) = self.settings.rsa_scheme() else {
                    return Ok(None);
                };
                match rsa::SignRequest::new(key, scheme, message) {
                    Ok(request) => waiting::run(request)?.map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                }
            }
            Signer::Ecdsa(key) => waiting::run(ecdsa::SignRequest::new(key, message))?
                .map_err(|error| error.to_string()),
            Signer::Ed25519(key) => waiting::run(ed25519::SignRequest::new(key, message))?
                .map_err(|error| error.to_string()),
        }))
    }
}

impl Context {
    /// Begins an operation of the default provider.
    fn begin(
        &mut self,
        key: Option<Arc<Key>>,
        begin: impl FnOnce(&SignatureFunctions, Object, Object) -> Option<c_int>,
    ) -> c_int {
        let begun = || {
            let functions = Defaults::get().signature(self.family)?;
            if !matches!(self.state, State::Inner(_)) {
                let properties = self.properties.as_ref();
                let properties = properties.map_or(ptr::null(), |text| text.as_ptr());
                // SAFETY: the default provider's function with its own context and a string of C.
                let object = unsafe { (functions.newctx)(Defaults::get().context(), properties) };
                if object.is_null() {
                    return None;
                }
                self.state = State::Inner(Inner(object, self.family));
            }
            let State::Inner(Inner(object, _)) = &self.state else {
                return None;
            };
            match key {
                Some(key) => key.with_inner(|_, key| begin(functions, *object, key))?,
                None => begin(functions, *object, ptr::null_mut()),
            }
        };
        begun().unwrap_or(0)
    }

    /// The default provider's context, which takes over from a plan. `None` if no operation has
    /// begun.
    fn inner(&mut self) -> Option<(&'static SignatureFunctions, Object)> {
        if let State::Planned(plan) = &self.state {
            let Plan {
                key,
                digest,
                settings,
            } = plan.clone();
            let mut params = settings.as_params();
            let begun = self.begin(Some(key), |functions, object, key| {
                let digest = digest.as_ref().map_or(ptr::null(), |text| text.as_ptr());
                // SAFETY: the default provider's function with a context and a key of its own, a
                // string of C and a whole list.
                Some(unsafe { (functions.digest_sign_init)(object, digest, key, params.as_ptr()) })
            });
            if begun != 1 {
                self.state = State::New;
            }
        }
        match &self.state {
            State::Inner(Inner(object, _)) => {
                Some((Defaults::get().signature(self.family)?, *object))
            }
            _ => None,
        }
    }
}

unsafe extern "C" fn newctx<const FAMILY: usize>(_: Object, properties: *const c_char) -> Object {
    guarded(ptr::null_mut(), || {
        let properties = match properties.is_null() {
            true => None,
            // SAFETY: OpenSSL's contract: a string of C.
            false => Some(unsafe { CStr::from_ptr(properties) }.to_owned()),
        };
        objects::give(Some(Context {
            family: Family::ALL[FAMILY],
            properties,
            state: State::New,
        }))
    })
}

unsafe extern "C" fn freectx(object: Object) {
    // SAFETY: OpenSSL's contract; it does not use the context again.
    unsafe { objects::free::<Context>(object) };
}

unsafe extern "C" fn dupctx(object: Object) -> Object {
    // SAFETY: OpenSSL's contract.
    let context = unsafe { borrow::<Context>(object) };
    guarded(ptr::null_mut(), || {
        let copy = || {
            let context = context?;
            let state = match &context.state {
                State::New => State::New,
                State::Planned(plan) => State::Planned(plan.clone()),
                State::Inner(Inner(inner, family)) => {
                    let dup = Defaults::get().signature(*family)?.dupctx?;
                    // SAFETY: the default provider's function with a context of its own.
                    let copy = unsafe { dup(*inner) };
                    State::Inner(Inner((!copy.is_null()).then_some(copy)?, *family))
                }
            };
            Some(Context {
                family: context.family,
                properties: context.properties.clone(),
                state,
            })
        };
        objects::give(copy())
    })
}

unsafe extern "C" fn digest_sign_init(
    object: Object,
    digest: *const c_char,
    key: Object,
    params: *const Param,
) -> c_int {
    // SAFETY: OpenSSL's contract.
    let (context, key, list, name) = unsafe {
        let name = (!digest.is_null()).then(|| CStr::from_ptr(digest));
        (
            borrow::<Context>(object),
            counted::<Key>(key),
            Params::new(params),
            name,
        )
    };
    guarded(0, || {
        let Some(context) = context else { return 0 };
        // Without a key, the operation begins anew with the one that it has.
        let key = match (key, &context.state) {
            (None, State::Planned(plan)) => Some(Arc::clone(&plan.key)),
            (key, _) => key,
        };
        if let Some(key) = &key
            && let Some(plan) = Plan::new(Arc::clone(key), name, list)
        {
            context.state = State::Planned(plan);
            return 1;
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
    // SAFETY: OpenSSL's contract; an empty message may be null.
    let (context, text) = unsafe {
        let text = match message.is_null() {
            true => &[],
            false => slice::from_raw_parts(message, message_len),
        };
        (borrow::<Context>(object), text)
    };
    guarded(0, || {
        let Some(context) = context else { return 0 };
        if let State::Planned(plan) = &context.state
            && let Some(wanted) = plan.signature_len()
            && !len.is_null()
        {
            if signature.is_null() {
                // SAFETY: the caller gives a place for the length.
                unsafe { *len = wanted };
                return 1;
            }
            let made = match plan.sign(text) {
                Ok(made) => made,
                Err(failure) if failure.falls_back() => None,
                Err(_) => return 0,
            };
            // A signature that was withheld is made once more, by other code.
            let made = made.and_then(|made| {
                made.map_err(|reason| log::once(&format!("OpenSSL signs by itself: {reason}")))
                    .ok()
            });
            if let Some(made) = made {
                if room < made.len() {
                    LibCrypto::get().raise(INTERNAL_ERROR, "the place for the signature is small");
                    return 0;
                }
                // SAFETY: the caller gives `room` bytes at `signature`, which are enough, and a
                // place for the length.
                unsafe {
                    slice::from_raw_parts_mut(signature, made.len()).copy_from_slice(&made);
                    *len = made.len();
                }
                return 1;
            }
        }
        let Some((functions, inner)) = context.inner() else {
            return 0;
        };
        // SAFETY: the default provider's functions with a context of its own, and what the caller
        // passed. Without a function for one shot, OpenSSL itself makes the same two calls.
        unsafe {
            match (
                functions.digest_sign,
                functions.digest_sign_update,
                functions.digest_sign_final,
            ) {
                (Some(once), ..) => once(inner, signature, len, room, message, message_len),
                (None, Some(update), Some(finish)) => {
                    if !signature.is_null() && update(inner, message, message_len) != 1 {
                        return 0;
                    }
                    finish(inner, signature, len, room)
                }
                _ => 0,
            }
        }
    })
}

/// Functions that begin an operation of the default provider.
macro_rules! beginnings {
    ($($name:ident($object:ident, $key:ident $(, $argument:ident: $type:ty)*)
        = |$functions:ident, $inner:ident, $inner_key:ident| $call:expr;)*) => {$(
        unsafe extern "C" fn $name($object: Object, $($argument: $type,)*) -> c_int {
            // SAFETY: OpenSSL's contract.
            let (context, $key) = unsafe { (borrow::<Context>($object), counted::<Key>($key)) };
            guarded(0, || {
                let Some(context) = context else { return 0 };
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
    sign_init(object, key, key: Object, params: *const Param)
        = |functions, inner, inner_key| Some(functions.sign_init?(inner, inner_key, params));
    verify_init(object, key, key: Object, params: *const Param)
        = |functions, inner, inner_key| Some(functions.verify_init?(inner, inner_key, params));
    verify_recover_init(object, key, key: Object, params: *const Param)
        = |functions, inner, inner_key| Some(functions.verify_recover_init?(inner, inner_key, params));
    digest_verify_init(object, key, digest: *const c_char, key: Object, params: *const Param)
        = |functions, inner, inner_key|
            Some(functions.digest_verify_init?(inner, digest, inner_key, params));
}

/// Functions that the default provider's context does.
macro_rules! continuations {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(object: Object, $($argument: $type),*) -> c_int {
            // SAFETY: OpenSSL's contract.
            let context = unsafe { borrow::<Context>(object) };
            guarded(0, || {
                let called = || {
                    let (functions, inner) = context?.inner()?;
                    // SAFETY: the default provider's function with a context of its own, and what
                    // the caller passed.
                    Some(unsafe { functions.$name?(inner, $($argument),*) })
                };
                called().unwrap_or(0)
            })
        }
    )*};
}

continuations! {
    sign(signature: *mut u8, len: *mut usize, room: usize, text: *const u8, text_len: usize);
    verify(signature: *const u8, len: usize, text: *const u8, text_len: usize);
    verify_recover(out: *mut u8, len: *mut usize, room: usize, signature: *const u8, signature_len: usize);
    digest_sign_update(text: *const u8, len: usize);
    digest_sign_final(signature: *mut u8, len: *mut usize, room: usize);
    digest_verify_update(text: *const u8, len: usize);
    digest_verify_final(signature: *const u8, len: usize);
    get_ctx_params(params: *mut Param);
    get_ctx_md_params(params: *mut Param);
    set_ctx_md_params(params: *const Param);
}

unsafe extern "C" fn digest_verify(
    object: Object,
    signature: *const u8,
    len: usize,
    text: *const u8,
    text_len: usize,
) -> c_int {
    // SAFETY: OpenSSL's contract.
    let context = unsafe { borrow::<Context>(object) };
    guarded(0, || {
        let Some((functions, inner)) = context.and_then(Context::inner) else {
            return 0;
        };
        let steps = (
            functions.digest_verify_update,
            functions.digest_verify_final,
        );
        // SAFETY: the default provider's functions with a context of its own, and what the caller
        // passed. Without a function for one shot, OpenSSL itself makes the same two calls.
        unsafe {
            match (functions.digest_verify, steps) {
                (Some(once), _) => once(inner, signature, len, text, text_len),
                (None, (Some(update), Some(finish))) => match update(inner, text, text_len) {
                    1 => finish(inner, signature, len),
                    failed => failed,
                },
                _ => 0,
            }
        }
    })
}

unsafe extern "C" fn set_ctx_params(object: Object, params: *const Param) -> c_int {
    // SAFETY: OpenSSL's contract.
    let (context, list) = unsafe { (borrow::<Context>(object), Params::new(params)) };
    guarded(0, || {
        let Some(context) = context else { return 0 };
        if let State::Planned(plan) = &mut context.state
            && plan.notice(list)
        {
            return 1;
        }
        let Some((functions, inner)) = context.inner() else {
            return 0;
        };
        // SAFETY: the default provider's function with a context of its own and the caller's list.
        (functions.set_ctx_params).map_or(list.iter().next().is_none().into(), |set| unsafe {
            set(inner, params)
        })
    })
}

unsafe extern "C" fn gettable_ctx_params<const FAMILY: usize>(
    _: Object,
    _: Object,
) -> *const Param {
    let gettable = Defaults::get()
        .signature(Family::ALL[FAMILY])
        .and_then(|functions| functions.gettable_ctx_params);
    // SAFETY: the default provider's function, which takes no context for all that there can be.
    gettable.map_or(ptr::null(), |gettable| unsafe {
        gettable(ptr::null_mut(), Defaults::get().context())
    })
}

unsafe extern "C" fn settable_ctx_params<const FAMILY: usize>(
    _: Object,
    _: Object,
) -> *const Param {
    let settable = Defaults::get()
        .signature(Family::ALL[FAMILY])
        .and_then(|functions| functions.settable_ctx_params);
    // SAFETY: as in `gettable_ctx_params`.
    settable.map_or(ptr::null(), |settable| unsafe {
        settable(ptr::null_mut(), Defaults::get().context())
    })
}

unsafe extern "C" fn gettable_ctx_md_params(object: Object) -> *const Param {
    // SAFETY: OpenSSL's contract.
    let context = unsafe { borrow::<Context>(object) };
    guarded(ptr::null(), || {
        let called = || {
            let (functions, inner) = context?.inner()?;
            // SAFETY: the default provider's function with a context of its own.
            Some(unsafe { functions.gettable_ctx_md_params?(inner) })
        };
        called().unwrap_or(ptr::null())
    })
}

unsafe extern "C" fn settable_ctx_md_params(object: Object) -> *const Param {
    // SAFETY: OpenSSL's contract.
    let context = unsafe { borrow::<Context>(object) };
    guarded(ptr::null(), || {
        let called = || {
            let (functions, inner) = context?.inner()?;
            // SAFETY: the default provider's function with a context of its own.
            Some(unsafe { functions.settable_ctx_md_params?(inner) })
        };
        called().unwrap_or(ptr::null())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(params: OwnParams) -> Option<Settings> {
        let mut settings = Settings {
            hash: Some(Hash::Sha256),
            padding: Padding::Pkcs1,
            salt: Salt::Longest,
            mgf1: None,
        };
        let mut params = params;
        let known = params.view().iter().all(|value| settings.notice(value));
        known.then_some(settings)
    }

    #[test]
    fn only_what_lanes_do_is_planned() {
        let scheme = |params| settings(params)?.rsa_scheme();
        let none = OwnParams::default;
        assert_eq!(scheme(none()), Some(rsa::Scheme::Pkcs1Sha256));
        let pss = || none().signed(c"pad-mode", 6);
        assert_eq!(scheme(pss()), None, "OpenSSL's default salt is the longest");
        let tls = |params: OwnParams| params.text(c"saltlen", "digest");
        assert_eq!(scheme(tls(pss())), Some(rsa::Scheme::PssSha256));
        assert_eq!(
            scheme(pss().text(c"saltlen", "32")),
            Some(rsa::Scheme::PssSha256)
        );
        assert_eq!(scheme(pss().signed(c"saltlen", 20)), None);
        assert_eq!(scheme(tls(pss()).text(c"mgf1-digest", "SHA1")), None);
        assert_eq!(scheme(tls(pss()).text(c"mgf1-digest", "SHA512")), None);
        assert_eq!(scheme(none().text(c"pad-mode", "x931")), None);
        assert_eq!(
            scheme(none().text(c"digest", "SHA512")),
            None,
            "fixed by the start"
        );
    }

    #[test]
    fn the_default_provider_gets_the_same_settings() {
        let said = settings(
            OwnParams::default()
                .signed(c"pad-mode", 6)
                .signed(c"saltlen", -1)
                .text(c"mgf1-digest", "SHA2-256"),
        );
        assert_eq!(settings(said.unwrap().as_params()), said);
    }
}
