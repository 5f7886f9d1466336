//! Keys as the provider holds them.
//!
//! A key has two forms, and at least one at any time: the default provider's own key, which does
//! everything that we do not replace; and a share of a key exchange, which is all that a handshake
//! needs. The other form is made when a call needs it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use widelane_crypto::Shared;
use widelane_crypto::agreement::{Curve, Secret};
use widelane_crypto::sign::Algorithm;
use zeroize::Zeroizing;

use crate::choice;
use crate::family::Family;
use crate::ffi::abi::{ALL_PARAMETERS, DOMAIN_PARAMETERS, KEYPAIR, Object, PRIVATE_KEY, PUBLIC_KEY, Param};
use crate::ffi::defaults::{Defaults, Inner, KeyFunctions};
use crate::ffi::libcrypto::LibCrypto;
use crate::ffi::library::LibraryContext;
use crate::ffi::params::{OwnParams, Params};
use crate::ffi::status;
use crate::prepared::{KeyInUse, PreparedKey};

/// A key of any family. OpenSSL holds it by a counted pointer ([`crate::ffi::objects`]).
pub(crate) struct Key {
    family: Family,
    /// Signatures only read them: a fork may leave a reader behind, who stops no other.
    forms: RwLock<Forms>,
    /// The key that lanes sign with; `None` if they do not.
    prepared: OnceLock<Option<Arc<PreparedKey>>>,
    /// Library context into which it was imported; `None` if it was made here.
    library: Option<LibraryContext>,
    /// Time for which a handshake waited for it; zero if it came from elsewhere.
    pub(crate) made_in: Duration,
}

#[derive(Default)]
struct Forms {
    inner: Option<Inner>,
    share: Option<Share>,
}

/// Parts of a key that a key exchange needs.
#[derive(Clone)]
pub(crate) struct Share {
    pub(crate) curve: Curve,
    /// 32 bytes (RFC 7748), or an uncompressed point (SEC 1, section 2.3.3).
    pub(crate) public: Option<Vec<u8>>,
    pub(crate) secret: Option<Zeroizing<Vec<u8>>>,
    /// Secret in the form that agreements take, if it was made here: to load it takes as long as to make a share.
    pub(crate) loaded: Option<Secret>,
    /// Secret that was agreed on while the key was made, and the public share of the peer.
    pub(crate) agreed: Option<Arc<(Vec<u8>, Shared)>>,
}

impl Share {
    /// A share of which only the curve is known.
    pub(crate) fn of(curve: Curve) -> Self {
        Self {
            curve,
            public: None,
            secret: None,
            loaded: None,
            agreed: None,
        }
    }

    /// Only the selected parts.
    fn selected(&self, selection: c_int) -> Self {
        let public = selection & PUBLIC_KEY != 0;
        let private = selection & PRIVATE_KEY != 0;
        Self {
            curve: self.curve,
            public: self.public.clone().filter(|_| public),
            secret: self.secret.clone().filter(|_| private),
            loaded: self.loaded.clone().filter(|_| private),
            agreed: None,
        }
    }

    /// Returns whether it is of keys whose kind has several curves.
    pub(crate) fn names_group(&self) -> bool {
        Family::of(self.curve).curve().is_none()
    }

    fn has(&self, selection: c_int) -> bool {
        (selection & PUBLIC_KEY == 0 || self.public.is_some())
            && (selection & PRIVATE_KEY == 0 || self.secret.is_some())
    }
}

impl Key {
    /// An empty key, to be filled by an import, in a library context.
    pub(crate) fn empty(family: Family, library: Option<LibraryContext>) -> Option<Self> {
        let inner = new_inner(family)?;
        Some(Self {
            library,
            ..Self::from_inner(family, inner)
        })
    }

    /// Returns whether the key that was copied into this one may have its private half in another provider.
    pub(crate) fn may_be_elsewhere(&self) -> bool {
        self.library.is_some_and(LibraryContext::has_others)
    }

    pub(crate) fn from_inner(family: Family, inner: Inner) -> Self {
        Self::with(family, Some(inner), None)
    }

    pub(crate) fn from_share(share: Share) -> Self {
        Self::with(Family::of(share.curve), None, Some(share))
    }

    fn with(family: Family, inner: Option<Inner>, share: Option<Share>) -> Self {
        Self {
            family,
            forms: RwLock::new(Forms { inner, share }),
            prepared: OnceLock::new(),
            library: None,
            made_in: Duration::ZERO,
        }
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// Calls `work` with the default provider's form of the key; `None` if there is no memory.
    pub(crate) fn with_inner<R>(&self, work: impl FnOnce(&KeyFunctions, Object) -> R) -> Option<R> {
        let functions = Defaults::get().keys(self.family);
        let found = self.forms().inner.as_ref().map(Inner::get);
        let object = match found {
            Some(object) => object,
            None => {
                let mut forms = self.forms_mut();
                if forms.inner.is_none() {
                    let share = forms.share.as_ref()?;
                    forms.inner = Some(inner_of(self.family, share)?);
                }
                forms.inner.as_ref()?.get()
            }
        };
        // The lock is not held: OpenSSL calls back during an export.
        Some(work(functions, object))
    }

    /// Looks at the share, if the key has one already.
    pub(crate) fn with_share<R>(&self, look: impl FnOnce(&Share) -> R) -> Option<R> {
        self.forms().share.as_ref().map(look)
    }

    /// The share; of a key that came from elsewhere it is read once. `None` for curves without lanes, of such a
    /// key while lanes are switched off, and for keys of which a share would not tell all: another form of points, an explicit curve, a cofactor.
    pub(crate) fn share(&self) -> Option<Share> {
        if let Some(share) = self.with_share(Share::clone) {
            return Some(share);
        }
        // Then a key that the default provider has made stays with it.
        if status::lanes_are_off() {
            return None;
        }
        let share = self.export(KEYPAIR | ALL_PARAMETERS, |params| {
            let is = |key: &CStr, text: &str| params.get(key).is_none_or(|it| it.text() == Some(text));
            let curve = match self.family.curve() {
                Some(curve) => curve,
                None => choice::curve_named(params.get(c"group")?.text()?)?,
            };
            let is_plain = is(c"encoding", "named_curve")
                && is(c"point-format", "uncompressed")
                && (params.get(c"use-cofactor-flag")).is_none_or(|flag| flag.integer() == Some(0));
            let public = params.get(c"pub").and_then(|value| value.octets());
            if !is_plain || public.is_some_and(|public| !curve.is_share(public)) {
                return None;
            }
            Some(Share {
                curve,
                public: public.map(<[u8]>::to_vec),
                secret: params.get(c"priv").and_then(|value| match self.family.curve() {
                    Some(_) => Some(Zeroizing::new(value.octets()?.to_vec())),
                    None => curve.sized(&value.big()?),
                }),
                loaded: None,
                agreed: None,
            })
        })?;
        if share.public.is_some() {
            self.forms_mut().share = Some(share.clone());
        }
        Some(share)
    }

    /// Gives a share a public half.
    ///
    /// Returns `None`, and then nothing is changed, if the key is no share, or the bytes are neither a
    /// point of its curve nor 32 bytes for X25519. The default provider knows other forms of points,
    /// and refuses what is none with an error of which TLS makes the right alert.
    pub(crate) fn set_public(&self, public: &[u8]) -> Option<bool> {
        let curve = self.with_share(|share| share.curve)?;
        if !curve.is_share(public) {
            return None;
        }
        let mut forms = self.forms_mut();
        let share = forms.share.as_mut()?;
        share.public = Some(public.to_vec());
        // As the default provider: what was private of X25519 goes, of EC it stays.
        if !share.names_group() {
            (share.secret, share.loaded) = (None, None);
        }
        share.agreed = None;
        forms.inner = None;
        Some(true)
    }

    /// Lets the default provider change its form of the key, which then is the only one. If that fails, a
    /// key that was only a share stays as it was.
    pub(crate) fn change(&self, change: impl FnOnce(&KeyFunctions, Object) -> c_int) -> c_int {
        let was_only_share = self.forms().inner.is_none();
        let changed = self.with_inner(change).unwrap_or(0);
        let mut forms = self.forms_mut();
        match was_only_share && changed != 1 {
            true => forms.inner = None,
            false => forms.share = None,
        }
        changed
    }

    /// Forgets the share, because the default provider is about to change the key.
    pub(crate) fn forget_share(&self) {
        self.forms_mut().share = None;
    }

    /// A copy with only the selected parts. The default provider's form is the one that tells all.
    pub(crate) fn duplicate(&self, selection: c_int) -> Option<Self> {
        let share = {
            let forms = self.forms();
            (forms.share.as_ref().filter(|_| forms.inner.is_none())).map(|share| share.selected(selection))
        };
        if let Some(share) = share {
            return Some(Self::from_share(share));
        }
        let copy = self.with_inner(|functions, inner| {
            let dup = functions.dup?;
            // SAFETY: the default provider's functions with a key of its own.
            unsafe { Inner::new(dup(inner, selection), functions.free) }
        })??;
        Some(Self::from_inner(self.family, copy))
    }

    pub(crate) fn has(&self, selection: c_int) -> bool {
        if let Some(has) = self.with_share(|share| share.has(selection)) {
            return has;
        }
        // SAFETY: the default provider's function with a key of its own.
        self.with_inner(|functions, inner| unsafe { (functions.has)(inner, selection) } == 1)
            .unwrap_or(false)
    }

    /// The key as lanes sign with it. `None` if it is not prepared yet, is no private key, or is of a kind
    /// without lanes.
    pub(crate) fn prepared(&self) -> Option<KeyInUse<'_>> {
        self.prepared.get()?.as_ref()?.get()
    }

    /// Gives such a key at the beginning of a signature: [`PreparedKey::begin`] tells when keys are
    /// prepared.
    pub(crate) fn begin_signature(&self) -> Option<KeyInUse<'_>> {
        self.to_prepare()?.begin()
    }

    /// OpenSSL has made a signature with it.
    pub(crate) fn signed(&self) {
        if let Some(key) = self.to_prepare() {
            key.signed();
        }
    }

    /// The algorithm by which lanes may sign with it. Whether they do is known for sure once it is
    /// prepared.
    pub(crate) fn algorithm_in_lanes(&self) -> Option<Algorithm> {
        let key = self.to_prepare()?;
        key.may_sign().then(|| key.algorithm())
    }

    fn to_prepare(&self) -> Option<&Arc<PreparedKey>> {
        if self.prepared.get().is_none() {
            let begin = || {
                if !self.has(PRIVATE_KEY) {
                    return None;
                }
                self.export(KEYPAIR | DOMAIN_PARAMETERS, |params| {
                    PreparedKey::of(self.family, params)
                })
            };
            // Threads that race find the same one, or the first stays: no thread waits for another, which
            // a fork may have left behind.
            let _ = self.prepared.set(begin());
        }
        self.prepared.get()?.as_ref()
    }

    /// Calls `read` with the key's values.
    fn export<R>(&self, selection: c_int, read: impl FnMut(Params<'_>) -> Option<R>) -> Option<R> {
        struct Reader<R, F>(F, Option<R>);

        unsafe extern "C" fn receive<R, F: FnMut(Params<'_>) -> Option<R>>(
            params: *const Param,
            reader: *mut c_void,
        ) -> c_int {
            // SAFETY: `export` passes its own reader, which outlives the call.
            let Reader(read, result) = unsafe { &mut *reader.cast::<Reader<R, F>>() };
            // SAFETY: the default provider passes a list that is whole during the call.
            *result = read(unsafe { Params::new(params) });
            1
        }

        fn receiver<R, F: FnMut(Params<'_>) -> Option<R>>(_: &F) -> crate::ffi::abi::Callback {
            receive::<R, F>
        }

        let receive = receiver(&read);
        let mut reader = Reader(read, None);
        self.with_inner(|functions, inner| {
            let reader = (&raw mut reader).cast();
            // SAFETY: the default provider's function with a key of its own. It calls `receive`
            // with `reader` before it returns, and nothing uses the reader meanwhile.
            unsafe { (functions.export)(inner, selection, Some(receive), reader) }
        })?;
        reader.1
    }

    fn forms(&self) -> RwLockReadGuard<'_, Forms> {
        self.forms.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn forms_mut(&self) -> RwLockWriteGuard<'_, Forms> {
        self.forms.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new key of the default provider.
fn new_inner(family: Family) -> Option<Inner> {
    let (defaults, functions) = (Defaults::get(), Defaults::get().keys(family));
    // SAFETY: the default provider's functions with its own context.
    unsafe { Inner::new((functions.new)(defaults.context()), functions.free) }
}

/// A key with the values of a share.
fn inner_of(family: Family, share: &Share) -> Option<Inner> {
    let mut params = OwnParams::default();
    let mut selection = 0;
    if share.names_group() {
        params = params.text(c"group", share.curve.names()[0].to_str().ok()?);
        selection |= DOMAIN_PARAMETERS;
    }
    if let Some(public) = &share.public {
        params = params.octets(c"pub", public);
        selection |= PUBLIC_KEY;
    }
    if let Some(secret) = &share.secret {
        params = match share.names_group() {
            true => params.big(c"priv", secret),
            false => params.octets(c"priv", secret),
        };
        selection |= PRIVATE_KEY;
    }
    let inner = new_inner(family)?;
    if selection == 0 {
        return Some(inner);
    }
    // SAFETY: the default provider's function with a key of its own and a whole list.
    let imported = unsafe { (Defaults::get().keys(family).import)(inner.get(), selection, params.as_ptr()) };
    (imported == 1).then_some(inner)
}

/// A new secret, whose bytes are left in `bytes`. `None`, with OpenSSL's error, without random bytes.
pub(crate) fn random_secret(curve: Curve, bytes: &mut [u8]) -> Option<Secret> {
    Secret::fill(curve, bytes, random)
}

/// Fills the secret from OpenSSL's generator; `None`, with OpenSSL's error, if it gives nothing.
fn random(secret: &mut [u8]) -> Option<()> {
    let Some(libcrypto) = LibCrypto::started() else {
        // In tests without OpenSSL.
        // SAFETY: a place of so many bytes.
        let len = unsafe { libc::getrandom(secret.as_mut_ptr().cast(), secret.len(), 0) };
        return (len == secret.len() as isize).then_some(());
    };
    libcrypto.random(secret).then_some(())
}
