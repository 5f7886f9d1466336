//! Overload of a server between two looks at it.

use serde::Serialize;
use widelane_status_tool::Overload as Counted;

/// Overload of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overload {
    /// Workers, or listening sockets of a server with the provider, that are under overload now.
    pub now: u64,
    /// Number of times that one of them came under overload.
    pub begun: u64,
    /// Clients a second that went away before they were served.
    pub gone: f64,
    /// Clients a second that were refused, because they had waited for too long.
    pub refused: f64,
    /// Milliseconds below which half of the waits were; `None` if they are not known.
    pub p50_below_ms: Option<f64>,
    /// Milliseconds below which 99 of 100 were.
    pub p99_below_ms: Option<f64>,
}

impl Overload {
    /// Overload since the page of a process said `before`, `seconds` ago.
    pub(crate) fn of_page(before: &Counted, after: &Counted, seconds: f64) -> Self {
        let since = after.since(before);
        let wait = |percent| Some(since.wait(percent)? as f64);
        Self {
            now: since.now,
            begun: since.begun,
            gone: since.gone as f64 / seconds,
            refused: since.refused as f64 / seconds,
            p50_below_ms: wait(50),
            p99_below_ms: wait(99),
        }
    }

    /// A sentence, unless there is nothing to say.
    pub(crate) fn words(&self) -> Option<String> {
        let dropped = self.gone + self.refused;
        if self.now == 0 && self.begun == 0 && dropped == 0.0 {
            return None;
        }
        let mut words = format!(
            "{}: clients gone {:.0}/s, refused {:.0}/s",
            match (self.now, self.begun) {
                (0, 0) => "no overload",
                (0, _) => "overload, over again",
                _ => "overload",
            },
            self.gone,
            self.refused
        );
        if let (Some(half), Some(most)) = (self.p50_below_ms, self.p99_below_ms) {
            words += &format!("; waits: half below {half} ms, 99 of 100 below {most} ms");
        }
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_is_shown_while_it_lasts_and_when_it_was_short() {
        let mut before = Counted::default();
        assert_eq!(Overload::of_page(&before, &before, 1.0).words(), None);
        (before.begun, before.gone, before.waits[7]) = (1, 100, 9);
        assert_eq!(Overload::of_page(&before, &before, 1.0).words(), None);
        let mut after = before.clone();
        (after.now, after.begun, after.gone) = (1, 2, 120);
        (after.waits[0], after.waits[3]) = (98, 2);
        assert_eq!(
            Overload::of_page(&before, &after, 2.0).words().as_deref(),
            Some("overload: clients gone 10/s, refused 0/s; waits: half below 8 ms, 99 of 100 below 64 ms")
        );
        after.now = 0;
        let words = Overload::of_page(&before, &after, 2.0).words();
        assert!(words.is_some_and(|words| words.starts_with("overload, over again: ")));
        after.begun = before.begun;
        let words = Overload::of_page(&before, &after, 2.0).words();
        assert!(words.is_some_and(|words| words.starts_with("no overload: clients gone 10/s")));
    }
}
