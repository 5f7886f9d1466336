//! Argument values that several sub-commands of this program share.

#[cfg(feature = "instruments")]
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::net::SocketAddr;

/// Switch for something that is done or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Reads an address with a port to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "`{}` is no address with a port; write for example 127.0.0.1:8443, 0.0.0.0:443 for all \
             of IPv4, or [::]:443 for all of IPv6",
            text.escape_debug()
        )
    })
}

/// Reads one of these values by its name, behind which `--help` says what it is.
#[cfg(feature = "instruments")]
pub(crate) fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let known = values
        .each_ref()
        .map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(known).map(move |text| {
        let place = values.iter().position(|(name, ..)| *name == text);
        values[place.unwrap_or_default()].2.clone()
    })
}

/// Reads the number of a process.
#[cfg(feature = "instruments")]
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "no number of a process; `pidof NAME` and `systemctl status UNIT` tell it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert!(address("127.0.0.1:443").is_ok() && address("[::1]:443").is_ok());
        for wrong in ["443", ":443", "localhost:443", "127.0.0.1", "::1:x"] {
            let error = address(wrong).unwrap_err();
            assert!(error.contains(wrong) && error.contains("0.0.0.0:443"), "{error}");
        }
    }

    #[cfg(feature = "instruments")]
    #[test]
    fn numbers_of_processes() {
        assert_eq!((pid("1"), pid("4294967295")), (Ok(1), Ok(u32::MAX)));
        for wrong in ["nginx", "0", "-1", "", "4294967296"] {
            assert!(pid(wrong).unwrap_err().contains("`pidof NAME`"), "{wrong}");
        }
    }
}
