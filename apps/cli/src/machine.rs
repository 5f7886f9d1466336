//! The profile of this machine, for the commands that use it.

use std::fmt::Write as _;
use std::path::PathBuf;
use widelane_frequency::{Machine, Profile, Stale};
use widelane_text::escaped;

/// The newest profile of `machine` in the first of these groups of files that has one.
///
/// # Errors
///
/// A text for people: why each of the files has none.
pub fn kept(groups: &[Vec<PathBuf>], machine: &Machine) -> Result<(PathBuf, Profile), String> {
    let mut best: Option<(PathBuf, Profile)> = None;
    let mut why = String::from("no profile of this machine");
    for group in groups {
        for file in group {
            let fault = match Profile::load(file) {
                Ok(profile) => match fault(&profile, machine) {
                    None => {
                        if best.as_ref().is_none_or(|(_, best)| best.taken < profile.taken) {
                            best = Some((file.clone(), profile));
                        }
                        continue;
                    }
                    Some(fault) => format!("{} {fault}", file.display()),
                },
                Err(error) => error.to_string(),
            };
            let separator = if why.contains(": ") { "; " } else { ": " };
            let _ = write!(why, "{separator}{fault}");
        }
        if best.is_some() {
            break;
        }
    }
    best.ok_or(why)
}

/// Reason why a profile cannot be used on `machine`.
pub fn fault(profile: &Profile, machine: &Machine) -> Option<String> {
    match profile.stale(machine)? {
        Stale::Machine => Some(format!(
            "is of another machine ({}{}, microcode {}, {} CPUs)",
            escaped(&profile.machine.name),
            match &profile.machine.emulates {
                Some(model) => format!(", which emulates {}", escaped(model)),
                None => String::new(),
            },
            escaped(&profile.machine.microcode),
            profile.machine.cpus
        )),
        Stale::Format => Some("was made by another version of widelane".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_profile_of_this_machine_is_used_or_all_faults_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("../../../tools/frequency/tests/data/profile.json");
        let sample = Profile::from_json(text).unwrap();
        let machine = sample.machine.clone();
        let file = |name: &str, taken, cpus| {
            let path = folder.path().join(name);
            let mut profile = sample.clone();
            profile.taken = taken;
            profile.machine.cpus += cpus;
            profile.save(&path).unwrap();
            path
        };
        let (old, new) = (file("old", 1, 0), file("new", 2, 0));
        let (foreign, missing) = (file("foreign", 3, 1), folder.path().join("missing"));
        let all = vec![missing.clone(), old.clone(), new.clone(), foreign.clone()];
        assert_eq!(kept(&[all], &machine).unwrap().0, new);
        // The folder that a service was given comes first, however old its profile is.
        let groups = [vec![old.clone()], vec![new.clone()]];
        assert_eq!(kept(&groups, &machine).unwrap().0, old);
        let groups = [vec![foreign.clone()], vec![new.clone()]];
        assert_eq!(kept(&groups, &machine).unwrap().0, new);
        let why = kept(&[vec![missing], vec![foreign]], &machine).unwrap_err();
        assert!(why.contains("/missing: "), "{why}");
        assert!(why.contains("/foreign is of another machine"), "{why}");
    }
}
