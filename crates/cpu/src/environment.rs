//! Variables of the environment that change what code runs.

use std::env;
use std::ffi::OsString;
use std::fs;

/// The variable with this name, as `secure_getenv(3)`: a process that has more rights than the user who
/// starts it has none. Where the system does not say whether that is so, there is none either.
pub fn variable(name: &str) -> Option<OsString> {
    let value = env::var_os(name)?;
    let vector = fs::read("/proc/self/auxv").ok()?;
    (!is_privileged(&vector)).then_some(value)
}

/// Returns whether the auxiliary vector (`getauxval(3)`), pairs of a number and a value, has `AT_SECURE` set, or lacks
/// it.
fn is_privileged(vector: &[u8]) -> bool {
    let (words, _) = vector.as_chunks::<8>();
    let (entries, _) = words.as_chunks::<2>();
    let secure = entries
        .iter()
        .find(|[number, _]| u64::from_ne_bytes(*number) == AT_SECURE);
    secure.is_none_or(|[_, value]| u64::from_ne_bytes(*value) != 0)
}

const AT_SECURE: u64 = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_more_rights_has_no_variables() {
        let vector = |value: u64| {
            let words = [6, 4096, AT_SECURE, value, 0, 0];
            words.map(u64::to_ne_bytes).concat()
        };
        assert!(!is_privileged(&vector(0)) && is_privileged(&vector(1)));
        assert!(is_privileged(&[]), "it does not say");
        // This process is none.
        assert_eq!(variable("PATH"), env::var_os("PATH"));
        assert_eq!(variable("WIDELANE_THERE_IS_NONE"), None);
    }
}
