//! Subjects of the tests of ECDSA: passes of every target, and the model of them.

use super::Curve;
use super::pass::{Coordinate, Fault, ToSign, ToVerify};
use crate::ecdsa::Signing;
use crate::operation::OnBackend;
use crate::passes::{Passes, with_pass};

/// Passes of every target that there is here, by name. The model is slow.
pub(crate) fn subjects(curve: Curve) -> Vec<(&'static str, Passes<Curve>)> {
    let subjects = OnBackend::subjects(Signing(curve)).into_iter();
    subjects.map(|(name, signing)| (name, signing.passes)).collect()
}

impl Passes<Curve> {
    pub(crate) fn sign(&self, problems: &[ToSign<'_>]) -> Vec<Result<(Coordinate, Coordinate), Fault>> {
        with_pass!(self, pass => pass.sign(problems), else unreachable!())
    }

    pub(crate) fn verify(&self, problems: &[ToVerify<'_>]) -> Vec<Option<bool>> {
        with_pass!(self, pass => pass.verify(problems), else unreachable!())
    }
}
