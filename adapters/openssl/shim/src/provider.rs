//! The provider's table, once it has come.

use std::ffi::c_uint;
use std::sync::OnceLock;

use widelane_openssl_tables::Passes;
use widelane_status::Way;

/// The provider's table.
pub(crate) fn passes() -> Option<&'static Passes> {
    PASSES.get().copied()
}

/// Takes the table. A process has one provider; a second context of OpenSSL's brings the same table.
pub(crate) fn attach(passes: &'static Passes) {
    let _ = PASSES.set(passes);
}

/// Counts, for `widelane status`, how a handshake waits.
pub(crate) fn count_way(way: Way) {
    if let Some(passes) = passes() {
        (passes.way)(way as c_uint);
    }
}

static PASSES: OnceLock<&'static Passes> = OnceLock::new();
