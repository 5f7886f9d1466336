//! A configuration with its origin, so that a fault can name its place.

use std::path::{Path, PathBuf};

use widelane_batching::Clock;

use super::check::check;
use super::fault::Fault;
use super::place::{key_at, line_at, line_of_key};
use super::process::Config;

/// A configuration together with where it came from, so that a fault can name its place.
#[derive(Clone, Debug)]
pub struct Document {
    origin: Origin,
    config: Config,
    pub(crate) environment: Environment,
}

/// Facts about the machine that a configuration goes with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Environment {
    /// Effect of wide code on the clock, if a profile says it.
    pub(crate) clock: Option<Clock>,
    /// The directory in which fetched OCSP responses are kept for the next start. `None`: they are not.
    pub(crate) ocsp_directory: Option<PathBuf>,
}

/// A configuration that cannot be used: where, what is wrong, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {}; {}", .fault.problem, .fault.remedy)]
pub struct ConfigError {
    place: String,
    pub(crate) fault: Fault,
}

#[derive(Clone, Debug)]
enum Origin {
    Flags,
    File { path: PathBuf, text: String },
}

impl Document {
    /// Reads and checks a configuration file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let place = path.display().to_string();
        let read = std::fs::read(path).map_err(|error| {
            let problem = format!("cannot read the configuration: {error}");
            Fault::new("", problem, "give --config a readable TOML file").because_of(&error)
        });
        let text = match read {
            Ok(bytes) => text(bytes).map_err(|(line, fault)| (place.clone() + &line, fault)),
            Err(fault) => Err((place, fault)),
        };
        let text = text.map_err(|(place, fault)| ConfigError { place, fault })?;
        Self::parse(path, text)
    }

    /// Checks the text of a configuration file; `path` is only for messages.
    pub fn parse(path: &Path, mut text: String) -> Result<Self, ConfigError> {
        // Some editors put a byte order mark before it. Places are counted without.
        if text.starts_with('\u{feff}') {
            text.remove(0);
        }
        let config = toml::from_str(&text).map_err(|error| syntax(path, &text, &error))?;
        let origin = Origin::File {
            path: path.to_owned(),
            text,
        };
        Self::checked(origin, config)
    }

    /// Takes a configuration that was put together from command line flags or by a program.
    pub fn from_flags(config: Config) -> Result<Self, ConfigError> {
        Self::checked(Origin::Flags, config)
    }

    /// Says what wide code does to the clock of this machine; `None`: it is not known, and wide code counts as free.
    pub fn set_clock(&mut self, clock: Option<Clock>) {
        self.environment.clock = clock;
    }

    /// Says where fetched OCSP responses are kept for the next start; without, they are not.
    pub fn keep_responses_in(&mut self, directory: PathBuf) {
        self.environment.ocsp_directory = Some(directory);
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether both say the same, wherever they come from.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.config, &self.environment) == (&other.config, &other.environment)
    }

    /// Ties a fault to its file and line.
    pub(crate) fn locate(&self, fault: Fault) -> ConfigError {
        let place = match &self.origin {
            Origin::Flags => format!("command line: {}", flag(&fault.key)),
            Origin::File { path, text } => match line_of_key(text, &fault.key) {
                Some(line) => format!("{}:{line}: {}", path.display(), fault.key),
                None => format!("{}: {}", path.display(), fault.key),
            },
        };
        ConfigError { place, fault }
    }

    fn checked(origin: Origin, config: Config) -> Result<Self, ConfigError> {
        let document = Self {
            origin,
            config,
            environment: Environment::default(),
        };
        match check(&document.config) {
            Ok(()) => Ok(document),
            Err(fault) => Err(document.locate(fault)),
        }
    }
}

/// The text of a file. The error has the line, as `:7`, if that is known.
fn text(bytes: Vec<u8>) -> Result<String, (String, Fault)> {
    if widelane_pem::is_utf16(&bytes) {
        let remedy = "convert it to UTF-8: iconv -f UTF-16 -t UTF-8 OLD.toml > NEW.toml";
        let fault = Fault::new("", "it is text in UTF-16, and TOML is UTF-8", remedy);
        return Err((String::new(), fault));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        let problem = "a character is not UTF-8 (perhaps Latin-1)";
        let remedy = "convert it to UTF-8: iconv -f LATIN1 -t UTF-8 OLD.toml > NEW.toml";
        (format!(":{line}"), Fault::new("", problem, remedy))
    })
}

/// An error of the TOML reader, with file, line and key.
fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let file = path.display();
    let place = match error.span() {
        Some(span) => {
            let line = line_at(text, span.start);
            match key_at(text, &span) {
                Some(key) => format!("{file}:{line}: {key}"),
                None => format!("{file}:{line}"),
            }
        }
        None => file.to_string(),
    };
    let problem = error.message().trim().replace('\n', " ");
    // The sections that there may be several of.
    let several = error.span().and_then(|span| text.get(span.start..)?.split(']').next());
    let several = several.filter(|_| problem == NOT_SEVERAL).and_then(|header| {
        let name = header.strip_prefix('[')?.trim();
        (!name.is_empty() && !name.contains(['[', '\n'])).then_some(name)
    });
    let (problem, remedy) = match several {
        Some(name) => (
            format!("there may be several of these sections, and `[{name}]` is for one"),
            format!("write [[{name}]]"),
        ),
        None => (problem, "correct it; packaging/widelane.toml shows every key".into()),
    };
    let fault = Fault::new("", problem, remedy);
    ConfigError { place, fault }
}

/// Words of serde for a table where an array of tables is meant.
const NOT_SEVERAL: &str = "invalid type: map, expected a sequence";

/// The command line flag that sets a key, for configurations that came from flags.
fn flag(key: &str) -> &str {
    match key.rsplit('.').next().unwrap_or(key) {
        "cert" => "--cert",
        "key" => "--key",
        "backend" => "--backend",
        "keys" => "--ticket-keys",
        "ocsp" => "--ocsp",
        "placement" | "vector_cpus" if key.starts_with("batching") => "--vector-cpus",
        "certificate" => "--cert",
        "cpus" => "--cpus",
        "access_log" => "--access-log",
        "listener" => "--listen",
        last if last.starts_with("listen[") => "--listen",
        last if last.starts_with("backend[") => "--backend",
        _ => key,
    }
}
