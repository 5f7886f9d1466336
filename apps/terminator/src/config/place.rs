//! Where a key stands in the text of a file.

use std::ops::Range;

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
        let Some((found, value)) = table.and_then(|table| table.get_key_value(name)) else {
            break;
        };
        offset = Some(found.span().start);
        let mut value = value;
        for index in indices
            .split('[')
            .filter_map(|index| index.trim_end_matches(']').parse().ok())
        {
            let index: usize = index;
            match value.get_ref() {
                DeValue::Array(array) => match array.get(index) {
                    Some(item) => value = item,
                    None => break,
                },
                _ => break,
            }
            offset = Some(value.span().start);
        }
        table = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        };
    }
    offset.map(|offset| line_at(text, offset))
}

/// The key whose value contains `span`.
pub(super) fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
    fn walk(value: &DeValue<'_>, span: &Range<usize>, path: &mut String) {
        match value {
            DeValue::Table(table) => walk_table(table, span, path),
            DeValue::Array(array) => {
                for (index, item) in array.iter().enumerate() {
                    if covers(&item.span(), span) || holds(item.get_ref(), span) {
                        path.push_str(&format!("[{index}]"));
                        return walk(item.get_ref(), span, path);
                    }
                }
            }
            _ => {}
        }
    }
    fn walk_table(table: &DeTable<'_>, span: &Range<usize>, path: &mut String) {
        for (key, value) in table {
            if covers(&key.span(), span) || covers(&value.span(), span) || holds(value.get_ref(), span) {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key.get_ref());
                return walk(value.get_ref(), span, path);
            }
        }
    }
    /// A `[table]`'s own span is its header only, so its members are looked at as well.
    fn holds(value: &DeValue<'_>, span: &Range<usize>) -> bool {
        match value {
            DeValue::Table(table) => table.iter().any(|(key, value)| {
                covers(&key.span(), span) || covers(&value.span(), span) || holds(value.get_ref(), span)
            }),
            DeValue::Array(array) => array
                .iter()
                .any(|item| covers(&item.span(), span) || holds(item.get_ref(), span)),
            _ => false,
        }
    }
    fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
        outer.start <= inner.start && inner.end <= outer.end
    }
    let document = DeTable::parse(text).ok()?;
    let mut path = String::new();
    walk_table(document.get_ref(), span, &mut path);
    (!path.is_empty()).then_some(path)
}
