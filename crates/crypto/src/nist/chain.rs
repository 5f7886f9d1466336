//! What the tests of ECDH and ECDSA run on: passes of every width, and the model of them.

use super::pass::Pass;
use super::{Curve, Lanes, lanes};
use crate::Backend;
use std::sync::{Arc, OnceLock};
use widelane_kernels::NistCurve;

/// Passes of every width that there are here, by name. The model is slow.
pub(crate) fn subjects(curve: Curve) -> Vec<(&'static str, Box<dyn Lanes>)> {
    let mut subjects = vec![("model", model(curve))];
    for backend in [Backend::Avx512Ifma256, Backend::Avx512Ifma] {
        match lanes(backend, curve) {
            Ok(Some(lanes)) => subjects.push((backend.name(), lanes)),
            _ => eprintln!("SKIP: {backend} does not run here"),
        }
    }
    subjects
}

/// Passes in portable Rust, whose tables are made once.
pub(crate) fn model(curve: Curve) -> Box<dyn Lanes> {
    static KERNELS: [OnceLock<Arc<NistCurve<4>>>; 2] = [OnceLock::new(), OnceLock::new()];
    let make = || Arc::new(NistCurve::model(curve.in_lanes()));
    let kernels = Arc::clone(KERNELS[curve as usize].get_or_init(make));
    Box::new(Pass::new(curve, kernels, None))
}
