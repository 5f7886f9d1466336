//! The scenarios that are part of the program.

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
    };
}

/// Name and text of each scenario, in the order of `--all`.
pub const BUILTIN: [(&str, &str); 18] = scenarios! {
    "cloudflare-2017", "kit-2018", "kit-2019-6130", "xu-2022", "intel-2021-nginx", "intel-2021-haproxy",
    "intel-2021-wordpress", "khalil-2019", "downs-2020", "atc-2021", "lemire-2018", "vanklompf-2018",
    "zen5-null", "fleet", "handshakes-2026", "skylake-2026", "granite-rapids", "impatient-clients",
};
