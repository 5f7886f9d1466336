//! What the kernel writes in text under `/proc`, parsed. Pure functions; whatever they do not
//! understand is `None`.

use std::fmt;

/// What `arch_status` of a thread says about AVX-512.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elapsed {
    /// Nothing: the kernel lets no program use AVX-512.
    Unsaid,
    /// Its registers have never been in use at the end of a time slice.
    Never,
    /// They were, that many milliseconds ago.
    Milliseconds(u64),
}

/// Reads `/proc/PID/task/TID/arch_status`.
pub fn elapsed(arch_status: &str) -> Elapsed {
    let value = arch_status.lines().find_map(|line| {
        let value = line.strip_prefix("AVX512_elapsed_ms:")?;
        value.trim().parse::<i64>().ok()
    });
    match value {
        None => Elapsed::Unsaid,
        Some(value) => u64::try_from(value).map_or(Elapsed::Never, Elapsed::Milliseconds),
    }
}

/// Nanoseconds on a CPU, from `/proc/PID/task/TID/schedstat`.
pub fn run_time(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().next()?.parse().ok()
}

/// How often a thread has waited, from `/proc/PID/task/TID/status`.
pub fn waits(status: &str) -> Option<u64> {
    let count = |line: &str| {
        line.strip_prefix("voluntary_ctxt_switches:")?
            .trim()
            .parse()
            .ok()
    };
    status.lines().find_map(count)
}

/// Parts of `/proc/PID/task/TID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// The name of the thread, which may contain anything.
    pub name: &'a str,
    /// Clock ticks on a CPU, in user mode and in the kernel.
    pub ticks: u64,
    /// Clock ticks from the start of the system to that of the thread.
    pub started: u64,
}

/// Reads `/proc/PID/task/TID/stat`.
pub fn stat(text: &str) -> Option<Stat<'_>> {
    // The name stands in parentheses and may itself contain some, and spaces.
    let (head, rest) = text.rsplit_once(") ")?;
    let (_, name) = head.split_once(" (")?;
    // The state comes first, as field 3 of proc(5).
    let mut fields = rest.split_ascii_whitespace().skip(14 - 3);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let started = fields.nth(22 - 16)?.parse().ok()?;
    let ticks = user.saturating_add(system);
    Some(Stat {
        name,
        ticks,
        started,
    })
}

/// The cgroup of a process, from `/proc/PID/cgroup`.
///
/// That is the path in the unified hierarchy; where a system uses the older hierarchies beside it
/// and the unified path says nothing, the longest of the others.
pub fn cgroup(text: &str) -> Option<&str> {
    let mut best: Option<&str> = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (hierarchy, _, path) = (fields.next()?, fields.next()?, fields.next()?);
        if hierarchy == "0" && path != "/" {
            return Some(path);
        }
        if path.starts_with('/') && best.is_none_or(|best| path.len() > best.len()) {
            best = Some(path);
        }
    }
    best
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

/// The container that a cgroup belongs to; the innermost if they are nested.
pub fn container(cgroup: &str) -> Option<Container> {
    let mut found = None;
    let mut pod = None;
    let mut parent = "";
    for part in cgroup.split('/') {
        if let Some(uid) = pod_uid(part) {
            pod = Some(uid);
        }
        if let Some((runtime, id)) = named(part).or_else(|| numbered(part, parent, pod.is_some())) {
            let pod = pod.clone();
            found = Some(Container { runtime, id, pod });
        }
        parent = part;
    }
    found
}

/// The systemd unit that a cgroup belongs to; the innermost if they are nested.
pub fn unit(cgroup: &str) -> Option<&str> {
    let units = cgroup.rsplit('/');
    let mut units = units.filter(|part| part.ends_with(".service") || part.ends_with(".scope"));
    units.next()
}

/// A part of a process's memory with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file; none for code that was made at run time.
    pub path: Option<&'a str>,
}

/// The mappings with the right to execute, from `/proc/PID/maps`, except the kernel's own.
pub fn code_mappings(maps: &str) -> Vec<Mapping<'_>> {
    maps.lines().filter_map(code_mapping).collect()
}

fn code_mapping(line: &str) -> Option<Mapping<'_>> {
    // address permissions offset device inode path, which may contain spaces.
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let path = fields.nth(2).unwrap_or("").trim_start();
    if !permissions.contains('x') || path.starts_with("[v") {
        return None;
    }
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: path.starts_with('/').then_some(path),
    })
}

/// Where a field lies in the record of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes before it.
    pub offset: u16,
    /// Its length in bytes.
    pub size: u16,
}

/// Finds a field in the `format` of a tracepoint.
pub fn field(format: &str, name: &str) -> Option<Field> {
    let mut parts = format.lines().filter_map(|line| {
        // field:TYPE NAME; offset:N; size:N; signed:N;
        let mut parts = line.trim().split(';').map(str::trim);
        let declaration = parts.next()?.strip_prefix("field:")?;
        let declared = declaration.rsplit([' ', '*']).next()? == name;
        declared.then_some(parts)
    });
    let mut parts = parts.next()?;
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    Some(Field { offset, size })
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
/// How the scopes begin that systemd makes for container runtimes.
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
    fn elapsed_time_is_told_from_never_and_from_silence() {
        assert_eq!(elapsed("AVX512_elapsed_ms:\t8\n"), Elapsed::Milliseconds(8));
        assert_eq!(elapsed("AVX512_elapsed_ms:\t-1\n"), Elapsed::Never);
        assert_eq!(elapsed("x86_Thread_features:\n"), Elapsed::Unsaid);
        let later = "x86_Thread_features:\tshstk\nAVX512_elapsed_ms:\t0\n";
        assert_eq!(elapsed(later), Elapsed::Milliseconds(0));
    }

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let line = "77 (a) R 1 (b) ) S 1 77 77 0 -1 4194304 9 0 0 0 150 25 0 0 20 0 1 0 8371 9 9";
        let expected = Stat {
            name: "a) R 1 (b) ",
            ticks: 175,
            started: 8371,
        };
        assert_eq!(stat(line), Some(expected));
        assert_eq!(stat("77 (short) S 1 77"), None);
        assert_eq!(stat(""), None);
        let own = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert!(stat(&own).is_some_and(|stat| stat.started > 0));
    }

    #[test]
    fn waits_are_the_voluntary_switches() {
        // The name may be anything but a line of its own.
        let status = "Name:\tvoluntary_ctxt_switches: 9\nvoluntary_ctxt_switches:\t150\n\
                      nonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(waits(status), Some(150));
        assert_eq!(waits("nonvoluntary_ctxt_switches:\t545\n"), None);
        let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(waits(&own).is_some());
    }

    #[test]
    fn run_time_is_the_first_number() {
        assert_eq!(run_time("144808 2284444 2\n"), Some(144_808));
        assert_eq!(run_time(""), None);
    }

    #[test]
    fn the_unified_cgroup_comes_first_unless_it_says_nothing() {
        let unified = "1:cpu:/\n0::/system.slice/nginx.service\n";
        assert_eq!(cgroup(unified), Some("/system.slice/nginx.service"));
        let hybrid = "4:memory:/docker/abc\n1:cpu:/\n0::/\n";
        assert_eq!(cgroup(hybrid), Some("/docker/abc"));
        assert_eq!(cgroup("0::/\n"), Some("/"));
        assert_eq!(cgroup(""), None);
        assert_eq!(cgroup("broken"), None);
    }

    #[test]
    fn containers_are_known_by_the_paths_of_their_runtimes() {
        let name = |path: &str| container(path).map(|container| container.to_string());
        let short = &ID[..12];
        let pod = "8a7d4c2e-0000-1111-2222-333344445555";
        let systemd_pod = pod.replace('-', "_");
        for (path, expected) in [
            (
                format!("/system.slice/docker-{ID}.scope"),
                format!("docker {short}"),
            ),
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
            (
                "/lxc.payload.web/init.scope".to_owned(),
                "lxc web".to_owned(),
            ),
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
        assert_eq!(
            name(&conmon),
            None,
            "the monitor of a container is outside of it"
        );
    }

    #[test]
    fn the_innermost_unit_is_named() {
        assert_eq!(unit("/system.slice/nginx.service"), Some("nginx.service"));
        let user = "/user.slice/user-0.slice/user@0.service/app.slice/app.service/sub";
        assert_eq!(unit(user), Some("app.service"));
        assert_eq!(unit("/"), None);
    }

    #[test]
    fn code_is_told_from_data() {
        let maps = "\
5581-5582 r--p 00000000 fe:00 12  /usr/bin/some server\n\
5582-5583 r-xp 00001000 fe:00 12                         /usr/bin/some server\n\
7f00-7f01 rwxp 00000000 00:00 0 \n\
7f01-7f02 rw-p 00000000 00:00 0 \n\
7ffd-7ffe r-xp 00000000 00:00 0                          [vdso]\n\
nonsense\n";
        let server = Mapping {
            start: 0x5582,
            end: 0x5583,
            offset: 0x1000,
            path: Some("/usr/bin/some server"),
        };
        let generated = Mapping {
            start: 0x7f00,
            end: 0x7f01,
            offset: 0,
            path: None,
        };
        assert_eq!(code_mappings(maps), [server, generated]);
    }

    #[test]
    fn fields_of_tracepoints_are_found_by_name() {
        let format = "\
name: x86_fpu_regs_deactivated\n\
ID: 180\n\
format:\n\
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
\n\
\tfield:struct fpu * fpu;\toffset:8;\tsize:8;\tsigned:0;\n\
\tfield:u64 xfeatures;\toffset:24;\tsize:8;\tsigned:0;\n\
\n\
print fmt: \"x86/fpu: %p\", REC->fpu\n";
        let field = |name| super::field(format, name);
        assert_eq!(
            field("xfeatures"),
            Some(Field {
                offset: 24,
                size: 8
            })
        );
        assert_eq!(field("fpu"), Some(Field { offset: 8, size: 8 }));
        assert_eq!(field("features"), None);
        assert_eq!(
            super::field("\tfield:u64 xfeatures;\toffset:-1;", "xfeatures"),
            None
        );
    }
}
