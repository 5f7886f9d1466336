//! How many descriptors this process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Limits;

/// Raises the soft limit of open files to the hard one.
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

/// How many connections to accept: what the operator says, or what the descriptors suffice for.
pub(crate) fn connection_limit(limits: &Limits) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let possible = connections_with(descriptors);
    match limits.connections {
        None => possible,
        Some(wanted) => {
            if wanted > possible {
                tracing::warn!(
                    descriptors,
                    possible,
                    wanted,
                    "too few open files allowed for limits.connections: raise the hard limit \
                     (LimitNOFILE= in the unit) or lower limits.connections"
                );
            }
            wanted
        }
    }
}

/// A client's socket and its backend's for each connection, after some for everything else.
fn connections_with(descriptors: u64) -> usize {
    let spare = descriptors.saturating_sub(OTHER_DESCRIPTORS);
    usize::try_from(spare / 2).unwrap_or(usize::MAX).max(1)
}

const OTHER_DESCRIPTORS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_bound_the_default_and_never_to_nothing() {
        assert_eq!(connections_with(100_256), 50_000);
        assert_eq!(connections_with(0), 1);
        let limits = Limits {
            connections: Some(7),
            ..Limits::default()
        };
        assert_eq!(connection_limit(&limits), 7);
        assert!(connection_limit(&Limits::default()) >= 1);
    }
}
