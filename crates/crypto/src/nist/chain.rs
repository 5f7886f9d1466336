//! What the tests of ECDH and ECDSA run on: passes of every width, and the model of them.

use super::pass::Pass;
use super::{Curve, Lanes, lanes};
use crate::Backend;
use std::sync::Arc;
use widelane_kernels::NistCurve;

/// Passes of every width that there are here, by name. The model is slow.
pub(crate) fn subjects(curve: Curve) -> Vec<(&'static str, Box<dyn Lanes>)> {
    let model = Arc::new(NistCurve::<4>::model(curve.in_lanes()));
    let model = Pass::new(curve, model, None);
    let mut subjects: Vec<(_, Box<dyn Lanes>)> = vec![("model", Box::new(model))];
    for backend in [Backend::Avx512Ifma256, Backend::Avx512Ifma] {
        match lanes(backend, curve) {
            Ok(Some(lanes)) => subjects.push((backend.name(), lanes)),
            _ => eprintln!("SKIP: {backend} does not run here"),
        }
    }
    subjects
}
