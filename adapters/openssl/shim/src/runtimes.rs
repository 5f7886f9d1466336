//! Runtimes of languages that know where the stacks of their threads are: they scan them for objects, or refuse to go
//! deeper when an address is out of their bounds. A program's callback must not run there on a handshake's own stack:
//! Ruby raises SystemStackError in it.

use std::cell::Cell;
use std::ffi::CStr;

use crate::originals;

/// Returns whether the process had such a runtime when this thread first asked: its handshakes are OpenSSL's then.
pub(crate) fn are_there() -> bool {
    SEEN.get().unwrap_or_else(|| {
        let seen = MARKS.iter().any(|mark| originals::is_there(mark));
        SEEN.set(Some(seen));
        seen
    })
}

/// A function that each has for programs and libraries: Ruby, Python (its stacks have bounds from 3.14 on), V8, PHP
/// (from 8.3 on), Java, Guile, and the collector of Boehm, Demers and Weiser.
const MARKS: [&CStr; 7] = [
    c"ruby_stack_check",
    c"PyGILState_Ensure",
    c"_ZN2v87Isolate10GetCurrentEv",
    c"zend_call_stack_init",
    c"JNI_GetCreatedJavaVMs",
    c"scm_with_guile",
    c"GC_register_my_thread",
];

thread_local! {
    static SEEN: Cell<Option<bool>> = const { Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_rust_has_no_such_runtime() {
        assert!(!are_there() && originals::is_there(c"malloc"));
    }
}
