//! What the tests of ECDH and ECDSA run on: passes of every target, and the model of them.

use super::pass::Pass;
use super::{Curve, Lanes, lanes};
use crate::Backend;
use widelane_cpu::Target;

/// Passes of every target that there is here, by name. The model is slow.
pub(crate) fn subjects(curve: Curve) -> Vec<(&'static str, Box<dyn Lanes>)> {
    let mut subjects = vec![("model", model(curve))];
    for target in Target::ALL {
        let backend = Backend::Lanes(target);
        match lanes(backend, curve) {
            Ok(Some(lanes)) => subjects.push((backend.name(), lanes)),
            _ => target.tell_skipped(),
        }
    }
    subjects
}

/// Passes in portable Rust.
pub(crate) fn model(curve: Curve) -> Box<dyn Lanes> {
    Box::new(Pass::<4>::model(curve))
}
