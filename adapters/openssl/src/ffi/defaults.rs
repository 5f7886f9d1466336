//! The default provider's own implementations, which do all that we do not replace.
//!
//! A library context of our own holds a default provider whose dispatch tables are public
//! (`OSSL_PROVIDER_query_operation`). Its functions take its own objects only, so each of our objects
//! keeps one of them inside.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::family::Family;
pub(crate) use crate::ffi::abi::cipher::Functions as CipherFunctions;
pub(crate) use crate::ffi::abi::keyexch::Functions as ExchangeFunctions;
pub(crate) use crate::ffi::abi::keymgmt::Functions as KeyFunctions;
pub(crate) use crate::ffi::abi::signature::Functions as SignatureFunctions;
use crate::ffi::abi::{self, Algorithm, CIPHER, Callback, Dispatch, KEYEXCH, KEYMGMT, MOST, Object, SIGNATURE};
use crate::ffi::libcrypto::LibCrypto;

/// A default provider in a library context of its own. It stays until the process ends, because
/// keys may outlive the provider that made them.
pub(crate) struct Defaults {
    provider: Object,
    context: Object,
    keys: Vec<Option<KeyFunctions>>,
    signatures: Vec<Option<SignatureFunctions>>,
    exchanges: Vec<Option<ExchangeFunctions>>,
    cipher: Option<CipherFunctions>,
}

// SAFETY: the context is a library context's, whose functions may be called by any thread; the rest
// are functions.
unsafe impl Send for Defaults {}
// SAFETY: functions of a library context may be called by several threads at the same time; the rest are functions.
unsafe impl Sync for Defaults {}

impl Defaults {
    /// Loads the default provider at the first call.
    pub(crate) fn start(libcrypto: &LibCrypto) -> Result<&'static Self, &'static str> {
        if let Some(found) = DEFAULTS.get() {
            return Ok(found);
        }
        let found = Self::load(libcrypto)?;
        Ok(DEFAULTS.get_or_init(|| found))
    }

    /// For code that only a started provider calls.
    pub(crate) fn get() -> &'static Self {
        DEFAULTS.get().expect("the provider has started")
    }

    /// Context of the default provider, the first argument of many of its functions.
    pub(crate) fn context(&self) -> Object {
        self.context
    }

    /// Calls `callback` with each TLS group of the default provider.
    pub(crate) fn tls_groups(&self, callback: Callback, argument: *mut c_void) -> c_int {
        let get = LibCrypto::get().provider_get_capabilities;
        // SAFETY: the provider stays loaded; callback and argument are the caller's.
        unsafe { get(self.provider, c"TLS-GROUP".as_ptr(), Some(callback), argument) }
    }

    pub(crate) fn keys(&self, family: Family) -> &KeyFunctions {
        let keys = self.keys[family.number()].as_ref();
        keys.expect("keys are offered only if the default provider has them")
    }

    pub(crate) fn signature(&self, family: Family) -> Option<&SignatureFunctions> {
        self.signatures[family.number()].as_ref()
    }

    pub(crate) fn exchange(&self, family: Family) -> Option<&ExchangeFunctions> {
        self.exchanges[family.number()].as_ref()
    }

    /// ChaCha20-Poly1305; an OpenSSL may be built without it.
    pub(crate) fn cipher(&self) -> Option<&CipherFunctions> {
        self.cipher.as_ref()
    }

    fn load(libcrypto: &LibCrypto) -> Result<Self, &'static str> {
        // SAFETY: OpenSSL's public functions with arguments as documented; a null result is
        // looked at.
        let (provider, context) = unsafe {
            let library = (libcrypto.lib_ctx_new)();
            if library.is_null() {
                return Err("OpenSSL gives no library context");
            }
            let provider = (libcrypto.provider_load)(library, c"default".as_ptr());
            if provider.is_null() {
                return Err("this OpenSSL has no provider `default`");
            }
            let context = (libcrypto.provider_get0_provider_ctx)(provider);
            (provider, context)
        };
        let algorithm = |operation, name: Option<&CStr>| find(libcrypto, provider, operation, name?);
        let all = Family::all;
        // SAFETY: algorithms that the default provider gave for these operations.
        unsafe {
            Ok(Self {
                provider,
                context,
                keys: all()
                    .map(|one| KeyFunctions::of(algorithm(KEYMGMT, Some(one.key_name))?))
                    .collect(),
                signatures: all()
                    .map(|one| SignatureFunctions::of(algorithm(SIGNATURE, one.signature_name)?))
                    .collect(),
                exchanges: all()
                    .map(|one| ExchangeFunctions::of(algorithm(KEYEXCH, one.exchange_name)?))
                    .collect(),
                cipher: algorithm(CIPHER, Some(c"ChaCha20-Poly1305")).and_then(|found| CipherFunctions::of(found)),
            })
        }
    }
}

/// Functions that list what there is: those of the default provider, which looks at no context for them.
macro_rules! lists {
    ($table:ident: $($name:ident($($argument:ident: $type:ty),*)
        = |$functions:ident, $context:ident| $list:expr;)+) => { $(
        unsafe extern "C" fn $name<const FAMILY: usize>($($argument: $type),*) -> *const Param {
            let $context = Defaults::get().context();
            let $functions = Defaults::get().$table(Family::numbered(FAMILY));
            // SAFETY: the default provider's function with its own context, or of a number.
            let list = || unsafe { $list };
            list().unwrap_or(ptr::null())
        }
    )+ };
}
pub(crate) use lists;

/// The functions that we offer for one operation, by family: those that the default provider has, too.
pub(crate) struct Offered([OnceLock<Vec<Dispatch>>; MOST]);

impl Offered {
    pub(crate) const fn new() -> Self {
        Self([const { OnceLock::new() }; MOST])
    }

    /// Functions of `own` for a family, for which the default provider has an algorithm, or none.
    pub(crate) fn of(&self, family: Family, theirs: Option<&Algorithm>, own: &[Dispatch]) -> &[Dispatch] {
        let theirs = theirs.map_or(ptr::null(), |algorithm| algorithm.implementation);
        // SAFETY: null or a table of the default provider's.
        self.0[family.number()].get_or_init(|| unsafe { abi::in_both(own, theirs) })
    }
}

static DEFAULTS: OnceLock<Defaults> = OnceLock::new();

/// A key or a context of the default provider's, freed when it is dropped.
pub(crate) struct Inner {
    object: NonNull<c_void>,
    free: unsafe extern "C" fn(Object),
}

// SAFETY: OpenSSL's keys may be used and freed by any thread, because they count their references; a context is
// used by one call at a time.
unsafe impl Send for Inner {}
// SAFETY: several threads may use OpenSSL's keys at the same time; a context is used by one call at a time.
unsafe impl Sync for Inner {}

impl Inner {
    /// Takes over an object; `None` if it is null.
    ///
    /// # Safety
    ///
    /// `object` must be null, or one that `free` frees, and that nothing else does.
    pub(crate) unsafe fn new(object: Object, free: unsafe extern "C" fn(Object)) -> Option<Self> {
        let object = NonNull::new(object)?;
        Some(Self { object, free })
    }

    /// A copy by `dup`; `None` if there is no such function, or no memory.
    ///
    /// # Safety
    ///
    /// `dup` must be the default provider's function for such contexts.
    pub(crate) unsafe fn copy(&self, dup: Option<unsafe extern "C" fn(Object) -> Object>) -> Option<Self> {
        // SAFETY: the caller's promise; what copies a context makes one of its kind.
        unsafe { Self::new(dup?(self.get()), self.free) }
    }

    pub(crate) fn get(&self) -> Object {
        self.object.as_ptr()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: `new`'s caller promised it; the object is used no more.
        unsafe { (self.free)(self.get()) };
    }
}

/// The algorithm one of whose names is `name`.
fn find(libcrypto: &LibCrypto, provider: Object, operation: c_int, name: &CStr) -> Option<Algorithm> {
    let mut no_store = 0;
    // SAFETY: the provider has been loaded; OpenSSL writes one int.
    let mut next = unsafe { (libcrypto.provider_query_operation)(provider, operation, &mut no_store) };
    while !next.is_null() {
        // SAFETY: an entry of a list that ends with null names, which is checked before going on.
        let algorithm: &Algorithm = unsafe { &*next };
        if algorithm.names.is_null() {
            break;
        }
        // SAFETY: a string of C, constant as the list.
        let names = unsafe { CStr::from_ptr(algorithm.names) }.to_bytes();
        let mut names = names.split(|byte| *byte == b':');
        if names.any(|one| one.eq_ignore_ascii_case(name.to_bytes())) {
            return Some(*algorithm);
        }
        // SAFETY: an entry with names has another one behind it.
        next = unsafe { next.add(1) };
    }
    None
}
