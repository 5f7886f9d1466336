//! Single values as they are written: backends, networks, seconds.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use rustls_pki_types::ServerName;
use serde::de::{self, DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use widelane_ocsp::is_responder;

/// Where the decrypted bytes go: `ADDR:PORT`, `HOST:PORT` (but for port 0), `unix:PATH`, or `unix:@NAME` for an abstract
/// socket (at most 107 bytes).
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

/// A host name, in lower case, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A network of addresses: `10.0.0.0/8`, or `10.0.0.1` for one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Network(IpNet);

/// A version of the PROXY protocol: `v1`, `v2` or `v2-records`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ProxyVersion {
    /// A line of text with both addresses.
    V1,
    /// Binary, with both addresses.
    V2,
    /// Binary, also with what the handshake has agreed on, in records.
    V2Records,
}

/// Where OCSP responses come from: the path of a file in DER, which another program renews; `fetch`, the responder that
/// the certificate names; or a responder's address, `http://ocsp.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum OcspSource {
    /// A file with a response in DER, which another program renews.
    File(PathBuf),
    /// The responder that the certificate names.
    Fetch,
    /// This responder, whatever the certificate names.
    Responder(String),
}

impl Network {
    /// Whether an address is in it. An IPv4 address that is written as IPv6 is an IPv4 address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        let network = text.parse().ok().or_else(|| address().ok());
        let network: IpNet =
            network.ok_or_else(|| format!("`{text}` is no network; write `10.0.0.0/8`, `10.0.0.1` or `fd00::/8`"))?;
        if let Some(mapped) = mapped(&network) {
            return Err(format!(
                "`{text}` is an IPv4 network that is written as IPv6; write `{mapped}`"
            ));
        }
        match network.addr() == network.network() {
            true => Ok(Self(network)),
            false => Err(format!(
                "`{text}` has bits behind its prefix; write `{}`, or one address without a prefix",
                network.trunc()
            )),
        }
    }
}

/// The IPv4 network in an IPv6 network of mapped addresses. No address would ever be in the latter.
fn mapped(network: &IpNet) -> Option<IpNet> {
    let IpNet::V6(network) = network else {
        return None;
    };
    let prefix = network.prefix_len().checked_sub(MAPPED_PREFIX)?;
    let address = network.addr().to_ipv4_mapped()?;
    let network = Ipv4Net::new(address, prefix).ok()?;
    Some(IpNet::V4(network.trunc()))
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ProxyVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "v1" => Ok(Self::V1),
            "v2" => Ok(Self::V2),
            "v2-records" => Ok(Self::V2Records),
            _ => Err(format!(
                "`{text}` is no version of the PROXY protocol; write v1, v2 or v2-records"
            )),
        }
    }
}

impl FromStr for OcspSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("it is empty; write `fetch`, or the path of a response in DER".into()),
            "fetch" => Ok(Self::Fetch),
            address if is_web_address(address) => match is_responder(address) {
                true => Ok(Self::Responder(address.into())),
                false => Err(format!(
                    "`{}` is no address of a responder; write for example \
                     `http://ocsp.example.com` (plain HTTP: responses are signed)",
                    address.escape_debug()
                )),
            },
            path => Ok(Self::File(path.into())),
        }
    }
}

/// Whether a text is meant as an address in the web.
fn is_web_address(text: &str) -> bool {
    text.contains("://")
}

impl Backend {
    /// The most addresses of one backend.
    pub const MOST: usize = 64;

    /// What the certificate of a backend that speaks TLS must name, unless that is configured.
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

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
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

/// Types that files have as texts, each as it is written on the command line.
macro_rules! read_as_text {
    ($($type:ty),*) => {$(
        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )*};
}

read_as_text!(Backend, Network, OcspSource, ProxyVersion);

/// A choice by its name: a backend, or a form of ChaCha20-Poly1305.
pub(super) fn choice<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Addresses to listen on.
pub(super) fn listen_addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    let example = Address("0.0.0.0:443 for all of IPv4, [::]:443 for all of IPv6");
    deserializer.deserialize_seq(Addresses(example))
}

/// The address at which Prometheus may ask.
pub(super) fn metrics_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    Address("127.0.0.1:9090").deserialize(deserializer).map(Some)
}

/// Reads an address, and shows a mistyped one with this example.
#[derive(Clone, Copy)]
struct Address(&'static str);

impl<'de> DeserializeSeed<'de> for Address {
    type Value = SocketAddr;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SocketAddr, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Address {
    type Value = SocketAddr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an address with a port, for example {}", self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<SocketAddr, E> {
        text.parse().map_err(|_| {
            let (text, example) = (text.escape_debug(), self.0);
            E::custom(format!(
                "`{text}` is no address with a port; write for example {example}"
            ))
        })
    }
}

/// Reads a list of them.
struct Addresses(Address);

impl<'de> Visitor<'de> for Addresses {
    type Value = Vec<SocketAddr>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of addresses")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<SocketAddr>, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element_seed(self.0)? {
            all.push(one);
        }
        Ok(all)
    }
}

/// One text, or a list of texts, each read as it is written on the command line.
pub(super) fn one_or_several<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr + Deserialize<'de>,
    T::Err: fmt::Display,
{
    struct Texts<T>(PhantomData<T>);

    impl<'de, T> Visitor<'de> for Texts<T>
    where
        T: FromStr + Deserialize<'de>,
        T::Err: fmt::Display,
    {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text, or a list of texts")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            text.parse().map(|one| vec![one]).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                all.push(one);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_any(Texts(PhantomData))
}

/// One path, or a list of paths.
pub(super) fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a path, for example \"/etc/widelane/tickets\", or a list of paths"
    )]
    enum Paths {
        One(PathBuf),
        Several(Vec<PathBuf>),
    }
    Ok(match Paths::deserialize(deserializer)? {
        Paths::One(path) => vec![path],
        Paths::Several(paths) => paths,
    })
}

pub(super) fn optional_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    seconds(deserializer).map(Some)
}

/// Whole or fractional seconds, more than none and at most a year.
pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let value = number_of_seconds(deserializer)?;
    if !SECONDS.contains(&value) {
        return Err(serde::de::Error::custom(
            "out of range, expected seconds between 0.001 and 31536000 (a year)",
        ));
    }
    Ok(Duration::from_secs_f64(value))
}

/// The same, or zero.
pub(super) fn maybe_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let value = number_of_seconds(deserializer)?;
    if value != 0.0 && !SECONDS.contains(&value) {
        return Err(serde::de::Error::custom(
            "out of range, expected seconds between 0.001 and 31536000 (a year), or 0 to switch this off",
        ));
    }
    Ok(Duration::from_secs_f64(value))
}

fn number_of_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number of seconds, for example 30 or 0.5")]
    enum Number {
        Whole(i64),
        Fraction(f64),
    }
    Ok(match Number::deserialize(deserializer)? {
        Number::Whole(value) => value as f64,
        Number::Fraction(value) => value,
    })
}

const SECONDS: RangeInclusive<f64> = 0.001..=31_536_000.0;
/// Of `::ffff:0:0/96` (RFC 4291, section 2.5.5.2).
const MAPPED_PREFIX: u8 = 96;
/// Of the path of a UNIX socket, with a zero behind it, or of an abstract name, with a zero before it (`unix(7)`).
const LONGEST_UNIX: usize = 107;
