//! The limit of open files, and how many connections it allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Limits;

/// Raises the soft limit of open files to the hard limit.
pub(crate) fn raise_descriptor_limit() {
    let now = getrlimit(Resource::Nofile);
    if now.current != now.maximum {
        let most = Rlimit {
            current: now.maximum,
            maximum: now.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, most) {
            tracing::warn!(%error, "cannot raise RLIMIT_NOFILE");
        }
    }
}

/// Keeps the memory of this process, in which private keys lie, from core files.
///
/// The limit is one byte: a limit of 0 ends core files only, while Linux also starts no program that takes them
/// (`core_pattern` with `|`) for a process with the limit 1 (`fs/coredump.c`).
pub(crate) fn forbid_core_files() {
    let now = getrlimit(Resource::Core);
    let least = match now.maximum {
        Some(0) => 0,
        _ => 1,
    };
    let limit = Rlimit {
        current: Some(least),
        maximum: now.maximum,
    };
    if let Err(error) = setrlimit(Resource::Core, limit) {
        tracing::warn!(%error, "a crash can leave private keys in a core file; set RLIMIT_CORE to 0");
    }
}

/// Number of connections to accept: the configured one, or as many as there are descriptors for.
pub(crate) fn connection_limit(limits: &Limits) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let possible = connections_with(descriptors);
    match limits.connections {
        None => {
            if is_little(possible) {
                tracing::warn!(
                    descriptors,
                    connections = possible,
                    "the limit of open files leaves room for few connections; raise it \
                     (LimitNOFILE= in the unit, or `ulimit -n`)"
                );
            }
            possible
        }
        Some(wanted) => {
            if wanted > possible {
                tracing::warn!(
                    descriptors,
                    possible,
                    wanted,
                    "limits.connections needs more open files than allowed: raise the hard limit \
                     (LimitNOFILE= in the unit) or lower limits.connections"
                );
            }
            wanted
        }
    }
}

/// Returns whether so few connections are hardly meant by a limit of open files.
fn is_little(connections: usize) -> bool {
    connections < 100
}

/// Each connection needs two descriptors: the client's socket and the backend's.
fn connections_with(descriptors: u64) -> usize {
    let spare = descriptors.saturating_sub(OTHER_DESCRIPTORS);
    usize::try_from(spare / 2).unwrap_or(usize::MAX).max(1)
}

/// Descriptors for everything except connections.
const OTHER_DESCRIPTORS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_limit_the_default_to_at_least_one() {
        assert_eq!(connections_with(100_256), 50_000);
        assert_eq!(connections_with(0), 1);
        assert!(is_little(connections_with(256)));
        assert!(!is_little(connections_with(1024)));
        let limits = Limits {
            connections: Some(7),
            ..Limits::default()
        };
        assert_eq!(connection_limit(&limits), 7);
        assert!(connection_limit(&Limits::default()) >= 1);
    }
}
