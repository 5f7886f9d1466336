//! Evidence about a process: the code that it could have run, and the code that it was found running.
//!
//! Files are disassembled once each, on a thread of their own, so that a table can be shown
//! meanwhile; until then the verdict says that it is not complete.

mod code;
mod image;
mod questions;
mod verdict;

use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use widelane_threads::{Identity, Mapping, Proc};

use self::code::{Code, Part};
use self::image::{FileCode, look_at};
use self::questions::{Question, next};
use self::verdict::{Facts, judge};
use crate::account::{Finding, Verdict};
use crate::interval::{Interval, Sample, Sampled, State};
use crate::poll::recently;

/// Knowledge about the files that processes have mapped as code.
pub struct Evidence {
    known: HashMap<Identity, Arc<FileCode>>,
    asked: HashSet<Identity>,
    /// The code of the processes of the last interval: they may have ended since.
    mapped: HashMap<u32, Mapped>,
    questions: Sender<Question>,
    answers: Receiver<(Identity, Option<FileCode>)>,
}

impl Evidence {
    /// Starts without any knowledge.
    pub fn new() -> Self {
        let (questions, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        // The thread ends when either end of a channel is dropped.
        thread::spawn(move || {
            let mut waiting = BinaryHeap::new();
            while let Some(Question { file, path }) = next(&mut waiting, &asked) {
                let known = look_at(&file, &path);
                if answer.send((file.identity(), known)).is_err() {
                    break;
                }
            }
        });
        Self {
            known: HashMap::new(),
            asked: HashSet::new(),
            mapped: HashMap::new(),
            questions,
            answers,
        }
    }

    /// Asks for the code of processes that had wide registers in use not long ago, by what the
    /// kernel says of them without having been watched. So it is known when the first interval
    /// ends.
    pub fn look_ahead(&mut self) {
        for pid in recently(&Proc::here()).into_iter().take(MOST_PROCESSES) {
            if let Some(mapped) = Mapped::read(pid, None) {
                self.code(&mapped);
            }
        }
    }

    /// Judges every process of an interval, sorts its samples into `Use::sampled`, and asks for
    /// the files it does not know.
    pub fn findings(&mut self, interval: &mut Interval) -> HashMap<u32, Finding> {
        while let Ok((identity, answer)) = self.answers.try_recv() {
            self.learn(identity, answer);
        }
        let mut processes: BTreeMap<u32, Duration> = BTreeMap::new();
        for r#use in &interval.uses {
            let live = r#use.live.iter().sum::<Duration>();
            *processes.entry(r#use.thread.pid).or_default() += live;
        }
        let mut busiest: Vec<_> = processes.into_iter().collect();
        busiest.sort_by_key(|&(_, live)| std::cmp::Reverse(live));
        let samples = interval.samples.as_deref();
        let mut findings = HashMap::new();
        let mut before = std::mem::take(&mut self.mapped);
        for (rank, (pid, _)) in busiest.into_iter().enumerate() {
            let threads = interval.uses.iter_mut();
            let mut threads: Vec<_> = threads.filter(|r#use| r#use.thread.pid == pid).collect();
            if rank >= MOST_PROCESSES {
                let why = "used less than those that were looked at".to_owned();
                let verdict = Verdict::Unknown;
                findings.insert(pid, Finding { verdict, why });
                continue;
            }
            let Some(mapped) = Mapped::read(pid, before.remove(&pid)) else {
                let why = "its code is not readable: run as its user or as root".to_owned();
                let verdict = Verdict::Unknown;
                findings.insert(pid, Finding { verdict, why });
                continue;
            };
            let code = self.code(&mapped);
            let of_process = |sample: &&Sample| sample.thread.pid == pid;
            let own = samples.map(|samples| samples.iter().filter(of_process));
            for r#use in &mut threads {
                r#use.sampled = samples.map(|_| Sampled::default());
            }
            let ran = own.map(|own| code.sort(own, &mapped.parts, &mut threads));
            let wide = ran.as_ref().is_some_and(|ran| ran.all.wide > 0);
            if code.unseen.is_some() && !wide {
                // The samples may have hit code that cannot be read.
                for r#use in &mut threads {
                    r#use.sampled = None;
                }
            }
            let mut live = [Duration::ZERO; 4];
            for r#use in &threads {
                for (sum, part) in live.iter_mut().zip(r#use.live) {
                    *sum += part;
                }
            }
            let seen = Facts {
                upper: !live[State::Upper as usize].is_zero(),
                ran,
                has: code.summary(),
            };
            findings.insert(pid, judge(&seen));
            self.mapped.insert(pid, mapped);
        }
        findings
    }

    /// Waits until all files that were asked for are known, but not longer than this.
    pub fn wait(&mut self, most: Duration) {
        let until = Instant::now() + most;
        while !self.asked.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok((identity, answer)) => self.learn(identity, answer),
                Err(_) => break,
            }
        }
    }

    fn learn(&mut self, identity: Identity, answer: Option<FileCode>) {
        self.asked.remove(&identity);
        // A file that could not be read through one process may be readable through another.
        if let Some(known) = answer {
            self.known.insert(identity, Arc::new(known));
        }
    }

    /// The code of a process, as far as it is known.
    fn code(&mut self, mapped: &Mapped) -> Code {
        let mut code = Code::default();
        if mapped.parts.is_empty() {
            code.unseen = Some("it ended before its code could be looked at");
        }
        for part in &mapped.parts {
            let Some(path) = &part.mapping.path else {
                code.generated = true;
                continue;
            };
            let Some(identity) = part.identity else {
                code.unseen = Some("a file of its code is not readable");
                continue;
            };
            if let Some(known) = self.known.get(&identity) {
                if let FileCode::Refused(why) = **known {
                    code.unseen = Some(why);
                }
                code.files.entry(path.clone()).or_insert(known.clone());
            } else {
                code.unseen = Some("its code is being looked at");
                self.ask(mapped, part, identity);
            }
        }
        code
    }

    /// Has a file looked at. Each holds a descriptor until then, so that not too many may wait:
    /// later ones are asked for in a later interval.
    fn ask(&mut self, mapped: &Mapped, part: &Part, identity: Identity) {
        if self.asked.contains(&identity) || self.asked.len() >= MOST_WAITING {
            return;
        }
        let file = mapped.source.as_ref().map(|of| of.open(&part.mapping));
        let Some(file) = file.and_then(Result::ok) else {
            return;
        };
        // The file may be another one by now, which is as good to know.
        if self.asked.insert(file.identity()) {
            let path = part.mapping.path.clone().unwrap_or_default();
            // The thread lives as long as this.
            let _ = self.questions.send(Question { file, path });
        }
    }
}

impl Default for Evidence {
    fn default() -> Self {
        Self::new()
    }
}

/// The code that a process has mapped.
struct Mapped {
    /// Empty if it has ended.
    parts: Vec<Part>,
    /// Opens the files; `None` of a process that has ended.
    source: Option<widelane_threads::Code>,
}

impl Mapped {
    /// Code that is readable now; for a process that has ended, `before`. `None` if the process belongs to another
    /// user.
    fn read(pid: u32, before: Option<Self>) -> Option<Self> {
        match widelane_threads::Code::of(pid) {
            // One that is ending has no mappings any more.
            Ok(code) if !code.mappings.is_empty() => {
                let part = |mapping: &Mapping| Part {
                    identity: code.open(mapping).ok().map(|file| file.identity()),
                    mapping: mapping.clone(),
                };
                Some(Self {
                    parts: code.mappings.iter().map(part).collect(),
                    source: Some(code),
                })
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
            _ => Some(Self {
                parts: before.map_or_else(Vec::new, |before| before.parts),
                source: None,
            }),
        }
    }
}

/// Processes looked at in an interval, those that used most.
const MOST_PROCESSES: usize = 50;
/// Files that may wait to be looked at.
const MOST_WAITING: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::Use;
    use widelane_threads::Thread;

    #[test]
    fn this_process_has_its_code_looked_at() {
        let pid = std::process::id();
        let mut interval = Interval {
            elapsed: Duration::from_secs(1),
            uses: vec![Use {
                thread: Thread { pid, tid: pid },
                name: String::new(),
                process: String::new(),
                cgroup: None,
                cpu: None,
                live: [Duration::from_millis(1); 4],
                sampled: None,
            }],
            samples: None,
        };
        let mut evidence = Evidence::new();
        let first = &evidence.findings(&mut interval)[&pid];
        assert!(first.why.contains("being looked at"), "{}", first.why);
        evidence.wait(Duration::from_secs(600));
        let then = &evidence.findings(&mut interval)[&pid];
        assert!(!then.why.contains("being looked at"), "{}", then.why);
    }
}
