//! Control groups, and the units and containers that their paths name.

use std::fmt;

use procfs_core::{FromRead, ProcessCGroup, ProcessCGroups};

/// The control groups of a process: one path in each hierarchy.
#[derive(Clone, Debug, Default)]
pub struct Cgroups(Vec<ProcessCGroup>);

impl Cgroups {
    /// Reads `/proc/PID/cgroup`. Empty if it is not understood.
    pub fn parse(text: &[u8]) -> Self {
        // Names are bytes, and need not be text.
        let text = String::from_utf8_lossy(text);
        let groups = ProcessCGroups::from_read(text.as_bytes());
        Self(groups.map_or_else(|_| Vec::new(), |groups| groups.0))
    }

    /// The path in the unified hierarchy.
    pub fn unified(&self) -> Option<&str> {
        let unified = self.0.iter().find(|group| group.hierarchy == 0);
        unified.map(|group| &*group.pathname)
    }

    /// The path in the older hierarchy of a controller.
    pub fn of_controller(&self, name: &str) -> Option<&str> {
        let has = |group: &&ProcessCGroup| group.controllers.iter().any(|one| one == name);
        self.0.iter().find(has).map(|group| &*group.pathname)
    }

    /// The path that says most: that in the unified hierarchy, or where a system uses the older
    /// hierarchies beside it and the unified path is `/`, the longest of the others.
    pub fn path(&self) -> Option<&str> {
        let unified = self.unified().filter(|path| *path != "/");
        let paths = self.0.iter().map(|group| &*group.pathname);
        let mut best: Option<&str> = None;
        for path in paths.filter(|path| path.starts_with('/')) {
            if best.is_none_or(|best| path.len() > best.len()) {
                best = Some(path);
            }
        }
        unified.or(best)
    }
}

/// A container, as far as the path of its cgroup tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// What runs it.
    pub runtime: &'static str,
    /// The first twelve digits of its number, or its name where the path has one.
    pub id: String,
    /// The Kubernetes pod that it belongs to.
    pub pod: Option<String>,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.runtime, self.id)?;
        match &self.pod {
            Some(pod) => write!(f, " (pod {pod})"),
            None => Ok(()),
        }
    }
}

impl Container {
    /// The container that a cgroup belongs to; the innermost if they are nested.
    pub fn of(cgroup: &str) -> Option<Self> {
        let mut found = None;
        let mut pod = None;
        let mut parent = "";
        for part in cgroup.split('/') {
            if let Some(uid) = pod_uid(part) {
                pod = Some(uid);
            }
            if let Some((runtime, id)) = named(part).or_else(|| numbered(part, parent, pod.is_some())) {
                let pod = pod.clone();
                found = Some(Self { runtime, id, pod });
            }
            parent = part;
        }
        found
    }
}

/// The systemd unit that a cgroup belongs to; the innermost if they are nested.
pub fn unit(cgroup: &str) -> Option<&str> {
    let units = cgroup.rsplit('/');
    let mut units = units.filter(|part| part.ends_with(".service") || part.ends_with(".scope"));
    units.next()
}

/// The pod of a part of a path: `pod<uid>` or `kubepods-burstable-pod<uid>.slice`, in which systemd
/// has `_` for `-`.
fn pod_uid(part: &str) -> Option<String> {
    let stem = part.strip_suffix(".slice").unwrap_or(part);
    let uid = match stem.strip_prefix("pod") {
        Some(uid) => uid,
        None if stem.starts_with("kubepods") => stem.rsplit_once("-pod")?.1,
        None => return None,
    };
    let digits = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-' || byte == b'_';
    (uid.len() >= 32 && uid.bytes().all(digits)).then(|| uid.replace('_', "-"))
}

/// Containers whose path says what runs them.
fn named(part: &str) -> Option<(&'static str, String)> {
    let scope = part.strip_suffix(".scope");
    for (prefix, runtime) in RUNTIMES {
        let id = scope.and_then(|scope| scope.strip_prefix(prefix));
        if let Some(id) = id.filter(|id| is_number(id)) {
            return Some((runtime, id[..SHORT].to_owned()));
        }
    }
    if let Some(name) = scope.and_then(|scope| scope.strip_prefix("machine-")) {
        return Some(("machine", name.replace("\\x2d", "-")));
    }
    let name = part.strip_prefix("lxc.payload.")?;
    Some(("lxc", name.to_owned()))
}

/// Containers whose path is only their number, as Docker and Kubernetes have it without systemd.
fn numbered(part: &str, parent: &str, in_pod: bool) -> Option<(&'static str, String)> {
    let runtime = match parent {
        "docker" => "docker",
        "lxc" if !part.is_empty() => return Some(("lxc", part.to_owned())),
        _ if in_pod => "kubernetes",
        _ => return None,
    };
    is_number(part).then(|| (runtime, part[..SHORT].to_owned()))
}

fn is_number(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Digits of a container's number that its tools show.
const SHORT: usize = 12;
/// Beginnings of the scopes that systemd makes for container runtimes.
const RUNTIMES: [(&str, &str); 4] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("crio-", "cri-o"),
    ("libpod-", "podman"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn the_unified_cgroup_comes_first_unless_it_says_nothing() {
        let path = |text: &str| {
            let cgroups = Cgroups::parse(text.as_bytes());
            cgroups.path().map(str::to_owned)
        };
        let unified = "1:cpu:/\n0::/system.slice/nginx.service\n";
        assert_eq!(path(unified).as_deref(), Some("/system.slice/nginx.service"));
        let hybrid = "4:memory:/docker/abc\n1:cpu:/\n0::/\n";
        assert_eq!(path(hybrid).as_deref(), Some("/docker/abc"));
        assert_eq!(path("0::/\n").as_deref(), Some("/"));
        assert_eq!(path(""), None);
        assert_eq!(path("broken"), None);
    }

    #[test]
    fn containers_are_known_by_the_paths_of_their_runtimes() {
        let name = |path: &str| Container::of(path).map(|container| container.to_string());
        let short = &ID[..12];
        let pod = "8a7d4c2e-0000-1111-2222-333344445555";
        let systemd_pod = pod.replace('-', "_");
        for (path, expected) in [
            (format!("/system.slice/docker-{ID}.scope"), format!("docker {short}")),
            (format!("/docker/{ID}"), format!("docker {short}")),
            (
                format!("/machine.slice/libpod-{ID}.scope/container"),
                format!("podman {short}"),
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/\
                     kubepods-burstable-pod{systemd_pod}.slice/cri-containerd-{ID}.scope"
                ),
                format!("containerd {short} (pod {pod})"),
            ),
            (
                format!("/kubepods/besteffort/pod{pod}/{ID}"),
                format!("kubernetes {short} (pod {pod})"),
            ),
            (
                format!("/kubepods.slice/kubepods-pod{systemd_pod}.slice/crio-{ID}.scope"),
                format!("cri-o {short} (pod {pod})"),
            ),
            ("/lxc.payload.web/init.scope".to_owned(), "lxc web".to_owned()),
            ("/lxc/web/user.slice".to_owned(), "lxc web".to_owned()),
            (
                "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope".to_owned(),
                "machine qemu-1-web".to_owned(),
            ),
        ] {
            assert_eq!(name(&path), Some(expected), "{path}");
        }
        for path in [
            "/",
            "/system.slice/docker.service",
            "/system.slice/docker-short.scope",
            "/user.slice/user-0.slice/session-1.scope",
        ] {
            assert_eq!(name(path), None, "{path}");
        }
        let conmon = format!("/machine.slice/libpod-conmon-{ID}.scope");
        assert_eq!(name(&conmon), None, "the monitor of a container is outside of it");
    }

    #[test]
    fn the_innermost_unit_is_named() {
        assert_eq!(unit("/system.slice/nginx.service"), Some("nginx.service"));
        let user = "/user.slice/user-0.slice/user@0.service/app.slice/app.service/sub";
        assert_eq!(unit(user), Some("app.service"));
        assert_eq!(unit("/"), None);
    }
}
