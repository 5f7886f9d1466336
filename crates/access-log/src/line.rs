//! The text of a line.
//!
//! Whatever a client has sent stays within its value and within the line: in both formats it is in
//! quotes, and all but printable ASCII is escaped as in JSON.

use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;

use super::entry::{Alert, Fields, Side};
use super::options::LogFormat;

/// Appends the line of a connection.
pub(super) fn connection(out: &mut Vec<u8>, format: LogFormat, entry: &Fields) {
    let mut line = Line::begin(out, format, entry.time);
    line.word("client", Some(address(entry.client)));
    line.word("listener", Some(address(entry.listener)));
    line.text("server_name", entry.server_name.as_deref());
    line.word("tls", entry.version);
    line.word("cipher_suite", entry.suite);
    line.word("group", entry.group);
    line.value("resumed", entry.resumed);
    let alpn = entry.alpn.as_deref().map(String::from_utf8_lossy);
    line.text("alpn", alpn.as_deref());
    line.word("client_certificate_sha256", entry.certificate.map(hex));
    line.text("backend", entry.backend.as_deref());
    line.value("backend_tries", Some(entry.tries));
    line.value("received", Some(entry.received));
    line.value("sent", Some(entry.sent));
    line.value("handshake_ms", entry.handshake.map(milliseconds));
    line.value("duration_ms", Some(milliseconds(entry.duration)));
    let [outcome, end] = entry.end();
    line.word("outcome", Some(outcome));
    line.word("end", Some(end));
    let side = entry.closed_first.map(|side| match side {
        Side::Client => "client",
        Side::Backend => "backend",
    });
    line.word("closed_first", side);
    let (sent, received) = match &entry.alert {
        None => (None, None),
        Some(Alert::Sent(alert)) => (Some(alert), None),
        Some(Alert::Received(alert)) => (None, Some(alert)),
    };
    line.word("alert_sent", sent);
    line.word("alert_received", received);
    line.text("reason", entry.reason.as_deref());
    line.end();
}

/// Appends a line that says how many lines are missing.
pub(super) fn lost(out: &mut Vec<u8>, format: LogFormat, time: SystemTime, lines: u64) {
    let mut line = Line::begin(out, format, time);
    line.value("lost_lines", Some(lines));
    line.end();
}

struct Line<'a> {
    out: &'a mut Vec<u8>,
    format: LogFormat,
}

impl<'a> Line<'a> {
    fn begin(out: &'a mut Vec<u8>, format: LogFormat, time: SystemTime) -> Self {
        let mut line = Self { out, format };
        match format {
            LogFormat::Json => line.put("{\"time\":"),
            LogFormat::Text => line.put("time="),
        }
        line.put_word(rfc3339(time));
        line
    }

    /// Text of others.
    fn text(&mut self, key: &str, text: Option<&str>) {
        self.key(key);
        match text {
            None => self.put_absent(),
            Some(text) => quote(self.out, text),
        }
    }

    /// A word of ours: it needs no escapes, and in text no quotes.
    fn word(&mut self, key: &str, word: Option<impl Display>) {
        self.key(key);
        match word {
            None => self.put_absent(),
            Some(word) => self.put_word(word),
        }
    }

    /// A number or a truth value.
    fn value(&mut self, key: &str, value: Option<impl Display>) {
        self.key(key);
        match value {
            None => self.put_absent(),
            Some(value) => self.put(value),
        }
    }

    fn end(self) {
        self.out.extend_from_slice(match self.format {
            LogFormat::Json => b"}\n",
            LogFormat::Text => b"\n",
        });
    }

    fn key(&mut self, key: &str) {
        match self.format {
            LogFormat::Json => self.put(format_args!(",\"{key}\":")),
            LogFormat::Text => self.put(format_args!(" {key}=")),
        }
    }

    fn put_word(&mut self, word: impl Display) {
        match self.format {
            LogFormat::Json => self.put(format_args!("\"{word}\"")),
            LogFormat::Text => self.put(word),
        }
    }

    fn put_absent(&mut self) {
        self.put(match self.format {
            LogFormat::Json => "null",
            LogFormat::Text => "-",
        });
    }

    fn put(&mut self, text: impl Display) {
        // Writing into memory does not fail.
        let _ = write!(self.out, "{text}");
    }
}

/// `text` in quotes, as a string of JSON in printable ASCII.
fn quote(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
            ' '..='~' => out.push(character as u8),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push(b'"');
}

/// An IPv4 address also where a socket for both families writes it as IPv6.
fn address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn hex(bytes: [u8; 32]) -> String {
    let mut text = String::with_capacity(64);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
    text
}

fn milliseconds(time: Duration) -> impl Display {
    let micros = time.as_micros();
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

fn rfc3339(time: SystemTime) -> impl Display {
    let time = OffsetDateTime::from(time);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Fields {
        let [client, listener] = ["[::ffff:192.0.2.7]:5", "[2001:db8::1]:443"];
        let mut entry = Fields::new(client.parse().unwrap(), listener.parse().unwrap());
        // 2026-11-25 is day 20782.
        entry.time = SystemTime::UNIX_EPOCH + Duration::from_millis(20_782 * 86_400_000 + 61_009);
        entry.duration = Duration::from_micros(1_234_567);
        entry
    }

    fn line(format: LogFormat, entry: &Fields) -> String {
        let mut out = Vec::new();
        connection(&mut out, format, entry);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_everything() {
        let mut entry = entry();
        assert_eq!(
            line(LogFormat::Text, &entry),
            "time=2026-11-25T00:01:01.009Z client=192.0.2.7:5 listener=[2001:db8::1]:443 server_name=- \
             tls=- cipher_suite=- group=- resumed=- alpn=- client_certificate_sha256=- backend=- \
             backend_tries=0 received=0 sent=0 handshake_ms=- duration_ms=1234.567 outcome=handshake_failed end=stopped \
             closed_first=- alert_sent=- alert_received=- reason=-\n"
        );
        entry.handshake = Some(Duration::from_micros(1007));
        entry.server_name = Some("a.example".into());
        entry.version = Some("1.3");
        entry.suite = Some("TLS_AES_128_GCM_SHA256");
        entry.group = Some("X25519MLKEM768");
        entry.resumed = Some(true);
        entry.alpn = Some((*b"h2").into());
        entry.certificate = Some([0xa5; 32]);
        entry.backend = Some("unix:/run/\"a b\"".into());
        entry.alert = Some(Alert::Received("unknown_ca".into()));
        entry.closed_first = Some(Side::Backend);
        entry.reason = Some("it sends the alert unknown_ca".into());
        assert_eq!(
            line(LogFormat::Json, &entry),
            concat!(
                r#"{"time":"2026-11-25T00:01:01.009Z","client":"192.0.2.7:5","listener":"[2001:db8::1]:443","#,
                r#""server_name":"a.example","tls":"1.3","cipher_suite":"TLS_AES_128_GCM_SHA256","#,
                r#""group":"X25519MLKEM768","resumed":true,"alpn":"h2","client_certificate_sha256":"#,
                r#""a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5","#,
                r#""backend":"unix:/run/\"a b\"","backend_tries":0,"received":0,"sent":0,"handshake_ms":1.007,"#,
                r#""duration_ms":1234.567,"outcome":"handshake_failed","end":"stopped","#,
                r#""closed_first":"backend","alert_sent":null,"alert_received":"unknown_ca","#,
                r#""reason":"it sends the alert unknown_ca"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn text_of_others_stays_in_its_quotes() {
        for (text, quoted) in [
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("\n\r\0\x1b[2J", r#""\u000a\u000d\u0000\u001b[2J""#),
            (r#"","end":"clean"#, r#""\",\"end\":\"clean""#),
            ("\\", r#""\\""#),
            (
                "\u{7f}\u{85}\u{e4}\u{2028}\u{1f600}",
                r#""\u007f\u0085\u00e4\u2028\ud83d\ude00""#,
            ),
        ] {
            let mut out = Vec::new();
            quote(&mut out, text);
            assert_eq!(String::from_utf8(out).unwrap(), quoted);
        }
        let every: String = (0..=0x2100).filter_map(char::from_u32).collect();
        for format in [LogFormat::Json, LogFormat::Text] {
            let mut entry = entry();
            entry.server_name = Some(every.as_str().into());
            entry.alpn = Some(every.bytes().rev().collect());
            let line = line(format, &entry);
            assert_eq!(line.matches('\n').count(), 1);
            assert!(line.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)));
        }
    }

    #[test]
    fn lost_lines_have_a_line() {
        let time = SystemTime::UNIX_EPOCH;
        for (format, expected) in [
            (
                LogFormat::Json,
                "{\"time\":\"1970-01-01T00:00:00.000Z\",\"lost_lines\":7}\n",
            ),
            (LogFormat::Text, "time=1970-01-01T00:00:00.000Z lost_lines=7\n"),
        ] {
            let mut out = Vec::new();
            lost(&mut out, format, time, 7);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
