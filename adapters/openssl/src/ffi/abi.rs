//! Binary interface of OpenSSL and a provider: the structures of `openssl/core.h` and the numbers of
//! `openssl/core_dispatch.h`. Both are public and the same in OpenSSL 3.0 to 4.0.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

/// An entry of a dispatch table (`OSSL_DISPATCH`). A table ends with [`Dispatch::END`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dispatch {
    id: c_int,
    function: *const (),
}

// SAFETY: functions are not bound to a thread.
unsafe impl Send for Dispatch {}
// SAFETY: functions are not bound to a thread.
unsafe impl Sync for Dispatch {}

impl Dispatch {
    pub(crate) const END: Self = Self {
        id: 0,
        function: ptr::null(),
    };
}

/// An algorithm that a provider offers (`OSSL_ALGORITHM`). A list ends with [`Algorithm::END`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Algorithm {
    pub(crate) names: *const c_char,
    pub(crate) properties: *const c_char,
    pub(crate) implementation: *const Dispatch,
    pub(crate) description: *const c_char,
}

// SAFETY: it points to constants only.
unsafe impl Sync for Algorithm {}

impl Algorithm {
    pub(crate) const END: Self = Self {
        names: ptr::null(),
        properties: ptr::null(),
        implementation: ptr::null(),
        description: ptr::null(),
    };
}

/// A named value (`OSSL_PARAM`). A list ends with a null key.
#[repr(C)]
pub(crate) struct Param {
    pub(crate) key: *const c_char,
    pub(crate) data_type: c_uint,
    pub(crate) data: *mut c_void,
    pub(crate) data_size: usize,
    pub(crate) return_size: usize,
}

// SAFETY: shared only as constants, whose pointers are to constants.
unsafe impl Sync for Param {}

/// `OSSL_PARAM_INTEGER`: little-endian two's complement on x86-64.
pub(crate) const INTEGER: c_uint = 1;
/// `OSSL_PARAM_UNSIGNED_INTEGER`: little-endian on x86-64.
pub(crate) const UNSIGNED: c_uint = 2;
/// `OSSL_PARAM_UTF8_STRING`.
pub(crate) const UTF8: c_uint = 4;
/// `OSSL_PARAM_OCTET_STRING`.
pub(crate) const OCTETS: c_uint = 5;
/// `OSSL_PARAM_UTF8_PTR`.
pub(crate) const UTF8_POINTER: c_uint = 6;
/// `OSSL_PARAM_UNMODIFIED`.
pub(crate) const UNMODIFIED: usize = usize::MAX;

/// `OSSL_OP_CIPHER`.
pub(crate) const CIPHER: c_int = 2;
/// `OSSL_OP_KEYMGMT`.
pub(crate) const KEYMGMT: c_int = 10;
/// `OSSL_OP_KEYEXCH`.
pub(crate) const KEYEXCH: c_int = 11;
/// `OSSL_OP_SIGNATURE`.
pub(crate) const SIGNATURE: c_int = 12;

/// `OSSL_OP_KEM`.
pub(crate) const KEM: c_int = 14;

/// `OSSL_KEYMGMT_SELECT_PRIVATE_KEY`.
pub(crate) const PRIVATE_KEY: c_int = 0x01;
/// `OSSL_KEYMGMT_SELECT_PUBLIC_KEY`.
pub(crate) const PUBLIC_KEY: c_int = 0x02;
/// `OSSL_KEYMGMT_SELECT_DOMAIN_PARAMETERS`.
pub(crate) const DOMAIN_PARAMETERS: c_int = 0x04;
/// `OSSL_KEYMGMT_SELECT_ALL_PARAMETERS`.
pub(crate) const ALL_PARAMETERS: c_int = DOMAIN_PARAMETERS | 0x80;
/// `OSSL_KEYMGMT_SELECT_KEYPAIR`.
pub(crate) const KEYPAIR: c_int = PRIVATE_KEY | PUBLIC_KEY;

/// Callback that receives a list of values (`OSSL_CALLBACK`).
pub(crate) type Callback = unsafe extern "C" fn(*const Param, *mut c_void) -> c_int;

/// A pointer to an object whose type only its owner knows.
pub(crate) type Object = *mut c_void;

/// The functions of dispatch tables, by their kinds. Each gets a module with its type `F`; `of`, which makes the
/// entry of a table; and `find`, which looks it up in a table of another provider. `Functions` are those of such a
/// table: all that each must have, and those that may be absent.
macro_rules! functions {
    ($($kind:ident {
        $($name:ident = $id:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*
    } may {
        $($absent:ident = $absent_id:literal: fn($($absent_argument:ty),*) $(-> $absent_result:ty)?;)*
    })*) => {
        $(pub(crate) mod $kind {
            use super::*;

            $(function! { $name = $id: fn($($argument),*) $(-> $result)? })*
            $(function! { $absent = $absent_id: fn($($absent_argument),*) $(-> $absent_result)? })*

            #[allow(dead_code)]
            pub(crate) struct Functions {
                pub(crate) algorithm: Algorithm,
                $(pub(crate) $name: $name::F,)*
                $(pub(crate) $absent: Option<$absent::F>,)*
            }

            impl Functions {
                /// `None` if the table misses a function.
                ///
                /// # Safety
                ///
                /// The algorithm must be of this kind.
                #[allow(dead_code)]
                pub(crate) unsafe fn of(algorithm: Algorithm) -> Option<Self> {
                    let table = algorithm.implementation;
                    // SAFETY: the caller's promise.
                    unsafe {
                        Some(Self {
                            algorithm,
                            $($name: $name::find(table)?,)*
                            $($absent: $absent::find(table),)*
                        })
                    }
                }
            }
        })*

        /// Names and numbers, to be compared with OpenSSL's headers.
        #[cfg(test)]
        const NUMBERS: &[(&str, c_int)] = &[
            $($((concat!(stringify!($kind), "_", stringify!($name)), $id),)*)*
            $($((concat!(stringify!($kind), "_", stringify!($absent)), $absent_id),)*)*
        ];
    };
}

macro_rules! function {
    ($name:ident = $id:literal: fn($($argument:ty),*) $(-> $result:ty)?) => {
        pub(crate) mod $name {
            #[allow(unused_imports)]
            use super::*;

            pub(crate) type F = unsafe extern "C" fn($($argument),*) $(-> $result)?;

            #[allow(dead_code)]
            pub(crate) const fn of(function: F) -> Dispatch {
                Dispatch {
                    id: $id,
                    function: function as *const (),
                }
            }

            /// # Safety
            ///
            /// `table` must be null or a dispatch table of the kind that has this function.
            #[allow(dead_code)]
            pub(crate) unsafe fn find(table: *const Dispatch) -> Option<F> {
                // SAFETY: the caller's promise; the number says which type the function has.
                unsafe {
                    let function = lookup(table, $id)?;
                    Some(std::mem::transmute::<*const (), F>(function))
                }
            }
        }
    };
}

/// A table of our functions of one kind, which are called as OpenSSL calls them or named behind `=`; with its end.
macro_rules! dispatch {
    ($kind:ident: $($name:ident $(::<$number:ident>)? $(= $function:expr)?),+ $(,)?) => {
        [
            $($crate::ffi::abi::$kind::$name::of(
                $crate::ffi::abi::dispatch!(@ $name [$($number)?] [$($function)?])
            ),)+
            $crate::ffi::abi::Dispatch::END,
        ]
    };
    (@ $name:ident [] []) => { $name };
    (@ $name:ident [$number:ident] []) => { $name::<$number> };
    (@ $name:ident [] [$function:expr]) => { $function };
}

pub(crate) use dispatch;

/// # Safety
///
/// `table` must be null or a dispatch table.
unsafe fn lookup(table: *const Dispatch, id: c_int) -> Option<*const ()> {
    if table.is_null() {
        return None;
    }
    for i in 0.. {
        // SAFETY: the table ends with an entry whose number is 0, where this loop ends.
        let entry = unsafe { *table.add(i) };
        match entry.id {
            0 => break,
            found if found == id => return (!entry.function.is_null()).then_some(entry.function),
            _ => {}
        }
    }
    None
}

/// The entries of `own` with numbers that `other` has, too; with its end.
///
/// # Safety
///
/// `other` must be null or a dispatch table.
pub(crate) unsafe fn in_both(own: &[Dispatch], other: *const Dispatch) -> Vec<Dispatch> {
    let mut both = own.to_vec();
    // SAFETY: the caller's promise.
    both.retain(|entry| entry.id == 0 || unsafe { lookup(other, entry.id) }.is_some());
    both
}

/// OpenSSL does not say by which of its names a function was called, so each kind of key and each group has
/// functions of its own: an array of what `$make` makes with each number `$number`.
macro_rules! numbered {
    ($number:ident => $make:expr) => {
        $crate::ffi::abi::numbered!(@ $number $make; 0 1 2 3 4 5 6 7 8 9 10 11)
    };
    (@ $number:ident $make:expr; $($value:literal)+) => {
        [$({
            const $number: usize = $value;
            $make
        }),+]
    };
}

pub(crate) use numbered;

/// The most kinds of keys, and the most groups.
pub(crate) const MOST: usize = 12;

functions! {
    core {
        get_params = 2: fn(*const c_void, *mut Param) -> c_int;
        get_libctx = 4: fn(*const c_void) -> Object;
    } may {}
    provider {
        teardown = 1024: fn(Object);
        gettable_params = 1025: fn(Object) -> *const Param;
        get_params = 1026: fn(Object, *mut Param) -> c_int;
        query_operation = 1027: fn(Object, c_int, *mut c_int) -> *const Algorithm;
        get_capabilities = 1030: fn(Object, *const c_char, Option<Callback>, *mut c_void) -> c_int;
    } may {}
    cipher {
        newctx = 1: fn(Object) -> Object;
        encrypt_init = 2: fn(Object, *const u8, usize, *const u8, usize, *const Param) -> c_int;
        decrypt_init = 3: fn(Object, *const u8, usize, *const u8, usize, *const Param) -> c_int;
        update = 4: fn(Object, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
        finish = 5: fn(Object, *mut u8, *mut usize, usize) -> c_int;
        freectx = 7: fn(Object);
        get_params = 9: fn(*mut Param) -> c_int;
        get_ctx_params = 10: fn(Object, *mut Param) -> c_int;
        set_ctx_params = 11: fn(Object, *const Param) -> c_int;
    } may {
        cipher = 6: fn(Object, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
        dupctx = 8: fn(Object) -> Object;
        gettable_params = 12: fn(Object) -> *const Param;
        gettable_ctx_params = 13: fn(Object, Object) -> *const Param;
        settable_ctx_params = 14: fn(Object, Object) -> *const Param;
    }
    keymgmt {
        new = 1: fn(Object) -> Object;
        gen_init = 2: fn(Object, c_int, *const Param) -> Object;
        generate = 6: fn(Object, *const c_void, *mut c_void) -> Object;
        gen_cleanup = 7: fn(Object);
        free = 10: fn(Object);
        get_params = 11: fn(Object, *mut Param) -> c_int;
        gettable_params = 12: fn(Object) -> *const Param;
        has = 21: fn(Object, c_int) -> c_int;
        matches = 23: fn(Object, Object, c_int) -> c_int;
        import = 40: fn(Object, c_int, *const Param) -> c_int;
        import_types = 41: fn(c_int) -> *const Param;
        export = 42: fn(Object, c_int, Option<Callback>, *mut c_void) -> c_int;
        export_types = 43: fn(c_int) -> *const Param;
    } may {
        gen_set_template = 3: fn(Object, Object) -> c_int;
        gen_set_params = 4: fn(Object, *const Param) -> c_int;
        gen_settable_params = 5: fn(Object, Object) -> *const Param;
        set_params = 13: fn(Object, *const Param) -> c_int;
        settable_params = 14: fn(Object) -> *const Param;
        query_operation_name = 20: fn(c_int) -> *const c_char;
        validate = 22: fn(Object, c_int, c_int) -> c_int;
        dup = 44: fn(Object, c_int) -> Object;
    }
    keyexch {
        newctx = 1: fn(Object) -> Object;
        init = 2: fn(Object, Object, *const Param) -> c_int;
        derive = 3: fn(Object, *mut u8, *mut usize, usize) -> c_int;
        set_peer = 4: fn(Object, Object) -> c_int;
        freectx = 5: fn(Object);
    } may {
        dupctx = 6: fn(Object) -> Object;
        set_ctx_params = 7: fn(Object, *const Param) -> c_int;
        settable_ctx_params = 8: fn(Object, Object) -> *const Param;
        get_ctx_params = 9: fn(Object, *mut Param) -> c_int;
        gettable_ctx_params = 10: fn(Object, Object) -> *const Param;
    }
    kem {
        newctx = 1: fn(Object) -> Object;
        encapsulate_init = 2: fn(Object, Object, *const Param) -> c_int;
        encapsulate = 3: fn(Object, *mut u8, *mut usize, *mut u8, *mut usize) -> c_int;
        decapsulate_init = 4: fn(Object, Object, *const Param) -> c_int;
        decapsulate = 5: fn(Object, *mut u8, *mut usize, *const u8, usize) -> c_int;
        freectx = 6: fn(Object);
    } may {}
    signature {
        newctx = 1: fn(Object, *const c_char) -> Object;
        digest_sign_init = 8: fn(Object, *const c_char, Object, *const Param) -> c_int;
        freectx = 16: fn(Object);
    } may {
        sign_init = 2: fn(Object, Object, *const Param) -> c_int;
        sign = 3: fn(Object, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
        verify_init = 4: fn(Object, Object, *const Param) -> c_int;
        verify = 5: fn(Object, *const u8, usize, *const u8, usize) -> c_int;
        verify_recover_init = 6: fn(Object, Object, *const Param) -> c_int;
        verify_recover = 7: fn(Object, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
        digest_sign_update = 9: fn(Object, *const u8, usize) -> c_int;
        digest_sign_final = 10: fn(Object, *mut u8, *mut usize, usize) -> c_int;
        digest_sign = 11: fn(Object, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
        digest_verify_init = 12: fn(Object, *const c_char, Object, *const Param) -> c_int;
        digest_verify_update = 13: fn(Object, *const u8, usize) -> c_int;
        digest_verify_final = 14: fn(Object, *const u8, usize) -> c_int;
        digest_verify = 15: fn(Object, *const u8, usize, *const u8, usize) -> c_int;
        dupctx = 17: fn(Object) -> Object;
        get_ctx_params = 18: fn(Object, *mut Param) -> c_int;
        gettable_ctx_params = 19: fn(Object, Object) -> *const Param;
        set_ctx_params = 20: fn(Object, *const Param) -> c_int;
        settable_ctx_params = 21: fn(Object, Object) -> *const Param;
        get_ctx_md_params = 22: fn(Object, *mut Param) -> c_int;
        gettable_ctx_md_params = 23: fn(Object) -> *const Param;
        set_ctx_md_params = 24: fn(Object, *const Param) -> c_int;
        settable_ctx_md_params = 25: fn(Object) -> *const Param;
        sign_message_init = 27: fn(Object, Object, *const Param) -> c_int;
        sign_message_update = 28: fn(Object, *const u8, usize) -> c_int;
        sign_message_final = 29: fn(Object, *mut u8, *mut usize, usize) -> c_int;
        verify_message_init = 30: fn(Object, Object, *const Param) -> c_int;
        verify_message_update = 31: fn(Object, *const u8, usize) -> c_int;
        verify_message_final = 32: fn(Object) -> c_int;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OpenSSL's own header has the same numbers.
    #[test]
    fn numbers_are_openssls() {
        let Ok(header) = std::fs::read_to_string("/usr/include/openssl/core_dispatch.h") else {
            println!("SKIP: OpenSSL's headers are not installed (Debian: libssl-dev)");
            return;
        };
        let stated = |name: &str| {
            // Two are words of Rust, and `final` will be one.
            let name = name
                .replace("matches", "match")
                .replace("generate", "gen")
                .replace("finish", "final");
            let name = format!("OSSL_FUNC_{}", name.to_uppercase());
            let line = header
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>())
                .find(|words| words.contains(&name.as_str()) && words.len() > 2)?;
            line.last()?.parse::<c_int>().ok()
        };
        for (name, number) in NUMBERS {
            let stated = stated(name);
            // OpenSSL has these since 3.4.
            let is_new = name.contains("_message_");
            assert!(stated == Some(*number) || is_new && stated.is_none(), "{name}");
        }
        assert!(NUMBERS.len() > 50);
    }
}
