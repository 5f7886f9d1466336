//! The scenarios that are part of the program.

/// Name and text of each scenario, in the order of `--all`.
pub const BUILTIN: [(&str, &str); 18] = [
    (
        "cloudflare-2017",
        include_str!("../../scenarios/cloudflare-2017.toml"),
    ),
    ("kit-2018", include_str!("../../scenarios/kit-2018.toml")),
    (
        "kit-2019-6130",
        include_str!("../../scenarios/kit-2019-6130.toml"),
    ),
    ("xu-2022", include_str!("../../scenarios/xu-2022.toml")),
    (
        "intel-2021-nginx",
        include_str!("../../scenarios/intel-2021-nginx.toml"),
    ),
    (
        "intel-2021-haproxy",
        include_str!("../../scenarios/intel-2021-haproxy.toml"),
    ),
    (
        "intel-2021-wordpress",
        include_str!("../../scenarios/intel-2021-wordpress.toml"),
    ),
    (
        "khalil-2019",
        include_str!("../../scenarios/khalil-2019.toml"),
    ),
    (
        "downs-2020",
        include_str!("../../scenarios/downs-2020.toml"),
    ),
    ("atc-2021", include_str!("../../scenarios/atc-2021.toml")),
    (
        "lemire-2018",
        include_str!("../../scenarios/lemire-2018.toml"),
    ),
    (
        "vanklompf-2018",
        include_str!("../../scenarios/vanklompf-2018.toml"),
    ),
    ("zen5-null", include_str!("../../scenarios/zen5-null.toml")),
    ("fleet", include_str!("../../scenarios/fleet.toml")),
    (
        "handshakes-2026",
        include_str!("../../scenarios/handshakes-2026.toml"),
    ),
    (
        "skylake-2026",
        include_str!("../../scenarios/skylake-2026.toml"),
    ),
    (
        "granite-rapids",
        include_str!("../../scenarios/granite-rapids.toml"),
    ),
    (
        "impatient-clients",
        include_str!("../../scenarios/impatient-clients.toml"),
    ),
];
