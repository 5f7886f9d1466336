//! Protocols that begin in plain text, and in which the client asks for TLS.

use crate::error::Fault;
use crate::names::{UnknownName, named};
use std::str::FromStr;

/// Protocol in which a client asks for TLS before its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartTls {
    /// Mail between servers, and submitted mail (RFC 3207).
    Smtp,
    /// Mail that is read on the server (RFC 9051, section 6.2.1).
    Imap,
    /// PostgreSQL, and poolers before it: the message SSLRequest.
    Postgres,
}

impl StartTls {
    fn steps(self) -> &'static [Step] {
        match self {
            Self::Smtp => {
                const {
                    &[
                        Step::lines("", "220-", "220"),
                        Step::lines("EHLO widelane-load\r\n", "250-", "250"),
                        Step::lines("STARTTLS\r\n", "220-", "220"),
                    ]
                }
            }
            Self::Imap => const { &[Step::lines("", "", "* OK"), Step::lines("a STARTTLS\r\n", "* ", "a OK")] },
            // Length and code of the message (PostgreSQL's documentation, "Message Formats").
            Self::Postgres => &[Step {
                says: b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
                continues: b"",
                agrees: b"S",
                is_line: false,
            }],
        }
    }
}

impl FromStr for StartTls {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let all = ["smtp", "imap", "postgres"].into_iter();
        Ok(match named("protocol", name, all, |one| one == name)? {
            "smtp" => Self::Smtp,
            "imap" => Self::Imap,
            _ => Self::Postgres,
        })
    }
}

/// One message of the client, and the server's reply.
#[derive(Debug)]
struct Step {
    says: &'static [u8],
    /// Beginning of lines that come before the last one of a reply; empty if there are none.
    continues: &'static [u8],
    /// Beginning of the last line of a reply that agrees.
    agrees: &'static [u8],
    /// True if replies are lines; otherwise they are as long as `agrees`.
    is_line: bool,
}

impl Step {
    const fn lines(says: &'static str, continues: &'static str, agrees: &'static str) -> Self {
        Self {
            says: says.as_bytes(),
            continues: continues.as_bytes(),
            agrees: agrees.as_bytes(),
            is_line: true,
        }
    }
}

/// The plain text of one connection.
#[derive(Debug)]
pub(crate) struct Dialogue {
    /// The step whose reply is awaited, and those behind it.
    steps: &'static [Step],
    /// Bytes to be sent now.
    pub(crate) unsent: &'static [u8],
    /// Part of a reply.
    reply: Vec<u8>,
    received: usize,
}

impl Dialogue {
    pub(crate) fn new(protocol: StartTls) -> Self {
        let steps = protocol.steps();
        Self {
            steps,
            unsent: steps[0].says,
            reply: Vec::new(),
            received: 0,
        }
    }

    /// Notes that so many of the bytes were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.unsent = &self.unsent[count..];
    }

    /// Reads more bytes of the server. True once TLS begins.
    ///
    /// Refuses what comes behind the server's agreement: it would be read as if it had come through TLS.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        self.received += bytes.len();
        if self.received > MOST_RECEIVED {
            return Err(Fault::StartTls("the server's reply has no end".into()));
        }
        for &byte in bytes {
            let Some((step, rest)) = self.steps.split_first() else {
                return Err(Fault::StartTls(
                    "the server sends plain text behind its agreement to TLS".into(),
                ));
            };
            self.reply.push(byte);
            let whole = match step.is_line {
                true => byte == b'\n',
                false => self.reply.len() == step.agrees.len(),
            };
            if !whole {
                continue;
            }
            let reply = std::mem::take(&mut self.reply);
            if !step.continues.is_empty() && reply.starts_with(step.continues) {
                continue;
            }
            if !reply.starts_with(step.agrees) {
                let reply = reply[..reply.len().min(MOST_SHOWN)].trim_ascii().escape_ascii();
                return Err(Fault::StartTls(format!("the server answers `{reply}`")));
            }
            self.steps = rest;
            self.unsent = rest.first().map_or(&[], |next| next.says);
        }
        Ok(self.steps.is_empty())
    }
}

/// Bytes of all replies. Greetings and lists of abilities are far shorter.
const MOST_RECEIVED: usize = 16 * 1024;
/// Bytes of a refusal in a message.
const MOST_SHOWN: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    const SMTP: &str = "220-mail.test\r\n220 ready\r\n250-mail.test\r\n250-STARTTLS\r\n250 HELP\r\n220 go on\r\n";
    const IMAP: &str = "* OK ready\r\n* CAPABILITY IMAP4rev1\r\na OK begin\r\n";

    /// Feeds `text` in pieces of every size: what the client says if TLS begins, or the fault.
    fn outcome(protocol: StartTls, text: &str) -> Result<Option<Vec<u8>>, String> {
        let outcomes: Vec<_> = (1..=text.len())
            .map(|size| {
                let mut dialogue = Dialogue::new(protocol);
                let mut said = Vec::new();
                let mut begins = false;
                for piece in text.as_bytes().chunks(size) {
                    said.extend(dialogue.unsent);
                    dialogue.sent(dialogue.unsent.len());
                    begins = dialogue.feed(piece).map_err(|fault| fault.to_string())?;
                }
                Ok(begins.then_some(said))
            })
            .collect();
        let refused = |one: &Result<_, String>| one.is_err();
        assert!(
            outcomes.iter().all(|one| refused(one) == refused(&outcomes[0])),
            "{outcomes:?}"
        );
        outcomes[0].clone()
    }

    #[test]
    fn the_client_says_what_the_protocol_wants_and_waits_for_whole_replies() {
        let said = |protocol, text| outcome(protocol, text).expect("no fault").expect("TLS begins");
        assert_eq!(said(StartTls::Smtp, SMTP), b"EHLO widelane-load\r\nSTARTTLS\r\n");
        assert_eq!(said(StartTls::Imap, IMAP), b"a STARTTLS\r\n");
        assert_eq!(said(StartTls::Postgres, "S"), b"\0\0\0\x08\x04\xd2\x16\x2f");
        for end in 1..SMTP.len() {
            assert_eq!(outcome(StartTls::Smtp, &SMTP[..end]), Ok(None), "{end} bytes");
        }
    }

    #[test]
    fn refusals_and_what_comes_in_plain_text_behind_the_agreement_are_faults() {
        for (protocol, text) in [
            (StartTls::Smtp, "554 go away\r\n"),
            (StartTls::Smtp, "220 ready\r\n250 mail.test\r\n454 not now\r\n"),
            (StartTls::Imap, "* OK ready\r\na BAD what\r\n"),
            (StartTls::Imap, "* BYE\r\n"),
            (StartTls::Postgres, "N"),
            (StartTls::Postgres, "S\x16"),
        ] {
            assert!(outcome(protocol, text).is_err(), "{text:?}");
            let behind = format!("{SMTP}250 injected\r\n");
            assert!(outcome(StartTls::Smtp, &behind).is_err());
        }
    }

    #[test]
    fn a_reply_has_an_end_and_what_is_shown_of_it_too() {
        let endless = "250-more\r\n".repeat(MOST_RECEIVED / 10 + 1);
        let mut dialogue = Dialogue::new(StartTls::Smtp);
        assert!(dialogue.feed(b"220 ready\r\n").is_ok_and(|begins| !begins));
        assert!(dialogue.feed(endless.as_bytes()).is_err());
        let long = format!("554 {}\r\n", "\x1b".repeat(1000));
        let fault = Dialogue::new(StartTls::Smtp)
            .feed(long.as_bytes())
            .expect_err("a refusal");
        assert!(format!("{fault:?}").len() < 1000 && !format!("{fault:?}").contains('\x1b'));
    }
}
