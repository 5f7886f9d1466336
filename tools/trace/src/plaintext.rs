//! Prints the content of TLS connections as text for people.

use std::fmt::Write;

/// Format of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text; a dot stands for each byte that is not printable ASCII, a line break or a tab.
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

/// Rest of data without bodies: of an HTTP/1 message its head, without queries and the values of fields that may be
/// secret; of anything else nothing. The second value is the number of bytes that were left out.
///
/// In doubt, bytes are left out: lines that are no field, and those in which a field goes on.
pub fn redacted(bytes: &[u8]) -> (Vec<u8>, usize) {
    let mut kept = Vec::new();
    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let start = lines.next().unwrap_or_default();
    if !begins_message(start.trim_ascii_end()) {
        return (kept, bytes.len());
    }
    // The version stands behind the target of a request.
    let version = start.iter().rposition(|&byte| byte == b' ');
    let mut shown = without_query(start, version.unwrap_or(start.len()), &mut kept);
    for line in lines {
        let text = line.trim_ascii_end();
        if text.is_empty() {
            kept.extend(line);
            shown += line.len();
            break;
        }
        let colon = text.iter().position(|&byte| byte == b':');
        match colon {
            Some(colon) if !line[0].is_ascii_whitespace() => {
                let name = &line[..=colon];
                shown += match is_secret(name) {
                    true => {
                        kept.extend(name);
                        kept.extend(b" ...\r\n");
                        name.len()
                    }
                    false => without_query(line, line.len(), &mut kept),
                };
            }
            _ => {}
        }
    }
    (kept, bytes.len() - shown)
}

/// Adds a line without what stands from `?` or `#` up to `end`: programs put passwords there, too. Returns how many
/// of its bytes are left.
fn without_query(line: &[u8], end: usize, kept: &mut Vec<u8>) -> usize {
    let query = line[..end].iter().position(|byte| b"?#".contains(byte));
    let Some(query) = query else {
        kept.extend(line);
        return line.len();
    };
    let after = &line[end..];
    kept.extend(&line[..=query]);
    kept.extend(b"...");
    kept.extend(if after.is_empty() { b"\r\n" } else { after });
    query + 1 + after.len()
}

/// Returns whether this line begins a request or an answer of HTTP/1 (RFC 9112, 3 and 4). A body may end in the same
/// call in which a request begins: then the body stands before the method.
fn begins_message(line: &[u8]) -> bool {
    let parts: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    match parts[..] {
        [method, _, version] if METHODS.contains(&method) => version.starts_with(b"HTTP/1."),
        [version, status, ..] => {
            let is_status = status.len() == 3 && status.iter().all(u8::is_ascii_digit);
            version.starts_with(b"HTTP/1.") && is_status
        }
        _ => false,
    }
}

/// Returns whether a field of HTTP may have a value that lets others act for a user.
fn is_secret(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let has = |part: &&[u8]| name.windows(part.len()).any(|window| window == *part);
    SECRET_PARTS.iter().any(has)
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

/// Parts of the names of fields that may be secret: `authorization`, `set-cookie`, `x-csrf-token`, `x-api-key`.
const SECRET_PARTS: [&[u8]; 9] = [
    b"auth",
    b"cookie",
    b"credential",
    b"key",
    b"pass",
    b"secret",
    b"session",
    b"signature",
    b"token",
];

/// The methods of RFC 9110 (9.3), PATCH (RFC 5789), QUERY, and those of WebDAV (RFC 4918, 3253, 5323) that are in use.
const METHODS: [&[u8]; 19] = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"CONNECT",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"QUERY",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
    b"SEARCH",
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

    #[test]
    fn no_form_of_a_message_lets_secrets_through() {
        let shown = |bytes: &[u8]| {
            let (kept, left_out) = redacted(bytes);
            assert!(left_out >= 5, "{kept:?}");
            String::from_utf8(kept).unwrap()
        };
        for (message, expected) in [
            // The end of a body, and the next request.
            ("pass=5EcretGET /st HTTP/1.1\r\nHost: a\r\n\r\n", ""),
            ("5EcretGET /st HTTP/1.1\r\nHost: a\r\n\r\n", ""),
            ("5Ecret /st HTTP/1.1\r\n\r\n", ""),
            // Line breaks alone.
            ("HTTP/1.1 200 OK\nType: x\n\n5Ecret", "HTTP/1.1 200 OK\nType: x\n\n"),
            // A field that goes on.
            (
                "GET / HTTP/1.1\r\nCookie: a;\r\n b=5Ecret\r\nHost: a\r\n",
                "GET / HTTP/1.1\r\nCookie: ...\r\nHost: a\r\n",
            ),
            (
                "GET / HTTP/1.1\r\nReferer: https://a/?x\r\n 5Ecret\r\n",
                "GET / HTTP/1.1\r\nReferer: https://a/?...\r\n",
            ),
            ("GET / HTTP/1.1\r\n5Ecret\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"),
            ("HTTP/1.1 5Ecret\r\n\r\n", ""),
            (
                "GET / HTTP/1.1\r\nauthoriZation : 5Ecret\r\n",
                "GET / HTTP/1.1\r\nauthoriZation : ...\r\n",
            ),
            (
                "GET / HTTP/1.1\r\nX-CSRF-Token:5Ecret",
                "GET / HTTP/1.1\r\nX-CSRF-Token: ...\r\n",
            ),
            ("GET /a?code=5Ecret HTTP/1.1\r\n", "GET /a?... HTTP/1.1\r\n"),
            (
                "HTTP/1.1 302 Found\r\nLocation: https://a/b#t=5Ecret\r\n\r\n",
                "HTTP/1.1 302 Found\r\nLocation: https://a/b#...\r\n\r\n",
            ),
            (
                "HTTP/1.1 302 Found\r\nLink: </a?5Ecret>, b 5Ecret\r\n",
                "HTTP/1.1 302 Found\r\nLink: </a?...\r\n",
            ),
        ] {
            assert_eq!(shown(message.as_bytes()), expected, "{message:?}");
        }
    }
}
