//! Which CPUs the workers run on, and which are vector cores. A pure decision, made once.

use std::num::NonZeroUsize;

use crate::config::{Batching, Config, CpuList, Fault};
use widelane_batching::{self as batching, Placement};
use widelane_crypto::{Backend, Preference};

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
    /// Decides for a process that may use the CPUs `allowed`, and whose quota pays for as many as `paid`,
    /// on CPUs that have lanes or not.
    pub(crate) fn decide(config: &Config, allowed: &[usize], paid: usize, lanes: bool) -> Self {
        let chosen = usable(&config.cpus, allowed);
        let vector = vector_cpus(&config.batching, &chosen, allowed, paid, lanes);
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

/// Those of the named CPUs that the process may use. Which ones a container gets, its configuration
/// does not know.
pub(crate) fn usable(named: &CpuList, allowed: &[usize]) -> Vec<usize> {
    let named = named.0.iter().copied();
    match allowed.is_empty() {
        true => named.collect(),
        false => named.filter(|cpu| allowed.contains(cpu)).collect(),
    }
}

/// Checks that workers and vector cores have a CPU where some are named. Without one, they would run
/// on others, which was not wanted.
pub(crate) fn check(config: &Config, allowed: &[usize]) -> Result<(), Fault> {
    let batching = &config.batching;
    let has_vector_cores = has_lanes(batching) && batching.placement != Placement::Inline;
    let vector = has_vector_cores.then_some(("batching.vector_cpus", &batching.vector_cpus));
    for (key, named) in std::iter::once(("cpus", &config.cpus)).chain(vector) {
        if !named.0.is_empty() && usable(named, allowed).is_empty() {
            return Err(Fault::new(
                key,
                format!(
                    "this process may use none of these CPUs, only CPUs {}",
                    allowed
                        .iter()
                        .map(usize::to_string)
                        .collect::<Vec<_>>()
                        .join(",")
                ),
                "name some of them, or change the cpuset (of the container, of taskset)",
            ));
        }
    }
    Ok(())
}

/// How many CPUs the quota of this process's cgroup pays for (`cpu.max`): whole ones, at least one, and
/// not more than it may use.
pub(crate) fn paid() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
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

/// Whether this CPU has lanes that Widelane uses.
pub(crate) fn have_lanes() -> bool {
    Preference::Auto.resolve() != Ok(Backend::AwsLc)
}

/// Whether there are passes at all.
fn has_lanes(batching: &Batching) -> bool {
    batching.enabled && batching.backend != Preference::Exactly(Backend::AwsLc)
}

fn vector_cpus(
    batching: &Batching,
    workers: &[usize],
    allowed: &[usize],
    paid: usize,
    lanes: bool,
) -> Vec<usize> {
    let named = usable(&batching.vector_cpus, allowed);
    match batching.placement {
        _ if !has_lanes(batching) => Vec::new(),
        Placement::Inline => Vec::new(),
        Placement::VectorCores => named,
        // AWS-LC's code lowers no clock that vector cores would keep.
        Placement::Auto if !lanes => Vec::new(),
        // Workers and vector cores would stop each other.
        Placement::Auto if paid < 2 => Vec::new(),
        Placement::Auto => {
            // A quarter: with RSA, passes take more of a core than the rest of a handshake on three
            // others.
            let quarter = (allowed.len().min(paid) / 4).max(1);
            let candidates = if !named.is_empty() {
                named
            } else if !workers.is_empty() {
                let mut left = without(allowed, workers);
                if paid < allowed.len() {
                    left.truncate(quarter);
                }
                left
            } else {
                allowed[allowed.len().saturating_sub(quarter)..].to_vec()
            };
            let others = without(allowed, &candidates).len();
            match batching::place(&batching.clock(), candidates.len(), others) {
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
        config.batching.clock = Some(clock);
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

    /// Without a quota.
    fn decide(config: &Config, allowed: &[usize]) -> Cores {
        Cores::decide(config, allowed, allowed.len(), true)
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
        let cores = decide(&config, &[2, 3, 9]);
        assert_eq!(cores.workers, Workers::Pinned(vec![2, 9]));
        assert_eq!(check(&config, &[2, 3, 9]), Ok(()));
        let fault = check(&config, &[3]).unwrap_err();
        assert!(fault.key == "cpus" && fault.problem.contains("CPUs 3"));
        // The system does not say.
        assert_eq!(usable(&config.cpus, &[]), [0, 2, 9]);
        config.cpus = CpuList::default();
        assert_eq!(check(&config, &[3]), Ok(()));
    }

    #[test]
    fn without_a_penalty_auto_is_inline() {
        let auto = config(Placement::Auto, Clock::default());
        assert_eq!(decide(&auto, &[0, 1, 2, 3]), inline());
    }

    #[test]
    fn with_one_wide_code_gets_cores_of_its_own_that_workers_leave_alone() {
        let auto = config(Placement::Auto, lowered());
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
    fn without_lanes_no_core_is_taken_from_workers_unless_that_was_asked_for() {
        let without = |config: &Config| Cores::decide(config, &[0, 1], 2, false);
        assert_eq!(without(&config(Placement::Auto, lowered())), inline());
        let mut fixed = config(Placement::VectorCores, lowered());
        fixed.batching.vector_cpus = CpuList(vec![1]);
        assert_eq!(without(&fixed), beside(&[0], &[1]));
    }

    #[test]
    fn the_quota_pays_for_vector_cores_too() {
        let auto = config(Placement::Auto, lowered());
        let all: Vec<usize> = (0..64).collect();
        let count = |config: &Config, paid| Cores::decide(config, &all, paid, true).vector.len();
        assert_eq!(count(&auto, 64), 16);
        assert_eq!(count(&auto, 9), 2);
        assert_eq!(count(&auto, 2), 1);
        assert_eq!(count(&auto, 1), 0, "half a CPU, or one");
        let mut pinned = auto;
        pinned.cpus = CpuList(vec![0, 1]);
        assert_eq!(count(&pinned, 64), 62);
        assert_eq!(count(&pinned, 4), 1);
        let mut fixed = config(Placement::VectorCores, lowered());
        fixed.batching.vector_cpus = CpuList(vec![5]);
        assert_eq!(count(&fixed, 1), 1, "as asked for");
    }

    #[test]
    fn vector_cores_are_cpus_that_the_process_may_use() {
        for placement in [Placement::Auto, Placement::VectorCores] {
            let mut config = config(placement, lowered());
            config.batching.vector_cpus = CpuList(vec![1, 9]);
            assert_eq!(decide(&config, &[0, 1]), beside(&[0], &[1]));
            assert_eq!(check(&config, &[0, 1]), Ok(()));
            let fault = check(&config, &[0, 2]).unwrap_err();
            assert_eq!(fault.key, "batching.vector_cpus");
            assert!(fault.problem.contains("CPUs 0,2"), "{}", fault.problem);
            config.batching.enabled = false;
            assert_eq!(check(&config, &[0, 2]), Ok(()), "they are not used");
        }
    }

    #[test]
    fn what_was_asked_for_is_done() {
        let mut fixed = config(Placement::VectorCores, Clock::default());
        fixed.batching.vector_cpus = CpuList(vec![1]);
        assert_eq!(decide(&fixed, &[0, 1]), beside(&[0], &[1]));
        assert_eq!(decide(&fixed, &[1]), shared(&[1]), "no other CPU");
        let on_workers = config(Placement::Inline, lowered());
        assert_eq!(decide(&on_workers, &[0, 1]), inline());
    }
}
