//! Chooses the processes that are traced.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;

use widelane_threads::{Container, Proc, Thread};

/// Chooses the processes that are traced: those that one of the entries of each list that is not empty names. If all
/// are empty: every process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Numbers.
    pub pids: Vec<u32>,
    /// Names of processes: those of their main threads, which the kernel cuts to 15 bytes. Other
    /// threads may have names of their own, which do not count.
    pub comms: Vec<String>,
    /// Paths of control groups, with all that is below; or containers, by their ID or its beginning,
    /// at least 12 digits of it, or by their name if their runtime has it in the path.
    pub cgroups: Vec<String>,
    /// Programs: with a `/`, the whole path as the process has it; without, the name of the file.
    pub exes: Vec<PathBuf>,
}

impl Filter {
    /// Returns whether every process is traced.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether a process is traced. False if it has ended. Expensive checks come last.
    pub fn matches(&self, proc: &Proc, pid: u32) -> bool {
        (self.pids.is_empty() || self.pids.contains(&pid))
            && (self.comms.is_empty() || self.has_comm(&proc.process_name(pid)))
            && (self.cgroups.is_empty() || self.has_cgroup(proc, pid))
            && (self.exes.is_empty() || self.has_exe(proc, pid))
    }

    /// The processes of now that are traced. If the filter names processes, only these are looked
    /// at. Threads of the kernel are left out as far as the filter does not name them.
    ///
    /// # Errors
    ///
    /// When processes cannot be listed.
    pub fn processes(&self, proc: &Proc) -> io::Result<Vec<u32>> {
        let mut pids = match self.pids.is_empty() {
            true => proc.processes()?,
            false => self.pids.clone(),
        };
        pids.sort_unstable();
        pids.dedup();
        // The link to the program of a kernel thread leads nowhere. That of another user's process cannot be read,
        // which is reported later.
        let has_program = |pid: &u32| {
            let link = fs::read_link(proc.program(*pid));
            !link.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        pids.retain(|pid| self.matches(proc, *pid));
        if self.pids.is_empty() {
            pids.retain(has_program);
        }
        Ok(pids)
    }

    fn has_comm(&self, comm: &str) -> bool {
        let cut = |wanted: &str| wanted.floor_char_boundary(MOST_COMM).min(wanted.len());
        let fits = |wanted: &String| comm == &wanted[..cut(wanted)];
        !comm.is_empty() && self.comms.iter().any(fits)
    }

    fn has_cgroup(&self, proc: &Proc, pid: u32) -> bool {
        let Some(cgroups) = proc.cgroups(Thread::first_of(pid)) else {
            return false;
        };
        let Some(path) = cgroups.path() else {
            return false;
        };
        let container = Container::of(path);
        self.cgroups.iter().any(|wanted| {
            let contained = |container: &Container| is_container(wanted, &container.id, path);
            is_below(path, wanted) || is_in_unit(path, wanted) || container.as_ref().is_some_and(contained)
        })
    }

    fn has_exe(&self, proc: &Proc, pid: u32) -> bool {
        let Ok(link) = fs::read_link(proc.program(pid)) else {
            return false;
        };
        let bytes = link.as_os_str().as_encoded_bytes();
        let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
        let name = bytes.rsplit(|&byte| byte == b'/').next();
        self.exes.iter().any(|wanted| {
            let wanted: &OsStr = wanted.as_os_str();
            let wanted = wanted.as_encoded_bytes();
            match wanted.contains(&b'/') {
                true => bytes == wanted,
                false => name == Some(wanted),
            }
        })
    }
}

/// Returns whether a group is another or below it: with whole names. The other may be written as a path below
/// `/sys/fs/cgroup`, too.
fn is_below(path: &str, group: &str) -> bool {
    if !group.contains('/') {
        return false;
    }
    let group = group.strip_prefix("/sys/fs/cgroup").unwrap_or(group);
    let (group, path) = (group.trim_matches('/'), path.trim_start_matches('/'));
    let rest = path.strip_prefix(group);
    rest.is_some_and(|rest| group.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether a group is that of a unit of systemd, such as `nginx.service`, or below it.
fn is_in_unit(path: &str, unit: &str) -> bool {
    let is_unit = [".service", ".scope", ".slice"].iter().any(|kind| unit.ends_with(kind));
    is_unit && path.split('/').any(|part| part == unit)
}

/// Returns whether a text names the container with this short ID or name, in a group of this path.
fn is_container(wanted: &str, id: &str, path: &str) -> bool {
    if wanted == id {
        return true;
    }
    // Longer than what is shown: the path has the whole number.
    let number = wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
    let whole = || {
        let parts = path.split(|letter: char| !letter.is_ascii_hexdigit());
        let mut numbers = parts.filter(|part| part.len() == 64);
        numbers.any(|part| part.starts_with(wanted))
    };
    number && wanted.len() > id.len() && wanted.starts_with(id) && whole()
}

/// Bytes to which the kernel cuts names of threads.
const MOST_COMM: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// A `/proc` with a process 7 in a container, and a thread of the kernel.
    fn proc(folder: &Path) -> Proc {
        for (pid, comm, cgroup) in [
            (7, "a-name-of-15-by", format!("/system.slice/docker-{ID}.scope")),
            (8, "kworker/0:1", "/".to_owned()),
            (9, "nginx", "/system.slice/nginx.service".to_owned()),
        ] {
            let own = folder.join(pid.to_string());
            fs::create_dir_all(own.join(format!("task/{pid}"))).unwrap();
            fs::write(own.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(own.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
            fs::write(own.join(format!("task/{pid}/cgroup")), format!("0::{cgroup}\n")).unwrap();
        }
        symlink("/usr/sbin/nginx (deleted)", folder.join("9/exe")).unwrap();
        symlink("/usr/bin/a-name-of-15-bytes-and-more", folder.join("7/exe")).unwrap();
        Proc::at(folder)
    }

    #[test]
    fn processes_are_named_in_several_ways() {
        let folder = tempfile::tempdir().unwrap();
        let proc = proc(folder.path());
        let found = |filter: &Filter| filter.processes(&proc).unwrap();
        let cgroup = |text: &str| {
            let cgroups = vec![text.to_owned()];
            found(&Filter {
                cgroups,
                ..Filter::default()
            })
        };
        assert_eq!(found(&Filter::default()), [7, 9]);
        assert_eq!(cgroup("/system.slice"), [7, 9]);
        assert_eq!(cgroup("/system.slice/"), [7, 9]);
        assert_eq!(cgroup("/system.slice/nginx.service"), [9]);
        assert_eq!(cgroup("/"), [7, 9]);
        for same in [
            "nginx.service",
            "system.slice/nginx.service",
            "/sys/fs/cgroup/system.slice/nginx.service/",
        ] {
            assert_eq!(cgroup(same), [9], "{same}");
        }
        for all in ["system.slice", "/sys/fs/cgroup"] {
            assert_eq!(cgroup(all), [7, 9], "{all}");
        }
        for none in ["/system", "system", "x.service", "", "0123", &"a".repeat(64)] {
            assert!(cgroup(none).is_empty(), "{none}");
        }
        for container in [&ID[..12], &ID[..40], ID] {
            assert_eq!(cgroup(container), [7], "{container}");
        }
        // A number may be one that the kernel's lists do not have.
        let pids = Filter {
            pids: vec![9, 8, 9, 70],
            ..Filter::default()
        };
        assert_eq!(found(&pids), [8, 9, 70]);
    }

    #[test]
    fn names_are_cut_as_the_kernel_cuts_them_and_lists_are_alternatives() {
        let folder = tempfile::tempdir().unwrap();
        let proc = proc(folder.path());
        let mut filter = Filter {
            comms: ["a-name-of-15-bytes-and-more", "other"].map(str::to_owned).to_vec(),
            ..Filter::default()
        };
        assert_eq!(filter.processes(&proc).unwrap(), [7]);
        filter.comms.push("nginx".to_owned());
        assert_eq!(filter.processes(&proc).unwrap(), [7, 9]);
        filter.exes.push("/usr/sbin/nginx".into());
        assert_eq!(filter.processes(&proc).unwrap(), [9]);
        filter.cgroups.push(ID.to_owned());
        assert!(filter.processes(&proc).unwrap().is_empty());
    }
}
