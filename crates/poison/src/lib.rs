//! Marks secrets for valgrind, so that a test shows whether code branches on them or uses them as
//! addresses.
//!
//! Memcheck, valgrind's default tool, follows uninitialised bits through every instruction and
//! reports a conditional jump or an address that depends on them. A test that declares its secrets
//! uninitialised makes memcheck a checker of constant-time code (A. Langley, "Checking that
//! functions are constant time with Valgrind", 2010).
//!
//! What it is not: a check of machine code that valgrind cannot run. Valgrind knows no AVX-512, so
//! the kernels' assembly has a check of its own in `widelane-kernels`; here the same kernels run as
//! portable Rust.
//!
//! Start with [`is_active`], [`secret`], [`public`] and [`errors`]. Without valgrind every function
//! is a few instructions that do nothing.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod request;

use request::{COUNT_ERRORS, MAKE_MEM_DEFINED, MAKE_MEM_UNDEFINED, RUNNING_ON_VALGRIND, request};

/// Returns whether valgrind runs this program.
pub fn is_active() -> bool {
    request(RUNNING_ON_VALGRIND, [0; 2]) != 0
}

/// Declares the values secret: from now on memcheck reports what branches on them.
pub fn secret<T: Copy>(values: &[T]) {
    mark(MAKE_MEM_UNDEFINED, values);
}

/// Declares the values public: they may choose branches and addresses from now on.
pub fn public<T: Copy>(values: &[T]) {
    mark(MAKE_MEM_DEFINED, values);
}

/// Number of errors that valgrind has reported so far; 0 without valgrind.
pub fn errors() -> usize {
    request(COUNT_ERRORS, [0; 2])
}

fn mark<T>(kind: usize, values: &[T]) {
    request(kind, [values.as_ptr().addr(), size_of_val(values)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors that valgrind reports while `run` runs; `None` without valgrind.
    fn errors_of(run: impl FnOnce()) -> Option<usize> {
        if !is_active() {
            println!("SKIP: valgrind does not run this program");
            return None;
        }
        let before = errors();
        run();
        Some(errors() - before)
    }

    #[test]
    fn poison_finds_a_branch_on_a_secret() {
        let secret_byte = std::hint::black_box([7_u8]);
        secret(&secret_byte);
        let found = errors_of(|| {
            if std::hint::black_box(secret_byte[0]) == 7 {
                std::hint::black_box(());
            }
        });
        assert!(found.is_none_or(|found| found > 0));
    }

    #[test]
    fn poison_finds_an_address_from_a_secret() {
        let table = std::hint::black_box([1_u8; 256]);
        let secret_byte = std::hint::black_box([7_u8]);
        secret(&secret_byte);
        let found = errors_of(|| {
            std::hint::black_box(table[usize::from(secret_byte[0])]);
        });
        assert!(found.is_none_or(|found| found > 0));
    }

    #[test]
    fn poison_lets_public_values_branch() {
        let byte = std::hint::black_box([7_u8]);
        secret(&byte);
        public(&byte);
        let found = errors_of(|| {
            assert!(std::hint::black_box(byte[0]) == 7);
        });
        assert!(found.is_none_or(|found| found == 0));
    }
}
