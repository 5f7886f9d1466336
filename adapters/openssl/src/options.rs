//! Settings in the provider's section of OpenSSL's configuration.

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};

use widelane_crypto::Preference;
use widelane_crypto::agreement::{Curve, KEM_SETTING};
use widelane_crypto::chacha20poly1305::Choice;
use widelane_crypto::sign::Algorithm;
use widelane_engine::{Clock, ClockPenalty};

use crate::log::Level;

/// The settings, with their defaults where the section says nothing.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// Operations that are offered, by [`Algorithm::setting`] and the like.
    pub(crate) operations: Vec<&'static str>,
    pub(crate) backend: Preference,
    pub(crate) log: Level,
    pub(crate) prepare: Prepare,
    /// The file of the library that suspends handshakes, for programs into which it is not preloaded.
    pub(crate) library: Option<CString>,
    /// True if other processes may read what this one has counted.
    pub(crate) statistics: bool,
    /// Effect of wide code on the clock of this machine. It decides how wide passes are.
    pub(crate) clock: Clock,
    /// The code of ChaCha20-Poly1305; `None` leaves it to OpenSSL.
    pub(crate) cipher: Option<Choice>,
    /// The file that keeps what passes cost here; `None` measures in each process.
    pub(crate) calibration: Option<PathBuf>,
    /// Choice between Widelane and OpenSSL where both can compute an operation.
    pub(crate) prefer: Prefer,
    /// True if the provider measures everything when it starts, unless it is known.
    pub(crate) measures_at_start: bool,
    /// True if the library that suspends handshakes keeps queues of connections short under overload.
    pub(crate) overload: bool,
}

/// Operations that can be switched off, by the names of signatures and agreements in settings.
fn settings() -> Vec<&'static str> {
    let signatures = Algorithm::ALL.into_iter().map(Algorithm::setting);
    let agreements = Curve::ALL.into_iter().map(Curve::setting);
    let mut all: Vec<_> = signatures.chain(agreements).chain([KEM_SETTING]).collect();
    all.dedup();
    all
}

/// Time at which a private key is prepared for lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Prepare {
    /// At its first signature: for programs that sign once, in tests.
    AtFirstUse,
    AtSecondUse,
}

/// Rule for operations that both can compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Prefer {
    /// The faster one.
    Measured,
    Widelane,
    OpenSsl,
}

impl Options {
    /// `setting` gives the text of the setting with this name, one of [`NAMES`], if there is one.
    pub(crate) fn parse(setting: impl Fn(&CStr) -> Option<String>) -> Result<Self, String> {
        let operations = match setting(c"operations").as_deref() {
            None | Some("all") => settings(),
            Some(list) => operations(list)?,
        };
        let backend = match setting(c"backend") {
            None => Preference::Auto,
            Some(name) => name.parse().map_err(|error| format!("backend: {error}"))?,
        };
        let penalty = |name| {
            setting(name).map_or(Ok(ClockPenalty::default()), |text| {
                penalty(&text).map_err(|error| format!("{}: {error}", name.to_string_lossy()))
            })
        };
        let setting = &setting;
        Ok(Self {
            operations,
            backend,
            log: one_of(setting, c"log", LEVELS)?,
            prepare: one_of(setting, c"prepare", PREPARE)?,
            // It comes from a string of C.
            library: setting(c"library").and_then(|path| CString::new(path).ok()),
            statistics: one_of(setting, c"statistics", ON)?,
            clock: Clock {
                wide: penalty(c"clock-512")?,
                narrow: penalty(c"clock-256")?,
            },
            cipher: (setting(c"chacha20poly1305").map(|name| name.parse()).transpose())
                .map_err(|error| format!("chacha20poly1305: {error}"))?,
            calibration: setting(c"calibration").map(absolute).transpose()?,
            prefer: one_of(setting, c"prefer", PREFER)?,
            measures_at_start: one_of(setting, c"measure", MEASURE)?,
            overload: one_of(setting, c"overload", ON)?,
        })
    }
}

/// The choice of the setting `name`; the first one where it is not set.
fn one_of<T: Copy, const N: usize>(
    setting: impl Fn(&CStr) -> Option<String>,
    name: &CStr,
    choices: [(&str, T); N],
) -> Result<T, String> {
    let text = setting(name);
    let text = text.as_deref().unwrap_or(choices[0].0);
    let found = choices.iter().find(|(known, _)| *known == text);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let name = name.to_string_lossy();
        let names = choices.map(|(known, _)| known).join(", ");
        format!("{name}: `{text}` is none of {names}")
    })
}

/// A path that means the same file in every process.
fn absolute(path: String) -> Result<PathBuf, String> {
    match Path::new(&path).is_absolute() {
        true => Ok(path.into()),
        false => Err(format!(
            "calibration: `{path}` is no absolute path, such as `/var/cache/widelane/openssl-calibration`"
        )),
    }
}

fn operations(list: &str) -> Result<Vec<&'static str>, String> {
    let names = list.split([',', ' ']).filter(|name| !name.is_empty());
    let all = settings();
    names
        .map(|name| {
            let found = all.iter().copied().find(|known| *known == name);
            found.ok_or_else(|| format!("operations: `{name}` is none of {}", all.join(", ")))
        })
        .collect()
}

/// The lost share of the clock, the nanoseconds of the stall, and those of the tail, as `widelane
/// setup` writes them.
fn penalty(text: &str) -> Result<ClockPenalty, String> {
    let parts: Vec<_> = text.split_whitespace().collect();
    let read = || {
        let [depth, stall, tail] = parts[..] else {
            return None;
        };
        let depth = depth.parse().ok().filter(|depth| (0.0..1.0).contains(depth))?;
        Some(ClockPenalty {
            depth,
            stall: stall.parse().ok()?,
            tail: tail.parse().ok()?,
        })
    };
    read().ok_or_else(|| {
        format!(
            "`{text}` is not a share below 1 and two numbers of nanoseconds, such as `0.09 11000 \
             670000`"
        )
    })
}

const LEVELS: [(&str, Level); 3] = [("warn", Level::Warn), ("info", Level::Info), ("off", Level::Off)];
const PREPARE: [(&str, Prepare); 2] = [("second-use", Prepare::AtSecondUse), ("first-use", Prepare::AtFirstUse)];
const PREFER: [(&str, Prefer); 3] = [
    ("measured", Prefer::Measured),
    ("widelane", Prefer::Widelane),
    ("openssl", Prefer::OpenSsl),
];
const ON: [(&str, bool); 2] = [("on", true), ("off", false)];
const MEASURE: [(&str, bool); 2] = [("later", false), ("at-start", true)];

/// The names of the settings.
pub(crate) const NAMES: [&CStr; 13] = [
    c"prefer",
    c"measure",
    c"calibration",
    c"chacha20poly1305",
    c"operations",
    c"backend",
    c"log",
    c"prepare",
    c"library",
    c"statistics",
    c"clock-512",
    c"clock-256",
    c"overload",
];

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_crypto::Backend;

    fn parse(settings: &[(&CStr, &str)]) -> Result<Options, String> {
        Options::parse(|name| {
            assert!(NAMES.contains(&name), "{name:?} is not asked for");
            let found = settings.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn settings_have_defaults() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.operations, settings());
        assert_eq!(options.operations.len(), 7);
        assert_eq!(options.backend, Preference::Auto);
        assert_eq!(options.log, Level::Warn);
        assert_eq!(options.prepare, Prepare::AtSecondUse);
        assert_eq!((options.library, options.statistics), (None, true));
        assert!(options.overload);
        assert_eq!(options.clock, Clock::default());
        assert_eq!(options.calibration, None);
        assert_eq!((options.prefer, options.measures_at_start), (Prefer::Measured, false));
    }

    #[test]
    fn settings_are_read() {
        let options = parse(&[
            (c"operations", "rsa, x25519"),
            (c"backend", "aws-lc"),
            (c"log", "info"),
            (c"prepare", "first-use"),
            (c"library", "/lib/x.so"),
            (c"statistics", "off"),
            (c"clock-512", "0.09 11000 670000"),
            (c"calibration", "/var/cache/x"),
            (c"prefer", "widelane"),
            (c"measure", "at-start"),
            (c"overload", "off"),
        ])
        .unwrap();
        assert_eq!(options.operations, ["rsa", "x25519"]);
        assert_eq!(options.backend, Preference::Exactly(Backend::AwsLc));
        assert_eq!(options.log, Level::Info);
        assert_eq!(options.prepare, Prepare::AtFirstUse);
        assert_eq!(options.library.as_deref(), Some(c"/lib/x.so"));
        assert!(!options.statistics && !options.overload);
        assert_eq!((options.prefer, options.measures_at_start), (Prefer::Widelane, true));
        assert_eq!(options.calibration.as_deref(), Some(Path::new("/var/cache/x")));
        let wide = options.clock.wide;
        assert_eq!((wide.depth, wide.stall, wide.tail), (0.09, 11_000, 670_000));
        assert_eq!(options.clock.narrow, ClockPenalty::default());
    }

    #[test]
    fn mistakes_are_named() {
        for (name, text, part) in [
            (c"operations", "rsa,dsa", "`dsa` is none of rsa"),
            (c"backend", "avx9", "backend: "),
            (c"log", "loud", "log: `loud` is none of warn, info, off"),
            (c"prepare", "never", "second-use"),
            (c"statistics", "yes", "`yes` is none of on, off"),
            (c"overload", "late", "`late` is none of on, off"),
            (c"prefer", "aws-lc", "none of measured, widelane, openssl"),
            (c"measure", "now", "`now` is none of later, at-start"),
            (c"clock-512", "9 1 1", "share below 1"),
            (c"clock-256", "0.1 1", "clock-256: "),
            (c"clock-256", "NaN 1 1", "such as"),
            (c"calibration", "cache/x", "`cache/x` is no absolute path"),
            (c"calibration", "", "`` is no absolute path"),
        ] {
            let error = parse(&[(name, text)]).unwrap_err();
            assert!(error.contains(part), "{name:?} {text}: {error}");
        }
    }
}
