//! Description of this machine, for the record.

use crate::error::TrialError;
use crate::options::Options;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use widelane_cpu::licence::Generation;
use widelane_samples::names::openssl_of_nginx;

/// The CPU's name as the kernel gives it.
pub(crate) fn cpu_model() -> String {
    let facts = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    fact(&facts, "model name").unwrap_or("unknown CPU").to_owned()
}

/// Value of a line of `/proc/cpuinfo`, of the first CPU.
fn fact<'a>(facts: &'a str, name: &str) -> Option<&'a str> {
    let mut facts = facts.lines().filter_map(|line| line.split_once(':'));
    facts.find_map(|(key, value)| (key.trim() == name).then_some(value.trim()))
}

/// The kind of processor. Its name alone does not say that in virtual machines: a Zen 4 and a Zen 5 are an "AMD EPYC".
fn generation(facts: &str) -> Value {
    let number = |name| fact(facts, name)?.parse().ok();
    let [family, model, stepping] = ["cpu family", "model", "stepping"].map(number);
    let known = || Some(Generation::of(fact(facts, "vendor_id")?, family?, model?, stepping?));
    json!({
        "family": family,
        "model": model,
        "stepping": stepping,
        "generation": known().unwrap_or(Generation::Unknown).to_string(),
    })
}

/// Everything about machine and programs that a reader of the figures may ask for.
pub(crate) fn describe(options: &Options) -> Result<Value, TrialError> {
    let cpus = widelane_affinity::allowed(None).map_err(TrialError::machine("cannot list the CPUs"))?;
    let facts = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let ifma = facts.contains(" avx512ifma");
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let tree = Tree::here();
    let widelane = said(&options.widelane, &["--version"]);
    let lab = said(&options.lab, &["--version"]);
    // Figures of a program from elsewhere are as little the commit's as those of changed sources.
    let other = [&widelane, &lab].iter().any(|said| tree.objection_to(said).is_some());
    Ok(json!({
        "cpu": cpu_model(),
        "cpu_is": generation(&facts),
        "cpus": cpus.count(),
        "avx512ifma": ifma,
        "lanes": widelane_cpu::lanes().widths(),
        "hypervisor": facts.contains(" hypervisor"),
        "server_cpu": options.server_cpu,
        "load_cpu": options.load_cpu,
        "kernel": trimmed("/proc/sys/kernel/osrelease"),
        "system": system.map(|name| name.trim_matches('"')),
        "load_average_at_start": trimmed("/proc/loadavg"),
        "widelane": widelane.lines().next(),
        "widelane_commit": commit_in(&widelane),
        "lab_commit": commit_in(&lab),
        "nginx": nginx_said(options),
        "haproxy": version(options.haproxy.as_ref(), "-v"),
        "hitch": version(options.hitch.as_ref(), "-V"),
        "widelane_old": version(options.old.as_ref(), "--version"),
        "openssl": said("openssl", &["version"]).lines().next(),
        "rustc": said("rustc", &["--version"]).lines().next(),
        "commit": tree.commit,
        "modified": tree.changes.map(|changes| other || !changes.is_empty()),
    }))
}

/// Version that a program prints: its first line, and the commit if there is one. The program's path would be another
/// one elsewhere.
fn version(program: Option<&PathBuf>, argument: &str) -> Option<String> {
    let said = said(program?, &[argument]);
    let commit = commit_in(&said).map(|commit| format!(", commit {commit}"));
    Some(format!("{}{}", said.lines().next()?, commit.unwrap_or_default()))
}

/// The state of the working tree that the programs are built from.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Unknown where there is no repository or no git.
    pub(crate) commit: Option<String>,
    /// Files that differ from the commit, new ones included; records of other runs are not sources.
    pub(crate) changes: Option<Vec<String>>,
}

impl Tree {
    pub(crate) fn here() -> Self {
        let commit = answered("git", &["rev-parse", "HEAD"]);
        let status = ["status", "--porcelain", "--", ":/", ":(top,exclude)lab/records"];
        let changes = answered("git", &status).filter(|_| commit.is_some());
        // Two letters for the kind of change, a space, the name.
        let names = |text: String| -> Vec<String> {
            let lines = text.lines().map(str::trim_start);
            let names = lines.filter_map(|line| line.split_once(' '));
            names.map(|(_, name)| name.trim().to_owned()).collect()
        };
        Self {
            commit,
            changes: changes.map(names),
        }
    }

    /// Reason why figures of this tree cannot be found again from their record; `None` if they can.
    pub(crate) fn objection(&self) -> Option<String> {
        let Some(changes) = &self.changes else {
            return Some("no commit is known here, because git or its repository is missing".into());
        };
        let first = changes.first()?;
        Some(match changes.len() {
            1 => format!("{first} is not as in the commit"),
            count => format!("{first} and {} more files are not as in the commit", count - 1),
        })
    }

    /// Reason why the program that printed this for `--version` was not built from this tree's commit; `None` if it
    /// was.
    pub(crate) fn objection_to(&self, said: &str) -> Option<String> {
        let Some(built) = commit_in(said) else {
            return Some("does not say of which commit it is".into());
        };
        if let Some(commit) = built.strip_suffix(MODIFIED) {
            return Some(format!(
                "was built from {commit} with changes that the commit does not have"
            ));
        }
        // An unknown commit of the tree is an objection to the tree.
        let head = self.commit.as_deref()?;
        let short = head.get(..built.len()).unwrap_or(head);
        (short != built).then(|| format!("was built from {built}, and the tree is at {short}"))
    }
}

/// The commit in what `widelane --version` says, perhaps with [`MODIFIED`]; nothing if the program
/// does not know it.
fn commit_in(said: &str) -> Option<&str> {
    let commit = said.lines().find_map(|line| line.strip_prefix("commit: "));
    commit.filter(|commit| *commit != "unknown")
}

/// Suffix of the commit of a program that was built from changed sources.
const MODIFIED: &str = "-modified";

/// Lines in which nginx names its version and its library.
pub(crate) fn nginx_said(options: &Options) -> Option<Vec<String>> {
    let said = said(options.nginx.as_ref()?, &["-V"]);
    Some(said.lines().take(4).map(str::to_owned).collect())
}

/// Returns whether nginx's library has post-quantum groups, as OpenSSL has since 3.5.
pub(crate) fn nginx_has_hybrids(options: &Options) -> bool {
    let Some(nginx) = &options.nginx else {
        return false;
    };
    openssl_of_nginx(&said(nginx, &["-V"])).is_some_and(has_hybrids)
}

fn has_hybrids(openssl: &str) -> bool {
    let mut parts = openssl.split('.').map(|part| part.parse::<u32>().ok());
    matches!((parts.next(), parts.next()), (Some(Some(major)), Some(Some(minor)))
        if (major, minor) >= (3, 5))
}

/// Today and now, in UTC, as `date` says it.
pub(crate) fn now(format: &str) -> String {
    answered("date", &["-u", format]).unwrap_or_default()
}

/// Output of a program, if it ends well.
fn answered(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| printed.trim().to_owned())
}

/// Text of a program on either output; empty if it does not run.
pub(crate) fn said(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            text
        },
    )
}

fn trimmed(file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_of_one_name_are_distinguished() {
        let facts = |family: u32, model: u32| {
            let cpu = |number: u32| {
                format!(
                    "processor\t: {number}\nvendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: {model}\n\
                     model name\t: AMD EPYC\nstepping\t: 1\n\n"
                )
            };
            cpu(0) + &cpu(1)
        };
        let zen4 = json!({"family": 25, "model": 17, "stepping": 1, "generation": "zen4"});
        assert_eq!(generation(&facts(25, 17)), zen4);
        assert_eq!(generation(&facts(26, 2))["generation"], "zen5");
        assert_eq!(fact(&facts(26, 2), "model name"), Some("AMD EPYC"));
        assert_eq!(generation("")["generation"], "unknown");
    }

    #[test]
    fn only_a_tree_as_in_its_commit_is_fit_for_a_record() {
        let tree = |changes: Option<&[&str]>| Tree {
            commit: Some("49ba647".into()),
            changes: changes.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        };
        assert_eq!(tree(Some(&[])).objection(), None);
        let one = tree(Some(&["a.rs"])).objection().expect("an objection");
        assert_eq!(one, "a.rs is not as in the commit");
        let more = tree(Some(&["a.rs", "b.rs", "c"])).objection();
        assert!(more.expect("an objection").starts_with("a.rs and 2 more files"));
        assert!(tree(None).objection().expect("an objection").contains("git"));
    }

    #[test]
    fn only_a_program_of_the_trees_commit_is_fit_for_a_record() {
        let head = "49ba647f0123456789abcdef0123456789abcdef";
        let tree = Tree {
            commit: Some(head.into()),
            changes: Some(Vec::new()),
        };
        let said = |commit: &str| format!("widelane 0.1.0\ncommit: {commit}\nfeatures: +ebpf\n");
        assert_eq!(tree.objection_to(&said("49ba647f0123")), None);
        assert_eq!(tree.objection_to(&said(head)), None);
        let other = tree.objection_to(&said("83728b5c0123")).expect("another commit");
        assert_eq!(other, "was built from 83728b5c0123, and the tree is at 49ba647f0123");
        let modified = tree.objection_to(&said("49ba647f0123-modified"));
        assert!(
            modified
                .expect("changes")
                .starts_with("was built from 49ba647f0123 with")
        );
        for unknown in [&said("unknown"), "widelane 0.1.0\n", ""] {
            let objection = tree.objection_to(unknown).expect("no commit");
            assert!(objection.contains("does not say"), "{objection}");
        }
    }

    #[test]
    fn the_library_that_runs_decides_what_nginx_can_do() {
        let said = "nginx version: nginx/1.22.1\nbuilt with OpenSSL 3.0.8 7 Feb 2023 \
                    (running with OpenSSL 3.5.1 1 Jul 2025)\n";
        assert_eq!(openssl_of_nginx(said), Some("3.5.1"));
        assert!(has_hybrids("3.5.1") && has_hybrids("4.0.0"));
        assert!(!has_hybrids("3.0.22") && !has_hybrids("1.1.1w") && !has_hybrids("unknown"));
    }
}
