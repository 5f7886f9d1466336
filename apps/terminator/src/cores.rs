//! Which CPUs the workers run on, and which are vector cores. A pure decision, made once.

use crate::config::{Batching, Config, Fault, SigningBackend};
use widelane_batching::{self as batching, Placement};

/// CPUs by what runs on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) workers: Workers,
    /// Vector cores. Empty: passes run on the workers.
    pub(crate) vector: Vec<usize>,
}

/// Where workers run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Workers {
    /// Wherever the process may.
    #[default]
    Anywhere,
    /// On one of these each, by turns: the operator has said so.
    Pinned(Vec<usize>),
    /// On any of these, and on vector cores while they are given back.
    Beside(Vec<usize>),
}

impl Cores {
    /// Decides for a process that may use the CPUs `allowed`.
    pub(crate) fn decide(config: &Config, allowed: &[usize]) -> Self {
        let chosen = usable(config, allowed);
        let vector = vector_cpus(&config.batching, &chosen, allowed);
        let workers = if !chosen.is_empty() {
            Workers::Pinned(chosen)
        } else {
            // What would slow down the workers is not to share their cores.
            match without(allowed, &vector) {
                others if vector.is_empty() || others.is_empty() => Workers::Anywhere,
                others => Workers::Beside(others),
            }
        };
        Self { workers, vector }
    }

    /// How many workers suit them, in a process that may use the CPUs `allowed`; `None`: as many
    /// as there are CPUs.
    pub(crate) fn suited_workers(&self, allowed: &[usize]) -> Option<usize> {
        match &self.workers {
            Workers::Anywhere => None,
            Workers::Pinned(cpus) => Some(cpus.len()),
            // One for each vector core as well, or those that are given back would be of no use:
            // a connection stays with the worker that accepted it.
            Workers::Beside(_) => Some(allowed.len()),
        }
    }

    /// How many of `workers` have a CPU even while all vector cores are at work.
    pub(crate) fn regular_workers(&self, workers: usize) -> usize {
        match &self.workers {
            Workers::Anywhere | Workers::Pinned(_) => workers,
            Workers::Beside(cpus) => workers.min(cpus.len()),
        }
    }
}

/// Those of the CPUs named for workers that the process may use. Which ones a container gets, its
/// configuration does not know.
fn usable(config: &Config, allowed: &[usize]) -> Vec<usize> {
    let named = config.cpus.0.iter().copied();
    match allowed.is_empty() {
        true => named.collect(),
        false => named.filter(|cpu| allowed.contains(cpu)).collect(),
    }
}

/// Checks that the workers have a CPU. Without one, they would run on any, which was not wanted.
pub(crate) fn check(config: &Config, allowed: &[usize]) -> Result<(), Fault> {
    match config.cpus.0.is_empty() || !usable(config, allowed).is_empty() {
        true => Ok(()),
        false => Err(Fault::new(
            "cpus",
            format!("this process may use none of these CPUs, but CPUs {allowed:?}"),
            "name some of them, or change the cpuset (of the container, of taskset)",
        )),
    }
}

/// The CPUs that this process may use.
pub(crate) fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

fn vector_cpus(batching: &Batching, workers: &[usize], allowed: &[usize]) -> Vec<usize> {
    let named = batching.vector_cpus.0.clone();
    let lanes = batching.enabled && batching.backend != SigningBackend::AwsLc;
    match batching.placement {
        _ if !lanes => Vec::new(),
        Placement::Inline => Vec::new(),
        Placement::VectorCores => named,
        Placement::Auto => {
            let candidates = if !named.is_empty() {
                named
            } else if !workers.is_empty() {
                without(allowed, workers)
            } else {
                // A quarter: with RSA, passes take more of a core than the rest of a handshake on
                // three others.
                let count = (allowed.len() / 4).max(1);
                allowed[allowed.len().saturating_sub(count)..].to_vec()
            };
            let others = without(allowed, &candidates).len();
            match batching::place(&batching.clock, candidates.len(), others) {
                Placement::VectorCores => candidates,
                _ => Vec::new(),
            }
        }
    }
}

fn without(cpus: &[usize], others: &[usize]) -> Vec<usize> {
    let kept = cpus.iter().filter(|cpu| !others.contains(cpu));
    kept.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CpuList;
    use widelane_batching::{Clock, ClockPenalty};

    fn config(placement: Placement, clock: Clock) -> Config {
        let mut config = Config::default();
        config.batching.placement = placement;
        config.batching.clock = clock;
        config
    }

    /// A clock that wide code lowers.
    fn lowered() -> Clock {
        let wide = ClockPenalty {
            depth: 0.32,
            stall: 51_400,
            tail: 670_000,
        };
        Clock {
            wide,
            ..Clock::default()
        }
    }

    fn inline() -> Cores {
        Cores::default()
    }

    fn beside(workers: &[usize], vector: &[usize]) -> Cores {
        Cores {
            workers: Workers::Beside(workers.to_vec()),
            vector: vector.to_vec(),
        }
    }

    fn shared(vector: &[usize]) -> Cores {
        Cores {
            workers: Workers::Anywhere,
            vector: vector.to_vec(),
        }
    }

    fn pinned(workers: &[usize], vector: &[usize]) -> Cores {
        Cores {
            workers: Workers::Pinned(workers.to_vec()),
            vector: vector.to_vec(),
        }
    }

    #[test]
    fn workers_are_pinned_to_cpus_that_the_process_may_use() {
        let mut config = Config {
            cpus: CpuList(vec![0, 2, 9]),
            ..Config::default()
        };
        let cores = Cores::decide(&config, &[2, 3, 9]);
        assert_eq!(cores.workers, Workers::Pinned(vec![2, 9]));
        assert_eq!(check(&config, &[2, 3, 9]), Ok(()));
        let fault = check(&config, &[3]).unwrap_err();
        assert!(fault.key == "cpus" && fault.problem.contains("CPUs [3]"));
        // The system does not say.
        assert_eq!(usable(&config, &[]), [0, 2, 9]);
        config.cpus = CpuList::default();
        assert_eq!(check(&config, &[3]), Ok(()));
    }

    #[test]
    fn without_a_penalty_auto_is_inline() {
        let auto = config(Placement::Auto, Clock::default());
        assert_eq!(Cores::decide(&auto, &[0, 1, 2, 3]), inline());
    }

    #[test]
    fn with_one_wide_code_gets_cores_of_its_own_that_workers_leave_alone() {
        let auto = config(Placement::Auto, lowered());
        let decide = |config: &Config, allowed: &[usize]| Cores::decide(config, allowed);
        assert_eq!(decide(&auto, &[0, 1]), beside(&[0], &[1]));
        let eight: Vec<usize> = (0..8).collect();
        assert_eq!(decide(&auto, &eight), beside(&[0, 1, 2, 3, 4, 5], &[6, 7]));
        let many = decide(&auto, &eight);
        assert_eq!(
            many.suited_workers(&eight),
            Some(8),
            "all that can ever run"
        );
        assert_eq!(many.regular_workers(8), 6);
        assert_eq!(many.regular_workers(3), 3);
        assert_eq!(decide(&auto, &[5]), inline(), "no core to spare");
        assert_eq!(decide(&auto, &[]), inline(), "nothing known");

        let mut named = auto.clone();
        named.batching.vector_cpus = CpuList(vec![0]);
        assert_eq!(decide(&named, &[0, 1, 2]), beside(&[1, 2], &[0]));
        let mut by_turns = auto.clone();
        by_turns.cpus = CpuList(vec![0, 1]);
        assert_eq!(decide(&by_turns, &[0, 1, 2]), pinned(&[0, 1], &[2]));
        assert_eq!(
            decide(&by_turns, &[0, 1]),
            pinned(&[0, 1], &[]),
            "none is left"
        );
        let mut off = auto;
        off.batching.enabled = false;
        assert_eq!(decide(&off, &[0, 1]), inline());
    }

    #[test]
    fn what_was_asked_for_is_done() {
        let mut fixed = config(Placement::VectorCores, Clock::default());
        fixed.batching.vector_cpus = CpuList(vec![1]);
        assert_eq!(Cores::decide(&fixed, &[0, 1]), beside(&[0], &[1]));
        assert_eq!(Cores::decide(&fixed, &[1]), shared(&[1]), "no other CPU");
        let on_workers = config(Placement::Inline, lowered());
        assert_eq!(Cores::decide(&on_workers, &[0, 1]), inline());
    }
}
