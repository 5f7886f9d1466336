//! What this build of the program is made from, what it leaves out, and how to build that in.

/// How to get a program with `feature`, for the end of a message.
pub(crate) fn build_in(feature: &str) -> String {
    format!("build it in with: cargo build --release -p widelane --features {feature}")
}

/// The commit of this program, if git knew it.
pub(crate) fn commit() -> Option<String> {
    let commit = env!("WIDELANE_COMMIT");
    (commit != "unknown").then(|| commit.to_owned())
}

/// What `--version` prints: the version, the commit, and the optional parts that are in this
/// program. `handshakes` reads the commit.
pub(crate) fn long_version() -> &'static str {
    // A program has one set of features; clap wants the text for as long as it runs.
    static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!("{version}\ncommit: {}\nfeatures:", env!("WIDELANE_COMMIT"));
        for (name, built_in) in FEATURES {
            text.push_str(if *built_in { " +" } else { " -" });
            text.push_str(name);
        }
        text
    });
    &TEXT
}

/// The Cargo features of this program, and whether they are on.
const FEATURES: &[(&str, bool)] = &[
    ("ebpf", cfg!(feature = "ebpf")),
    ("terminal", cfg!(feature = "terminal")),
    ("peers", cfg!(feature = "peers")),
    ("etcd", cfg!(feature = "etcd")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_version_names_every_feature_of_the_manifest() {
        let manifest = include_str!("../Cargo.toml");
        let table = manifest.split("[features]").nth(1).expect("features");
        let table = table.split("\n[").next().expect("a table");
        let names = table.lines().filter_map(|line| line.split_once(" = "));
        let names: Vec<_> = names
            .map(|(name, _)| name)
            .filter(|name| *name != "default" && !name.starts_with('#'))
            .collect();
        assert!(!names.is_empty());
        for name in names {
            let found = long_version()
                .split([' ', '+', '-'])
                .any(|word| word == name);
            assert!(found, "{name}: {}", long_version());
        }
    }
}
