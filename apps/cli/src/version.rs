//! The text of `--version`.

/// The version, the commit, and the optional parts with whether they are in the program.
/// `widelane-lab handshakes` reads the commit.
pub fn long_version(commit: &str, features: &[(&str, bool)]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("{version}\ncommit: {commit}\nfeatures:");
    for (name, built_in) in features {
        text.push_str(if *built_in { " +" } else { " -" });
        text.push_str(name);
    }
    text
}

/// The commit that a build found; `None` if git did not know it.
pub fn known(commit: &str) -> Option<String> {
    (commit != "unknown").then(|| commit.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_a_sign() {
        let text = long_version("0123", &[("one", true), ("two", false)]);
        assert!(text.ends_with("\ncommit: 0123\nfeatures: +one -two"), "{text}");
    }
}
