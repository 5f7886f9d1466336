//! Costs of OpenSSL's own operations on this machine, beside ours: measured by turns, once for each OpenSSL,
//! and kept with the calibration.
//!
//! The default provider's functions are called as libssl calls them in a handshake: with a new context for each
//! signature and agreement. Keys are made by OpenSSL; those that take long to make are public ones.

use std::ffi::{CStr, CString};
use std::ptr;

use widelane_crypto::agreement::Curve;
use widelane_crypto::sign::Algorithm;
use widelane_crypto::{Backend, BackendUnavailable, Operation};
use widelane_engine::calibration::{self, Comparison};
use widelane_engine::{Visitor, for_each_operation};

use crate::engine::engine;
use crate::family::Family;
use crate::ffi::abi::{KEYPAIR, Object};
use crate::ffi::defaults::{Defaults, Inner};
use crate::ffi::keys::Key;
use crate::ffi::libcrypto::LibCrypto;
use crate::ffi::params::OwnParams;

/// Measures what passes and OpenSSL's own operations cost here, unless that is known. The processes that this one
/// forks inherit the figures, and start no thread to measure them again.
pub(crate) fn calibrate() {
    if let Ok(engine) = engine() {
        engine.calibrate();
    }
    Measure::new(false).run();
}

/// Measures what is not known of this OpenSSL, unless the figures could not be kept: the next process would
/// measure again.
pub(crate) fn measure_if_kept() {
    Measure::new(true).run();
}

struct Measure {
    with: String,
    found: Vec<Comparison>,
    /// True if a file must take the figures. Checked before the first measurement.
    only_if_kept: bool,
}

impl Measure {
    fn new(only_if_kept: bool) -> Self {
        Self {
            with: LibCrypto::get().full_version(),
            found: Vec::new(),
            only_if_kept,
        }
    }

    fn run(mut self) {
        // AWS-LC runs everywhere.
        let _ = for_each_operation(&mut self);
        if !self.found.is_empty() {
            calibration::keep(self.found);
        }
    }
}

impl Visitor for Measure {
    fn visit<O: Operation>(
        &mut self,
        make: impl Fn(Backend) -> Result<O, BackendUnavailable>,
    ) -> Result<(), BackendUnavailable> {
        let operation = make(Backend::AwsLc)?;
        let name = operation.name();
        if calibration::comparison(name, &self.with).is_none()
            && let Some(mut theirs) = theirs(name)
        {
            if self.only_if_kept && self.found.is_empty() && !calibration::keep(Vec::new()) {
                return Ok(());
            }
            let compared = calibration::compare(&operation, &self.with, &mut || theirs().is_some());
            self.found.extend(compared);
        }
        Ok(())
    }
}

/// OpenSSL's own form of an operation; `None` if this OpenSSL, or the provider, has nothing to compare.
fn theirs(operation: &str) -> Option<Box<dyn FnMut() -> Option<()>>> {
    for algorithm in Algorithm::ALL {
        let mut operations = algorithm.operations().iter();
        if let Some(number) = operations.position(|one| *one == operation) {
            return signature(algorithm, number);
        }
    }
    for curve in Curve::ALL {
        let [public, derive] = curve.operations();
        if operation == public {
            return Some(Box::new(move || generate(curve).map(drop)));
        } else if operation == derive {
            return agreement(curve);
        }
    }
    None
}

/// The default provider's new key on a curve.
fn generate(curve: Curve) -> Option<Key> {
    let family = Family::of(curve);
    let group = family.curve().is_none().then(|| curve.names()[0]);
    generate_key(family, group)
}

fn generate_key(family: Family, group: Option<&CStr>) -> Option<Key> {
    let defaults = Defaults::get();
    let functions = defaults.keys(family);
    let mut params = OwnParams::default();
    if let Some(group) = group {
        params = params.text(c"group", group.to_str().ok()?);
    }
    // SAFETY: the default provider's functions with its own context and a whole list; the generation is
    // used no more after its end.
    let made = unsafe {
        let generation = (functions.gen_init)(defaults.context(), KEYPAIR, params.as_ptr());
        let generation = Inner::new(generation, functions.gen_cleanup)?;
        let made = (functions.generate)(generation.get(), ptr::null(), ptr::null_mut());
        Inner::new(made, functions.free)
    };
    Some(Key::from_inner(family, made?))
}

/// An agreement of two keys.
fn agreement(curve: Curve) -> Option<Box<dyn FnMut() -> Option<()>>> {
    let family = Family::of(curve);
    let functions = Defaults::get().exchange(family)?;
    let (own, peer) = (generate(curve)?, generate(curve)?);
    let mut secret = vec![0; curve.secret_len()];
    let mut agree = move |own: Object, peer: Object| {
        // SAFETY: the default provider's functions with its own context, a context and two keys of its own,
        // and a place of the length that is said.
        unsafe {
            let context = (functions.newctx)(Defaults::get().context());
            let inner = Inner::new(context, functions.freectx)?;
            let (context, mut len) = (inner.get(), 0);
            let agreed = (functions.init)(context, own, ptr::null()) == 1
                && (functions.set_peer)(context, peer) == 1
                && (functions.derive)(context, secret.as_mut_ptr(), &mut len, secret.len()) == 1;
            agreed.then_some(())
        }
    };
    Some(Box::new(move || {
        own.with_inner(|_, own| peer.with_inner(|_, peer| agree(own, peer)))??
    }))
}

/// A signature of a message by the first scheme of an algorithm, by the operation in this place of its own.
fn signature(algorithm: Algorithm, number: usize) -> Option<Box<dyn FnMut() -> Option<()>>> {
    let mut families = Family::all();
    let family = families.find(|family| family.algorithms.contains(&algorithm))?;
    let functions = Defaults::get().signature(family)?;
    let key = match algorithm.specimen_values(number) {
        Some(values) => import(family, values)?,
        None => generate_key(family, algorithm.curve().map(|curve| curve.names()[0]))?,
    };
    let scheme = algorithm.schemes().first()?;
    let digest = scheme.hash().map(|hash| hash.names()[0]);
    let digest = digest.and_then(|name| CString::new(name).ok());
    let mut place = vec![0; MOST_SIGNATURE];
    let mut sign = move |key: Object| {
        let digest = digest.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        // SAFETY: the default provider's functions with its own context, a context and a key of its own,
        // strings of C or null, and a place of the length that is said.
        unsafe {
            let context = (functions.newctx)(Defaults::get().context(), ptr::null());
            let inner = Inner::new(context, functions.freectx)?;
            let context = inner.get();
            let (mut len, room, out) = (place.len(), place.len(), place.as_mut_ptr());
            let (text, text_len) = (MESSAGE.as_ptr(), MESSAGE.len());
            let begun = (functions.digest_sign_init)(context, digest, key, ptr::null()) == 1;
            let signed = begun
                && match functions.digest_sign {
                    Some(sign) => sign(context, out, &mut len, room, text, text_len) == 1,
                    None => {
                        functions.digest_sign_update?(context, text, text_len) == 1
                            && functions.digest_sign_final?(context, out, &mut len, room) == 1
                    }
                };
            signed.then_some(())
        }
    };
    Some(Box::new(move || key.with_inner(|_, key| sign(key))?))
}

/// A key with these integers in the default provider.
fn import(family: Family, values: Vec<(&CStr, &[u8])>) -> Option<Key> {
    let mut params = OwnParams::default();
    for (name, value) in values {
        params = params.big(name, value);
    }
    let key = Key::empty(family, None)?;
    let imported = key.with_inner(|functions, key| {
        // SAFETY: the default provider's function with a key of its own and a whole list.
        unsafe { (functions.import)(key, KEYPAIR, params.as_ptr()) }
    });
    (imported == Some(1)).then_some(key)
}

/// As long as what a TLS 1.3 server signs (RFC 8446, section 4.4.3).
const MESSAGE: &[u8] = &[0x20; 64 + 33 + 1 + 32];
/// More than any signature has.
const MOST_SIGNATURE: usize = 8192;
