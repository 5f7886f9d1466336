//! Formats of metrics: OpenMetrics for those who ask for it, the older text of Prometheus for all others.

use std::collections::HashSet;
use std::fmt::Write;

/// A form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `text/plain; version=0.0.4`, which all that read metrics know.
    Classic,
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
}

impl Format {
    /// By the fields `Accept` of a request (RFC 9110, section 12.5.1). Who names OpenMetrics, and does not want the
    /// other one more, gets it. Who can take neither gets the other one all the same: an error instead would help no
    /// reader.
    pub(crate) fn asked_for<'a>(accept: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut open = 0;
        // The more is named, the more it counts: of `*/*`, `text/*`, `text/plain` the last one.
        let mut classic: [Option<u16>; 3] = [None; 3];
        let ranges = accept.flat_map(|field| split(field, b','));
        for range in ranges.filter_map(MediaRange::read) {
            match (&range.name[..], &range.version[..]) {
                ("application/openmetrics-text", "" | "1.0.0" | "0.0.1") => {
                    open = range.weight.max(open);
                }
                ("text/plain", "" | "0.0.4") => classic[2] = Some(range.weight),
                ("text/*", _) => classic[1] = Some(range.weight),
                ("*/*", _) => classic[0] = Some(range.weight),
                _ => {}
            }
        }
        let classic = classic.into_iter().flatten().next_back().unwrap_or(0);
        match open > 0 && open >= classic {
            true => Self::OpenMetrics,
            false => Self::Classic,
        }
    }
}

/// One item of `Accept`.
struct MediaRange {
    /// In lower case.
    name: String,
    version: String,
    /// In thousandths.
    weight: u16,
}

impl MediaRange {
    fn read(range: &[u8]) -> Option<Self> {
        let mut parts = split(range, b';').map(|part| String::from_utf8_lossy(part));
        let mut read = Self {
            name: parts.next()?.trim().to_ascii_lowercase(),
            version: String::new(),
            weight: 1000,
        };
        for part in parts {
            let (name, value) = part.split_once('=')?;
            match name.trim() {
                name if name.eq_ignore_ascii_case("q") => read.weight = weight(value.trim())?,
                name if name.eq_ignore_ascii_case("version") => {
                    read.version = value.trim().trim_matches('"').to_owned();
                }
                _ => {}
            }
        }
        Some(read)
    }
}

/// A weight (RFC 9110, section 12.4.2): 0 to 1 with up to three digits behind the point.
fn weight(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = fraction.bytes().all(|digit| digit.is_ascii_digit()) && fraction.len() <= 3;
    let thousandths = is_number.then(|| format!("{fraction:0<3}").parse::<u16>().ok())??;
    match (whole, thousandths) {
        ("0", thousandths) => Some(thousandths),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

/// The parts of a list, in which quoted text may have the separator.
fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    text.split(move |&byte| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        is_escaped = is_quoted && byte == b'\\';
        is_quoted ^= byte == b'"';
        byte == separator && !is_quoted
    })
}

/// A page of OpenMetrics in the older form. There, a counter is declared with the ending `_total` that its samples
/// have, and the page has no mark at its end.
pub(crate) fn classic(page: &str) -> String {
    let declared = |line: &str, what: &str| {
        let (name, rest) = line.strip_prefix(what)?.split_once(' ')?;
        Some((name.to_owned(), rest.to_owned()))
    };
    let types = page.lines().filter_map(|line| declared(line, TYPE));
    let counters: HashSet<_> = types
        .filter(|(_, kind)| kind == "counter")
        .map(|(name, _)| name)
        .collect();
    let mut out = String::with_capacity(page.len());
    for line in page.lines().filter(|line| *line != END && !line.starts_with(UNIT)) {
        let found = [HELP, TYPE]
            .into_iter()
            .find_map(|what| Some((what, declared(line, what)?)));
        let written = match found {
            Some((what, (name, rest))) => {
                let ending = if counters.contains(&name) { "_total" } else { "" };
                let rest = match (what, &rest[..]) {
                    (TYPE, "unknown") => "untyped",
                    (_, rest) => rest,
                };
                writeln!(out, "{what}{name}{ending} {rest}")
            }
            None => writeln!(out, "{line}"),
        };
        // Writing into memory does not fail.
        debug_assert!(written.is_ok());
    }
    out
}

const HELP: &str = "# HELP ";
const TYPE: &str = "# TYPE ";
const UNIT: &str = "# UNIT ";
const END: &str = "# EOF";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        use Format::{Classic, OpenMetrics};
        for (accept, expected) in [
            (&[][..], Classic),
            (&[""], Classic),
            (&["*/*"], Classic),
            (&["application/json"], Classic),
            (&["application/openmetrics-text"], OpenMetrics),
            (
                &["Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8"],
                OpenMetrics,
            ),
            (&["application/openmetrics-text; version=2.0.0"], Classic),
            (&["application/openmetrics-text;q=0"], Classic),
            (&["application/openmetrics-text;q=0.5, text/plain"], Classic),
            (&["text/plain;q=0.5, application/openmetrics-text;q=0.6"], OpenMetrics),
            (&["text/plain;q=0.5", "application/openmetrics-text;q=0.6"], OpenMetrics),
            (&["application/openmetrics-text;q=0.3, text/*;q=0.2, */*"], OpenMetrics),
            (&["application/openmetrics-text;q=0.3, */*;q=0.4"], Classic),
            (&["x/y;a=\",application/openmetrics-text,\""], Classic),
            (&["application/openmetrics-text;q=2"], Classic),
            (&["application/openmetrics-text;q=1.000"], OpenMetrics),
            // Prometheus 2.42, and a 3.
            (
                &[
                    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                   text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ],
                OpenMetrics,
            ),
            (
                &[
                    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;\
                   q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,\
                   */*;q=0.2",
                ],
                Classic,
            ),
        ] {
            let fields = accept.iter().map(|field| field.as_bytes());
            assert_eq!(Format::asked_for(fields), expected, "{accept:?}");
        }
    }

    #[test]
    fn the_older_form_declares_what_its_samples_are_called() {
        let page = "# HELP a_bytes What a_bytes counts.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                    a_bytes_total{x=\"# EOF\"} 1\n# HELP g A gauge.\n# TYPE g gauge\ng 2\n\
                    # TYPE u unknown\nu 3\n# EOF\n";
        let expected = "# HELP a_bytes_total What a_bytes counts.\n# TYPE a_bytes_total counter\n\
                        a_bytes_total{x=\"# EOF\"} 1\n# HELP g A gauge.\n# TYPE g gauge\ng 2\n\
                        # TYPE u untyped\nu 3\n";
        assert_eq!(classic(page), expected);
    }
}
