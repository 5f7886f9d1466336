//! Used instead of `libcrux.rs` if the feature `peers` is off: the rows have no figures and say
//! why.

use crate::operation::Subject;

/// The library's name in the output.
pub(crate) const LIBCRUX: &str = "libcrux";

type Prepared = Result<Box<dyn Subject>, String>;

/// The reason in place of the operation, if it is one of ML-KEM.
pub(crate) fn peer(name: &str) -> Option<fn() -> Prepared> {
    let refuse: fn() -> Prepared = || Err(LEFT_OUT.to_owned());
    name.starts_with("mlkem").then_some(refuse)
}

const LEFT_OUT: &str = "libcrux is not in this build: the Cargo feature \"peers\" is off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_ml_kem_says_why_there_is_no_peer() {
        let why = |name| peer(name).map(|prepare| prepare().err());
        assert_eq!(why("mlkem768-encaps"), Some(Some(LEFT_OUT.to_owned())));
        assert_eq!(why("p256-ecdh"), None);
    }
}
