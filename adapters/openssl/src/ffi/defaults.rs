//! The default provider's own implementations, which do all that we do not replace.
//!
//! A library context of our own holds a default provider whose dispatch tables are public
//! (`OSSL_PROVIDER_query_operation`). Its functions take its own objects only, so each of our objects
//! keeps one of them inside.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::family::Family;
use crate::ffi::abi::{
    self, Algorithm, CIPHER, Callback, Dispatch, KEYEXCH, KEYMGMT, MOST, Object, SIGNATURE,
};
use crate::ffi::libcrypto::LibCrypto;

/// A default provider in a library context of its own. It stays until the process ends, because
/// keys may outlive the provider that made them.
pub(crate) struct Defaults {
    provider: Object,
    context: Object,
    algorithms: Algorithms,
    keys: Vec<Option<KeyFunctions>>,
    signatures: Vec<Option<SignatureFunctions>>,
    exchanges: Vec<Option<ExchangeFunctions>>,
    cipher: Option<(Algorithm, CipherFunctions)>,
}

// SAFETY: the context is a library context's, whose functions may be called by any thread; the rest
// are functions.
unsafe impl Send for Defaults {}
// SAFETY: as above.
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

    /// Its provider context, the first argument of many of its functions.
    pub(crate) fn context(&self) -> Object {
        self.context
    }

    /// All names of its algorithm for this operation, as its own list has them.
    pub(crate) fn names(&self, operation: c_int, family: Family) -> Option<*const c_char> {
        self.algorithm(operation, family)
            .map(|algorithm| algorithm.names)
    }

    /// The functions of its algorithm for this operation; null if it has none.
    pub(crate) fn table(&self, operation: c_int, family: Family) -> *const Dispatch {
        self.algorithm(operation, family)
            .map_or(ptr::null(), |algorithm| algorithm.implementation)
    }

    fn algorithm(&self, operation: c_int, family: Family) -> Option<&Algorithm> {
        let mut algorithms = self.algorithms.iter();
        algorithms
            .find(|(of, is, _)| (*of, *is) == (operation, family))
            .map(|(_, _, algorithm)| algorithm)
    }

    /// Calls `callback` with each TLS group of the default provider.
    pub(crate) fn tls_groups(&self, callback: Callback, argument: *mut c_void) -> c_int {
        let get = LibCrypto::get().provider_get_capabilities;
        // SAFETY: the provider stays loaded; callback and argument are the caller's.
        unsafe {
            get(
                self.provider,
                c"TLS-GROUP".as_ptr(),
                Some(callback),
                argument,
            )
        }
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
        self.cipher.as_ref().map(|(_, functions)| functions)
    }

    /// Its names, and its table; null if there is none.
    pub(crate) fn cipher_names(&self) -> *const c_char {
        (self.cipher.as_ref()).map_or(ptr::null(), |(algorithm, _)| algorithm.names)
    }

    pub(crate) fn cipher_table(&self) -> *const Dispatch {
        (self.cipher.as_ref()).map_or(ptr::null(), |(algorithm, _)| algorithm.implementation)
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
        let mut algorithms = Vec::new();
        let mut table = |operation, family: Family| {
            let name = match operation {
                KEYMGMT => Some(family.key_name),
                SIGNATURE => family.signature_name,
                _ => family.exchange_name,
            };
            let found = find(libcrypto, provider, operation, name?)?;
            algorithms.push((operation, family, found));
            Some(found.implementation)
        };
        let keys = Family::all().map(|family| KeyFunctions::of(table(KEYMGMT, family)?));
        let keys = keys.collect();
        let signatures =
            Family::all().map(|family| SignatureFunctions::of(table(SIGNATURE, family)?));
        let signatures = signatures.collect();
        let exchanges = Family::all().map(|family| ExchangeFunctions::of(table(KEYEXCH, family)?));
        let exchanges = exchanges.collect();
        let cipher = find(libcrypto, provider, CIPHER, c"ChaCha20-Poly1305")
            .and_then(|found| Some((found, CipherFunctions::of(found.implementation)?)));
        Ok(Self {
            provider,
            context,
            algorithms,
            keys,
            signatures,
            exchanges,
            cipher,
        })
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

    /// Those of `own` for a family.
    pub(crate) fn of(&self, operation: c_int, family: Family, own: &[Dispatch]) -> &[Dispatch] {
        let defaults = Defaults::get().table(operation, family);
        // SAFETY: null or a table of the default provider's.
        self.0[family.number()].get_or_init(|| unsafe { abi::in_both(own, defaults) })
    }
}

/// The default provider's algorithms, by operation and family.
type Algorithms = Vec<(c_int, Family, Algorithm)>;

static DEFAULTS: OnceLock<Defaults> = OnceLock::new();

/// The algorithm one of whose names is `name`.
fn find(
    libcrypto: &LibCrypto,
    provider: Object,
    operation: c_int,
    name: &CStr,
) -> Option<Algorithm> {
    let mut no_store = 0;
    // SAFETY: the provider has been loaded; OpenSSL writes one int.
    let mut next =
        unsafe { (libcrypto.provider_query_operation)(provider, operation, &mut no_store) };
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

/// A structure with the functions of a table: those that each table must have, and those that may
/// be absent.
macro_rules! table {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $function:ident,)* }
        may { $($optional:ident: $absent:ident,)* }) => {
        $(#[$meta])*
        pub(crate) struct $name {
            $(pub(crate) $field: abi::$function::F,)*
            $(pub(crate) $optional: Option<abi::$absent::F>,)*
        }

        impl $name {
            /// `None` if the table is null or misses a function.
            fn of(table: *const Dispatch) -> Option<Self> {
                // SAFETY: null or a table that the default provider gave for this operation.
                unsafe {
                    Some(Self {
                        $($field: abi::$function::find(table)?,)*
                        $($optional: abi::$absent::find(table),)*
                    })
                }
            }
        }
    };
}

table! {
    /// What the default provider does with keys of one family.
    KeyFunctions {
        new: keymgmt_new,
        free: keymgmt_free,
        has: keymgmt_has,
        matches: keymgmt_match,
        get_params: keymgmt_get_params,
        gettable_params: keymgmt_gettable_params,
        import: keymgmt_import,
        import_types: keymgmt_import_types,
        export: keymgmt_export,
        export_types: keymgmt_export_types,
        gen_init: keymgmt_gen_init,
        generate: keymgmt_gen,
        gen_cleanup: keymgmt_gen_cleanup,
    } may {
        dup: keymgmt_dup,
        validate: keymgmt_validate,
        set_params: keymgmt_set_params,
        settable_params: keymgmt_settable_params,
        gen_set_template: keymgmt_gen_set_template,
        gen_set_params: keymgmt_gen_set_params,
        gen_settable_params: keymgmt_gen_settable_params,
    }
}

table! {
    /// How the default provider signs with keys of one family.
    SignatureFunctions {
        newctx: signature_newctx,
        freectx: signature_freectx,
        digest_sign_init: signature_digest_sign_init,
    } may {
        dupctx: signature_dupctx,
        sign_init: signature_sign_init,
        sign: signature_sign,
        sign_message_init: signature_sign_message_init,
        sign_message_update: signature_sign_message_update,
        sign_message_final: signature_sign_message_final,
        verify_message_init: signature_verify_message_init,
        verify_message_update: signature_verify_message_update,
        verify_message_final: signature_verify_message_final,
        digest_sign: signature_digest_sign,
        verify_init: signature_verify_init,
        verify: signature_verify,
        verify_recover_init: signature_verify_recover_init,
        verify_recover: signature_verify_recover,
        digest_sign_update: signature_digest_sign_update,
        digest_sign_final: signature_digest_sign_final,
        digest_verify_init: signature_digest_verify_init,
        digest_verify_update: signature_digest_verify_update,
        digest_verify_final: signature_digest_verify_final,
        digest_verify: signature_digest_verify,
        get_ctx_params: signature_get_ctx_params,
        gettable_ctx_params: signature_gettable_ctx_params,
        set_ctx_params: signature_set_ctx_params,
        settable_ctx_params: signature_settable_ctx_params,
        get_ctx_md_params: signature_get_ctx_md_params,
        gettable_ctx_md_params: signature_gettable_ctx_md_params,
        set_ctx_md_params: signature_set_ctx_md_params,
        settable_ctx_md_params: signature_settable_ctx_md_params,
    }
}

table! {
    /// How the default provider encrypts with ChaCha20-Poly1305.
    CipherFunctions {
        newctx: cipher_newctx,
        freectx: cipher_freectx,
        encrypt_init: cipher_encrypt_init,
        decrypt_init: cipher_decrypt_init,
        update: cipher_update,
        finish: cipher_final,
        get_params: cipher_get_params,
        get_ctx_params: cipher_get_ctx_params,
        set_ctx_params: cipher_set_ctx_params,
    } may {
        dupctx: cipher_dupctx,
        cipher: cipher_cipher,
        gettable_params: cipher_gettable_params,
        gettable_ctx_params: cipher_gettable_ctx_params,
        settable_ctx_params: cipher_settable_ctx_params,
    }
}

table! {
    /// How the default provider agrees on a secret with keys of one family.
    ExchangeFunctions {
        newctx: keyexch_newctx,
        init: keyexch_init,
        derive: keyexch_derive,
        set_peer: keyexch_set_peer,
        freectx: keyexch_freectx,
    } may {
        dupctx: keyexch_dupctx,
        set_ctx_params: keyexch_set_ctx_params,
        settable_ctx_params: keyexch_settable_ctx_params,
        get_ctx_params: keyexch_get_ctx_params,
        gettable_ctx_params: keyexch_gettable_ctx_params,
    }
}
