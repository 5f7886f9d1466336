//! Finds the sections of a PEM text.

use std::ops::Range;

use crate::{Fault, is_utf16};

/// Lines between the BEGIN and the END line of a label.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    /// Number of the first line.
    pub(crate) line: usize,
    pub(crate) label: &'a str,
    /// The lines between the first and the last, without the header.
    pub(crate) body: &'a [u8],
    /// The name of a header (RFC 1421), and what it says.
    pub(crate) header: Option<(&'a [u8], &'a [u8])>,
}

impl Section<'_> {
    /// A fault of this section. `what` goes on behind its name.
    pub(crate) fn fault(&self, what: &str, remedy: &str) -> Fault {
        let problem = format!("the section `{}` {what}", self.label);
        Fault::at(self.line, problem, remedy)
    }

    /// The first line in it that has other characters than those of base64.
    pub(crate) fn line_that_is_no_base64(&self) -> Option<usize> {
        let digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        let bad = |line: &[u8]| !trim(line).iter().all(|byte| digit(byte) || blank(byte));
        let place = Lines::new(self.body).position(|line| bad(&self.body[line]))?;
        Some(self.line + 1 + place)
    }
}

/// All sections of a text.
pub(crate) fn sections(text: &[u8]) -> Result<Vec<Section<'_>>, Fault> {
    if is_utf16(text) {
        return Err(Fault::whole(
            "is text in UTF-16",
            "convert it: iconv -f UTF-16 -t UTF-8 OLD.pem > NEW.pem",
        ));
    }
    let mut found = Vec::new();
    let mut begun: Option<(usize, &str, usize)> = None;
    for (index, range) in Lines::new(text).enumerate() {
        let number = index + 1;
        let line = trim(&text[range.clone()]);
        begun = match (begun, Line::of(line)) {
            (None, Line::Text) if is_inside_of_section(line) => {
                let problem = "this belongs into a section, whose first line is missing";
                return Err(Fault::at(number, problem, ANEW));
            }
            (None, Line::Text) => None,
            (None, Line::Begin(label)) => Some((number, label, range.end)),
            (None, Line::End(label)) => {
                let problem = format!("the section `{label}` ends here, and has not begun");
                return Err(Fault::at(number, problem, ANEW));
            }
            (Some(begun), Line::Text) => Some(begun),
            (Some((line, label, start)), Line::End(ended)) if ended == label => {
                found.push(section(line, label, &text[start..range.start]));
                None
            }
            (Some((line, label, _)), Line::End(other)) => {
                let problem = format!("the section `{label}` of line {line} ends as `{other}` here");
                return Err(Fault::at(number, problem, ANEW));
            }
            (Some((line, label, _)), Line::Begin(other)) => {
                let problem = format!("the section `{other}` begins here, and `{label}` of line {line} has not ended");
                return Err(Fault::at(number, problem, ANEW));
            }
            (_, Line::Joined) => {
                let problem = "one section ends and another one begins on this line";
                let remedy =
                    "put a line break before `-----BEGIN` (when files are joined, the first must end with one)";
                return Err(Fault::at(number, problem, remedy));
            }
            (_, Line::Damaged) => {
                let problem = "this is meant as the first or last line of a section, and is none";
                let remedy = "write it alone on its line, for example `-----BEGIN CERTIFICATE-----`, or remove the \
                              section";
                return Err(Fault::at(number, problem, remedy));
            }
        };
    }
    match begun {
        None => Ok(found),
        Some((line, label, _)) => {
            let problem = format!("the section `{label}` begins and does not end: the file is cut off");
            Err(Fault::at(line, problem, ANEW))
        }
    }
}

fn section<'a>(line: usize, label: &'a str, inside: &'a [u8]) -> Section<'a> {
    let first = Lines::new(inside).next().map(|range| &inside[range]);
    let colon = first.and_then(|line| line.iter().position(|&byte| byte == b':'));
    let header = first.zip(colon);
    Section {
        line,
        label,
        body: inside,
        header: header.map(|(line, colon)| (trim(&line[..colon]), trim(&line[colon + 1..]))),
    }
}

/// Kind of a line, without the whitespace around it.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Begin(&'a str),
    End(&'a str),
    /// The last line of a section and the first of the next without a line break between.
    Joined,
    /// Meant as the first or last line of a section.
    Damaged,
    Text,
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8]) -> Self {
        let label = |begin: &[u8]| {
            let label = line.strip_prefix(begin)?.strip_suffix(DASHES)?;
            let known = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
            let is_label = label.len() <= LONGEST_LABEL
                && label.iter().all(known)
                && !label.starts_with(b"-")
                && !label.ends_with(b"-")
                && !contains(label, b"--");
            std::str::from_utf8(label).ok().filter(|_| is_label)
        };
        if let Some(label) = label(BEGIN) {
            return Self::Begin(label);
        }
        if let Some(label) = label(END) {
            return Self::End(label);
        }
        if contains(line, BEGIN) && contains(line, END) {
            return Self::Joined;
        }
        match is_meant_as_boundary(line) {
            true => Self::Damaged,
            false => Self::Text,
        }
    }
}

/// Returns whether a line that is no boundary looks like one to people: fewer or other dashes, other letters, something
/// before or behind it.
fn is_meant_as_boundary(line: &[u8]) -> bool {
    if contains(line, b"-----BEGIN") || contains(line, b"-----END") {
        return true;
    }
    if NAKED.iter().any(|naked| line.eq_ignore_ascii_case(naked)) {
        return true;
    }
    // Most lines need no copy to tell; and there may be a key in this one.
    let dash = |byte: Option<&u8>| byte.is_some_and(|byte| *byte == b'-' || !byte.is_ascii());
    if !dash(line.first()) && !dash(line.last()) {
        return false;
    }
    let text = String::from_utf8_lossy(line).to_uppercase();
    let is_dash = |c: char| matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{ad}');
    let has_dashes = text.starts_with(is_dash) || text.ends_with(is_dash);
    let word = text.trim_start_matches(|c: char| is_dash(c) || c.is_whitespace());
    let begins = word.starts_with("BEGIN") || word.starts_with("END");
    has_dashes && begins && NOUNS.iter().any(|noun| text.contains(noun))
}

/// Returns whether a line begins the contents of a section: the tag of a SEQUENCE and a length, in base64.
fn is_inside_of_section(line: &[u8]) -> bool {
    let digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    line.starts_with(b"MI") && line.len() >= 40 && line.iter().all(digit)
}

/// The lines of a text, each with what ends it: a line feed, a carriage return, or both.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }
}

impl Iterator for Lines<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let ends = |byte: &u8| *byte == b'\n' || *byte == b'\r';
        let length = match rest.iter().position(ends) {
            None => rest.len(),
            Some(end) if rest[end..].starts_with(b"\r\n") => end + 2,
            Some(end) => end + 1,
        };
        let start = self.at;
        self.at += length;
        Some(start..self.at)
    }
}

/// A line without what is around it: whitespace, also before it, and the byte order mark, which is in the
/// middle of a file that was made of several.
fn trim(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(MARK).unwrap_or(line);
    line.trim_ascii()
}

fn blank(byte: &u8) -> bool {
    byte.is_ascii_whitespace()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// U+FEFF in UTF-8.
pub(crate) const MARK: &[u8] = b"\xef\xbb\xbf";
const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// Nouns in the labels of sections.
const NOUNS: [&str; 7] = [
    "CERTIFICATE",
    "PRIVATE KEY",
    "PUBLIC KEY",
    "CRL",
    "PKCS",
    "CMS",
    "PARAMETERS",
];
/// Boundaries without any dashes.
const NAKED: [&[u8]; 6] = [
    b"BEGIN CERTIFICATE",
    b"END CERTIFICATE",
    b"BEGIN PRIVATE KEY",
    b"END PRIVATE KEY",
    b"BEGIN X509 CRL",
    b"END X509 CRL",
];
/// Longest label, in characters. Known labels have at most 24.
const LONGEST_LABEL: usize = 64;
const ANEW: &str = "write this file anew";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_mean_as_a_boundary_is_told_from_commentary() {
        for damaged in [
            "----BEGIN CERTIFICATE-----",
            "-----BEGIN CERTIFICATE----",
            "------BEGIN CERTIFICATE-----",
            "-----BEGIN CERTIFICATE------",
            "-----begin certificate-----",
            "----- BEGIN CERTIFICATE -----",
            "-----BEGINCERTIFICATE-----",
            "-----BEGIN CERTIFICATE",
            "BEGIN CERTIFICATE-----",
            "\u{2014}\u{2014}-BEGIN CERTIFICATE\u{2014}\u{2014}-",
            "AAAA-----END CERTIFICATE-----",
            "-----END CERTIFICATE-----AAAA",
            "-----END CERTIFICATE-----,",
            "\"-----BEGIN CERTIFICATE-----\"",
            "# -----BEGIN CERTIFICATE-----",
            "-- end certificate --",
            "BEGIN CERTIFICATE",
        ] {
            assert_eq!(Line::of(damaged.as_bytes()), Line::Damaged, "{damaged}");
        }
        for text in [
            "",
            "-----",
            "# -------------------------",
            "# begin certificate of a.test",
            "the end-of-life certificates end here",
            "Bag Attributes: <No Attributes>",
            "==========================",
            "\u{fc}ber",
            "- the certificate of b.test -",
        ] {
            assert_eq!(Line::of(text.as_bytes()), Line::Text, "{text}");
        }
        let joined = b"-----END CERTIFICATE----------BEGIN CERTIFICATE-----";
        assert_eq!(Line::of(joined), Line::Joined);
    }

    #[test]
    fn lines_end_in_three_ways() {
        let lines = |text: &[u8]| Lines::new(text).map(|line| line.end).collect::<Vec<_>>();
        assert_eq!(lines(b"a\nb\r\nc\rd"), [2, 5, 7, 8]);
        assert_eq!(lines(b"\n\r\r\n"), [1, 2, 4]);
        assert_eq!(lines(b""), [0; 0]);
    }
}
