//! Decisions that the engine's policy makes once, for a processor.

use widelane_batching::{self as batching, Clock, Form, PlacementChoice, Records, Topology, TransferCosts};

use crate::core::CYCLE;
use crate::placement::Placement;
use crate::plan::Plan;

/// The answers of `batching`, for a run.
pub(super) struct Policy {
    pub(super) clock: Clock,
    /// The first hyperthread of a vector core.
    pub(super) first_vector: usize,
    pub(super) ships: bool,
    pub(super) records: Records,
    pub(super) form: Form,
}

impl Policy {
    pub(super) fn of(plan: &Plan) -> Self {
        let clock = plan.clock();
        let transfer = &plan.transfer;
        let (candidates, cores) = (transfer.vector_cores, plan.machine.cores);
        let ours = plan.placement == Placement::Widelane;
        let choice = match candidates {
            0 => PlacementChoice::Inline,
            _ => PlacementChoice::Auto,
        };
        let last = (cores.saturating_sub(candidates)..cores).collect();
        let topology = Topology::new((0..cores).collect(), last);
        let placed = batching::placement(choice, &clock, &topology);
        let ships = ours && placed != batching::Placement::Inline;
        let khz = plan.machine.all_active()[0];
        let ns = |cycles: f64| (cycles * CYCLE) as u64 / khz.max(1);
        let costs = TransferCosts {
            pool: Some(2 * ns(transfer.pool) + transfer.wake_ns),
            migrate: Some(2 * ns(transfer.migration)),
        };
        let vector_cores = match ships || plan.placement.needs_vector_cores() {
            true => candidates,
            false => 0,
        };
        Self {
            first_vector: (cores - vector_cores) * plan.machine.threads,
            ships,
            records: match ours {
                true => batching::records(&clock),
                false => Records::Widest,
            },
            form: match ours {
                true => batching::form(&placed, &clock, &costs),
                false => Form::Inline,
            },
            clock,
        }
    }
}
