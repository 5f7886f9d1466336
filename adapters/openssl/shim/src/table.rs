//! The table that this library exports, and the provider's, once it has come.

use std::sync::OnceLock;

use widelane_openssl_tables::{Passes, Suspension};

use crate::boundary::guarded;
use crate::{forks, handshakes, imports, signals};

/// The provider's table.
pub(crate) fn passes() -> Option<&'static Passes> {
    PASSES.get().copied()
}

extern "C" fn attach(passes: &'static Passes) {
    guarded(|| {
        if passes.fits() && handshakes::can_switch_stacks() {
            forks::begin();
            signals::begin();
            // A process has one provider; a second context of OpenSSL's brings the same table.
            let _ = PASSES.set(passes);
        }
    });
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
    take_imports: imports::take,
};

static PASSES: OnceLock<&'static Passes> = OnceLock::new();
