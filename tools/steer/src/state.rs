//! What was changed, kept in a file so that another process can undo it.
//!
//! A steerer writes here what it is about to do to a thread, and only then does it. Killed at any
//! point, it leaves a file that names at least every change, and [`crate::restore`] undoes those
//! that are still in place. The file is text:
//!
//! ```text
//! widelane steer 1
//! boot 5e1c2f0a-…            of another boot, nothing in the file means anything
//! owner 4711 256000          the steerer: process and start
//! thread 4720 256010 4720 4720 all 0;1
//!        tid  start  pid  session original, and every mask that it was given
//! end
//! ```

use crate::policy::ThreadId;
use std::fmt;
use std::str::FromStr;
use widelane_affinity::Cpus;

/// The content of a state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The boot in which it was written.
    pub boot: String,
    /// The process that wrote it.
    pub owner: ThreadId,
    /// The threads that were changed, also some that are gone: their children may live.
    pub records: Vec<Record>,
}

/// What was done to one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which.
    pub id: ThreadId,
    /// Its process.
    pub pid: i32,
    /// Its session, which children share even when their parents are gone.
    pub session: i32,
    /// What it had before.
    pub original: Original,
    /// Every affinity that it was given, oldest first, none twice.
    pub given: Vec<Cpus>,
}

/// An affinity before it was steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Original {
    /// All that its cpuset allowed: the thread was not restricted.
    Whole,
    /// Exactly these CPUs, as a user or a program chose.
    Only(Cpus),
}

/// Why a text is not a state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadState {
    /// It does not begin as one.
    #[error("it does not begin with {HEADER:?}")]
    Header,
    /// Its last line is missing: it was cut off.
    #[error("it is cut off: its last line is not {END:?}")]
    End,
    /// A line is none that belongs there.
    #[error("its line {0} is not what belongs there")]
    Line(usize),
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
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ThreadId { tid, start } = self.owner;
        write!(f, "{HEADER}\nboot {}\nowner {tid} {start}\n", self.boot)?;
        for record in &self.records {
            let ThreadId { tid, start } = record.id;
            let (pid, session) = (record.pid, record.session);
            write!(f, "thread {tid} {start} {pid} {session} ")?;
            match record.original {
                Original::Whole => f.write_str("all")?,
                Original::Only(cpus) => write!(f, "{cpus}")?,
            }
            let mut separator = ' ';
            for mask in &record.given {
                write!(f, "{separator}{mask}")?;
                separator = ';';
            }
            f.write_str("\n")?;
        }
        writeln!(f, "{END}")
    }
}

impl FromStr for State {
    type Err = BadState;

    fn from_str(text: &str) -> Result<Self, BadState> {
        let text = text.strip_prefix(HEADER).and_then(|t| t.strip_prefix('\n'));
        let text = text.ok_or(BadState::Header)?;
        let text = text.strip_suffix(END_LINE).ok_or(BadState::End)?;
        let mut lines = (2..).zip(text.split('\n'));
        let boot = lines.next().and_then(|(_, line)| boot(line));
        let boot = boot.ok_or(BadState::Line(2))?;
        let owner = lines.next().and_then(|(_, line)| owner(line));
        let owner = owner.ok_or(BadState::Line(3))?;
        let record = |(number, line)| record(line).ok_or(BadState::Line(number));
        Ok(Self {
            boot,
            owner,
            records: lines.map(record).collect::<Result<_, _>>()?,
        })
    }
}

fn boot(line: &str) -> Option<String> {
    let boot = line.strip_prefix("boot ")?;
    let plain = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    (!boot.is_empty() && boot.bytes().all(plain)).then(|| boot.to_owned())
}

fn owner(line: &str) -> Option<ThreadId> {
    let (tid, start) = line.strip_prefix("owner ")?.split_once(' ')?;
    Some(ThreadId {
        tid: process(tid)?,
        start: number(start)?,
    })
}

fn record(line: &str) -> Option<Record> {
    let mut words = line.strip_prefix("thread ")?.split(' ');
    let id = ThreadId {
        tid: process(words.next()?)?,
        start: number(words.next()?)?,
    };
    let pid = process(words.next()?)?;
    let session = i32::try_from(number(words.next()?)?).ok()?;
    let original = match words.next()? {
        "all" => Original::Whole,
        cpus => Original::Only(some_cpus(cpus)?),
    };
    let given: Vec<Cpus> = words
        .next()?
        .split(';')
        .map(some_cpus)
        .collect::<Option<_>>()?;
    let sound = given.len() <= MOST_GIVEN && words.next().is_none();
    sound.then_some(Record {
        id,
        pid,
        session,
        original,
        given,
    })
}

fn some_cpus(text: &str) -> Option<Cpus> {
    text.parse().ok().filter(|cpus: &Cpus| !cpus.is_empty())
}

/// The number of a process or a thread: never 0, which would mean the caller itself.
fn process(text: &str) -> Option<i32> {
    let number = i32::try_from(number(text)?).ok()?;
    (number > 0).then_some(number)
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

const HEADER: &str = "widelane steer 1";
const END: &str = "end";
const END_LINE: &str = "\nend\n";
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
        let text = sample().to_string();
        assert_eq!(
            text,
            "widelane steer 1\nboot 5e1c2f0a-77\nowner 3 8\n\
             thread 20 9 20 0 all 0;1,3-4\nthread 21 9 20 0 0-1 0;1,3-4\nend\n"
        );
        assert_eq!(text.parse(), Ok(sample()));
        let none = State {
            records: Vec::new(),
            ..sample()
        };
        assert_eq!(none.to_string().parse(), Ok(none));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = sample().to_string();
        let replaced = |from: &str, to: &str| text.replacen(from, to, 1).parse::<State>();
        assert_eq!(replaced("steer 1", "steer 2"), Err(BadState::Header));
        assert_eq!(replaced("end\n", ""), Err(BadState::End));
        assert_eq!(replaced("boot ", "boot /"), Err(BadState::Line(2)));
        assert_eq!(replaced("owner 3", "owner 0"), Err(BadState::Line(3)));
        for (from, to) in [
            ("thread 20", "thread 0"),
            ("thread 20", "thread -20"),
            ("thread 20", "thread 99999999999"),
            (" all ", " none "),
            (" all ", "  "),
            (" 0;1,3-4", ""),
            (" 0;1,3-4", " 0;;1"),
            (" 0;1,3-4", " 0 1"),
            (" 0;1,3-4", " 0;4096"),
        ] {
            assert_eq!(replaced(from, to), Err(BadState::Line(4)), "{from} → {to}");
        }
    }

    #[test]
    fn cut_off_anywhere_it_is_refused() {
        let text = sample().to_string();
        for end in 0..text.len() {
            assert!(text[..end].parse::<State>().is_err(), "{end}");
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
        fn any_text_is_read_or_refused(lines in prop::collection::vec("[a-z0-9;, -]{0,40}", 0..6)) {
            let text = format!("{HEADER}\n{}\n{END}\n", lines.join("\n"));
            if let Ok(state) = text.parse::<State>() {
                prop_assert_eq!(state.to_string().parse(), Ok(state));
            }
        }
    }
}
