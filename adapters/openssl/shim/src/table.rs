//! The table that this library exports, and what it does when it is loaded.

use widelane_openssl_tables::{Passes, Suspension};

use crate::boundary::guarded;
use crate::{forks, handshakes, imports, originals, provider, runtimes, signals, stand_ins};

extern "C" fn attach(passes: &'static Passes) {
    guarded(|| {
        if passes.fits() && handshakes::can_switch_stacks() {
            forks::begin();
            signals::begin();
            provider::attach(passes);
        }
    });
}

extern "C" fn take_imports() -> usize {
    guarded(|| imports::take(stand_ins::stand_in)).unwrap_or(0)
}

/// Table that the provider looks for: its name is [`widelane_openssl_tables::SYMBOL`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, unreachable_pub)]
pub static widelane_suspension_1: Suspension = Suspension {
    size: Suspension::SIZE,
    current: handshakes::current,
    suspend: handshakes::suspend,
    wake: handshakes::wake,
    attach,
    take_imports,
};

/// What is needed where nothing may be looked up is looked up while this library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = look_up;

extern "C" fn look_up() {
    guarded(originals::look_up);
    guarded(runtimes::look_up);
}
