//! Instructions that this CPU lacks and a handler of signals computes: for tests alone, with the feature
//! `emulation`.

use std::cell::Cell;

use crate::{Features, hardware};

thread_local! {
    static AVX_IFMA: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this CPU has AVX-IFMA in hardware, not by emulation.
pub fn has_avx_ifma() -> bool {
    hardware().avxifma
}

/// Lets this thread find tokens of targets with AVX-IFMA from now on. A signal for each product takes long, so no other
/// test should find them. The caller has installed the handler without which their code ends the process.
pub fn allow_avx_ifma() {
    AVX_IFMA.set(true);
}

pub(crate) fn added_to(features: Features) -> Features {
    let is_emulated = features.avx2 && AVX_IFMA.get();
    Features {
        avxifma: features.avxifma || is_emulated,
        ..features
    }
}
