//! Post-quantum TLS groups: ML-KEM (FIPS 203) alone or beside an elliptic curve
//! (draft-ietf-tls-ecdhe-mlkem), for every OpenSSL from 3.0 on.
//!
//! OpenSSL takes a group from any provider that announces it as a KEM: the client's share is its
//! public key, the server's share is what `encapsulate` sends back. Both halves of a hybrid run in
//! the same suspension.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use std::{ptr, slice};

use widelane_crypto::AgreeError;
use widelane_crypto::agreement::{self, Curve, GROUPS, Group, Outcome, Request, Secret};
use zeroize::Zeroizing;

use crate::engine;
use crate::ffi::abi::{Dispatch, INTEGER, KEM, KEYPAIR, OCTETS, Object, PRIVATE_KEY, PUBLIC_KEY, dispatch};
use crate::ffi::abi::{Param, UTF8};
use crate::ffi::keys::random_secret;
use crate::ffi::libcrypto::{INTERNAL_ERROR, LibCrypto};
use crate::ffi::objects::{self, borrow, counted, guarded, on};
use crate::ffi::params::{Params, constant_lists};
use crate::ffi::status;
use crate::jobs::waiting;

/// The keys of the group with this number in [`GROUPS`].
pub(crate) const fn keys<const GROUP: usize>() -> [Dispatch; 16] {
    dispatch![keymgmt:
        new::<GROUP>, free = objects::free_counted::<Key>, has, matches, get_params,
        gettable_params, set_params, settable_params, dup, gen_init::<GROUP>, gen_set_params,
        gen_settable_params, generate, gen_cleanup = objects::free::<Generation>,
        query_operation_name::<GROUP>
    ]
}

/// The KEM of every group.
pub(crate) static KEMS: [Dispatch; 7] = dispatch![kem:
    newctx, freectx = objects::free::<Context>, encapsulate_init = init, encapsulate,
    decapsulate_init = init, decapsulate
];

/// A key of a group.
struct Key {
    group: &'static Group,
    /// The client's share; a server's key gets it from the client.
    public: Mutex<Option<Vec<u8>>>,
    /// A client's.
    secret: Option<agreement::Key>,
}

impl Key {
    fn new(group: &'static Group, public: Option<Vec<u8>>, secret: Option<agreement::Key>) -> Self {
        Self {
            group,
            public: Mutex::new(public),
            secret,
        }
    }

    /// A client's key.
    fn generate(group: &'static Group) -> Result<Self, Failure> {
        let key = group.start(secret, run)?;
        Ok(Self::new(group, Some(key.share().to_vec()), Some(key)))
    }

    fn public(&self) -> Option<Vec<u8>> {
        self.public.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has(&self, selection: c_int) -> bool {
        (selection & PUBLIC_KEY == 0 || self.public().is_some())
            && (selection & PRIVATE_KEY == 0 || self.secret.is_some())
    }

    /// The server's side: its share, and the secret.
    fn encapsulate(&self) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), Failure> {
        let public = self.public().ok_or(Failure::Missing)?;
        self.group.answer(&public, secret, run)
    }

    /// The client's side: the secret.
    fn decapsulate(&self, share: &[u8]) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let secret = self.secret.as_ref().ok_or(Failure::Missing)?;
        secret.finish(share, run)
    }
}

/// From OpenSSL's generator, as where the curve stands alone.
fn secret(curve: Curve) -> Result<Secret, Failure> {
    let mut bytes = Zeroizing::new(vec![0; curve.secret_len()]);
    random_secret(curve, &mut bytes).ok_or(Failure::Agree(AgreeError::Entropy))
}

/// Runs requests that are answered in any case: no other provider knows these groups before OpenSSL 3.5.
fn run(requests: Vec<Request>) -> Result<Vec<Outcome>, Failure> {
    let alone = requests.clone();
    let outcomes = waiting::in_any_case(waiting::run_all(requests), || {
        alone.iter().map(Request::alone).collect()
    });
    Ok(outcomes?)
}

/// Why there is no share or secret.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the key has no such part")]
    Missing,
    /// The peer's share is wrong, or the operation failed.
    #[error(transparent)]
    Agree(#[from] AgreeError),
    #[error(transparent)]
    Wait(#[from] engine::Failure),
}

impl Failure {
    /// Puts the failure into OpenSSL's queue.
    fn raise(&self) {
        LibCrypto::get().raise(INTERNAL_ERROR, &self.to_string());
    }
}

constant_lists! {
    gettable_params(Object): c"bits" = INTEGER, c"security-bits" = INTEGER, c"max-size" = INTEGER,
        c"encoded-pub-key" = OCTETS, c"pub" = OCTETS;
    settable_params(Object): c"encoded-pub-key" = OCTETS;
    // TLS says the group's name, which is known.
    gen_settable_params(Object, Object): c"group" = UTF8;
}

unsafe extern "C" fn new<const GROUP: usize>(_: Object) -> Object {
    guarded(ptr::null_mut(), || {
        objects::give_counted(Some(Key::new(&GROUPS[GROUP], None, None)))
    })
}

unsafe extern "C" fn has(object: Object, selection: c_int) -> c_int {
    // SAFETY: OpenSSL passes a key that it has not freed, or null.
    let key = unsafe { counted::<Key>(object) };
    guarded(0, || key.is_some_and(|key| key.has(selection)).into())
}

unsafe extern "C" fn matches(one: Object, other: Object, selection: c_int) -> c_int {
    // SAFETY: OpenSSL passes two keys that it has not freed; each may be null.
    let keys = unsafe { counted::<Key>(one).zip(counted::<Key>(other)) };
    guarded(0, || {
        let same = |(one, other): (Arc<Key>, Arc<Key>)| {
            one.group.tls_number == other.group.tls_number
                && (selection & KEYPAIR == 0 || one.public().is_some() && one.public() == other.public())
        };
        keys.is_some_and(same).into()
    })
}

unsafe extern "C" fn get_params(object: Object, list: *mut Param) -> c_int {
    // SAFETY: OpenSSL passes a key that it has not freed and a list that ends; each may be null.
    let (key, list) = unsafe { (counted::<Key>(object), Params::new(list)) };
    on(key, |key| {
        let answered = list.iter().all(|value| match value.key().to_bytes() {
            b"bits" => value.set_integer(8 * key.group.secret_len() as u32),
            b"security-bits" => value.set_integer(key.group.security_bits),
            b"max-size" => value.set_integer(key.group.answer_len() as u32),
            b"encoded-pub-key" | b"pub" => key.public().is_some_and(|public| value.set_octets(&public)),
            _ => true,
        });
        answered.into()
    })
}

unsafe extern "C" fn set_params(object: Object, list: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a key that it has not freed and a list that ends; each may be null.
    let (key, list) = unsafe { (counted::<Key>(object), Params::new(list)) };
    on(key, |key| {
        let Some(value) = list.get(c"encoded-pub-key") else {
            return 1;
        };
        match value.octets() {
            Some(public) if public.len() == key.group.offer_len() => {
                let mut place = key.public.lock().unwrap_or_else(PoisonError::into_inner);
                *place = Some(public.to_vec());
                1
            }
            _ => {
                let error = AgreeError::InvalidPeer("a share of another length");
                Failure::from(error).raise();
                0
            }
        }
    })
}

unsafe extern "C" fn dup(object: Object, selection: c_int) -> Object {
    // SAFETY: OpenSSL passes a key that it has not freed, or null.
    let key = unsafe { counted::<Key>(object) };
    guarded(ptr::null_mut(), || {
        let Some(key) = key else {
            return ptr::null_mut();
        };
        let public = key.public().filter(|_| selection & PUBLIC_KEY != 0);
        let secret = key.secret.clone().filter(|_| selection & PRIVATE_KEY != 0);
        objects::give_counted(Some(Key::new(key.group, public, secret)))
    })
}

unsafe extern "C" fn query_operation_name<const GROUP: usize>(operation: c_int) -> *const c_char {
    match operation {
        KEM => GROUPS[GROUP].name.as_ptr(),
        _ => ptr::null(),
    }
}

/// A key that is being made.
struct Generation {
    group: &'static Group,
    selection: c_int,
}

unsafe extern "C" fn gen_init<const GROUP: usize>(_: Object, selection: c_int, _: *const Param) -> Object {
    guarded(ptr::null_mut(), || {
        let group = &GROUPS[GROUP];
        objects::give(Some(Generation { group, selection }))
    })
}

/// TLS says the group's name, which is known.
unsafe extern "C" fn gen_set_params(_: Object, _: *const Param) -> c_int {
    1
}

unsafe extern "C" fn generate(object: Object, _: *const c_void, _: *mut c_void) -> Object {
    // SAFETY: OpenSSL passes a context of `gen_init` that no other call uses now, or null.
    let generation = unsafe { borrow::<Generation>(object) };
    guarded(ptr::null_mut(), || {
        let Some(generation) = generation else {
            return ptr::null_mut();
        };
        let made = match generation.selection & PRIVATE_KEY {
            0 => Ok(Key::new(generation.group, None, None)),
            _ => Key::generate(generation.group),
        };
        match made {
            Ok(key) => objects::give_counted(Some(key)),
            Err(failure) => {
                failure.raise();
                ptr::null_mut()
            }
        }
    })
}

/// A KEM under way: its key.
struct Context(Option<Arc<Key>>);

unsafe extern "C" fn newctx(_: Object) -> Object {
    guarded(ptr::null_mut(), || objects::give(Some(Context(None))))
}

unsafe extern "C" fn init(object: Object, key: Object, _: *const Param) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now and a key that it has not freed; each
    // may be null.
    let (context, key) = unsafe { (borrow::<Context>(object), counted::<Key>(key)) };
    guarded(0, || match (context, key) {
        (Some(context), Some(key)) => {
            context.0 = Some(key);
            1
        }
        _ => 0,
    })
}

unsafe extern "C" fn encapsulate(
    object: Object,
    share: *mut u8,
    share_len: *mut usize,
    secret: *mut u8,
    secret_len: *mut usize,
) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
    let context = unsafe { borrow::<Context>(object) };
    guarded(0, || {
        let Some(key) = context.and_then(|context| context.0.as_ref()) else {
            return 0;
        };
        let lens = [key.group.answer_len(), key.group.secret_len()];
        // SAFETY: OpenSSL gives places for both lengths, or null. With a place for the share, each
        // length says how large its place is.
        unsafe {
            if share.is_null() || secret.is_null() {
                set_len(share_len, lens[0]);
                set_len(secret_len, lens[1]);
                return 1;
            }
            let fits = |len: *mut usize, wanted| len.is_null() || *len >= wanted;
            if !fits(share_len, lens[0]) || !fits(secret_len, lens[1]) {
                LibCrypto::get().raise(INTERNAL_ERROR, "the place for a share is too small");
                return 0;
            }
        }
        // SAFETY: both places have room for these lengths, by the check above.
        agreed(
            || key.encapsulate(),
            |(made, agreed)| unsafe {
                put(share, share_len, &made[..lens[0]]);
                put(secret, secret_len, &agreed[..lens[1]]);
            },
        )
    })
}

unsafe extern "C" fn decapsulate(
    object: Object,
    secret: *mut u8,
    secret_len: *mut usize,
    share: *const u8,
    share_len: usize,
) -> c_int {
    // SAFETY: OpenSSL passes a context of `newctx` that no other call uses now, or null.
    let context = unsafe { borrow::<Context>(object) };
    guarded(0, || {
        let Some(key) = context.and_then(|context| context.0.as_ref()) else {
            return 0;
        };
        let wanted = key.group.secret_len();
        // SAFETY: OpenSSL gives a place for the length, which says how large the secret's place is,
        // and a share of `share_len` bytes.
        let share = unsafe {
            if secret.is_null() {
                set_len(secret_len, wanted);
                return 1;
            }
            if share.is_null() || !secret_len.is_null() && *secret_len < wanted {
                LibCrypto::get().raise(INTERNAL_ERROR, "the place for the secret is too small");
                return 0;
            }
            slice::from_raw_parts(share, share_len)
        };
        // SAFETY: the place has room for it, by the check above.
        agreed(
            || key.decapsulate(share),
            |agreed| unsafe { put(secret, secret_len, &agreed[..wanted]) },
        )
    })
}

/// Agrees, counts that, and hands it over by `put`; or says why there is nothing.
fn agreed<T>(agree: impl FnOnce() -> Result<T, Failure>, put: impl FnOnce(T)) -> c_int {
    let since = Instant::now();
    match agree() {
        Ok(agreed) => {
            put(agreed);
            status::count_agreed(since.elapsed());
            1
        }
        Err(failure) => {
            failure.raise();
            0
        }
    }
}

/// # Safety
///
/// `place` must have room for these bytes, and `len` be null or a place for a length.
unsafe fn put(place: *mut u8, len: *mut usize, bytes: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        slice::from_raw_parts_mut(place, bytes.len()).copy_from_slice(bytes);
        set_len(len, bytes.len());
    }
}

/// # Safety
///
/// `place` must be null or a place for a length.
unsafe fn set_len(place: *mut usize, len: usize) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *place = len };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_and_damaged_shares_are_refused() {
        let _counts = crate::COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        for group in GROUPS.iter().filter(|group| group.has_kem()) {
            let client = Key::generate(group).unwrap();
            let server = Key::new(group, client.public(), None);
            let (share, secret) = server.encapsulate().unwrap();
            assert_eq!(client.decapsulate(&share).unwrap(), secret);
            let short = client.decapsulate(&share[1..]).unwrap_err();
            assert!(matches!(short, Failure::Agree(AgreeError::InvalidPeer(_))));
            assert!(matches!(server.decapsulate(&share), Err(Failure::Missing)));
            // A coefficient that is not reduced (FIPS 203, section 7.2).
            let mut public = client.public().unwrap();
            let at = match group.name.to_bytes().starts_with(b"SecP") {
                true => client.secret.as_ref().unwrap().curve_alone().unwrap().share().len(),
                false => 0,
            };
            public[at..at + 3].fill(0xff);
            let server = Key::new(group, Some(public), None);
            assert!(
                matches!(server.encapsulate(), Err(Failure::Agree(_))),
                "{:?}",
                group.name
            );
        }
    }

    /// Under overload, and while an engine ends, these groups go on one operation at a time.
    #[test]
    fn handshakes_go_on_with_an_engine_that_refuses() {
        let _counts = crate::COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        for group in GROUPS.iter().filter(|group| group.has_kem()) {
            for refused in [[true; 3], [false, true, false], [true, false, true]] {
                let client = on(refused[0], || Key::generate(group)).unwrap();
                let server = Key::new(group, client.public(), None);
                let (share, secret) = on(refused[1], || server.encapsulate()).unwrap();
                let agreed = on(refused[2], || client.decapsulate(&share));
                assert_eq!(agreed.unwrap(), secret, "{:?}", group.name);
            }
        }
    }

    fn on<R>(refused: bool, work: impl FnOnce() -> R) -> R {
        match refused {
            true => engine::tests::refusing(work),
            false => work(),
        }
    }
}
