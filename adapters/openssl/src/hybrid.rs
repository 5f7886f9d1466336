//! Post-quantum TLS groups: ML-KEM (FIPS 203) alone or beside an elliptic curve
//! (draft-ietf-tls-ecdhe-mlkem), for every OpenSSL from 3.0 on.
//!
//! OpenSSL takes a group from any provider that announces it as a KEM: the client's share is its
//! public key, the server's share is what `encapsulate` sends back. Both halves of a hybrid run in
//! the same suspension. OpenSSL's contract is that of `keymgmt`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::{ptr, slice};

use widelane_crypto::{AgreeError, Backend, Operation, Request, ecdh, mlkem, x25519};
use widelane_engine::Requests;
use zeroize::Zeroizing;

use crate::abi::{self, Dispatch, INTEGER, KEM, KEYPAIR, OCTETS, Object, PRIVATE_KEY, PUBLIC_KEY};
use crate::abi::{Param, UTF8};
use crate::family::Curve;
use crate::keymgmt::{guarded, random_scalar, random_x25519};
use crate::libcrypto::{INTERNAL_ERROR, LibCrypto};
use crate::objects::{self, borrow, counted};
use crate::params::{END, Params, described};
use crate::waiting;

/// A group.
pub(crate) struct Group {
    /// Its name in TLS, which is also the name of its keys.
    pub(crate) name: &'static CStr,
    /// Its number in TLS.
    pub(crate) id: u32,
    kem: mlkem::Size,
    curve: Option<Curve>,
    /// True if the curve's half comes first in shares and secrets.
    curve_first: bool,
    pub(crate) security_bits: u32,
}

/// The groups, by their numbers in IANA's registry "TLS Supported Groups".
pub(crate) static GROUPS: [Group; 5] = [
    Group {
        name: c"X25519MLKEM768",
        id: 4588,
        kem: mlkem::Size::MlKem768,
        curve: Some(Curve::X25519),
        curve_first: false,
        security_bits: 192,
    },
    Group {
        name: c"SecP256r1MLKEM768",
        id: 4587,
        kem: mlkem::Size::MlKem768,
        curve: Some(Curve::Nist(ecdh::Curve::P256)),
        curve_first: true,
        security_bits: 192,
    },
    Group {
        name: c"SecP384r1MLKEM1024",
        id: 4589,
        kem: mlkem::Size::MlKem1024,
        curve: Some(Curve::Nist(ecdh::Curve::P384)),
        curve_first: true,
        security_bits: 256,
    },
    Group {
        name: c"MLKEM768",
        id: 513,
        kem: mlkem::Size::MlKem768,
        curve: None,
        curve_first: false,
        security_bits: 192,
    },
    Group {
        name: c"MLKEM1024",
        id: 514,
        kem: mlkem::Size::MlKem1024,
        curve: None,
        curve_first: false,
        security_bits: 256,
    },
];

/// The keys of the group with this number in [`GROUPS`].
pub(crate) const fn keys<const GROUP: usize>() -> [Dispatch; 16] {
    [
        abi::keymgmt_new::of(new::<GROUP>),
        abi::keymgmt_free::of(objects::free_counted::<Key>),
        abi::keymgmt_has::of(has),
        abi::keymgmt_match::of(matches),
        abi::keymgmt_get_params::of(get_params),
        abi::keymgmt_gettable_params::of(gettable_params),
        abi::keymgmt_set_params::of(set_params),
        abi::keymgmt_settable_params::of(settable_params),
        abi::keymgmt_dup::of(dup),
        abi::keymgmt_gen_init::of(gen_init::<GROUP>),
        abi::keymgmt_gen_set_params::of(gen_set_params),
        abi::keymgmt_gen_settable_params::of(gen_settable_params),
        abi::keymgmt_gen::of(generate),
        abi::keymgmt_gen_cleanup::of(objects::free::<Generation>),
        abi::keymgmt_query_operation_name::of(query_operation_name::<GROUP>),
        Dispatch::END,
    ]
}

/// The KEM of every group.
pub(crate) static KEMS: [Dispatch; 7] = [
    abi::kem_newctx::of(newctx),
    abi::kem_freectx::of(objects::free::<Context>),
    abi::kem_encapsulate_init::of(init),
    abi::kem_encapsulate::of(encapsulate),
    abi::kem_decapsulate_init::of(init),
    abi::kem_decapsulate::of(decapsulate),
    Dispatch::END,
];

impl Group {
    /// True if a curve stands beside ML-KEM.
    pub(crate) fn is_hybrid(&self) -> bool {
        self.curve.is_some()
    }

    fn curve_len(&self) -> usize {
        self.curve.map_or(0, Curve::public_len)
    }

    /// Bytes of a client's share.
    fn public_len(&self) -> usize {
        self.kem.encapsulation_key_len() + self.curve_len()
    }

    /// Bytes of a server's share.
    fn ciphertext_len(&self) -> usize {
        self.kem.ciphertext_len() + self.curve_len()
    }

    /// Bytes of what both agree on: 32 of ML-KEM's (FIPS 203, section 8), and the curve's.
    fn secret_len(&self) -> usize {
        32 + self.curve.map_or(0, Curve::len)
    }

    /// Puts two halves in the group's order.
    fn join(&self, kem: &[u8], curve: &[u8]) -> Zeroizing<Vec<u8>> {
        let halves = match self.curve_first {
            true => [curve, kem],
            false => [kem, curve],
        };
        Zeroizing::new(halves.concat())
    }

    /// The halves of a share of the right length: ML-KEM's, and the curve's.
    fn split<'a>(&self, share: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        match self.curve_first {
            true => {
                let (curve, kem) = share.split_at(self.curve_len());
                (kem, curve)
            }
            false => share.split_at(share.len() - self.curve_len()),
        }
    }
}

/// A key of a group.
struct Key {
    group: &'static Group,
    /// The client's share; a server's key gets it from the client.
    public: Mutex<Option<Vec<u8>>>,
    secret: Option<Secret>,
}

/// The secrets of a client.
#[derive(Clone)]
struct Secret {
    kem: mlkem::DecapsulationKey,
    curve: Option<CurveSecret>,
}

#[derive(Clone)]
enum CurveSecret {
    X25519(x25519::Secret),
    Nist(ecdh::Secret),
}

impl CurveSecret {
    /// From OpenSSL's generator, as where the curve stands alone.
    fn generate(curve: Curve) -> Result<Self, Failure> {
        let mut bytes = Zeroizing::new(vec![0; curve.len()]);
        let secret = match curve {
            Curve::X25519 => random_x25519(&mut bytes).map(Self::X25519),
            Curve::Nist(curve) => random_scalar(curve, &mut bytes).map(Self::Nist),
        };
        secret.ok_or(Failure::Agree(AgreeError::Entropy))
    }
}

impl Key {
    fn new(group: &'static Group, public: Option<Vec<u8>>, secret: Option<Secret>) -> Self {
        Self {
            group,
            public: Mutex::new(public),
            secret,
        }
    }

    /// A client's key.
    fn generate(group: &'static Group) -> Result<Self, Failure> {
        let keygen = mlkem::Keygen { size: group.kem };
        let (made, curve) = match group.curve.map(CurveSecret::generate).transpose()? {
            None => (run((keygen,))?.0, None),
            Some(CurveSecret::X25519(secret)) => {
                let public = x25519::Public {
                    secret: secret.clone(),
                };
                let (made, public) = run((keygen, public))?;
                let public = public?.to_vec();
                (made, Some((CurveSecret::X25519(secret), public)))
            }
            Some(CurveSecret::Nist(secret)) => {
                let public = ecdh::Public {
                    secret: secret.clone(),
                };
                let (made, public) = run((keygen, public))?;
                let public = public?.to_vec();
                (made, Some((CurveSecret::Nist(secret), public)))
            }
        };
        let (kem, kem_public) = made?;
        let (curve, curve_public) = curve.unzip();
        let public = group.join(&kem_public, &curve_public.unwrap_or_default());
        Ok(Self::new(
            group,
            Some(public.to_vec()),
            Some(Secret { kem, curve }),
        ))
    }

    fn public(&self) -> Option<Vec<u8>> {
        self.public
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn has(&self, selection: c_int) -> bool {
        (selection & PUBLIC_KEY == 0 || self.public().is_some())
            && (selection & PRIVATE_KEY == 0 || self.secret.is_some())
    }

    /// The server's side: its share, and the secret.
    fn encapsulate(&self) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), Failure> {
        let group = self.group;
        let public = self.public().ok_or(Failure::Missing)?;
        let (kem, peer) = group.split(&public);
        let encapsulate = mlkem::Encapsulate {
            size: group.kem,
            key: kem.to_vec(),
        };
        let (kem, curve) = match group.curve.map(CurveSecret::generate).transpose()? {
            None => (run((encapsulate,))?.0, None),
            Some(CurveSecret::X25519(secret)) => {
                let public = x25519::Public {
                    secret: secret.clone(),
                };
                let peer = peer.try_into().map_err(|_| Failure::Missing)?;
                let derive = x25519::Derive { secret, peer };
                let (kem, public, shared) = run((encapsulate, public, derive))?;
                (kem, Some((public?.to_vec(), shared?)))
            }
            Some(CurveSecret::Nist(secret)) => {
                let public = ecdh::Public {
                    secret: secret.clone(),
                };
                let peer = peer.to_vec();
                let derive = ecdh::Derive { secret, peer };
                let (kem, public, shared) = run((encapsulate, public, derive))?;
                (kem, Some((public?.to_vec(), shared?)))
            }
        };
        let (ciphertext, kem) = kem?;
        let (public, shared) = curve.unzip();
        let share = group.join(&ciphertext, &public.unwrap_or_default());
        let shared = shared.as_ref().map_or(&[][..], |shared| shared.as_bytes());
        Ok((share.to_vec(), group.join(kem.as_bytes(), shared)))
    }

    /// The client's side: the secret.
    fn decapsulate(&self, share: &[u8]) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let group = self.group;
        let secret = self.secret.clone().ok_or(Failure::Missing)?;
        if share.len() != group.ciphertext_len() {
            return Err(AgreeError::InvalidPeer("a share of another length").into());
        }
        let (ciphertext, peer) = group.split(share);
        let decapsulate = mlkem::Decapsulate {
            key: secret.kem,
            ciphertext: ciphertext.to_vec(),
        };
        let (kem, shared) = match secret.curve {
            None => (run((decapsulate,))?.0, None),
            Some(CurveSecret::X25519(secret)) => {
                let peer = peer.try_into().map_err(|_| Failure::Missing)?;
                let derive = x25519::Derive { secret, peer };
                let (kem, shared) = run((decapsulate, derive))?;
                (kem, Some(shared))
            }
            Some(CurveSecret::Nist(secret)) => {
                let derive = ecdh::Derive {
                    secret,
                    peer: peer.to_vec(),
                };
                let (kem, shared) = run((decapsulate, derive))?;
                (kem, Some(shared))
            }
        };
        let shared = shared.transpose()?;
        let shared = shared.as_ref().map_or(&[][..], |shared| shared.as_bytes());
        Ok(group.join(kem?.as_bytes(), shared))
    }
}

/// Runs requests that are answered in any case: no other provider knows these groups before OpenSSL 3.5.
fn run<R: Alone>(requests: R) -> Result<R::Outputs, waiting::Failure> {
    let outputs = waiting::run_together(requests.clone());
    waiting::in_any_case(outputs, || requests.alone())
}

/// Requests that AWS-LC can answer at once, on the caller's thread.
trait Alone: Requests + Clone {
    fn alone(&self) -> Self::Outputs;
}

impl<A: One> Alone for (A,) {
    fn alone(&self) -> Self::Outputs {
        (self.0.alone(),)
    }
}

impl<A: One, B: One> Alone for (A, B) {
    fn alone(&self) -> Self::Outputs {
        (self.0.alone(), self.1.alone())
    }
}

impl<A: One, B: One, C: One> Alone for (A, B, C) {
    fn alone(&self) -> Self::Outputs {
        (self.0.alone(), self.1.alone(), self.2.alone())
    }
}

/// One of these requests.
trait One: Request + Clone {
    fn alone(&self) -> Self::Output;
}

/// Answers requests by the operation without lanes that takes them.
macro_rules! alone {
    ($($request:ty => |$own:ident| $operation:expr;)*) => { $(
        impl One for $request {
            fn alone(&self) -> Self::Output {
                let $own = self;
                $operation.map_err(|_| AgreeError::Failed)?.alone(self)
            }
        }
    )* };
}

alone! {
    mlkem::Keygen => |own| mlkem::KeyGeneration::new(Backend::AwsLc, own.size);
    mlkem::Encapsulate => |own| mlkem::Encapsulation::new(Backend::AwsLc, own.size);
    mlkem::Decapsulate => |own| mlkem::Decapsulation::new(Backend::AwsLc, own.key.size());
    x25519::Public => |_own| x25519::Keygen::new(Backend::AwsLc);
    x25519::Derive => |_own| x25519::Derivation::new(Backend::AwsLc);
    ecdh::Public => |own| ecdh::Keygen::new(Backend::AwsLc, own.secret.curve());
    ecdh::Derive => |own| ecdh::Derivation::new(Backend::AwsLc, own.secret.curve());
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
    Wait(#[from] waiting::Failure),
}

impl Failure {
    /// Puts the failure into OpenSSL's queue.
    fn raise(&self) {
        LibCrypto::get().raise(INTERNAL_ERROR, &self.to_string());
    }
}

unsafe extern "C" fn new<const GROUP: usize>(_: Object) -> Object {
    guarded(ptr::null_mut(), || {
        objects::give_counted(Some(Key::new(&GROUPS[GROUP], None, None)))
    })
}

unsafe extern "C" fn has(object: Object, selection: c_int) -> c_int {
    // SAFETY: OpenSSL's contract.
    let key = unsafe { counted::<Key>(object) };
    guarded(0, || key.is_some_and(|key| key.has(selection)).into())
}

unsafe extern "C" fn matches(one: Object, other: Object, selection: c_int) -> c_int {
    // SAFETY: OpenSSL's contract.
    let keys = unsafe { counted::<Key>(one).zip(counted::<Key>(other)) };
    guarded(0, || {
        let same = |(one, other): (Arc<Key>, Arc<Key>)| {
            one.group.id == other.group.id
                && (selection & KEYPAIR == 0
                    || one.public().is_some() && one.public() == other.public())
        };
        keys.is_some_and(same).into()
    })
}

unsafe extern "C" fn get_params(object: Object, list: *mut Param) -> c_int {
    // SAFETY: OpenSSL's contract.
    let (key, list) = unsafe { (counted::<Key>(object), Params::new(list)) };
    guarded(0, || {
        let Some(key) = key else { return 0 };
        let answered = list.iter().all(|value| match value.key().to_bytes() {
            b"bits" => value.set_integer(8 * key.group.secret_len() as u32),
            b"security-bits" => value.set_integer(key.group.security_bits),
            b"max-size" => value.set_integer(key.group.ciphertext_len() as u32),
            b"encoded-pub-key" | b"pub" => {
                key.public().is_some_and(|public| value.set_octets(&public))
            }
            _ => true,
        });
        answered.into()
    })
}

unsafe extern "C" fn gettable_params(_: Object) -> *const Param {
    static LIST: [Param; 6] = [
        described(c"bits", INTEGER),
        described(c"security-bits", INTEGER),
        described(c"max-size", INTEGER),
        described(c"encoded-pub-key", OCTETS),
        described(c"pub", OCTETS),
        END,
    ];
    LIST.as_ptr()
}

unsafe extern "C" fn set_params(object: Object, list: *const Param) -> c_int {
    // SAFETY: OpenSSL's contract.
    let (key, list) = unsafe { (counted::<Key>(object), Params::new(list)) };
    guarded(0, || {
        let Some(key) = key else { return 0 };
        let Some(value) = list.get(c"encoded-pub-key") else {
            return 1;
        };
        match value.octets() {
            Some(public) if public.len() == key.group.public_len() => {
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

unsafe extern "C" fn settable_params(_: Object) -> *const Param {
    static LIST: [Param; 2] = [described(c"encoded-pub-key", OCTETS), END];
    LIST.as_ptr()
}

unsafe extern "C" fn dup(object: Object, selection: c_int) -> Object {
    // SAFETY: OpenSSL's contract.
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

unsafe extern "C" fn gen_init<const GROUP: usize>(
    _: Object,
    selection: c_int,
    _: *const Param,
) -> Object {
    guarded(ptr::null_mut(), || {
        let group = &GROUPS[GROUP];
        objects::give(Some(Generation { group, selection }))
    })
}

/// TLS says the group's name, which is known.
unsafe extern "C" fn gen_set_params(_: Object, _: *const Param) -> c_int {
    1
}

unsafe extern "C" fn gen_settable_params(_: Object, _: Object) -> *const Param {
    static LIST: [Param; 2] = [described(c"group", UTF8), END];
    LIST.as_ptr()
}

unsafe extern "C" fn generate(object: Object, _: *const c_void, _: *mut c_void) -> Object {
    // SAFETY: OpenSSL's contract: a context of `gen_init`.
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
    // SAFETY: OpenSSL's contract: a context of `newctx` that nothing else uses now.
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
    // SAFETY: OpenSSL's contract: a context of `newctx`.
    let context = unsafe { borrow::<Context>(object) };
    guarded(0, || {
        let Some(key) = context.and_then(|context| context.0.as_ref()) else {
            return 0;
        };
        let lens = [key.group.ciphertext_len(), key.group.secret_len()];
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
        match key.encapsulate() {
            Ok((made, agreed)) => {
                // SAFETY: both places have room for these lengths, by the check above.
                unsafe {
                    slice::from_raw_parts_mut(share, lens[0]).copy_from_slice(&made);
                    slice::from_raw_parts_mut(secret, lens[1]).copy_from_slice(&agreed);
                    set_len(share_len, lens[0]);
                    set_len(secret_len, lens[1]);
                }
                1
            }
            Err(failure) => {
                failure.raise();
                0
            }
        }
    })
}

unsafe extern "C" fn decapsulate(
    object: Object,
    secret: *mut u8,
    secret_len: *mut usize,
    share: *const u8,
    share_len: usize,
) -> c_int {
    // SAFETY: OpenSSL's contract: a context of `newctx`.
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
        match key.decapsulate(share) {
            Ok(agreed) => {
                // SAFETY: the place has room for it, by the check above.
                unsafe {
                    slice::from_raw_parts_mut(secret, wanted).copy_from_slice(&agreed);
                    set_len(secret_len, wanted);
                }
                1
            }
            Err(failure) => {
                failure.raise();
                0
            }
        }
    })
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

    /// Lengths from draft-ietf-tls-ecdhe-mlkem, section 4.
    #[test]
    fn shares_have_the_lengths_of_the_draft() {
        for (name, public, ciphertext, secret) in [
            (c"X25519MLKEM768", 1216, 1120, 64),
            (c"SecP256r1MLKEM768", 1249, 1153, 64),
            (c"SecP384r1MLKEM1024", 1665, 1665, 80),
            (c"MLKEM768", 1184, 1088, 32),
            (c"MLKEM1024", 1568, 1568, 32),
        ] {
            let group = GROUPS.iter().find(|group| group.name == name).unwrap();
            let lens = (
                group.public_len(),
                group.ciphertext_len(),
                group.secret_len(),
            );
            assert_eq!(lens, (public, ciphertext, secret), "{name:?}");
        }
    }

    #[test]
    fn both_sides_agree_and_damaged_shares_are_refused() {
        let _counts = crate::COUNTING
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for group in &GROUPS {
            let client = Key::generate(group).unwrap();
            let server = Key::new(group, client.public(), None);
            let (share, secret) = server.encapsulate().unwrap();
            assert_eq!(client.decapsulate(&share).unwrap(), secret);
            let short = client.decapsulate(&share[1..]).unwrap_err();
            assert!(matches!(short, Failure::Agree(AgreeError::InvalidPeer(_))));
            assert!(matches!(server.decapsulate(&share), Err(Failure::Missing)));
            // A coefficient that is not reduced (FIPS 203, section 7.2).
            let mut public = client.public().unwrap();
            let at = if group.curve_first {
                group.curve_len()
            } else {
                0
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
        let _counts = crate::COUNTING
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for group in &GROUPS {
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
            true => waiting::tests::refusing(work),
            false => work(),
        }
    }

    #[test]
    fn halves_stand_in_the_order_of_the_draft() {
        assert_eq!(GROUPS[0].join(&[1], &[2])[..], [1, 2]);
        assert_eq!(GROUPS[1].join(&[1], &[2])[..], [2, 1]);
    }
}
