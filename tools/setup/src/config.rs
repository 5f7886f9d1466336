//! The OpenSSL configuration of a server.

use crate::error::SetupError;
use crate::parts::plain;
use crate::system::{System, TOP};
use std::fmt::Write as _;
use std::path::Path;
use widelane_cpu::Target;

/// Settings in the provider's section. `None` leaves a setting to the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    operations: Option<String>,
    backend: Option<String>,
    prefer: Option<String>,
    log: Option<String>,
    statistics: Option<String>,
    chacha20poly1305: Option<String>,
    clock: [Option<String>; 2],
    calibration: Option<String>,
    overload: Option<String>,
}

impl Options {
    /// These settings, if the provider knows them.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn new(operations: Option<&str>, backend: Option<&str>, log: Option<&str>) -> Result<Self, SetupError> {
        let operations = operations.map(|list| match list {
            "all" => Ok("all".to_owned()),
            list => {
                let names = list.split([',', ' ']).filter(|name| !name.is_empty());
                let names = names.map(|name| known("operations", name, &OPERATIONS));
                let names = names.collect::<Result<Vec<_>, _>>()?;
                match names.is_empty() {
                    true => known("operations", "", &OPERATIONS),
                    false => Ok(names.join(", ")),
                }
            }
        });
        Ok(Self {
            operations: operations.transpose()?,
            backend: backend.map(|name| known("backend", name, &backends())).transpose()?,
            log: log.map(|name| known("log", name, &LEVELS)).transpose()?,
            ..Self::default()
        })
    }

    /// Sets the side that computes what OpenSSL can do, too; by default the one that is measured to be faster.
    ///
    /// # Errors
    ///
    /// When the provider does not know it.
    pub fn set_prefer(&mut self, who: &str) -> Result<(), SetupError> {
        self.prefer = Some(known("prefer", who, &PREFERENCES)?);
        Ok(())
    }

    /// Other processes may not read what the server's processes count.
    pub fn without_statistics(&mut self) {
        self.statistics = Some("off".into());
    }

    /// The code of ChaCha20-Poly1305; without, that is OpenSSL's own.
    ///
    /// # Errors
    ///
    /// When the provider does not know it.
    pub fn set_chacha20poly1305(&mut self, form: &str) -> Result<(), SetupError> {
        self.chacha20poly1305 = Some(known("chacha20poly1305", form, &FORMS)?);
        Ok(())
    }

    /// Sets whether queues of connections are kept short under overload; they are by default.
    ///
    /// # Errors
    ///
    /// When it is neither `on` nor `off`.
    pub fn set_overload(&mut self, text: &str) -> Result<(), SetupError> {
        self.overload = Some(known("overload", text, &ON)?);
        Ok(())
    }

    /// The file in which processes of the server keep what passes cost on this machine. A path that
    /// configurations cannot hold is left out: then each process measures.
    pub fn keep_calibration_in(&mut self, file: &Path) {
        self.calibration = plain(file).ok().map(str::to_owned);
    }

    /// Sets the effects of multiplications in 512-bit and in 256-bit registers on the clock: the lost share, and the
    /// nanoseconds of the stall and of the tail.
    pub fn set_clock(&mut self, penalties: [(f64, u64, u64); 2]) {
        self.clock = penalties.map(|(depth, stall, tail)| {
            let costs = depth > 0.0 || stall > 0 || tail > 0;
            costs.then(|| format!("{depth:.4} {stall} {tail}"))
        });
    }
}

/// The text of the file.
pub(crate) fn text(
    system: &System,
    provider: &Path,
    library: Option<&Path>,
    options: &Options,
) -> Result<String, SetupError> {
    let start = system.start.as_deref().unwrap_or("widelane_start");
    let providers = system.providers.as_deref().unwrap_or("widelane_providers");
    let default = system.default.as_deref().unwrap_or("widelane_default");
    let properties = system.properties.as_deref().unwrap_or("widelane_properties");
    let mut text = String::new();
    if let Some(include) = &system.include {
        let include = plain(include)?;
        if let Some(copy) = &system.copy {
            let _ = writeln!(
                text,
                "# A copy of {include}, which begins with a byte order mark: OpenSSL cannot include it.\n{copy}\n"
            );
        } else {
            let _ = writeln!(text, "# Everything that the system configures stays.");
            let _ = writeln!(text, ".include {include}\n");
        }
    }
    if system.start.is_none() {
        let _ = writeln!(text, "[{TOP}]\nopenssl_conf = {start}\n");
    }
    if system.providers.is_none() || system.properties.is_none() {
        let _ = writeln!(text, "[{start}]");
        if system.providers.is_none() {
            let _ = writeln!(text, "providers = {providers}");
        }
        if system.properties.is_none() {
            let _ = writeln!(text, "alg_section = {properties}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, "[{providers}]");
    if system.default.is_none() {
        let _ = writeln!(text, "default = {default}");
    }
    let _ = writeln!(text, "widelane = widelane_provider\n");
    let _ = writeln!(text, "# OpenSSL's own, which is off where another one is on.");
    let _ = writeln!(text, "[{default}]\nactivate = 1\n");
    let _ = writeln!(text, "[widelane_provider]\nmodule = {}", plain(provider)?);
    if let Some(library) = library {
        let _ = writeln!(text, "library = {}", plain(library)?);
    }
    let settings = [
        ("operations", &options.operations),
        ("backend", &options.backend),
        ("prefer", &options.prefer),
        ("log", &options.log),
        ("statistics", &options.statistics),
        ("chacha20poly1305", &options.chacha20poly1305),
        ("overload", &options.overload),
        ("calibration", &options.calibration),
        ("clock-512", &options.clock[0]),
        ("clock-256", &options.clock[1]),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            let _ = writeln!(text, "{name} = {value}");
        }
    }
    text.push_str("activate = 1\n\n");
    let _ = writeln!(text, "# Where both providers offer an operation, Widelane's is taken.");
    let query = match system.query.as_deref() {
        Some(query) if query.contains(PROPERTY) => query.to_owned(),
        Some(query) if !query.is_empty() => format!("{query},{PROPERTY}"),
        _ => PROPERTY.to_owned(),
    };
    let _ = writeln!(text, "[{properties}]\ndefault_properties = {query}");
    Ok(text)
}

/// A configuration that includes the one in `config`, and has its provider measure what is not known of this
/// machine when it starts, and tell what it decides.
///
/// # Errors
///
/// When configurations cannot hold the path.
pub fn measuring(config: &Path) -> Result<String, SetupError> {
    let config = plain(config)?;
    Ok(format!(
        ".include {config}\n[widelane_provider]\nmeasure = at-start\nlog = info\n"
    ))
}

fn known(option: &'static str, value: &str, known: &[&str]) -> Result<String, SetupError> {
    match known.contains(&value) {
        true => Ok(value.to_owned()),
        false => Err(SetupError::Option {
            option,
            value: value.to_owned(),
            known: known.join(", "),
        }),
    }
}

fn backends() -> Vec<&'static str> {
    let lanes = Target::ALL.into_iter().rev().map(Target::name);
    ["auto"].into_iter().chain(lanes).chain(["aws-lc"]).collect()
}

const PROPERTY: &str = "?widelane.batch=yes";
const OPERATIONS: [&str; 7] = ["rsa", "ecdsa", "ed25519", "x25519", "ecdh", "mlkem", "mldsa"];
const FORMS: [&str; 5] = ["auto", "512-ifma", "512", "256", "256-light"];
const PREFERENCES: [&str; 3] = ["measured", "widelane", "openssl"];
const ON: [&str; 2] = ["on", "off"];
const LEVELS: [&str; 3] = ["off", "warn", "info"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_bare_system_the_file_says_everything() {
        let mut options = Options::new(Some("rsa, x25519"), Some("auto"), Some("info")).unwrap();
        options.without_statistics();
        options.set_chacha20poly1305("256-light").unwrap();
        assert!(options.set_chacha20poly1305("1024").is_err());
        options.set_overload("off").unwrap();
        assert!(options.set_overload("late").is_err());
        options.keep_calibration_in(Path::new("/var/cache/a b"));
        assert_eq!(options.calibration, None);
        options.keep_calibration_in(Path::new("/var/cache/a"));
        options.set_clock([(0.09, 11_000, 670_000), (0.0, 0, 0)]);
        let text = text(&System::default(), Path::new("/lib/w.so"), None, &options).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = "\
[default]
openssl_conf = widelane_start

[widelane_start]
providers = widelane_providers
alg_section = widelane_properties

[widelane_providers]
default = widelane_default
widelane = widelane_provider

[widelane_default]
activate = 1

[widelane_provider]
module = /lib/w.so
operations = rsa, x25519
backend = auto
log = info
statistics = off
chacha20poly1305 = 256-light
overload = off
calibration = /var/cache/a
clock-512 = 0.0900 11000 670000
activate = 1

[widelane_properties]
default_properties = ?widelane.batch=yes";
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn a_file_that_cannot_be_included_is_copied() {
        let system = System {
            include: Some("/etc/ssl/openssl.cnf".into()),
            copy: Some("openssl_conf = init\n[init]\nx = y".into()),
            start: Some("init".into()),
            ..System::default()
        };
        let text = text(&system, Path::new("/w.so"), None, &Options::default()).unwrap();
        assert!(!text.contains(".include"), "{text}");
        let copied = "mark: OpenSSL cannot include it.\nopenssl_conf = init\n[init]\nx = y\n\n[init]\n";
        assert!(text.contains(copied), "{text}");
    }

    #[test]
    fn sections_of_the_system_are_added_to() {
        let system = System {
            include: Some("/etc/ssl/openssl.cnf".into()),
            copy: None,
            start: Some("init".into()),
            providers: Some("list".into()),
            default: Some("def".into()),
            properties: Some("algs".into()),
            query: Some("?tpm=yes".into()),
        };
        let text = text(&system, Path::new("/lib/w.so"), None, &Options::default()).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = "\
.include /etc/ssl/openssl.cnf

[list]
widelane = widelane_provider

[def]
activate = 1

[widelane_provider]
module = /lib/w.so
activate = 1

[algs]
default_properties = ?tpm=yes,?widelane.batch=yes";
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn options_that_the_provider_does_not_know_are_refused() {
        let message = |result: Result<Options, SetupError>| result.unwrap_err().to_string();
        let wrong = message(Options::new(Some("rsa,dsa"), None, None));
        assert_eq!(
            wrong,
            "operations: `dsa` is none of rsa, ecdsa, ed25519, x25519, ecdh, mlkem, mldsa"
        );
        // To the provider it would mean: no operation at all.
        assert!(message(Options::new(Some(","), None, None)).starts_with("operations: "));
        assert!(message(Options::new(None, Some("avx9"), None)).starts_with("backend: "));
        assert!(message(Options::new(None, None, Some("loud"))).starts_with("log: "));
    }
}
