//! The points at which a value that was computed from secrets becomes public.
//!
//! Code may branch on what a check says and on what leaves, and on nothing else that was computed
//! from a secret. Such a point calls [`public`], so that a test under valgrind reports the other
//! branches (see `widelane_poison`).

/// Declares a value public: it may choose branches from here on.
///
/// A comment beside each call says why the value tells nothing about a secret.
#[inline(always)]
pub(crate) fn public<T: Copy>(value: T) -> T {
    #[cfg(test)]
    widelane_poison::public(std::slice::from_ref(&value));
    value
}

/// Runs `run`, which declares its secrets, under valgrind and demands that it reports no branch and
/// no address that depends on them.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_no_secret_branch(run: impl FnOnce()) {
    if !widelane_poison::is_active() {
        println!("SKIP: valgrind does not run this test");
        return;
    }
    let before = widelane_poison::errors();
    run();
    assert_eq!(widelane_poison::errors() - before, 0, "valgrind's reports");
}
