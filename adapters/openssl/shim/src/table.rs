//! The table that this library exports.

use widelane_openssl_tables::{Passes, Suspension};

use crate::boundary::guarded;
use crate::{calls, forks, handshakes, imports, provider, signals};

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
    guarded(|| imports::take(calls::stand_in)).unwrap_or(0)
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
