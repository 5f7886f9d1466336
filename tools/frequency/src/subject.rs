//! Knowledge about a machine: measured, or published.

use crate::profile::{Penalty, Profile};
use widelane_cpu::licence::{Class, Turbo};

/// Subject of the advice.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A machine that was measured.
    Measured(&'a Profile),
    /// A machine that is only known from published figures.
    Published(&'a Turbo),
}

/// The deepest loss of a class on any number of cores; `None` if it was not measured, 0 if it could
/// be noise.
pub(crate) fn deepest(profile: &Profile, class: Class) -> Option<f64> {
    let name = class.name();
    if !profile.clocks.iter().any(|clock| clock.class == name) {
        return None;
    }
    let depths = match profile.penalty() {
        Penalty::Some(depths) => depths,
        Penalty::None { .. } | Penalty::Unknown => Vec::new(),
    };
    let of_class = depths.iter().filter(|depth| depth.class == name);
    Some(of_class.map(|depth| depth.depth.value).fold(0.0, f64::max))
}
