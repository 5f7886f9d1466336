//! Stands for `ebpf.rs` if the feature `ebpf` is off: the collector cannot be opened.

use crate::error::UsageError;
use crate::interval::Interval;
use crate::slice::Slice;
use std::convert::Infallible;

/// Has no value: [`Watch::open`] always fails.
pub(crate) struct Watch(Box<Infallible>);

impl Watch {
    /// Says that it is not in this build.
    pub(crate) fn open() -> Result<Self, UsageError> {
        Err(UsageError::LeftOut)
    }

    pub(crate) fn interval(&mut self) -> Result<Interval, UsageError> {
        match *self.0 {}
    }
}

/// Slices, which this program cannot collect.
pub(crate) struct Slices(Infallible);

impl Slices {
    pub(crate) fn open() -> Result<Self, UsageError> {
        Err(UsageError::LeftOut)
    }

    pub(crate) fn take(&mut self) -> Vec<Slice> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::{Collector, Method};

    #[test]
    fn without_the_feature_ebpf_is_refused_by_name() {
        let refused = Collector::open(Method::Ebpf, false).map(|_| ());
        assert!(matches!(refused, Err(UsageError::LeftOut)));
        assert!(UsageError::LeftOut.to_string().contains("\"ebpf\""));
    }
}
