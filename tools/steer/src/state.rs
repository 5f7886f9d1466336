//! Changes of affinities, kept in a file so that another process can undo them.
//!
//! A steerer writes here what it is about to do to a thread, and only then does it. Killed at any
//! point, it leaves a file that names at least every change, and [`crate::restore`] undoes those
//! that are still in place. The file is one line of JSON; here with line breaks:
//!
//! ```json
//! {"version": 2, "state": {
//!   "boot": "5e1c2f0a-77",
//!   "owner": {"tid": 4711, "start": 256000},
//!   "records": [{
//!     "id": {"tid": 4720, "start": 256010}, "pid": 4720, "session": 4720,
//!     "original": "whole", "given": ["0", "1,3-4"]
//!   }]
//! }}
//! ```

use crate::policy::ThreadId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use widelane_affinity::Cpus;

/// The content of a state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The boot in which it was written. In another boot, the file means nothing.
    pub boot: String,
    /// The process that wrote it.
    pub owner: ThreadId,
    /// The threads that were changed, also some that are gone: their children may live.
    pub records: Vec<Record>,
}

/// Changes of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Thread.
    pub id: ThreadId,
    /// Process of the thread.
    pub pid: i32,
    /// Session of the thread, which children share even when their parents are gone.
    pub session: i32,
    /// Affinity before the first change.
    pub original: Original,
    /// Every affinity that it was given, oldest first, none twice.
    pub given: Vec<Cpus>,
}

/// An affinity before it was steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Original {
    /// All CPUs that the thread's cpuset allowed: the thread was not restricted.
    Whole,
    /// Exactly these CPUs, as a user or a program chose.
    Only(Cpus),
}

/// Reason why a text is not a state file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadState {
    /// The text has the format of another version of Widelane.
    #[error("it has the format of another version of widelane")]
    Version,
    /// The text is cut off, or something in it has the wrong form.
    #[error("{0}")]
    Json(String),
    /// A value that no thread can have.
    #[error("its value of {0} is impossible")]
    Value(&'static str),
}

impl State {
    /// The content of the file.
    pub fn to_json(&self) -> String {
        let mut text = json!({"version": VERSION, "state": self}).to_string();
        text.push('\n');
        text
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    ///
    /// When it is not the content of a state file, or one of another version.
    pub fn from_json(text: &str) -> Result<Self, BadState> {
        // The first version had a format of its own.
        if text.starts_with("widelane steer ") {
            return Err(BadState::Version);
        }
        let wrong = |error: serde_json::Error| BadState::Json(error.to_string());
        let mut value: Value = serde_json::from_str(text).map_err(wrong)?;
        if value["version"] != VERSION {
            return Err(BadState::Version);
        }
        let state: Self = serde_json::from_value(value["state"].take()).map_err(wrong)?;
        state.check()?;
        Ok(state)
    }

    /// Finds values that must not be passed to a system call.
    fn check(&self) -> Result<(), BadState> {
        let plain = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        let every = |sound: fn(&Record) -> bool| self.records.iter().all(sound);
        let sound = [
            ("boot", !self.boot.is_empty() && self.boot.bytes().all(plain)),
            // 0 would mean the caller itself.
            ("owner", self.owner.tid > 0),
            ("id", every(|record| record.id.tid > 0)),
            ("pid", every(|record| record.pid > 0)),
            ("session", every(|record| record.session >= 0)),
            ("original", every(|record| record.original.is_some())),
            ("given", every(Record::has_sound_masks)),
        ];
        match sound.into_iter().find(|(_, sound)| !sound) {
            Some((name, _)) => Err(BadState::Value(name)),
            None => Ok(()),
        }
    }
}

impl Record {
    /// Adds a mask to those that it was given.
    pub fn give(&mut self, mask: Cpus) {
        self.given.retain(|given| *given != mask);
        if self.given.len() == MOST_GIVEN {
            self.given.remove(0);
        }
        self.given.push(mask);
    }

    fn has_sound_masks(&self) -> bool {
        let some = (1..=MOST_GIVEN).contains(&self.given.len());
        some && !self.given.iter().any(Cpus::is_empty)
    }
}

impl Original {
    /// Returns whether this is any CPU at all.
    fn is_some(self) -> bool {
        !matches!(self, Self::Only(cpus) if cpus.is_empty())
    }
}

const VERSION: u32 = 2;
const MOST_GIVEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> State {
        let record = |tid, original| Record {
            id: ThreadId { tid, start: 9 },
            pid: 20,
            session: 0,
            original,
            given: vec!["0".parse().unwrap(), "1,3-4".parse().unwrap()],
        };
        State {
            boot: "5e1c2f0a-77".into(),
            owner: ThreadId { tid: 3, start: 8 },
            records: vec![
                record(20, Original::Whole),
                record(21, Original::Only("0-1".parse().unwrap())),
            ],
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let text = sample().to_json();
        let record = |tid, original| {
            format!(r#"{{"given":["0","1,3-4"],"id":{{"start":9,"tid":{tid}}},"original":{original},"#)
                + r#""pid":20,"session":0}"#
        };
        let records = [record(20, r#""whole""#), record(21, r#"{"only":"0-1"}"#)].join(",");
        let state = r#"{"boot":"5e1c2f0a-77","owner":{"start":8,"tid":3},"#;
        let state = format!(r#"{state}"records":[{records}]}}"#);
        assert_eq!(text, format!("{{\"state\":{state},\"version\":2}}\n"));
        assert_eq!(State::from_json(&text), Ok(sample()));
        let none = State {
            records: Vec::new(),
            ..sample()
        };
        assert_eq!(State::from_json(&none.to_json()), Ok(none));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = sample().to_json();
        let replaced = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            State::from_json(&text.replacen(from, to, 1))
        };
        let versions = [r#""version":3"#, r#""version":"2""#, r#""x":2"#];
        for version in versions {
            assert_eq!(replaced(r#""version":2"#, version), Err(BadState::Version));
        }
        for (from, to, name) in [
            ("5e1c2f0a-77", "", "boot"),
            ("5e1c2f0a-77", "/", "boot"),
            (r#""tid":3"#, r#""tid":0"#, "owner"),
            (r#""tid":20"#, r#""tid":0"#, "id"),
            (r#""tid":20"#, r#""tid":-20"#, "id"),
            (r#""pid":20"#, r#""pid":0"#, "pid"),
            (r#""session":0"#, r#""session":-1"#, "session"),
            (r#""only":"0-1""#, r#""only":"""#, "original"),
            (r#"["0","1,3-4"]"#, "[]", "given"),
            (r#"["0","#, r#"["","#, "given"),
        ] {
            assert_eq!(replaced(from, to), Err(BadState::Value(name)), "{from} → {to}");
        }
        for (from, to) in [
            (r#""tid":20"#, r#""tid":99999999999"#),
            (r#""start":9"#, r#""start":-9"#),
            (r#""whole""#, r#""none""#),
            (r#"["0","#, r#"["4096","#),
            (r#""pid":20"#, r#""pid":20,"new":1"#),
        ] {
            let refused = replaced(from, to);
            assert!(matches!(refused, Err(BadState::Json(_))), "{from} → {to}");
        }
    }

    #[test]
    fn the_format_of_the_first_version_is_named_as_such() {
        let text = "widelane steer 1\nboot 1\nowner 3 8\nend\n";
        assert_eq!(State::from_json(text), Err(BadState::Version));
    }

    #[test]
    fn cut_off_anywhere_it_is_refused() {
        let text = sample().to_json();
        for end in 0..text.len() - 1 {
            assert!(State::from_json(&text[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn masks_are_kept_once_and_the_oldest_go() {
        let mut record = sample().records.remove(0);
        for cpu in 0..40 {
            record.give([cpu].into_iter().collect());
            record.give([cpu].into_iter().collect());
        }
        assert_eq!(record.given.len(), MOST_GIVEN);
        assert_eq!(record.given.last(), Some(&[39].into_iter().collect()));
    }

    proptest! {
        #[test]
        fn any_numbers_are_read_or_refused(
            tid in any::<i64>(), start in any::<u64>(), pid in -2..3, mask in "[0-9,-]{0,5}",
        ) {
            let text = sample().to_json();
            let text = text.replace(r#""tid":20"#, &format!(r#""tid":{tid}"#));
            let text = text.replace(r#""start":9"#, &format!(r#""start":{start}"#));
            let text = text.replace(r#""pid":20"#, &format!(r#""pid":{pid}"#));
            let text = text.replace("1,3-4", &mask);
            if let Ok(state) = State::from_json(&text) {
                prop_assert!(state.records.iter().all(|record| record.id.tid > 0));
                prop_assert_eq!(State::from_json(&state.to_json()), Ok(state));
            }
        }
    }
}
