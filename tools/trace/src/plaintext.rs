//! What TLS connections carry, as text for people.

use std::fmt::Write;

/// How bytes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As text; what is not printable ASCII, a line break or a tab is a dot.
    Text,
    /// Sixteen bytes a line, in hexadecimal and as text.
    Hex,
}

/// Bytes in a style; each line ends with a line break.
pub fn shown(bytes: &[u8], style: Style) -> String {
    match style {
        Style::Text => text(bytes),
        Style::Hex => hex(bytes),
    }
}

/// What is left of data when bodies are not shown: of an HTTP/1 message its head, without the values
/// of fields that are secret; of anything else nothing. The second value is the number of bytes that
/// were left out.
pub fn redacted(bytes: &[u8]) -> (Vec<u8>, usize) {
    if !begins_message(bytes) {
        return (Vec::new(), bytes.len());
    }
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let head = end.map_or(bytes, |end| &bytes[..end + 4]);
    let mut kept = Vec::with_capacity(head.len());
    let mut left_out = bytes.len() - head.len();
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        let colon = line.iter().position(|&byte| byte == b':');
        let name = colon.map(|colon| line[..colon].to_ascii_lowercase());
        match (colon, name) {
            (Some(colon), Some(name)) if SECRET_FIELDS.contains(&&name[..]) => {
                kept.extend(&line[..=colon]);
                kept.extend(b" ...\r\n");
                left_out += line.len() - colon - 1;
            }
            _ => kept.extend(line),
        }
    }
    (kept, left_out)
}

/// Whether this is the beginning of a request or an answer of HTTP/1 (RFC 9112, 2.1).
fn begins_message(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|&byte| byte == b'\r')
        .next()
        .unwrap_or_default();
    line.starts_with(b"HTTP/1.") || line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0")
}

fn text(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len() + 1);
    for &byte in bytes {
        match byte {
            b'\n' | b'\t' | b' '..=b'~' => shown.push(char::from(byte)),
            b'\r' => {}
            _ => shown.push('.'),
        }
    }
    if !shown.is_empty() && !shown.ends_with('\n') {
        shown.push('\n');
    }
    shown
}

fn hex(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for (line, bytes) in bytes.chunks(16).enumerate() {
        let _ = write!(shown, "{:06x} ", line * 16);
        for at in 0..16 {
            match bytes.get(at) {
                Some(byte) => {
                    let _ = write!(shown, " {byte:02x}");
                }
                None => shown.push_str("   "),
            }
        }
        shown.push_str("  ");
        for &byte in bytes {
            let is_shown = (b' '..=b'~').contains(&byte);
            shown.push(if is_shown { char::from(byte) } else { '.' });
        }
        shown.push('\n');
    }
    shown
}

/// Fields of HTTP whose values let others act for a user.
const SECRET_FIELDS: [&[u8]; 5] = [
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"x-api-key",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_steer_a_terminal() {
        assert_eq!(shown(b"a\r\nb\x1b[2J\x9b\t", Style::Text), "a\nb.[2J.\t\n");
        assert_eq!(shown(b"", Style::Text), "");
    }

    #[test]
    fn hexadecimal_lines_have_sixteen_bytes() {
        let bytes: Vec<u8> = (60..78).collect();
        let lines = shown(&bytes, Style::Hex);
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(
            lines[0],
            "000000  3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b  <=>?@ABCDEFGHIJK"
        );
        assert_eq!(lines[1], format!("000010  4c 4d{}  LM", " ".repeat(14 * 3)));
    }

    #[test]
    fn bodies_and_secrets_are_left_out() {
        let request = b"POST /a HTTP/1.1\r\nHost: a\r\nCookie: id=1\r\n\r\nname=value";
        let (kept, left_out) = redacted(request);
        assert_eq!(kept, b"POST /a HTTP/1.1\r\nHost: a\r\nCookie: ...\r\n\r\n");
        assert_eq!(left_out, 10 + " id=1\r\n".len());
        assert_eq!(redacted(b"HTTP/1.1 200 OK\r\n\r\nbody").1, 4);
        assert_eq!(redacted(b"\x00\x01 frames of HTTP/2"), (Vec::new(), 19));
        assert_eq!(redacted(b""), (Vec::new(), 0));
    }
}
