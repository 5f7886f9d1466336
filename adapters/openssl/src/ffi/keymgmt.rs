//! KEYMGMT: the functions by which OpenSSL handles our keys (`provider-keymgmt(7)`).
//!
//! Each SAFETY comment of such a function says which pointers OpenSSL's own code passes, here and in the files of the
//! other operations. Keys and contexts are from the same table of functions.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use widelane_crypto::agreement::{Answer, Curve};
use zeroize::Zeroizing;

use crate::choice;
use crate::engine;
use crate::family::Family;
use crate::ffi::abi::{self, Dispatch, KEYEXCH, KEYPAIR, Object, PRIVATE_KEY, PUBLIC_KEY, Param, SIGNATURE, dispatch};
use crate::ffi::defaults::{Defaults, Inner, lists};
use crate::ffi::keys::{Key, Share, random_secret};
use crate::ffi::libcrypto::{INTERNAL_ERROR, LibCrypto};
use crate::ffi::library::Instance;
use crate::ffi::objects::{self, borrow, counted, guarded, on};
use crate::ffi::params::Params;
use crate::ffi::status;
use crate::jobs::waiting;

/// The table for the family with this number.
pub(crate) const fn table<const FAMILY: usize>() -> [Dispatch; 22] {
    dispatch![keymgmt:
        new::<FAMILY>, free = objects::free_counted::<Key>, has, matches, get_params,
        gettable_params::<FAMILY>, set_params, settable_params::<FAMILY>, validate, import,
        import_types::<FAMILY>, export, export_types::<FAMILY>, dup, gen_init::<FAMILY>,
        gen_set_template, gen_set_params, gen_settable_params::<FAMILY>, generate, gen_cleanup =
        objects::free::<Generation>, query_operation_name::<FAMILY>
    ]
}

unsafe extern "C" fn new<const FAMILY: usize>(instance: Object) -> Object {
    // SAFETY: OpenSSL passes the provider's context, which lives as long as the provider.
    let instance = unsafe { objects::shared::<Instance>(instance) };
    guarded(ptr::null_mut(), || {
        let library = instance.map(|instance| instance.library);
        objects::give_counted(Key::empty(Family::numbered(FAMILY), library))
    })
}

unsafe extern "C" fn has(key: Object, selection: c_int) -> c_int {
    // SAFETY: OpenSSL passes a key that it has not freed, or null.
    let key = unsafe { counted::<Key>(key) };
    guarded(0, || key.is_some_and(|key| key.has(selection)).into())
}

unsafe extern "C" fn matches(one: Object, other: Object, selection: c_int) -> c_int {
    // SAFETY: OpenSSL passes two keys that it has not freed; each may be null.
    let keys = unsafe { counted::<Key>(one).zip(counted::<Key>(other)) };
    guarded(0, || {
        let Some((one, other)) = keys else { return 0 };
        if one.family() != other.family() {
            return 0;
        }
        let compared = one.with_inner(|functions, one| {
            // SAFETY: the default provider's function with two keys of its own.
            other.with_inner(|_, other| unsafe { (functions.matches)(one, other, selection) })
        });
        compared.flatten().unwrap_or(0)
    })
}

unsafe extern "C" fn get_params(key: Object, params: *mut Param) -> c_int {
    // SAFETY: OpenSSL passes a key that it has not freed and a list that ends; each may be null.
    let (key, list) = unsafe { (counted::<Key>(key), Params::new(params)) };
    on(key, |key| {
        if key.with_share(|share| answer(share, list)) == Some(Some(())) {
            return 1;
        }
        // SAFETY: the default provider's function with a key of its own and the caller's list.
        key.with_inner(|functions, inner| unsafe { (functions.get_params)(inner, params) })
            .unwrap_or(0)
    })
}

/// Answers what a handshake asks a share. `None` if there is another question in the list, or a place into
/// which an answer does not fit: the default provider then says what is wrong.
fn answer(share: &Share, list: Params<'_>) -> Option<()> {
    let curve = share.curve;
    for value in list.iter() {
        let fits = match value.key().to_bytes() {
            b"bits" => value.set_integer(curve.bits()),
            b"security-bits" => value.set_integer(curve.security_bits()),
            b"max-size" => value.set_integer(curve.key_size()),
            b"encoded-pub-key" => value.set_octets(share.public.as_ref()?),
            b"group" if share.names_group() => value.set_text(curve.names()[0]),
            _ => return None,
        };
        if !fits {
            return None;
        }
    }
    Some(())
}

lists! {
    keys:
    gettable_params(_provider: Object) = |functions, context| Some((functions.gettable_params)(context));
    settable_params(_provider: Object) = |functions, context| Some(functions.settable_params?(context));
    import_types(selection: c_int) = |functions, _context| Some((functions.import_types)(selection));
    export_types(selection: c_int) = |functions, _context| Some((functions.export_types)(selection));
    gen_settable_params(_generation: Object, _provider: Object)
        = |functions, context| Some(functions.gen_settable_params?(ptr::null_mut(), context));
}

unsafe extern "C" fn set_params(key: Object, params: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a key that it has not freed and a list that ends; each may be null.
    let (key, list) = unsafe { (counted::<Key>(key), Params::new(params)) };
    on(key, |key| {
        // TLS sets the peer's share, and nothing else.
        if list.iter().count() == 1
            && let Some(public) = list.get(c"encoded-pub-key").and_then(|value| value.octets())
            && let Some(set) = key.set_public(public)
        {
            return set.into();
        }
        key.change(|functions, inner| {
            // SAFETY: the default provider's function with a key of its own and the caller's list.
            functions.set_params.map_or(0, |set| unsafe { set(inner, params) })
        })
    })
}

unsafe extern "C" fn validate(key: Object, selection: c_int, check: c_int) -> c_int {
    // SAFETY: OpenSSL passes a key that it has not freed, or null.
    let key = unsafe { counted::<Key>(key) };
    on(key, |key| {
        if selection & KEYPAIR == PUBLIC_KEY
            && let Some(Some(valid)) = key.with_share(is_valid_public)
        {
            return valid.into();
        }
        let validated = key.with_inner(|functions, inner| {
            // SAFETY: the default provider's function with a key of its own.
            (functions.validate).map_or(1, |validate| unsafe { validate(inner, selection, check) })
        });
        validated.unwrap_or(0)
    })
}

/// Returns whether a peer's share is one; `None` if there is no share.
fn is_valid_public(share: &Share) -> Option<bool> {
    Some(share.curve.is_share(share.public.as_ref()?))
}

unsafe extern "C" fn import(key: Object, selection: c_int, params: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a key that it has not freed, or null.
    let key = unsafe { counted::<Key>(key) };
    on(key, |key| {
        let imported = key.with_inner(|functions, inner| {
            // SAFETY: the default provider's function with a key of its own and the caller's list.
            unsafe { (functions.import)(inner, selection, params) }
        });
        key.forget_share();
        // OpenSSL copies a key here for a signature of ours. If its private half is in a TPM or another
        // token, it goes on with the provider that has the key, unless this copy was made. Without
        // such a provider, a public key is what it says. Keys of curves must be copied all the same: they
        // may be a peer's.
        if key.family().algorithm().is_some()
            && selection & PRIVATE_KEY != 0
            && !key.has(PRIVATE_KEY)
            && key.may_be_elsewhere()
        {
            return 0;
        }
        imported.unwrap_or(0)
    })
}

unsafe extern "C" fn export(
    key: Object,
    selection: c_int,
    callback: Option<abi::Callback>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: OpenSSL passes a key that it has not freed, or null.
    let key = unsafe { counted::<Key>(key) };
    on(key, |key| {
        let exported = key.with_inner(|functions, inner| {
            // SAFETY: the default provider's function with a key of its own; callback and argument
            // are the caller's.
            unsafe { (functions.export)(inner, selection, callback, argument) }
        });
        exported.unwrap_or(0)
    })
}

unsafe extern "C" fn dup(key: Object, selection: c_int) -> Object {
    // SAFETY: OpenSSL passes a key that it has not freed, or null.
    let key = unsafe { counted::<Key>(key) };
    guarded(ptr::null_mut(), || {
        objects::give_counted(key.and_then(|key| key.duplicate(selection)))
    })
}

unsafe extern "C" fn query_operation_name<const FAMILY: usize>(operation: c_int) -> *const c_char {
    let family = Family::numbered(FAMILY);
    let name = match operation {
        SIGNATURE => family.signature_name,
        KEYEXCH => family.exchange_name,
        _ => None,
    };
    name.map_or(ptr::null(), |name| name.as_ptr())
}

/// A key that is being made.
struct Generation {
    family: Family,
    selection: c_int,
    /// The curve, if lanes can make the key.
    curve: Option<Curve>,
    /// Something was said that lanes do not know of.
    is_special: bool,
    /// A group was said after the template, and holds.
    is_group_said: bool,
    /// Key whose share this one will meet.
    template: Option<Arc<Key>>,
    /// The default provider's generation, which makes every other key.
    inner: Inner,
}

impl Generation {
    /// Takes notice of values: only a group is something that lanes know of. With anything else the key
    /// is the default provider's, also if a group is said later.
    fn notice(&mut self, list: Params<'_>) {
        for value in list.iter() {
            match (value.key().to_bytes(), value.text()) {
                (b"group", Some(group)) => {
                    self.is_group_said = true;
                    self.curve = choice::curve_named(group).filter(|curve| self.family.curves.contains(curve));
                }
                _ => self.is_special = true,
            }
        }
    }

    fn generate(&self, callback: *const c_void, argument: *mut c_void) -> Option<Key> {
        let is_ours = !self.is_special && !status::lanes_are_off();
        let Some(curve) = self.curve.filter(|_| is_ours) else {
            return self.generate_inner(callback, argument);
        };
        if self.selection & PRIVATE_KEY == 0 {
            return Some(Key::from_share(Share::of(curve)));
        }
        let peer = self
            .template
            .as_ref()
            .and_then(|template| template.with_share(|share| share.public.clone().filter(|_| share.curve == curve))?);
        match generate_share(curve, peer) {
            Ok(share) => share.map(Key::from_share),
            Err(failure) if failure.falls_back() => self.generate_inner(callback, argument),
            Err(_) => None,
        }
    }

    fn generate_inner(&self, callback: *const c_void, argument: *mut c_void) -> Option<Key> {
        let functions = Defaults::get().keys(self.family);
        let template = self.template.as_ref().filter(|_| !self.is_group_said);
        if let (Some(template), Some(set)) = (template, functions.gen_set_template) {
            // SAFETY: the default provider's function with a context and a key of its own.
            if template.with_inner(|_, key| unsafe { set(self.inner.get(), key) })? != 1 {
                return None;
            }
        }
        // SAFETY: the default provider's functions with a context of its own; callback and argument
        // are the caller's.
        let made = unsafe {
            let made = (functions.generate)(self.inner.get(), callback, argument);
            Inner::new(made, functions.free)
        };
        Some(Key::from_inner(self.family, made?))
    }
}

/// A new key pair and, with the peer's share at hand, what it agrees on: both in one suspension.
/// `None` if that is impossible; the reason is in OpenSSL's queue.
fn generate_share(curve: Curve, peer: Option<Vec<u8>>) -> Result<Option<Share>, engine::Failure> {
    let mut bytes = Zeroizing::new(vec![0; curve.secret_len()]);
    let Some(secret) = random_secret(curve, &mut bytes) else {
        return Ok(None);
    };
    let derive = peer.as_deref().and_then(|peer| secret.derive(peer).ok());
    let requests = [secret.public()].into_iter().chain(derive).collect();
    let mut answers = waiting::run_all(requests)?;
    let agreed = (answers.len() > 1).then(|| answers.remove(1));
    let public = answers.remove(0).map(Answer::into_share);
    let public = match public {
        Ok(public) => public,
        Err(error) => {
            LibCrypto::get().raise(INTERNAL_ERROR, &format!("no key was made: {error}"));
            return Ok(None);
        }
    };
    // A share that agrees on nothing is refused when the agreement is asked for.
    let agreed = agreed.and_then(Result::ok).and_then(Answer::into_shared).zip(peer);
    Ok(Some(Share {
        curve,
        public: Some(public),
        secret: Some(bytes),
        loaded: Some(secret),
        agreed: agreed.map(|(agreed, peer)| Arc::new((peer, agreed))),
    }))
}

unsafe extern "C" fn gen_init<const FAMILY: usize>(_: Object, selection: c_int, params: *const Param) -> Object {
    // SAFETY: OpenSSL passes a list that ends, or null.
    let list = unsafe { Params::new(params) };
    guarded(ptr::null_mut(), || {
        let family = Family::numbered(FAMILY);
        let defaults = Defaults::get();
        let functions = defaults.keys(family);
        // SAFETY: the default provider's functions with its own context and the caller's list.
        let inner = unsafe {
            let inner = (functions.gen_init)(defaults.context(), selection, params);
            Inner::new(inner, functions.gen_cleanup)
        };
        objects::give(inner.map(|inner| {
            let mut generation = Generation {
                family,
                selection,
                curve: family.curve(),
                is_special: false,
                is_group_said: false,
                template: None,
                inner,
            };
            generation.notice(list);
            generation
        }))
    })
}

unsafe extern "C" fn gen_set_template(context: Object, template: Object) -> c_int {
    // SAFETY: OpenSSL passes a context of `gen_init` that no other call uses now and a key that it has not freed; each
    // may be null.
    let (context, template) = unsafe { (borrow::<Generation>(context), counted::<Key>(template)) };
    guarded(0, || {
        let (Some(context), Some(template)) = (context, template) else {
            return 0;
        };
        if template.family() != context.family {
            return 0;
        }
        // The template says which curve.
        context.curve = template.share().map(|share| share.curve);
        context.template = Some(template);
        context.is_group_said = false;
        1
    })
}

unsafe extern "C" fn gen_set_params(context: Object, params: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a context of `gen_init` that no other call uses now and a list that ends; each may be
    // null.
    let (context, list) = unsafe { (borrow::<Generation>(context), Params::new(params)) };
    on(context, |context| {
        context.notice(list);
        let set = Defaults::get().keys(context.family).gen_set_params;
        // SAFETY: the default provider's function with a context of its own and the caller's list.
        set.map_or(1, |set| unsafe { set(context.inner.get(), params) })
    })
}

unsafe extern "C" fn generate(context: Object, callback: *const c_void, argument: *mut c_void) -> Object {
    // SAFETY: OpenSSL passes a context of `gen_init` that no other call uses now, or null.
    let context = unsafe { borrow::<Generation>(context) };
    guarded(ptr::null_mut(), || {
        let since = Instant::now();
        let made = context.and_then(|context| context.generate(callback, argument));
        objects::give_counted(made.map(|mut key| {
            key.made_in = since.elapsed();
            key
        }))
    })
}
