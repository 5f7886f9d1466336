//! Runtimes of languages that know where the stacks of their threads are: they scan them for objects, or refuse to go
//! deeper when an address is out of their bounds. A program's callback must not run there on a handshake's own stack:
//! Ruby raises SystemStackError in it.

//!
//! A program with a runtime exports its functions, as do the libraries that it is linked to: they are looked up while
//! this library is loaded. Later nothing may be looked up: `dlsym` waits for a library that another thread loads, whose
//! constructor may wait for this thread's handshake. A runtime that is loaded later is known by its file's name. The
//! list of files can be read meanwhile.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::{connections, originals};

/// Looks for runtimes of the program and of the libraries that it is linked to.
pub(crate) fn look_up() {
    if MARKS.iter().any(|mark| originals::is_there(mark)) {
        SEEN.store(true, Relaxed);
    }
    // The message of a look-up that failed is not for the program. One that succeeds takes it away; dlerror would
    // format it first, and under AddressSanitizer that leaves a lock of the C library locked.
    originals::is_there(c"malloc");
}

/// Returns whether the process has, or had, such a runtime: its handshakes are OpenSSL's then.
pub(crate) fn are_there() -> bool {
    if !SEEN.load(Relaxed) && connections::apart_from_forks(is_one_new) {
        SEEN.store(true, Relaxed);
    }
    SEEN.load(Relaxed)
}

/// Returns whether a runtime is among the files of the process, if it has loaded any since the last look.
fn is_one_new() -> bool {
    let (mut loaded, mut is_one) = (LOADED.load(Relaxed), false);
    originals::each_file(|times, name| {
        if times == LOADED.load(Relaxed) {
            return ControlFlow::Break(());
        }
        loaded = times;
        is_one |= is_of_a_runtime(name.to_bytes());
        ControlFlow::Continue(())
    });
    LOADED.store(loaded, Relaxed);
    is_one
}

fn is_of_a_runtime(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    FILES.iter().any(|file| name.starts_with(file)) && !OLD.iter().any(|file| name.starts_with(file))
}

/// A function that each has for programs and libraries: Ruby, Python (its stacks have bounds from 3.14 on), Node.js
/// (V8), PHP (from 8.3 on), Java, Guile, and the collector of Boehm, Demers and Weiser.
const MARKS: [&CStr; 7] = [
    c"ruby_stack_check",
    c"PyGILState_Ensure",
    c"_ZN2v87Isolate10GetCurrentEv",
    c"zend_call_stack_init",
    c"JNI_GetCreatedJavaVMs",
    c"scm_with_guile",
    c"GC_register_my_thread",
];

/// What the names of their libraries begin with.
const FILES: [&[u8]; 9] = [
    b"libruby",
    b"libpython3",
    b"libnode.so",
    b"libv8.so",
    b"libphp",
    b"libjvm.so",
    b"libguile-",
    b"libgc.so",
    b"libgc-",
];

/// Libraries of PHP before 8.3, as distributions name them.
const OLD: [&[u8]; 5] = [b"libphp5", b"libphp7", b"libphp8.0", b"libphp8.1", b"libphp8.2"];

/// True once a runtime was there. It stays: its threads may be anywhere.
static SEEN: AtomicBool = AtomicBool::new(false);

/// Number of files that the process had loaded at the last look.
static LOADED: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_rust_has_no_such_runtime() {
        look_up();
        assert!(!are_there() && originals::is_there(c"malloc"));
    }

    #[test]
    fn files_are_looked_at_once_after_each_that_is_loaded() {
        let mut names = Vec::new();
        originals::each_file(|times, name| {
            assert!(times > 0);
            names.push(name.to_bytes().to_vec());
            ControlFlow::Continue(())
        });
        assert!(names.iter().any(|name| name.windows(7).any(|part| part == b"libc.so")));
        assert!(!is_one_new());
        assert!(LOADED.load(Relaxed) > 0);
        let mut looks = 0;
        originals::each_file(|_, _| {
            looks += 1;
            ControlFlow::Break(())
        });
        assert_eq!(looks, 1);
    }

    #[test]
    fn runtimes_are_known_by_their_files() {
        for name in [
            "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1",
            "/usr/lib/libpython3.13.so.1.0",
            "/usr/lib/libnode.so.108",
            "/usr/lib/apache2/modules/libphp.so",
            "/usr/lib/apache2/modules/libphp8.4.so",
            "/opt/jdk/lib/server/libjvm.so",
            "/usr/lib/libguile-3.0.so.1",
            "libgc.so.1",
        ] {
            assert!(is_of_a_runtime(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "/lib/libgcc_s.so.1",
            "/opt/libruby/libssl.so.3",
            "/usr/lib/libphp8.2.so",
            "linux-vdso.so.1",
        ] {
            assert!(!is_of_a_runtime(name.as_bytes()), "{name}");
        }
    }
}
