//! Networks as they are written.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;

/// A network of addresses: `10.0.0.0/8`, or `10.0.0.1` for one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Network(IpNet);

impl Network {
    /// Returns whether an address is in it. An IPv4 address that is written as IPv6 is an IPv4 address.
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

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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

/// Length of the prefix of `::ffff:0:0/96` (RFC 4291, section 2.5.5.2).
const MAPPED_PREFIX: u8 = 96;
