//! Notices that files have changed, and that they are complete.
//!
//! The kernel reports changes of the directories that lead to a file (inotify): those of its path and,
//! where a part of it is a symbolic link, those of the link's target. So a file that is written anew,
//! one that is renamed over the old one and a link that is turned elsewhere are all seen; the last is
//! how Kubernetes updates a mounted Secret. A file that a program has open and has written to is not
//! complete, and is waited for.
//!
//! Not every file system reports changes, and an event can be lost. So the files are looked at from
//! time to time as well, and an event only says when to look: whether they have changed is seen from
//! their [`Fingerprint`], which must be the same in two looks before they are read.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use crate::config::{Config, OcspSource};
use crate::material::ticket_files;

/// State of files at one moment, without their contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<(PathBuf, Option<[i64; 7]>)>);

impl Fingerprint {
    /// Looks at all files that a configuration names.
    pub(crate) fn of(config: &Config) -> Self {
        let paths = paths(config);
        let files = paths.iter().flat_map(|path| {
            let files = ticket_files::files(path);
            files.unwrap_or_else(|_| vec![path.clone()])
        });
        Self(files.map(|file| (file.clone(), look_at(&file))).collect())
    }
}

/// Watches the files of one configuration at a time.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None`: the kernel gives none, or watching is not wanted.
    inotify: Option<OwnedFd>,
    wanted: bool,
    /// Names that matter in the directories that are watched, by the number of the watch.
    directories: HashMap<i32, Names>,
    settling: Settling,
    next_look: Instant,
    /// True if the kernel has reported what the last look was for.
    reported: bool,
    /// True if a directory is not watched any more: its file system has gone, or it has.
    pub(crate) lost: bool,
}

impl Watch {
    /// Watches nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            inotify: None,
            wanted: false,
            directories: HashMap::new(),
            settling: Settling::default(),
            next_look: Instant::now(),
            reported: false,
            lost: false,
        }
    }

    /// Watches the files of `config` from now on, and no others. They are looked at once more, since
    /// they may have changed between being read and being watched.
    pub(crate) fn follow(&mut self, config: &Config) {
        self.wanted = config.watch;
        self.lost = false;
        if !config.watch {
            *self = Self::new();
            return;
        }
        if self.inotify.is_none() {
            let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
            if let Err(error) = &inotify {
                tracing::warn!(
                    %error,
                    "changes of files are noticed late; raise fs.inotify.max_user_instances"
                );
            }
            self.inotify = inotify.ok();
        }
        if let Some(inotify) = &self.inotify {
            // What was watched before stays watched without a gap, so that a program is known that
            // writes just now.
            let before = mem::replace(&mut self.directories, watch_all(inotify, &paths(config)));
            for watch in before.into_keys() {
                if !self.directories.contains_key(&watch) {
                    // It may have gone together with its directory.
                    let _ = inotify::remove_watch(inotify, watch);
                    self.settling.open.retain(|(of, _), _| *of != watch);
                }
            }
        }
        self.reported = true;
        self.look_again(Instant::now());
    }

    /// Has the files looked at again in a moment, or in several if the last look was not for events: then
    /// it is not known whether a program still writes.
    pub(crate) fn look_again(&mut self, now: Instant) {
        let first = self.settling.since.map_or(now, |(first, _)| first);
        self.settling.since = Some((first, now));
        self.settling.blind = !self.reported;
    }

    /// Becomes readable when there are events.
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Longest wait for events. `None`: for ever.
    pub(crate) fn patience(&self, now: Instant) -> Option<Duration> {
        let settled = self.settling.settled(now);
        let look = self.wanted.then(|| self.next_look.saturating_duration_since(now));
        settled.into_iter().chain(look).min()
    }

    /// Takes in what the kernel reports.
    pub(crate) fn take_events(&mut self, now: Instant) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = Reader::new(inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            let known = self.directories.contains_key(&event.wd());
            let ends = ReadFlags::IGNORED | ReadFlags::UNMOUNT;
            self.lost |= known && event.events().intersects(ends);
            let matters = match (self.directories.get(&event.wd()), name) {
                (Some(names), Some(name)) => names.have(name),
                // The directory itself has gone.
                (Some(_), None) => true,
                // Events were lost, or it is not watched any more.
                (None, _) => event.events().contains(ReadFlags::QUEUE_OVERFLOW),
            };
            if matters {
                let name = name.unwrap_or_default().to_owned();
                self.settling.event((event.wd(), name), event.events(), now);
            }
        }
    }

    /// Returns whether it is time to look at the files.
    pub(crate) fn is_time(&mut self, now: Instant) -> bool {
        if !self.wanted {
            return false;
        }
        self.settling.complain(now);
        self.settling.abandon(now);
        let settled = self.settling.settled(now) == Some(Duration::ZERO);
        let late = self.settling.open.is_empty() && now >= self.next_look;
        if settled || late {
            self.reported = self.settling.reported;
            self.settling = Settling::default();
            self.next_look = now + LOOK_INTERVAL;
        } else if now >= self.next_look {
            self.next_look = now + LOOK_INTERVAL;
        }
        settled || late
    }
}

/// Changes that may not be complete.
#[derive(Debug, Default)]
struct Settling {
    /// Time at which the first and the last one came.
    since: Option<(Instant, Instant)>,
    /// Files that were written and are still open, and when they were written last.
    open: HashMap<(i32, OsString), Instant>,
    complained: bool,
    /// True if there was an event.
    reported: bool,
    /// True if the kernel does not report what changes.
    blind: bool,
}

impl Settling {
    fn event(&mut self, file: (i32, OsString), what: ReadFlags, now: Instant) {
        let first = self.since.map_or(now, |(first, _)| first);
        self.since = Some((first, now));
        self.reported = true;
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Some of them were closed, perhaps. Two looks that are the same guard against half a file.
            self.open.clear();
        } else if what.contains(ReadFlags::MODIFY) {
            self.open.insert(file, now);
        } else if what
            .intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO | ReadFlags::DELETE)
        {
            self.open.remove(&file);
        }
    }

    /// In how long the files are complete, as far as one knows now. `None`: nothing has changed, or a
    /// program still writes.
    fn settled(&self, now: Instant) -> Option<Duration> {
        let (first, last) = self.since?;
        if !self.open.is_empty() {
            return None;
        }
        let settled = if self.blind { SETTLED_UNSEEN } else { SETTLED };
        let at = (last + settled).min(first + LONGEST);
        Some(at.saturating_duration_since(now))
    }

    /// Waits no longer for files that were not written for a long time: a change that opens no file
    /// (truncate, utimes) is not followed by a close either, and a program may hang.
    fn abandon(&mut self, now: Instant) {
        let long = |last: Instant| now.saturating_duration_since(last) >= ABANDONED;
        self.open.retain(|_, last| !long(*last));
    }

    fn complain(&mut self, now: Instant) {
        let long = |(first, _)| now.saturating_duration_since(first) > COMPLAINT;
        if !self.complained && !self.open.is_empty() && self.since.is_some_and(long) {
            self.complained = true;
            let names = self.open.keys().map(|(_, name)| name.display().to_string());
            let files = names.collect::<Vec<_>>().join(", ");
            tracing::warn!(files, "not read again: they were written and not closed");
        }
    }
}

/// Names that matter in a directory.
#[derive(Debug, Default)]
struct Names {
    some: HashSet<OsString>,
    /// All that are not hidden.
    all: bool,
    /// True if the files' contents matter, not only which ones there are.
    contents: bool,
}

impl Names {
    fn have(&self, name: &OsStr) -> bool {
        self.some.contains(name) || self.all && !name.as_bytes().starts_with(b".")
    }

    fn flags(&self) -> WatchFlags {
        let names = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        match self.contents {
            true => names | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB,
            false => names,
        }
    }
}

/// All that a configuration names: files, and directories of certificates and of ticket keys.
fn paths(config: &Config) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for listener in &config.listeners {
        for pair in &listener.certificates {
            paths.extend([pair.cert.clone(), pair.key.clone()]);
            if let Some(OcspSource::File(path)) = &pair.ocsp {
                paths.push(path.clone());
            }
        }
        paths.extend(listener.certificate_directories.iter().cloned());
        if let Some(client_auth) = &listener.client_auth {
            paths.push(client_auth.ca.clone());
            paths.extend(client_auth.crl.clone());
        }
        paths.extend(listener.tickets.keys.iter().cloned());
        for tls in listener.backend_tls("").filter_map(|(_, tls)| tls) {
            let files = [&tls.ca, &tls.cert, &tls.key].into_iter().flatten();
            paths.extend(files.cloned());
        }
    }
    paths
}

fn look_at(file: &Path) -> Option<[i64; 7]> {
    let seen = fs::metadata(file).ok()?;
    Some([
        seen.dev().cast_signed(),
        seen.ino().cast_signed(),
        seen.size().cast_signed(),
        seen.mtime(),
        seen.mtime_nsec(),
        seen.ctime(),
        seen.ctime_nsec(),
    ])
}

/// Watches the directories that lead to `paths`. What cannot be watched is left to the looks from time
/// to time.
fn watch_all(inotify: &OwnedFd, paths: &[PathBuf]) -> HashMap<i32, Names> {
    let mut directories: HashMap<PathBuf, Names> = HashMap::new();
    // As certbot has them: what they lead to changes elsewhere.
    let inside = paths.iter().filter(|path| path.is_dir());
    let inside = inside.filter_map(|path| ticket_files::files(path).ok());
    let links: Vec<PathBuf> = inside.flatten().filter(|file| file.is_symlink()).collect();
    for path in paths.iter().chain(&links) {
        let inside = path.is_dir();
        let target = match inside {
            true => ticket_files::place(path),
            false => path.clone(),
        };
        let mut steps = steps(&target).unwrap_or_default();
        let last = steps.pop();
        for (directory, name) in steps {
            directories.entry(directory).or_default().some.insert(name);
        }
        if let Some((directory, name)) = last {
            let end = directory.join(&name);
            let names = directories.entry(directory).or_default();
            names.some.insert(name);
            names.contents |= !inside;
            if inside {
                let names = directories.entry(end).or_default();
                (names.all, names.contents) = (true, true);
                // It may become a mount of Kubernetes' kind.
                names.some.insert(ticket_files::KUBERNETES_DATA.into());
            }
        }
    }
    let watches = directories.into_iter().filter_map(|(directory, names)| {
        let watch = inotify::add_watch(inotify, &directory, names.flags());
        if let Err(error) = watch {
            tracing::debug!(directory = %directory.display(), %error, "not watched");
        }
        Some((watch.ok()?, names))
    });
    watches.collect()
}

/// Each directory on the way to `path` with the name that is looked up in it, through all links.
fn steps(path: &Path) -> io::Result<Vec<(PathBuf, OsString)>> {
    let mut directory = PathBuf::from("/");
    let mut steps = Vec::new();
    let mut left: VecDeque<OsString> = parts(&std::path::absolute(path)?).collect();
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == ".." {
            directory.pop();
            continue;
        }
        steps.push((directory.clone(), name.clone()));
        let next = directory.join(&name);
        match fs::read_link(&next) {
            Ok(_) if links == MOST_LINKS => return Err(io::ErrorKind::InvalidInput.into()),
            Ok(target) => {
                links += 1;
                if target.is_absolute() {
                    directory = PathBuf::from("/");
                }
                for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                    left.push_front(part);
                }
            }
            Err(_) => directory = next,
        }
    }
    Ok(steps)
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// A certificate and its key are two files, which are seldom written at the same moment.
const SETTLED: Duration = Duration::from_millis(500);
/// Time to settle where the kernel reports nothing, so that a program that writes slowly is not seen.
const SETTLED_UNSEEN: Duration = Duration::from_secs(5);
/// Longest time to settle, where changes never cease.
const LONGEST: Duration = Duration::from_secs(10);
const COMPLAINT: Duration = Duration::from_secs(60);
/// A file that was not written for so long is not waited for, closed or not.
const ABANDONED: Duration = Duration::from_secs(120);
/// Time between looks for changes that the kernel does not report.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Most links in a path; the kernel follows as many.
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;
    use crate::config::{Backend, Certificate, Listener};

    #[test]
    fn every_directory_and_link_on_the_way_is_a_step() {
        let root = TempDir::new().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/..1")).unwrap();
        fs::write(root.join("real/..1/a.pem"), "a").unwrap();
        symlink("..1", root.join("real/..data")).unwrap();
        symlink("..data/a.pem", root.join("real/a.pem")).unwrap();
        symlink("../x/real", root.join("link")).unwrap();
        symlink(&root, root.join("x")).unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        symlink("../real", root.join("sub/up")).unwrap();
        let all = steps(&root.join("sub/up/a.pem")).unwrap();
        let above = root.components().count() - 1;
        let expected = [
            ("", "sub"),
            ("sub", "up"),
            ("", "real"),
            ("real", "a.pem"),
            ("real", "..data"),
            ("real", "..1"),
            ("real/..1", "a.pem"),
        ];
        let expected = expected.map(|(directory, name)| {
            let directory = match directory {
                "" => root.clone(),
                inside => root.join(inside),
            };
            (directory, OsString::from(name))
        });
        assert_eq!(all[above..], expected);
        symlink("loop", root.join("loop")).unwrap();
        assert!(steps(&root.join("loop")).is_err());
    }

    #[test]
    fn a_response_is_one_of_the_files() {
        let root = TempDir::new().unwrap();
        let path = |name: &str| root.path().join(name);
        let mut listener = Listener::new(Vec::new(), Backend::Abstract("x".into()));
        let mut certificate = Certificate::new(path("a.pem"), path("a.key"));
        certificate.ocsp = Some(OcspSource::File(path("a.ocsp")));
        listener.certificates = vec![certificate];
        let config = Config {
            listeners: vec![listener],
            ..Config::default()
        };
        let without = Fingerprint::of(&config);
        assert_eq!(without, Fingerprint::of(&config));
        fs::write(path("a.ocsp"), "a").unwrap();
        let with = Fingerprint::of(&config);
        assert_ne!(without, with);
        fs::write(path("a.ocsp"), "bb").unwrap();
        assert_ne!(with, Fingerprint::of(&config));
    }

    /// The case after a truncation by path, when a program hangs, or when the close was lost.
    #[test]
    fn a_file_that_is_never_closed_is_not_waited_for_for_ever() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let file = (1, OsString::from("a.pem"));
        let mut settling = Settling::default();
        settling.event(file.clone(), ReadFlags::MODIFY, at(0));
        settling.event(file.clone(), ReadFlags::MODIFY, at(100));
        settling.abandon(at(219));
        assert_eq!(settling.settled(at(219)), None, "it is still written");
        settling.abandon(at(220));
        assert_eq!(settling.settled(at(220)), Some(Duration::ZERO));
        settling.event(file.clone(), ReadFlags::MODIFY, at(221));
        assert_eq!(settling.settled(at(221)), None, "it is written again");
        let nothing = (-1, OsString::new());
        settling.event(nothing, ReadFlags::QUEUE_OVERFLOW, at(222));
        assert!(settling.settled(at(222)).is_some(), "events were lost");
    }

    /// The case of NFS.
    #[test]
    fn changes_that_the_kernel_does_not_report_get_more_time() {
        let start = Instant::now();
        let mut watch = Watch::new();
        watch.wanted = true;
        watch.next_look = start;
        assert!(watch.is_time(start), "from time to time");
        watch.look_again(start);
        let second = start + SETTLED_UNSEEN;
        assert!(!watch.is_time(second - Duration::from_millis(1)));
        assert!(watch.is_time(second));
        let file = (1, OsString::from("a.pem"));
        watch.settling.event(file, ReadFlags::MOVED_TO, second);
        let reported = second + SETTLED;
        assert!(watch.is_time(reported), "an event");
        watch.look_again(reported);
        assert!(watch.is_time(reported + SETTLED));
    }

    /// A directory that comes back is another one for the kernel, and is watched anew.
    #[test]
    fn watches_that_the_kernel_has_ended_are_renewed() {
        let root = TempDir::new().unwrap();
        let directory = root.path().join("d");
        let write = || fs::write(directory.join("a.pem"), "a").unwrap();
        fs::create_dir(&directory).unwrap();
        write();
        let mut listener = Listener::new(Vec::new(), Backend::Abstract("x".into()));
        let path = directory.join("a.pem");
        listener.certificates = vec![Certificate::new(path.clone(), path)];
        let config = Config {
            listeners: vec![listener],
            ..Config::default()
        };
        let mut watch = Watch::new();
        watch.follow(&config);
        if watch.events().is_none() {
            println!("SKIP: no inotify");
            return;
        }
        fs::remove_dir_all(&directory).unwrap();
        fs::create_dir(&directory).unwrap();
        write();
        watch.take_events(Instant::now());
        assert!(watch.lost);
        watch.follow(&config);
        assert!(!watch.lost);
        watch.take_events(Instant::now());
        watch.settling = Settling::default();
        write();
        watch.take_events(Instant::now());
        assert!(watch.settling.since.is_some(), "a change is seen");
        assert!(!watch.lost);
    }

    /// The case of certbot: links to files of another directory, into which it writes.
    #[test]
    fn files_that_links_in_a_directory_lead_to_are_watched() {
        let root = TempDir::new().unwrap();
        let [live, archive] = ["live", "archive"].map(|name| root.path().join(name));
        for directory in [&live, &archive] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(archive.join("1.pem"), "a").unwrap();
        symlink("../archive/1.pem", live.join("a.pem")).unwrap();
        let mut listener = Listener::new(Vec::new(), Backend::Abstract("x".into()));
        listener.certificate_directories = vec![live];
        let config = Config {
            listeners: vec![listener],
            ..Config::default()
        };
        let before = Fingerprint::of(&config);
        let mut watch = Watch::new();
        watch.follow(&config);
        watch.settling = Settling::default();
        fs::write(archive.join("1.pem"), "bb").unwrap();
        assert_ne!(before, Fingerprint::of(&config));
        if watch.events().is_none() {
            println!("SKIP: no inotify");
            return;
        }
        watch.take_events(Instant::now());
        assert!(watch.settling.since.is_some(), "a change is seen");
    }

    #[test]
    fn changes_settle_and_open_files_are_waited_for() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let file = (1, OsString::from("a.pem"));
        let mut settling = Settling::default();
        assert_eq!(settling.settled(start), None);
        settling.event(file.clone(), ReadFlags::CREATE, at(0));
        assert_eq!(settling.settled(at(100)), Some(Duration::from_millis(400)));
        settling.event(file.clone(), ReadFlags::MODIFY, at(200));
        assert_eq!(settling.settled(at(60_000)), None, "it is still open");
        settling.event(file.clone(), ReadFlags::CLOSE_WRITE, at(60_000));
        // Late enough that nothing more is waited for.
        assert_eq!(settling.settled(at(60_000)), Some(Duration::ZERO));
        let mut settling = Settling::default();
        for moment in (0..20_000).step_by(100) {
            settling.event(file.clone(), ReadFlags::MOVED_TO, at(moment));
            let expected = if moment < 10_000 { 400..=500 } else { 0..=0 };
            let left = settling.settled(at(moment)).unwrap().as_millis();
            assert!(
                expected.contains(&left) || (9_500..10_000).contains(&moment),
                "{moment}"
            );
        }
        let mut settling = Settling::default();
        settling.event(file.clone(), ReadFlags::MODIFY, at(0));
        settling.event(file, ReadFlags::DELETE, at(1));
        assert!(settling.settled(at(1)).is_some(), "what is gone is not waited for");
    }
}
