//! Where the log goes, and how its lines are written.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

/// Where the access log goes: the path of a file or FIFO, `stderr`, `-` for standard output, or `off`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum LogTarget {
    /// Nowhere.
    #[default]
    Off,
    /// To standard error.
    Stderr,
    /// To standard output.
    Stdout,
    /// Into a file or a FIFO.
    File(PathBuf),
}

/// How a line of the access log is written: `json` or `text`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum LogFormat {
    /// As an object of JSON.
    #[default]
    Json,
    /// As `key=value`, with text of clients in quotes.
    Text,
}

impl FromStr for LogTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "stderr" => Ok(Self::Stderr),
            "-" => Ok(Self::Stdout),
            "" => Err("no file is named; write a path, `stderr`, `-` (standard output) or `off`".into()),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Stderr => f.write_str("stderr"),
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err(format!("`{text}` is no format of the access log; write json or text")),
        }
    }
}

impl TryFrom<String> for LogTarget {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl TryFrom<String> for LogFormat {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
