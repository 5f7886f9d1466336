//! Names of the numbers in TLS messages, by the registries of IANA.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A version: `TLSv1.3`, or `0x7f1c` for one without a name.
pub fn version(number: u16) -> String {
    match number {
        0x0300 => "SSLv3".to_owned(),
        0x0301 => "TLSv1".to_owned(),
        0x0302 => "TLSv1.1".to_owned(),
        0x0303 => "TLSv1.2".to_owned(),
        0x0304 => "TLSv1.3".to_owned(),
        _ => format!("{number:#06x}"),
    }
}

/// A cipher suite: `TLS_AES_128_GCM_SHA256`, or `0x1234` for one that the table does not have.
pub fn cipher(number: u16) -> String {
    named("cipher", number).map_or_else(|| format!("{number:#06x}"), str::to_owned)
}

/// A group of the key exchange: `x25519`, or `0x1234` for one that the table does not have.
pub fn group(number: u16) -> String {
    named("group", number).map_or_else(|| format!("{number:#06x}"), str::to_owned)
}

/// The name of an alert, `handshake_failure`, or its number.
pub fn alert(description: u8) -> String {
    named("alert", description.into()).map_or_else(|| description.to_string(), str::to_owned)
}

/// Returns whether an alert has a name.
pub(super) fn is_alert(description: u8) -> bool {
    named("alert", description.into()).is_some()
}

fn named(registry: &str, number: u16) -> Option<&'static str> {
    static NAMES: LazyLock<HashMap<(&str, u16), &str>> = LazyLock::new(|| rows().collect());
    NAMES.get(&(registry, number)).copied()
}

/// Registry, number and name of each row.
fn rows() -> impl Iterator<Item = ((&'static str, u16), &'static str)> {
    let lines = include_str!("names.csv").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (registry, rest) = line.split_once(",0x")?;
        let (number, name) = rest.split_once(',')?;
        Some(((registry, u16::from_str_radix(number, 16).ok()?), name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_number_has_one_name() {
        let numbers: BTreeSet<_> = rows().map(|(number, _)| number).collect();
        let names: BTreeSet<_> = rows().map(|((registry, _), name)| (registry, name)).collect();
        let lines = include_str!("names.csv").lines().count() - 1;
        assert_eq!((numbers.len(), names.len()), (lines, lines));
    }

    #[test]
    fn what_has_no_name_is_a_number() {
        assert_eq!(cipher(0x1301), "TLS_AES_128_GCM_SHA256");
        assert_eq!(cipher(0x1a1a), "0x1a1a");
        assert_eq!(group(0x11ec), "X25519MLKEM768");
        assert_eq!(group(3), "0x0003");
        assert_eq!(version(0x0304), "TLSv1.3");
        assert_eq!(version(0x7f1c), "0x7f1c");
        assert_eq!((alert(40), alert(7)), ("handshake_failure".into(), "7".into()));
    }
}
