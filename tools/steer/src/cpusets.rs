//! The CPUs that control groups allow.

use std::collections::HashMap;
use std::path::Path;
use widelane_affinity::Cpus;

/// The name of the cpuset that a thread is in.
pub(crate) fn cpuset_of(tid: i32) -> Option<String> {
    let name = widelane_files::kernel_text(format!("/proc/{tid}/cpuset")).ok()?;
    Some(name.trim().to_owned())
}

/// The CPUs that a cpuset allows, if the kernel shows them to us.
///
/// Groups without settings of their own have no file; their nearest ancestor's holds for them.
fn cpuset_cpus(name: &str) -> Option<Cpus> {
    let name = name.trim_matches('/');
    if name.split('/').any(|part| part == "..") {
        // Outside our control group namespace.
        return None;
    }
    for (folder, file) in [
        ("/sys/fs/cgroup", "cpuset.cpus.effective"),
        ("/sys/fs/cgroup/cpuset", "cpuset.effective_cpus"),
        ("/sys/fs/cgroup/unified", "cpuset.cpus.effective"),
    ] {
        let group = Path::new(folder).join(name);
        let groups = group.ancestors().take_while(|group| group.starts_with(folder));
        for group in groups {
            if let Ok(text) = widelane_files::kernel_text(group.join(file)) {
                let cpus: Option<Cpus> = text.trim().parse().ok();
                return cpus.filter(|cpus| !cpus.is_empty());
            }
        }
    }
    None
}

/// CPUs that cpusets allow, looked up once a round.
pub(crate) struct Cpusets {
    pub(crate) online: Cpus,
    known: HashMap<String, Option<Cpus>>,
}

impl Cpusets {
    pub(crate) fn new(online: Cpus) -> Self {
        Self {
            online,
            known: HashMap::new(),
        }
    }

    pub(crate) fn get(&mut self, name: &str) -> Option<Cpus> {
        let online = self.online;
        let look = || cpuset_cpus(name).map(|cpus| cpus.and(&online));
        *self.known.entry(name.to_owned()).or_insert_with(look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::affinity;

    #[test]
    fn a_cpuset_is_looked_up_from_the_inside_out() {
        let own = cpuset_of(std::process::id() as i32).unwrap();
        let cpus = cpuset_cpus(&own);
        assert!(cpus.is_none_or(|cpus| affinity(std::process::id() as i32).unwrap().within(&cpus)));
        assert_eq!(cpuset_cpus("/../outside"), None);
    }
}
