//! CPUs of the workers, and vector cores. A pure decision, made once.

use std::num::NonZeroUsize;

use crate::config::{Config, Environment, Fault};
use widelane_affinity::{Cpus, allowed};
use widelane_batching::{Clock, Placement, PlacementChoice, Topology, placement};
use widelane_crypto::{Backend, Preference, Target};

/// CPUs by what runs on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) workers: Workers,
    pub(crate) placement: Placement,
}

/// CPUs of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Workers {
    /// Wherever the process may.
    #[default]
    Anywhere,
    /// On one of these each, by turns: the operator has said so.
    Pinned(Cpus),
    /// On any of these, and on vector cores while they are given back.
    Beside(Cpus),
}

/// CPUs of this process, and their lanes and clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// CPUs that it may use. Empty: the system does not say.
    pub(crate) allowed: Cpus,
    /// CPUs that the quota of its cgroup pays for (`cpu.max`): whole ones, at least one, and not more
    /// than it may use.
    paid: usize,
    /// The lanes that passes prefer on its CPUs; `None`: Widelane uses none of them.
    lanes: Option<Target>,
    /// Effect of wide code on their clock.
    clock: Clock,
}

impl Cores {
    /// Decides for a process on `machine`.
    ///
    /// The fault is a list of CPUs of which it may use none. Without one, workers and passes would run
    /// on others, which was not wanted.
    pub(crate) fn decide(config: &Config, machine: &Machine) -> Result<Self, Fault> {
        let batching = &config.batching;
        if batching.placement == PlacementChoice::VectorCores && batching.vector_cpus.is_empty() {
            return Err(Fault::new(
                "batching.placement",
                "vector cores need CPUs of their own",
                "set `vector_cpus` (--vector-cpus), for example \"3\", or placement \"inline\"",
            ));
        }
        let has_passes = batching.enabled && batching.backend != Preference::Exactly(Backend::AwsLc);
        let choice = match has_passes {
            true => batching.placement,
            false => PlacementChoice::Inline,
        };
        let pinned = machine.usable("cpus", &config.cpus)?;
        let named = match choice {
            PlacementChoice::Inline => Cpus::default(),
            _ => machine.usable("batching.vector_cpus", &batching.vector_cpus)?,
        };
        let clock = match machine.lanes {
            Some(target) => machine.clock.of_registers(target.bits()),
            // AWS-LC's code lowers no clock that vector cores would keep.
            None => Clock::default(),
        };
        let topology = Topology {
            allowed: machine.allowed,
            paid: machine.paid,
            pinned,
            named,
        };
        let placement = placement(choice, &clock, &topology);
        // What would slow down the workers is not to share their cores.
        let others = machine.allowed.without(&placement.vector_cores());
        let workers = if !pinned.is_empty() {
            Workers::Pinned(pinned)
        } else if placement == Placement::Inline || others.is_empty() {
            Workers::Anywhere
        } else {
            Workers::Beside(others)
        };
        Ok(Self { workers, placement })
    }

    /// Number of workers: as configured, else as many as there are CPUs for them, of the process's cpuset,
    /// and not more than the quota of its cgroup pays for (`cpu.max`). Threads beyond the quota would be
    /// stopped together, each in the middle of its handshakes.
    pub(crate) fn worker_count(&self, config: &Config, machine: &Machine) -> usize {
        let suited = self.suited_workers(&machine.allowed);
        let suited = suited.filter(|suited| *suited > 0);
        let most = suited.map_or(machine.paid, |suited| suited.min(machine.paid));
        config.workers.map_or(most, NonZeroUsize::get)
    }

    /// Number of workers that suits them, in a process that may use the CPUs `allowed`; `None`: as many
    /// as there are CPUs.
    fn suited_workers(&self, allowed: &Cpus) -> Option<usize> {
        match &self.workers {
            Workers::Anywhere => None,
            Workers::Pinned(cpus) => Some(cpus.count()),
            // One for each vector core as well, or those that are given back would be of no use:
            // a connection stays with the worker that accepted it.
            Workers::Beside(_) => Some(allowed.count()),
        }
    }

    /// Number of `workers` that have a CPU even while all vector cores are at work.
    pub(crate) fn regular_workers(&self, workers: usize) -> usize {
        match &self.workers {
            Workers::Anywhere | Workers::Pinned(_) => workers,
            Workers::Beside(cpus) => workers.min(cpus.count()),
        }
    }
}

impl Machine {
    pub(crate) fn here(environment: &Environment) -> Self {
        Self {
            allowed: allowed(None).unwrap_or_default(),
            paid: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            lanes: Preference::Auto.resolve().ok().and_then(Backend::target),
            clock: environment.clock.unwrap_or_default(),
        }
    }

    /// The CPUs named at `key` that the process may use. Which ones a container gets, its
    /// configuration does not know.
    fn usable(&self, key: &str, named: &Cpus) -> Result<Cpus, Fault> {
        let usable = match self.allowed.is_empty() {
            true => *named,
            false => named.and(&self.allowed),
        };
        if usable.is_empty() && !named.is_empty() {
            let allowed = &self.allowed;
            return Err(Fault::new(
                key,
                format!("this process may use none of these CPUs, only CPUs {allowed}"),
                "name some of them, or change the cpuset (of the container, of taskset)",
            ));
        }
        Ok(usable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_batching::ClockPenalty;

    fn config(placement: PlacementChoice) -> Config {
        let mut config = Config::default();
        config.batching.placement = placement;
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

    fn cpus(text: &str) -> Cpus {
        text.parse().unwrap()
    }

    /// With lanes, without a quota, with a clock that wide code lowers.
    fn machine(allowed: &str) -> Machine {
        let allowed = cpus(allowed);
        Machine {
            allowed,
            paid: allowed.count(),
            lanes: Some(Target::Avx512Ifma),
            clock: lowered(),
        }
    }

    fn decide(config: &Config, allowed: &str) -> Cores {
        Cores::decide(config, &machine(allowed)).unwrap()
    }

    /// On a machine whose clock stays as it is.
    fn decide_at_full_clock(config: &Config, allowed: &str) -> Cores {
        let machine = Machine {
            clock: Clock::default(),
            ..machine(allowed)
        };
        Cores::decide(config, &machine).unwrap()
    }

    fn fault(config: &Config, allowed: &str) -> Fault {
        Cores::decide(config, &machine(allowed)).unwrap_err()
    }

    fn inline() -> Cores {
        Cores::default()
    }

    fn beside(workers: &str, vector: &str) -> Cores {
        Cores {
            workers: Workers::Beside(cpus(workers)),
            placement: Placement::VectorCores(cpus(vector)),
        }
    }

    fn shared(vector: &str) -> Cores {
        Cores {
            workers: Workers::Anywhere,
            placement: Placement::VectorCores(cpus(vector)),
        }
    }

    fn pinned(workers: &str, placement: Placement) -> Cores {
        Cores {
            workers: Workers::Pinned(cpus(workers)),
            placement,
        }
    }

    #[test]
    fn workers_are_pinned_to_cpus_that_the_process_may_use() {
        let mut config = Config {
            cpus: cpus("0,2,9"),
            ..Config::default()
        };
        assert_eq!(decide_at_full_clock(&config, "2,3,9"), pinned("2,9", Placement::Inline));
        let fault = fault(&config, "3");
        assert!(fault.key == "cpus" && fault.problem.contains("CPUs 3"));
        // The system does not say.
        assert_eq!(decide_at_full_clock(&config, ""), pinned("0,2,9", Placement::Inline));
        config.cpus = Cpus::default();
        assert_eq!(decide_at_full_clock(&config, "3"), inline());
    }

    #[test]
    fn without_a_penalty_auto_is_inline() {
        let auto = config(PlacementChoice::Auto);
        assert_eq!(decide_at_full_clock(&auto, "0-3"), inline());
    }

    #[test]
    fn with_one_wide_code_gets_cores_of_its_own_that_workers_leave_alone() {
        let auto = config(PlacementChoice::Auto);
        assert_eq!(decide(&auto, "0-1"), beside("0", "1"));
        let many = decide(&auto, "0-7");
        assert_eq!(many, beside("0-5", "6-7"));
        assert_eq!(many.suited_workers(&cpus("0-7")), Some(8), "all that can ever run");
        assert_eq!(many.regular_workers(8), 6);
        assert_eq!(many.regular_workers(3), 3);
        assert_eq!(decide(&auto, "5"), inline(), "no core to spare");
        assert_eq!(decide(&auto, ""), inline(), "nothing known");

        let mut named = auto.clone();
        named.batching.vector_cpus = cpus("0");
        assert_eq!(decide(&named, "0-2"), beside("1-2", "0"));
        let mut by_turns = auto.clone();
        by_turns.cpus = cpus("0-1");
        let third = Placement::VectorCores(cpus("2"));
        assert_eq!(decide(&by_turns, "0-2"), pinned("0-1", third));
        let none_is_left = pinned("0-1", Placement::Inline);
        assert_eq!(decide(&by_turns, "0-1"), none_is_left);
        let mut off = auto;
        off.batching.enabled = false;
        assert_eq!(decide(&off, "0-1"), inline());
    }

    #[test]
    fn without_lanes_no_core_is_taken_from_workers_unless_that_was_asked_for() {
        let without = |config: &Config| {
            let machine = Machine {
                lanes: None,
                ..machine("0-1")
            };
            Cores::decide(config, &machine).unwrap()
        };
        assert_eq!(without(&config(PlacementChoice::Auto)), inline());
        let mut fixed = config(PlacementChoice::VectorCores);
        fixed.batching.vector_cpus = cpus("1");
        assert_eq!(without(&fixed), beside("0", "1"));
    }

    /// A clock that only 512-bit multiplications lower.
    #[test]
    fn lanes_of_avx2_pay_for_256_bits_alone() {
        let of = |lanes: Target| {
            let machine = Machine {
                lanes: Some(lanes),
                ..machine("0-1")
            };
            Cores::decide(&config(PlacementChoice::Auto), &machine).unwrap()
        };
        assert_eq!(of(Target::Avx512Ifma), beside("0", "1"));
        assert_eq!(of(Target::Avx2), inline());
    }

    #[test]
    fn the_quota_pays_for_vector_cores_too() {
        let half = Machine {
            paid: 1,
            ..machine("0-63")
        };
        let auto = config(PlacementChoice::Auto);
        assert_eq!(Cores::decide(&auto, &half).unwrap(), inline());
        let mut fixed = config(PlacementChoice::VectorCores);
        fixed.batching.vector_cpus = cpus("5");
        let asked_for = Cores::decide(&fixed, &half).unwrap();
        assert_eq!(asked_for.placement.vector_cores(), cpus("5"));
    }

    #[test]
    fn vector_cores_are_cpus_that_the_process_may_use() {
        for placement in [PlacementChoice::Auto, PlacementChoice::VectorCores] {
            let mut config = config(placement);
            config.batching.vector_cpus = cpus("1,9");
            assert_eq!(decide(&config, "0-1"), beside("0", "1"));
            let fault = fault(&config, "0,2");
            assert_eq!(fault.key, "batching.vector_cpus");
            assert!(fault.problem.contains("CPUs 0,2"), "{}", fault.problem);
            config.batching.enabled = false;
            assert_eq!(decide(&config, "0,2"), inline(), "they are not used");
        }
    }

    #[test]
    fn what_was_asked_for_is_done() {
        let mut fixed = config(PlacementChoice::VectorCores);
        assert_eq!(fault(&fixed, "0-1").key, "batching.placement");
        fixed.batching.vector_cpus = cpus("1");
        assert_eq!(decide_at_full_clock(&fixed, "0-1"), beside("0", "1"));
        assert_eq!(decide_at_full_clock(&fixed, "1"), shared("1"), "no other CPU");
        let on_workers = config(PlacementChoice::Inline);
        assert_eq!(decide(&on_workers, "0-1"), inline());
    }
}
