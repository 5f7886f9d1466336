//! Measured costs of operations.

use widelane_batching::Costs;
use widelane_cpu::licence::{Generation, ports};
use widelane_cpu::{Lanes, Target};

use crate::error::ScenarioError;

/// The costs of an operation on a CPU, in cycles.
///
/// # Errors
///
/// When it was not measured there: the message lists what was.
pub(crate) fn costs(cpu: &str, operation: &str) -> Result<Costs, ScenarioError> {
    let mut of_cpu = rows().filter(|row| row.cpu == cpu).peekable();
    if of_cpu.peek().is_none() {
        let mut known: Vec<_> = rows().map(|row| row.cpu).collect();
        known.dedup();
        let known = known.join("\", \"");
        let what = format!("nothing was measured on {cpu:?}; the CPUs are \"{known}\"");
        return Err(ScenarioError::Wrong(what));
    }
    let known: Vec<_> = of_cpu.collect();
    match known.iter().find(|row| row.operation == operation) {
        Some(row) => Ok(row.costs),
        None => {
            let known: Vec<_> = known.iter().map(|row| row.operation).collect();
            Err(ScenarioError::Wrong(format!(
                "{operation:?} was not measured on {cpu:?}; the operations are {}",
                known.join(", ")
            )))
        }
    }
}

/// The costs in the lanes of a target on a processor that has them: as measured on a Xeon, AVX-512 without IFMA with
/// each pass as many times as long as its products take the ports of this processor. Predicted, not measured.
///
/// # Errors
///
/// When the operation was not measured so, the processor lacks the lanes, or no source says what units it has.
pub(crate) fn predicted(
    cpu: &str,
    generation: Generation,
    target: Target,
    operation: &str,
) -> Result<Costs, ScenarioError> {
    let wrong = |what: String| Err(ScenarioError::NoLanes(what));
    let has = |target: &Target| {
        let lanes = Lanes::of_generation(generation);
        lanes.is_some_and(|lanes| lanes.targets().any(|one| one == *target))
    };
    let measured_on = IN_LANES.iter().find(|(known, _)| *known == target);
    let Some((_, measured_on)) = measured_on.filter(|_| has(&target)) else {
        let known = IN_LANES.iter().map(|(target, _)| target);
        let names: Vec<_> = known.filter(|target| has(target)).map(|target| target.name()).collect();
        return wrong(match names.is_empty() {
            true => format!("{cpu} has no lanes whose costs are known"),
            false => format!("{cpu} has no costs in lanes of {target}; take {}", names.join(" or ")),
        });
    };
    let measured = costs(measured_on, operation)?;
    if target != Target::Avx512F {
        return Ok(measured);
    }
    let Some(units) = ports::wide_multipliers(cpu) else {
        return wrong(format!("no source says what 512-bit units {cpu} has"));
    };
    let cycles = |units| ports::product_cycles(target, units).unwrap_or(1.0);
    let longer = cycles(units) / cycles(UNITS);
    let longer = |cycles: u64| (cycles as f64 * longer) as u64;
    Ok(Costs {
        first: longer(measured.first),
        further: longer(measured.further),
        ..measured
    })
}

/// A row of the table.
struct Row {
    cpu: &'static str,
    operation: &'static str,
    costs: Costs,
}

/// All rows; those of one CPU follow each other.
fn rows() -> impl Iterator<Item = Row> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines.filter_map(|line| {
        let mut fields = line.split(',');
        let (cpu, operation) = (fields.next()?, fields.next()?);
        let mut number = || fields.next()?.parse::<u64>().ok();
        let (lanes, first, full, alone) = (number()?, number()?, number()?, number()?);
        let further = full.saturating_sub(first) / (lanes - 1).max(1);
        let costs = Costs {
            lanes: lanes as usize,
            first,
            further,
            alone,
        };
        Some(Row { cpu, operation, costs })
    })
}

/// The machines on which lanes were measured, as the table calls them, the preferred lanes first.
const IN_LANES: [(Target, &str); 3] = [
    (Target::Avx512Ifma, "Xeon with two 512-bit multipliers"),
    (Target::Avx512F, "Xeon in lanes of AVX-512 without IFMA"),
    (Target::Avx2, "Xeon in lanes of AVX2"),
];
/// 512-bit floating-point units of its cores.
const UNITS: u32 = 2;
const TABLE: &str = include_str!("../data/operations.csv");

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;
    use widelane_samples::Record;

    use super::*;

    /// Each line of the table is what its record says.
    #[test]
    fn the_table_follows_from_the_records() {
        let mut table = String::from(HEAD);
        for (cpu, name, backend) in RECORDS {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records").join(name);
            let (record, faults) = Record::read(&path);
            assert!(faults.is_empty(), "{faults:?}");
            let record = record.expect("a record");
            let results: Vec<&Value> = record.of("speed").map(|line| &line.value["result"]).collect();
            let clocks = record.run["state"]["clock_ghz"].as_object();
            let state = clocks.and_then(|clocks| clocks.values().next()?.as_f64());
            table.push_str(&lines(cpu, backend, state, &results));
        }
        assert!(table == TABLE, "lab/sim/data/operations.csv must be:\n{table}");
        assert_eq!(rows().count(), table.lines().count() - HEAD.lines().count());
    }

    /// The lines of one CPU. Those with VPMADD52 begin two 512-bit multiply-adds a cycle, so that the most that
    /// were measured give the clock; others have the clock that the record says.
    fn lines(cpu: &str, backend: &str, clock: Option<f64>, results: &[&Value]) -> String {
        let rate = |operation: &str, backend: &str, in_flight: u64| {
            let found = results.iter().find(|one| {
                one["operation"] == operation && one["backend"] == backend && one["in_flight"] == in_flight
            });
            found.and_then(|one| one["ops_per_s"].as_f64())
        };
        let ghz = match backend {
            "avx512ifma" => rate("port-limit", backend, 1).expect("a port limit") / 2e9,
            _ => clock.expect("the record says it"),
        };
        let mut lines = String::new();
        for operation in OPERATIONS {
            let cycles = |backend, in_flight| rate(operation, backend, in_flight).map(|rate| ghz * 1e9 / rate);
            let (Some(first), Some(alone)) = (cycles(backend, 1), cycles("aws-lc", 1)) else {
                continue;
            };
            // From the lanes of a pass on, more in flight raise the rate no more.
            let pass = |in_flight: u64| Some((in_flight, cycles(backend, in_flight)?));
            let passes: Vec<_> = [1, 2, 4, 8].into_iter().filter_map(pass).collect();
            let best = passes.iter().map(|(_, each)| *each).fold(f64::MAX, f64::min);
            let full = passes.iter().find(|(_, each)| *each < 1.1 * best);
            let (lanes, each) = full.expect("the best is one of them");
            lines.push_str(&format!(
                "{cpu},{operation},{lanes},{first:.0},{:.0},{alone:.0}\n",
                each * *lanes as f64
            ));
        }
        lines
    }

    #[test]
    fn lanes_are_predicted_from_those_that_were_measured_by_the_ports() {
        let skylake = |cpu, target| predicted(cpu, Generation::Skylake, target, "rsa2048-sign");
        let of = |cpu, target| skylake(cpu, target).expect("it can be");
        let (gold, silver) = ("Xeon Gold 6130", "Xeon Silver 4116");
        // Two units as where it was measured, and one: 3 cycles a product for 2.5.
        let wide = costs(IN_LANES[1].1, "rsa2048-sign").expect("measured");
        assert_eq!(of(gold, Target::Avx512F), wide);
        let one_unit = of(silver, Target::Avx512F);
        let found = one_unit.pass(4) as f64 / wide.pass(4) as f64;
        assert!((found / 1.2 - 1.0).abs() < 0.001, "{found}");
        assert_eq!((one_unit.lanes, one_unit.alone), (wide.lanes, wide.alone));
        assert_eq!(of(gold, Target::Avx2), of(silver, Target::Avx2));

        let fails = |cpu, target| skylake(cpu, target).expect_err("not known").to_string();
        assert!(fails("Z80", Target::Avx512F).contains("Z80"));
        let message = fails(gold, Target::Avx512Ifma);
        assert!(message.contains("take avx512f or avx2"), "{message}");
        let ice_lake = Generation::IceLake;
        let own = predicted("Xeon Gold 6338N", ice_lake, Target::Avx512Ifma, "rsa2048-sign");
        assert!(own.expect("measured").pass(4) < wide.pass(4));
    }

    #[test]
    fn what_was_not_measured_is_named() {
        let cpu = RECORDS[0].0;
        let known = costs(cpu, "rsa2048-sign").expect("measured");
        assert!(known.lanes == 4 && known.worth() <= known.lanes, "{known:?}");
        let message = costs("Z80", "rsa2048-sign").expect_err("no such CPU").to_string();
        assert!(message.contains(cpu), "{message}");
        let message = costs(cpu, "dsa-sign").expect_err("no such operation").to_string();
        assert!(message.contains("rsa2048-sign, rsa3072-sign"), "{message}");
    }

    const HEAD: &str = "\
# Cycles of operations, from the records in lab/records: a pass for one, a full pass, and one by AWS-LC.
# A test makes this table anew and compares.
cpu,operation,lanes,first,full,alone
";
    const RECORDS: [(&str, &str, &str); 4] = [
        (
            IN_LANES[0].1,
            "2026-11-23-intel-r-xeon-r-processor-speed.jsonl",
            "avx512ifma",
        ),
        ("Zen 5", "2026-11-21-amd-epyc.jsonl", "avx512ifma"),
        (
            IN_LANES[2].1,
            "2026-11-28-intel-r-xeon-r-processor-speed-2.jsonl",
            "avx2",
        ),
        (
            IN_LANES[1].1,
            "2026-11-28-intel-r-xeon-r-processor-speed-2.jsonl",
            "avx512f",
        ),
    ];
    const OPERATIONS: [&str; 12] = [
        "rsa2048-sign",
        "rsa3072-sign",
        "rsa4096-sign",
        "p256-ecdsa-sign",
        "p384-ecdsa-sign",
        "ed25519-sign",
        "x25519-keygen",
        "x25519-derive",
        "p256-ecdh",
        "p384-ecdh",
        "mlkem768-encaps",
        "mldsa65-sign",
    ];
}
