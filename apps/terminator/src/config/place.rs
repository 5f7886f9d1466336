//! Places of keys in the text of a file.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// The line of a key, or of the nearest table around it that exists.
pub(super) fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut offset = None;
    let mut table = Some(document.get_ref());
    for part in key.split('.') {
        let (name, indices) = part.split_once('[').unwrap_or((part, ""));
        let Some((found, mut value)) = table.and_then(|table| table.get_key_value(name)) else {
            break;
        };
        offset = Some(found.span().start);
        for index in indices.split('[') {
            let index = index.trim_end_matches(']').parse::<usize>().ok();
            let Some(item) = index.and_then(|index| value.get_ref().as_array()?.get(index)) else {
                break;
            };
            value = item;
            offset = Some(value.span().start);
        }
        table = value.get_ref().as_table();
    }
    offset.map(|offset| line_at(text, offset))
}

/// The key whose value contains `span`; `None` also of a key without a character.
pub(super) fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
    fn path_to(value: &DeValue<'_>, span: &Range<usize>) -> Option<String> {
        // A `[table]`'s own span is its header only, so its members are looked at as well.
        let part = |name: String, value: &Spanned<DeValue<'_>>, is_here: bool| {
            let inner = path_to(value.get_ref(), span);
            let is_it = is_here || covers(&value.span(), span) || inner.is_some();
            is_it.then(|| name + &inner.unwrap_or_default())
        };
        match value {
            DeValue::Table(table) => table
                .iter()
                .find_map(|(key, value)| part(format!(".{}", key.get_ref()), value, covers(&key.span(), span))),
            DeValue::Array(array) => {
                (array.iter().enumerate()).find_map(|(index, item)| part(format!("[{index}]"), item, false))
            }
            _ => None,
        }
    }
    fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
        outer.start <= inner.start && inner.end <= outer.end
    }
    let document = DeTable::parse(text).ok()?;
    let path = path_to(&DeValue::Table(document.into_inner()), span)?;
    let key = &path[1..];
    (!key.is_empty()).then(|| key.to_owned())
}
