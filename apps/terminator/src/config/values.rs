//! Single values as they are written: versions, sources, lists, seconds.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use widelane_ocsp::is_responder;

use super::backend::Backend;
use super::network::Network;

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

impl FromStr for OcspSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("it is empty; write `fetch`, or the path of a response in DER".into()),
            "fetch" => Ok(Self::Fetch),
            address if address.contains("://") => match is_responder(address) {
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
    text.parse().map_err(de::Error::custom)
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
        std::iter::from_fn(|| list.next_element_seed(self.0).transpose()).collect()
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
            std::iter::from_fn(|| list.next_element().transpose()).collect()
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
    number_of_seconds(deserializer, |value| SECONDS.contains(&value), "")
}

/// The same, or zero.
pub(super) fn maybe_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let is_good = |value| value == 0.0 || SECONDS.contains(&value);
    number_of_seconds(deserializer, is_good, ", or 0 to switch this off")
}

fn number_of_seconds<'de, D: Deserializer<'de>>(
    deserializer: D,
    is_good: impl Fn(f64) -> bool,
    or_else: &str,
) -> Result<Duration, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number of seconds, for example 30 or 0.5")]
    enum Number {
        Whole(i64),
        Fraction(f64),
    }
    let value = match Number::deserialize(deserializer)? {
        Number::Whole(value) => value as f64,
        Number::Fraction(value) => value,
    };
    let range = "out of range, expected seconds between 0.001 and 31536000 (a year)";
    match is_good(value) {
        true => Ok(Duration::from_secs_f64(value)),
        false => Err(de::Error::custom(format!("{range}{or_else}"))),
    }
}

const SECONDS: RangeInclusive<f64> = 0.001..=31_536_000.0;
