//! Backends as they are written.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use rustls_pki_types::ServerName;
use serde::Deserialize;

/// Where the decrypted bytes go: `ADDR:PORT`, `HOST:PORT` (but for port 0), `unix:PATH`, or `unix:@NAME` for an
/// abstract socket (at most 107 bytes).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Backend {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A UNIX socket's path.
    Unix(PathBuf),
    /// A UNIX socket's name in the abstract namespace.
    Abstract(String),
    /// The TCP addresses of a host name. Boxed, because each connection holds an address.
    Name(Box<HostPort>),
}

impl Backend {
    /// The most addresses of one backend.
    pub const MOST: usize = 64;

    /// Name that the certificate of a backend that speaks TLS must have, unless one is configured.
    pub(crate) fn server_name(&self) -> Option<ServerName<'static>> {
        match self {
            Self::Tcp(address) => Some(ServerName::from(address.ip().to_canonical())),
            Self::Name(_) => ServerName::try_from(self.host()?.to_owned()).ok(),
            Self::Unix(_) | Self::Abstract(_) => None,
        }
    }

    /// The host name, without the dot that ends an absolute one.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name.host.strip_suffix('.').unwrap_or(&name.host)),
            Self::Tcp(_) | Self::Unix(_) | Self::Abstract(_) => None,
        }
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let length = path.strip_prefix('@').unwrap_or(path).len();
            if length > LONGEST_UNIX {
                return Err(format!(
                    "the address of this UNIX socket has {length} bytes, and may have {LONGEST_UNIX}; write a \
                     shorter path, for example `unix:/run/app.sock`"
                ));
            }
            return match path.strip_prefix('@') {
                Some("") => Err("`unix:@` names no socket; write `unix:@NAME`".into()),
                Some(name) => Ok(Self::Abstract(name.into())),
                None if path.is_empty() => Err("`unix:` names no socket; write `unix:/run/app.sock`".into()),
                None if path.contains('\0') => Err(format!(
                    "`{}` names no socket; write `unix:/run/app.sock`",
                    text.escape_debug()
                )),
                None => Ok(Self::Unix(path.into())),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err(format!(
                "`{text}` has port 0, at which nothing listens; write for example `127.0.0.1:8080`"
            )),
            Ok(address) => Ok(Self::Tcp(address)),
            Err(_) => text.parse().map(|name| Self::Name(Box::new(name))),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// A host name, in lower case, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no backend; write `127.0.0.1:8080`, `[::1]:8080`, `app.example.org:8080` or \
                 `unix:/run/a.sock`"
            )
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0);
        if !is_host_name(host) {
            return Err(wrong());
        }
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port: port.ok_or_else(wrong)?,
        })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Letters, digits, `-` and `_` in labels of 63 bytes, 253 bytes in all. A name whose last label is a
/// number is a mistyped address: the system would take `0x7f000001` for 127.0.0.1.
fn is_host_name(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(fits) && !label.starts_with('-') && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253
        && name.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
        && !is_hexadecimal(last)
}

fn is_hexadecimal(label: &str) -> bool {
    let digits = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Longest path of a UNIX socket, with a zero behind it, or of an abstract name, with a zero before it (`unix(7)`).
const LONGEST_UNIX: usize = 107;
