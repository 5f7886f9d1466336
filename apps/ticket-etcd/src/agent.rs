//! Follows the keys in etcd, keeps the directory, and says what is wrong.

use std::fmt::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant, SystemTime};

use sd_notify::NotifyState;

use crate::directory::Directory;
use crate::link::{HOLDER, KEYS, Link};
use crate::options::{Options, OptionsError};
use crate::rules::{Act, Member, Problem, View};

/// One machine's agent: keeps a directory of ticket keys as etcd has them, and is the one that changes the keys in etcd
/// if no other is.
pub struct Agent {
    link: Link,
    followed: Followed,
    /// Reason why the files of the options could not be read again.
    unread: Option<String>,
}

/// The keys, as far as this agent knows them.
struct Followed {
    options: Options,
    directory: Directory,
    member: Member,
    /// Until when the keys of an earlier agent stay in the directory, if none of etcd come.
    left_until: Option<Instant>,
    fault: Option<Failing>,
    other_rotation: Option<u32>,
    is_clock_wrong: bool,
    /// True if clients get tickets that no other machine can decrypt.
    own: bool,
}

/// A failure that goes on.
struct Failing {
    /// Present problem.
    problem: String,
    /// Texts that were logged, each once.
    told: Vec<String>,
    since: Instant,
}

impl Agent {
    /// Reads the files of the options, and opens or makes the directory.
    pub fn new(options: Options, directory: &Path) -> Result<Self, OptionsError> {
        options.check()?;
        let secrets = options.read()?;
        let directory = Directory::open(directory)?;
        let now = Instant::now();
        let member = Member::new(options.rotation, now, wall())
            .map_err(|error| OptionsError::new("keys", error.to_string(), "start again"))?;
        let left = directory
            .unseen()
            .map(|unseen| (2 * options.rotation).saturating_sub(unseen));
        let left_until = left.filter(|left| !left.is_zero()).map(|left| now + left);
        Ok(Self {
            link: Link::new(options.clone(), secrets),
            followed: Followed {
                own: left_until.is_none(),
                options,
                directory,
                member,
                left_until,
                fault: None,
                other_rotation: None,
                is_clock_wrong: false,
            },
            unread: None,
        })
    }

    /// Looks into etcd once, does what is to be done there, and writes the directory. The error is what is wrong.
    pub fn once(mut self) -> Result<(), String> {
        let looked = self.look(&|| false);
        self.link.resign();
        looked
    }

    /// Looks again and again, until the other end of `stop` has sent something or is gone. Tells the service manager
    /// when the directory has keys.
    pub fn follow(mut self, stop: &Receiver<()>) {
        let is_to_end = || !matches!(stop.try_recv(), Err(TryRecvError::Empty));
        let mut is_first = true;
        loop {
            let looked = self.look(&is_to_end);
            if std::mem::take(&mut is_first) {
                notify(NotifyState::Ready);
            }
            if looked.is_err() {
                // A password or a certificate may have been replaced.
                self.unread = match self.followed.options.read() {
                    Ok(secrets) => {
                        self.link.renew(secrets);
                        None
                    }
                    Err(error) => Some(error.to_string()),
                };
            }
            let pause = pause(self.followed.options.rotation);
            if !matches!(stop.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                break;
            }
        }
        notify(NotifyState::Stopping);
        self.link.resign();
        tracing::info!("stopped; the directory keeps the last keys");
    }

    fn look(&mut self, is_to_end: &dyn Fn() -> bool) -> Result<(), String> {
        let followed = &mut self.followed;
        let turned = self.link.turn(
            &mut |seen| match seen {
                Some((view, asked)) => followed.observe(view, asked),
                None => followed.pass().map(|()| Act::Nothing),
            },
            is_to_end,
        );
        let turned = turned.map_err(|problem| match &self.unread {
            Some(unread) => format!("{problem}; {unread}"),
            None => problem,
        });
        let passed = self.followed.pass();
        self.followed.conclude(turned.and(passed))
    }
}

impl Followed {
    /// Takes in what etcd has, and says what to do there.
    fn observe(&mut self, view: View, asked: Instant) -> Result<Act, String> {
        let stored = match &view.keys {
            Some((_, Ok(set))) => Some(set.rotation),
            _ => None,
        };
        let act = self.member.observe(view, asked, wall());
        let act = act.map_err(|error| error.to_string())?;
        self.tell_rotation(stored);
        self.tell_clock();
        if let Some(problem) = self.member.problem {
            self.ill(explain(&self.options.prefix, problem, &act));
        }
        Ok(act)
    }

    /// Renews keys whose time is over, and writes those in force into the directory.
    fn pass(&mut self) -> Result<(), String> {
        let now = Instant::now();
        self.member.pass(now, wall()).map_err(|error| error.to_string())?;
        let force = self.member.in_force(now);
        if force.shared || self.left_until.is_some_and(|until| now >= until) {
            self.left_until = None;
        }
        let own = !force.shared && self.left_until.is_none();
        let prefix = &self.options.prefix;
        match (self.own, own) {
            (true, false) => tracing::info!(prefix, "ticket keys of etcd encrypt"),
            (false, true) => tracing::error!(
                prefix,
                "no ticket keys were seen in etcd for two rotations; those of etcd are erased, and this agent makes \
                 keys of its own, with which clients resume on this machine only"
            ),
            _ => {}
        }
        self.own = own;
        let seen = self.member.set(now);
        let written = if self.left_until.is_some() {
            // Those of etcd must be known here before they encrypt anywhere. None of this agent: it may be
            // started again and again.
            let keys: Vec<_> = seen
                .iter()
                .flat_map(|(set, _)| set.keys.iter().map(|key| &key.bytes))
                .collect();
            self.directory.add(&keys)
        } else {
            let keys: Vec<_> = force.keys.iter().map(|key| &key.bytes).collect();
            let written = self.directory.write(&keys);
            written.and_then(|()| match seen.filter(|_| force.shared) {
                Some((_, age)) => self.directory.mark_seen(SystemTime::now() - age),
                None => Ok(()),
            })
        };
        written.map_err(|error| {
            let remedy = "see whether the disk is full, or read-only";
            format!("the directory of keys cannot be written: {error}; {remedy}")
        })
    }

    /// Takes note of what a look has come to.
    fn conclude(&mut self, looked: Result<(), String>) -> Result<(), String> {
        match (looked, self.member.problem) {
            (Err(problem), _) => self.ill(problem),
            (Ok(()), None) => self.well(),
            (Ok(()), Some(_)) => {}
        }
        if let Some(file) = &self.options.metrics
            && let Err(error) = widelane_files::replace(file, self.metrics().as_bytes(), 0o644)
        {
            let file = file.display().to_string();
            self.ill(format!(
                "metrics cannot be written into {file}: {error}; correct the path"
            ));
        }
        match &self.fault {
            Some(failing) => Err(failing.problem.clone()),
            None => Ok(()),
        }
    }

    fn well(&mut self) {
        if let Some(failing) = self.fault.take() {
            tracing::info!(
                prefix = self.options.prefix,
                "the ticket keys in etcd are in force again, after {} seconds",
                failing.since.elapsed().as_secs()
            );
        }
    }

    /// Says what is wrong, when it begins or is something else.
    fn ill(&mut self, problem: String) {
        let now = Instant::now();
        let failing = self.fault.get_or_insert_with(|| Failing {
            problem: String::new(),
            told: Vec::new(),
            since: now,
        });
        failing.problem.clone_from(&problem);
        // Texts that differ each time must not fill the log.
        if failing.told.contains(&problem) || failing.told.len() >= MOST_TOLD {
            return;
        }
        failing.told.push(problem.clone());
        let limit = 2 * self.options.rotation;
        let seen = self.member.set(now).map(|(_, age)| limit.saturating_sub(age));
        let left = self.left_until.map(|until| until.saturating_duration_since(now));
        let prefix = &self.options.prefix;
        match seen.or(left).filter(|_| !self.own) {
            Some(left) => tracing::error!(
                prefix,
                "{problem} (the ticket keys from before stay in force for {} seconds)",
                left.as_secs()
            ),
            None => tracing::error!(prefix, "{problem} (until then, clients resume on this machine only)"),
        }
    }

    fn tell_rotation(&mut self, stored: Option<u32>) {
        let own = self.options.rotation.as_secs();
        let other = stored.filter(|stored| u64::from(*stored) != own);
        if let Some(other) = other
            && self.other_rotation != Some(other)
        {
            tracing::warn!(
                prefix = self.options.prefix,
                "the ticket keys in etcd change every {other} seconds and not every {own}, as --rotation says here; \
                 give {other} on all machines, or another --prefix to begin anew"
            );
        }
        self.other_rotation = other;
    }

    fn tell_clock(&mut self) {
        let Some(ahead) = self.member.ahead else {
            return;
        };
        let is_wrong = ahead.abs() >= CLOCK_TOLERANCE;
        if is_wrong && !self.is_clock_wrong {
            let direction = if ahead < 0 { "behind" } else { "ahead of" };
            tracing::warn!(
                prefix = self.options.prefix,
                "the clock of this machine is {} seconds {direction} that of the machine that wrote the \
                 ticket keys in etcd; correct the one that is wrong (`timedatectl`, `chronyc tracking`): \
                 sessions do not resume on machines whose clocks are more than 90 seconds behind",
                ahead.unsigned_abs()
            );
        }
        self.is_clock_wrong = is_wrong;
    }

    /// Prometheus' text. It may be read when this process has ended, so it has times and no ages.
    fn metrics(&self) -> String {
        let seen = self
            .member
            .set(Instant::now())
            .map(|(_, age)| wall().saturating_sub(age.as_secs()));
        let of_all = [
            (
                "widelane_tickets_etcd_current",
                "0 if etcd cannot be asked for ticket keys, or those in it are refused",
                Some(i128::from(self.fault.is_none())),
            ),
            (
                "widelane_tickets_etcd_own",
                "1 if clients get tickets that no other machine can decrypt",
                Some(self.own.into()),
            ),
            (
                "widelane_tickets_etcd_holder",
                "1 if this agent makes the ticket keys in etcd",
                Some(self.member.holds.into()),
            ),
            (
                "widelane_tickets_etcd_looked_timestamp_seconds",
                "When etcd was asked last, in seconds since 1970",
                Some(wall().into()),
            ),
            (
                "widelane_tickets_etcd_seen_timestamp_seconds",
                "When the ticket keys in force were last seen in etcd, in seconds since 1970",
                seen.map(Into::into),
            ),
            (
                "widelane_tickets_etcd_clock_ahead_seconds",
                "By how much this clock is ahead of that of the machine that wrote into etcd last",
                self.member.ahead.map(Into::into),
            ),
        ];
        // A text of Prometheus' form; the prefix has graphic characters alone.
        let prefix = self.options.prefix.replace('\\', "\\\\").replace('"', "\\\"");
        let mut text = String::new();
        for (name, help, value) in of_all {
            if let Some(value) = value {
                let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
                let _ = writeln!(text, "{name}{{prefix=\"{prefix}\"}} {value}");
            }
        }
        text
    }
}

fn explain(prefix: &str, problem: Problem, act: &Act) -> String {
    let key = format!("{prefix}/{KEYS}");
    let by = |this: &'static str, others: &'static str| match act {
        Act::Write(_) => this,
        _ => others,
    };
    let restores = "; this instance puts the keys from before back";
    match problem {
        Problem::Unreadable(why) => format!(
            "the ticket keys at `{key}` in etcd are refused: {why}; give all machines the same --key-file, \
             or begin anew with another --prefix, or, if the value is damaged: etcdctl del {key}{}",
            by(restores, "")
        ),
        Problem::Older => format!(
            "the ticket keys at `{key}` in etcd are older than those in force, as after a backup was \
             restored{}",
            by(
                restores,
                "; the instance that writes puts newer ones there, or these are taken after two rotations"
            )
        ),
        Problem::Outdated => format!(
            "the ticket keys at `{key}` in etcd were written too long ago and are not used: etcd has an old value again, \
             or the clock of this machine is wrong; until there are new ones, each instance uses keys of its own{}",
            by("; this instance puts new ones there", "")
        ),
        Problem::Unchanged => format!(
            "the ticket keys at `{key}` in etcd have not changed for more than two rotations: no instance that writes \
             can be reached, or a stranger keeps the entry `fresh` from expiring{}",
            by("; this instance changes them", "")
        ),
        Problem::HolderWithoutLease => format!(
            "no instance can change the ticket keys in etcd, because the entry `{prefix}/{HOLDER}` has no lease, which no \
             agent makes; find out who put it there, and delete it: etcdctl del {prefix}/{HOLDER}"
        ),
        Problem::Gone => format!(
            "the ticket keys at `{key}` are gone from etcd; find out who deletes them{}",
            by(restores, "; the instance that writes puts them back")
        ),
    }
}

/// Time until the next look. Agents that were started together drift apart.
fn pause(rotation: Duration) -> Duration {
    let longest = (rotation / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    let mut random = [0];
    // Without randomness all is well, too.
    let _ = aws_lc_rs::rand::fill(&mut random);
    longest - longest / 4 * u32::from(random[0]) / 256
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager was not notified");
    }
}

fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Most seconds by which clocks may differ before a message says so.
const CLOCK_TOLERANCE: i64 = 30;
/// Most texts of one failure that are logged.
const MOST_TOLD: usize = 8;
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Holder, Set};
    use crate::sealed::Unreadable;
    use std::fs;
    use tempfile::TempDir;

    fn options(folder: &TempDir) -> Options {
        let key_file = folder.path().join("etcd.key");
        if !key_file.exists() {
            crate::make_key_file(&key_file).unwrap();
        }
        Options {
            // Nothing listens there.
            endpoints: vec!["http://127.0.0.1:9".into()],
            prefix: "/widelane/tickets".into(),
            rotation: Duration::from_secs(3600),
            key_file,
            metrics: Some(folder.path().join("metrics.prom")),
            ..Options::default()
        }
    }

    fn agent(folder: &TempDir) -> Agent {
        Agent::new(options(folder), &folder.path().join("tickets")).unwrap()
    }

    fn active(folder: &TempDir) -> Vec<u8> {
        fs::read(folder.path().join("tickets/active.key")).unwrap()
    }

    #[test]
    fn a_fault_ends_with_a_look_in_which_nothing_is_refused() {
        let folder = TempDir::new().unwrap();
        let mut followed = agent(&folder).followed;
        for _ in 0..2 {
            let empty = View {
                keys: None,
                fresh: false,
                holder: Holder::None,
            };
            assert!(followed.conclude(Err("etcd gives too few rights".into())).is_err());
            // It can be read, and what follows is not known yet.
            let act = followed.observe(empty, Instant::now()).unwrap();
            assert!(matches!(act, Act::Claim));
            assert!(
                followed
                    .metrics()
                    .contains("etcd_current{prefix=\"/widelane/tickets\"} 0\n")
            );
        }
        followed.conclude(Ok(())).unwrap();
        assert!(
            followed
                .metrics()
                .contains("etcd_current{prefix=\"/widelane/tickets\"} 1\n")
        );
    }

    #[test]
    fn keys_that_are_refused_are_a_fault_after_the_look_too() {
        let folder = TempDir::new().unwrap();
        let mut followed = agent(&folder).followed;
        let damaged = View {
            keys: Some((1, Err(Unreadable::Form))),
            fresh: false,
            holder: Holder::Another,
        };
        followed.observe(damaged, Instant::now()).unwrap();
        assert!(followed.conclude(Ok(())).unwrap_err().contains("are refused"));
    }

    #[test]
    fn each_text_of_a_failure_is_logged_once_and_not_too_many() {
        let folder = TempDir::new().unwrap();
        let mut followed = agent(&folder).followed;
        for turn in 0..100 {
            followed.ill(format!("it fails {}", turn % 2));
        }
        assert_eq!(followed.fault.as_ref().unwrap().told.len(), 2);
        for turn in 0..100 {
            followed.ill(format!("it fails at {turn}"));
        }
        let failing = followed.fault.as_ref().unwrap();
        assert_eq!(
            (failing.told.len(), &failing.problem[..]),
            (MOST_TOLD, "it fails at 99")
        );
    }

    #[test]
    fn without_etcd_keys_of_an_earlier_agent_stay_for_two_rotations_and_own_ones_follow() {
        let folder = TempDir::new().unwrap();
        let error = agent(&folder).once().unwrap_err();
        assert!(error.contains("refuses the connection"), "{error}");
        let first = active(&folder);
        assert!(agent(&folder).once().is_err());
        let second = active(&folder);
        assert_ne!(first, second, "a key that only this machine knew is not kept");
        let seen = |ago: u64| {
            let agent = agent(&folder);
            let time = SystemTime::now() - Duration::from_secs(ago);
            agent.followed.directory.mark_seen(time).unwrap();
        };
        seen(7000);
        let mut left = agent(&folder).followed;
        let set = Set::first(3600, wall()).unwrap();
        let waits = format!("tickets/key-{}.key", set.keys[0].bytes.name());
        let view = View {
            keys: Some((1, Ok(set))),
            fresh: true,
            holder: Holder::Another,
        };
        left.observe(view, Instant::now()).unwrap();
        left.pass().unwrap();
        assert!(folder.path().join(waits).exists(), "it is known before it encrypts");
        drop(left);
        assert!(agent(&folder).once().is_err());
        assert_eq!(active(&folder), second);
        let metrics = fs::read_to_string(folder.path().join("metrics.prom")).unwrap();
        assert!(
            metrics.contains("etcd_own{prefix=\"/widelane/tickets\"} 0\n"),
            "{metrics}"
        );
        seen(7300);
        assert!(agent(&folder).once().is_err());
        assert_ne!(active(&folder), second);
    }

    #[test]
    fn looks_are_apart_and_end_at_once() {
        for seconds in [10, 3600] {
            let longest = Duration::from_secs(seconds / 10).min(LONGEST_PAUSE);
            let pause = pause(Duration::from_secs(seconds));
            assert!(pause <= longest && pause >= longest * 3 / 4);
        }
        let folder = TempDir::new().unwrap();
        let (sender, stop) = std::sync::mpsc::channel();
        drop(sender);
        agent(&folder).follow(&stop);
        assert!(!active(&folder).is_empty());
    }
}
