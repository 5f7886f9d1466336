//! The provider as OpenSSL sees it: its start, its options, and what it offers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Once, OnceLock};
use std::{mem, ptr};

use widelane_crypto::agreement::{GROUPS, Group};
use widelane_crypto::chacha20poly1305::{Choice, Cipher, Form};
use widelane_crypto::{Backend, Preference};
use widelane_engine::{ClockPenalty, calibration};
use widelane_status::Facts;

use crate::choice::Choices;
use crate::family::Family;
use crate::ffi::abi::{
    self, Algorithm, CIPHER, Callback, Dispatch, KEM, KEYEXCH, KEYMGMT, MOST, Object, Param, SIGNATURE, UTF8_POINTER,
    dispatch, numbered,
};
use crate::ffi::defaults::Defaults;
use crate::ffi::libcrypto::LibCrypto;
use crate::ffi::library::{Instance, LibraryContext};
use crate::ffi::objects::{self, guarded};
use crate::ffi::params::{self, OwnParams, Params, constant_lists};
use crate::ffi::suspension;
use crate::ffi::{cipher, comparison, exchange, hybrid, keymgmt, signature, status};
use crate::forks;
use crate::log;
use crate::options::{self, Options, Prefer, Prepare};
use crate::{engine, prepared};

/// Entry that OpenSSL calls after it has loaded the file (`provider-base(7)`).
///
/// # Safety
///
/// `handle` and `functions` must be OpenSSL's, `out` and `context` places for one pointer each.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn OSSL_provider_init(
    handle: *const c_void,
    functions: *const Dispatch,
    out: *mut *const Dispatch,
    context: *mut Object,
) -> c_int {
    log::count_by(status::count_reason);
    let started = std::panic::catch_unwind(|| {
        // SAFETY: OpenSSL passes its handle and its table of functions.
        let settings = unsafe { params::settings(handle, functions, &options::NAMES) };
        let options = Options::parse(|name| settings.get(name).cloned());
        start(functions, options)?;
        // SAFETY: the core's function, with the core's own handle.
        let library = unsafe {
            let context = abi::core::get_libctx::find(functions).map(|get| get(handle));
            LibraryContext::new(context.unwrap_or(ptr::null_mut()), &PROVIDER)
        };
        Ok::<_, String>(objects::give(Some(Instance { library })))
    });
    let refused = match started {
        Ok(Ok(instance)) => {
            // SAFETY: OpenSSL gives places for both.
            unsafe {
                *out = PROVIDER.as_ptr();
                *context = instance;
            }
            return 1;
        }
        Ok(Err(refused)) => refused,
        Err(_) => "a condition that it does not expect; please report it".into(),
    };
    log::once(&format!("the provider does not start: {refused}"));
    0
}

fn start(functions: *const Dispatch, options: Result<Options, String>) -> Result<(), String> {
    // SAFETY: OpenSSL passes a table of functions that ends; the functions are libcrypto's.
    let inside = unsafe { abi::core::get_params::find(functions) };
    let inside = inside.ok_or("OpenSSL offers no core_get_params")?;
    let libcrypto = LibCrypto::start(inside as *const ()).map_err(|missing| {
        let missing = missing.to_string_lossy();
        format!("its function {missing} is not found; is OpenSSL linked into the program?")
    })?;
    let options = options?;
    log::set_level(options.log);
    if !options.statistics {
        status::switch_off();
    }
    Defaults::start(libcrypto)?;
    FORKS.call_once(|| {
        // SAFETY: functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(forks::prepare), Some(forks::release), Some(forks::release)) };
    });
    let backend = options.backend.resolve().map_err(|error| error.to_string())?;
    engine::choose(options.backend, options.clock, status::lanes_are_off);
    if options.prepare == Prepare::AtFirstUse {
        prepared::prepare_at_first_use();
    }
    let lanes = backend != Backend::AwsLc;
    if !options.overload {
        suspension::leave_queues();
    }
    if lanes {
        // Without them nothing waits, and a suspended handshake would only cost time.
        suspension::attach(options.library.as_deref());
    }
    // Read now, because servers give up the rights to read it before their first handshake.
    if let Some(file) = &options.calibration {
        calibration::keep_in(file);
    }
    if options.measures_at_start {
        comparison::calibrate();
    } else if !lanes && options.prefer == Prefer::Measured {
        // A server with lanes measures when it loads its first key. Here nothing would ask for it.
        comparison::measure_if_kept();
    }
    // Asked now, because servers give up the rights to find out before their first handshake.
    if let Some(model) = widelane_marks::emulated_model() {
        log::info(&format!("marks its wide code for the brake of a {model}"));
    }
    let with = libcrypto.full_version();
    let choices = Choices::make(&options, backend, &with, &default_groups());
    let offer = Offer::new(&options, lanes, choices);
    let version = libcrypto.version_text();
    status::begin(Facts {
        provider: env!("CARGO_PKG_VERSION").to_owned(),
        openssl: version.clone(),
        backend: backend.to_string(),
        suspends: suspension::is_attached(),
        serves: false,
        decisions: choices.lines(),
    });
    if OFFER.set(offer).is_ok() {
        let code = backend
            .target()
            .map_or_else(|| backend.to_string(), widelane_cpu::Target::with_caveat);
        log::info(&format!(
            "{} in OpenSSL {version}, backend {code}, suspends handshakes: {}",
            env!("CARGO_PKG_VERSION"),
            if suspension::is_attached() { "yes" } else { "no" },
        ));
        for line in choices.lines() {
            log::info(&line);
        }
    }
    Ok(())
}

/// The lists of algorithms, and for which TLS groups.
#[derive(Default)]
struct Offer {
    /// By operation, each with its end. There are few, and OpenSSL looks for each algorithm that it does not have in
    /// them, for each context of TLS.
    lists: Vec<(c_int, Vec<Algorithm>)>,
    groups: Vec<&'static Group>,
    /// The names of the keys of curves.
    curves: Vec<&'static CStr>,
}

// SAFETY: its pointers are to constants and to texts that stay for ever.
unsafe impl Send for Offer {}
// SAFETY: its pointers are to constants and to texts that stay for ever.
unsafe impl Sync for Offer {}

impl Offer {
    fn new(options: &Options, lanes: bool, choices: &Choices) -> Self {
        let mut offer = Self::default();
        let defaults = Defaults::get();
        for family in Family::all() {
            let (signs, agrees) = (choices.signs(family), choices.agrees(family));
            let [keys, signatures, exchanges] = tables(family);
            if signs || agrees {
                // Preferred only where keys are made for an exchange: keys of files stay with the
                // default provider, and a signature fetches its copy from ours.
                let properties = if agrees { PREFERRED } else { OFFERED };
                let names = defaults.keys(family).algorithm.names;
                offer.add(KEYMGMT, names, properties, keys);
            }
            if signs && let Some(theirs) = defaults.signature(family) {
                offer.add(SIGNATURE, theirs.algorithm.names, PREFERRED, signatures);
            }
            if agrees && let Some(theirs) = defaults.exchange(family) {
                offer.add(KEYEXCH, theirs.algorithm.names, PREFERRED, exchanges);
                offer.curves.push(family.key_name);
            }
        }
        if lanes
            && let Some(choice) = options.cipher
            && let Some(cipher) = cipher_code(choice, options)
            && let Some(theirs) = defaults.cipher()
            && let Some(table) = cipher::offered(cipher)
        {
            offer.add(CIPHER, theirs.algorithm.names, PREFERRED, table);
        }
        for (group, keys) in GROUPS.iter().zip(group_keys()) {
            if choices.groups.iter().any(|ours| ptr::eq(*ours, group)) {
                offer.add(KEYMGMT, group.name.as_ptr(), PREFERRED, keys);
                offer.add(KEM, group.name.as_ptr(), PREFERRED, &hybrid::KEMS);
                offer.groups.push(group);
            }
        }
        for (_, list) in &mut offer.lists {
            list.push(Algorithm::END);
        }
        offer
    }

    fn add(&mut self, operation: c_int, names: *const c_char, properties: &'static CStr, table: &'static [Dispatch]) {
        let algorithm = Algorithm {
            names,
            properties: properties.as_ptr(),
            implementation: table.as_ptr(),
            description: c"Widelane: many connections in one pass".as_ptr(),
        };
        match self.lists.iter_mut().find(|(of, _)| *of == operation) {
            Some((_, list)) => list.push(algorithm),
            None => self.lists.push((operation, vec![algorithm])),
        }
    }
}

/// The code of ChaCha20-Poly1305: that which was asked for, else the widest that keeps the clock and is
/// no wider than the backend. `None` if OpenSSL's own is as good.
fn cipher_code(choice: Choice, options: &Options) -> Option<Cipher> {
    let lowers = |penalty: ClockPenalty| penalty.depth > 0.0;
    let is_narrow = match options.backend {
        Preference::Auto => false,
        Preference::Exactly(backend) => backend.target().is_some_and(|target| target.bits() < 512),
    };
    let choice = match choice {
        Choice::Auto if lowers(options.clock.narrow) => Choice::Exactly(Form::Ymm256Light),
        Choice::Auto if lowers(options.clock.wide) || is_narrow => Choice::Exactly(Form::Ymm256),
        choice => choice,
    };
    match Cipher::new(choice) {
        Ok(cipher) => (cipher.form() != Form::AwsLc).then_some(cipher),
        Err(error) => {
            log::once(&format!("OpenSSL encrypts by itself: {error}"));
            None
        }
    }
}

/// The tables of the keys of each group, in the order of [`GROUPS`].
fn group_keys() -> &'static [[Dispatch; 16]] {
    static KEYS: [[Dispatch; 16]; MOST] = numbered!(GROUP => hybrid::keys::<GROUP>());
    &KEYS
}

const _: () = assert!(GROUPS.len() <= MOST, "no tables for so many groups");

/// The numbers of the groups that the default provider announces.
fn default_groups() -> Vec<i64> {
    let mut numbers = Vec::new();
    each_default_group(|group| numbers.extend(group.get(c"tls-group-id").and_then(|value| value.integer())));
    numbers
}

/// Calls `look` with each TLS group of the default provider, until it has no more.
fn each_default_group<F: FnMut(Params<'_>)>(mut look: F) {
    unsafe extern "C" fn one<F: FnMut(Params<'_>)>(list: *const Param, look: *mut c_void) -> c_int {
        // SAFETY: `each_default_group` passes its own closure; the list is OpenSSL's.
        let (look, group) = unsafe { (&mut *look.cast::<F>(), Params::new(list)) };
        guarded(0, || {
            look(group);
            1
        })
    }

    Defaults::get().tls_groups(one::<F>, (&raw mut look).cast());
}

/// Properties that a query `?widelane.batch=yes` finds.
const PREFERRED: &CStr = c"provider=widelane,widelane.batch=yes";
const OFFERED: &CStr = c"provider=widelane";

/// The tables of a family: keys, signatures, exchanges.
fn tables(family: Family) -> [&'static [Dispatch]; 3] {
    static KEYS: [[Dispatch; 22]; MOST] = numbered!(FAMILY => keymgmt::table::<FAMILY>());
    type Offered = fn() -> &'static [Dispatch];
    let signatures: [Offered; MOST] = numbered!(FAMILY => signature::offered::<FAMILY>);
    let exchanges: [Offered; MOST] = numbered!(FAMILY => exchange::offered::<FAMILY>);
    let number = family.number();
    [&KEYS[number], signatures[number](), exchanges[number]()]
}

unsafe extern "C" fn query_operation(_: Object, operation: c_int, no_store: *mut c_int) -> *const Algorithm {
    // SAFETY: OpenSSL gives a place for one number.
    unsafe { *no_store = 0 };
    let mut lists = OFFER.get().map_or(&[][..], |offer| &offer.lists).iter();
    let list = lists.find(|(of, _)| *of == operation);
    list.map_or(ptr::null(), |(_, list)| list.as_ptr())
}

/// Announces the groups whose keys are ours, as the default provider does: OpenSSL takes a group
/// only from the provider that makes its keys. It asks for each context of TLS; clients make one for each connection.
unsafe extern "C" fn get_capabilities(
    _: Object,
    capability: *const c_char,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    let Some(callback) = callback else { return 0 };
    // SAFETY: OpenSSL passes the name of a capability, a string of C.
    if unsafe { CStr::from_ptr(capability) } != c"TLS-GROUP" {
        // None of this kind, which is no error.
        return 1;
    }
    guarded(0, || {
        let mut groups = announced().iter();
        // SAFETY: the caller's callback with its own argument and a whole list.
        groups
            .all(|group| unsafe { callback(group.as_ptr(), argument) } == 1)
            .into()
    })
}

/// Parameters of our groups, and the default provider's of those whose keys are ours: made when they are first asked
/// for. No thread waits for another one, which a fork may have left behind.
fn announced() -> &'static [OwnParams] {
    static ANNOUNCED: OnceLock<Vec<OwnParams>> = OnceLock::new();
    if ANNOUNCED.get().is_none()
        && let Some(offer) = OFFER.get()
    {
        let mut groups: Vec<_> = offer.groups.iter().map(|group| announcement(group)).collect();
        each_default_group(|group| {
            let algorithm = group.get(c"tls-group-alg").and_then(|value| value.text());
            let is = |name: &&CStr| algorithm.is_some_and(|text| text.as_bytes() == name.to_bytes());
            if offer.curves.iter().any(is) {
                groups.push(OwnParams::copy(group));
            }
        });
        let _ = ANNOUNCED.set(groups);
    }
    ANNOUNCED.get().map_or(&[], |groups| groups)
}

/// Parameters of a TLS group for OpenSSL (`provider-base(7)`, "CAPABILITIES").
fn announcement(group: &Group) -> OwnParams {
    const TLS_1_3: i32 = 0x0304;
    const NEVER: i32 = -1;
    let name = group.name.to_str().unwrap_or_default();
    OwnParams::default()
        .text(c"tls-group-name", name)
        .text(c"tls-group-name-internal", name)
        .integer(c"tls-group-id", group.tls_number.into())
        .text(c"tls-group-alg", name)
        .integer(c"tls-group-sec-bits", group.security_bits)
        .integer(c"tls-group-is-kem", 1)
        .signed(c"tls-min-tls", TLS_1_3)
        .signed(c"tls-max-tls", 0)
        .signed(c"tls-min-dtls", NEVER)
        .signed(c"tls-max-dtls", NEVER)
}

constant_lists! {
    gettable_params(Object): c"name" = UTF8_POINTER, c"version" = UTF8_POINTER, c"status" = abi::INTEGER;
}

unsafe extern "C" fn get_params(_: Object, list: *mut Param) -> c_int {
    // SAFETY: OpenSSL passes a list that ends, or null.
    let list = unsafe { Params::new(list) };
    guarded(0, || {
        let answered = list.iter().all(|value| match value.key().to_bytes() {
            b"name" => value.set_text(c"Widelane"),
            b"version" => value.set_text(VERSION),
            b"status" => value.set_integer(1),
            _ => true,
        });
        answered.into()
    })
}

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero"),
};

static PROVIDER: [Dispatch; 6] = dispatch![provider:
    teardown = objects::free::<Instance>, gettable_params, get_params, query_operation,
    get_capabilities
];

static FORKS: Once = Once::new();

/// Operations that the provider offers: decided by the first configuration that loads it in a process.
static OFFER: OnceLock<Offer> = OnceLock::new();

const _: () = assert!(mem::size_of::<Param>() == 40 && mem::size_of::<Algorithm>() == 32);
