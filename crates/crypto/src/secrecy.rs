//! The points at which a value is drawn that must stay secret, and at which a value that was
//! computed from secrets becomes public.
//!
//! Code may branch on what a check says and on what leaves, and on nothing else that was computed
//! from a secret. Such a point calls [`public`] or [`publish`], so that a test under valgrind reports
//! the other branches (see `widelane_poison`). The functions do nothing outside tests.

/// Declares a value public: it may choose branches from here on.
///
/// A comment beside each call says why the value tells nothing about a secret.
#[inline(always)]
pub(crate) fn public<T: Copy>(value: T) -> T {
    #[cfg(test)]
    let value = {
        publish(std::slice::from_ref(&value));
        // Read again, and not from a register that valgrind still knows as secret.
        *std::hint::black_box(&value)
    };
    value
}

/// Shows nothing of a type but what these methods give.
macro_rules! opaque {
    ($type:ident { $($part:ident)? }) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($part), &self.$part()))?
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use opaque;

/// Declares the values public, as [`public`] does one.
#[inline(always)]
pub(crate) fn publish<T: Copy>(values: &[T]) {
    #[cfg(test)]
    widelane_poison::public(values);
    #[cfg(not(test))]
    let _ = values;
}

/// Declares values secret that have just been drawn at random; a test declares the keys.
#[inline(always)]
pub(crate) fn secret<T: Copy>(values: &[T]) {
    #[cfg(test)]
    widelane_poison::secret(values);
    #[cfg(not(test))]
    let _ = values;
}

/// Runs `run`, which declares its secrets, under valgrind and demands that it reports no branch and
/// no address that depends on them. Kernels in portable Rust check no claims meanwhile.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_no_secret_branch(run: impl FnOnce()) {
    if !widelane_poison::is_active() {
        println!("SKIP: valgrind does not run this test");
        return;
    }
    let before = widelane_poison::errors();
    widelane_kernels::faults::without_claims(run);
    assert_eq!(widelane_poison::errors() - before, 0, "valgrind's reports");
}
