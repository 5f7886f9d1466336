//! What operations cost where we have measured them.

use widelane_batching::Costs;
use widelane_cpu::Target;
use widelane_cpu::licence::ports;

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

/// The costs on a processor with lanes by floating-point multiply-adds: those of lanes of AVX2 on [`WITH_AVX2`], with
/// each pass as many times as long as its products take the ports, for as many more requests as there are more lanes.
/// Predicted, not measured.
///
/// # Errors
///
/// When the operation was not measured, the target multiplies in another way, or no source says what units the CPU has.
pub(crate) fn predicted(
    cpu: &str,
    target: Target,
    operation: &str,
) -> Result<Costs, ScenarioError> {
    let measured = costs(WITH_AVX2, operation)?;
    if target == Target::Avx2 {
        return Ok(measured);
    }
    let wrong = |what: String| ScenarioError::Wrong(what);
    let units = ports::wide_multipliers(cpu)
        .ok_or_else(|| wrong(format!("no source says what 512-bit units {cpu} has")))?;
    let cycles = |target| {
        ports::product_cycles(target, units).ok_or_else(|| {
            wrong(format!(
                "{target} does not multiply by floating-point numbers; take avx2 or avx512f"
            ))
        })
    };
    let longer = cycles(target)? / cycles(Target::Avx2)?;
    let wider = target.lanes() / Target::Avx2.lanes();
    let full = measured.pass(measured.lanes) as f64 * longer;
    let first = measured.first as f64 * longer;
    let lanes = measured.lanes * wider;
    Ok(Costs {
        lanes,
        first: first as u64,
        further: ((full - first).max(0.0) / (lanes - 1).max(1) as f64) as u64,
        alone: measured.alone,
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
        Some(Row {
            cpu,
            operation,
            costs,
        })
    })
}

/// The machine on which lanes of AVX2 were measured, as the table calls it.
pub(crate) const WITH_AVX2: &str = "Xeon in lanes of AVX2";
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
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../records")
                .join(name);
            let (record, faults) = Record::read(&path);
            assert!(faults.is_empty(), "{faults:?}");
            let record = record.expect("a record");
            let results: Vec<&Value> = record
                .of("speed")
                .map(|line| &line.value["result"])
                .collect();
            let clocks = record.run["state"]["clock_ghz"].as_object();
            let state = clocks.and_then(|clocks| clocks.values().next()?.as_f64());
            table.push_str(&lines(cpu, backend, state, &results));
        }
        assert!(
            table == TABLE,
            "lab/sim/data/operations.csv must be:\n{table}"
        );
        assert_eq!(rows().count(), table.lines().count() - HEAD.lines().count());
    }

    /// The lines of one CPU. Those with VPMADD52 begin two 512-bit multiply-adds a cycle, so that the most that
    /// were measured give the clock; others have the clock that the record says.
    fn lines(cpu: &str, backend: &str, clock: Option<f64>, results: &[&Value]) -> String {
        let rate = |operation: &str, backend: &str, in_flight: u64| {
            let found = results.iter().find(|one| {
                one["operation"] == operation
                    && one["backend"] == backend
                    && one["in_flight"] == in_flight
            });
            found.and_then(|one| one["ops_per_s"].as_f64())
        };
        let ghz = match backend {
            "avx512ifma" => rate("port-limit", backend, 1).expect("a port limit") / 2e9,
            _ => clock.expect("the record says it"),
        };
        let mut lines = String::new();
        for operation in OPERATIONS {
            let cycles = |backend, in_flight| {
                rate(operation, backend, in_flight).map(|rate| ghz * 1e9 / rate)
            };
            let (Some(first), Some(alone)) = (cycles(backend, 1), cycles("aws-lc", 1)) else {
                continue;
            };
            // From the lanes of a pass on, more in flight raise the rate no more.
            let pass = |in_flight: u64| Some((in_flight, cycles(backend, in_flight)?));
            let passes: Vec<_> = [1, 2, 4, 8].into_iter().filter_map(pass).collect();
            let best = passes
                .iter()
                .map(|(_, each)| *each)
                .fold(f64::MAX, f64::min);
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
    fn wide_lanes_are_predicted_from_narrow_ones_by_the_ports() {
        let of = |cpu, target| predicted(cpu, target, "rsa2048-sign").expect("it can be");
        let each = |costs: Costs| costs.pass(costs.lanes) as f64 / costs.lanes as f64;
        let narrow = of("Xeon Gold 6130", Target::Avx2);
        for (cpu, gain) in [
            ("Xeon Gold 6130", 4.0 / 3.0),
            ("Xeon Silver 4116", 10.0 / 9.0),
        ] {
            let wide = of(cpu, Target::Avx512F);
            assert_eq!((wide.lanes, wide.alone), (2 * narrow.lanes, narrow.alone));
            let found = each(narrow) / each(wide);
            assert!((found / gain - 1.0).abs() < 0.001, "{cpu}: {found}");
        }
        let fails = |cpu, target| predicted(cpu, target, "rsa2048-sign").expect_err("not known");
        assert!(fails("Z80", Target::Avx512F).to_string().contains("Z80"));
        let told = fails("Xeon Gold 6130", Target::Avx512Ifma).to_string();
        assert!(told.contains("take avx2 or avx512f"), "{told}");
    }

    #[test]
    fn what_was_not_measured_is_named() {
        let cpu = RECORDS[0].0;
        let known = costs(cpu, "rsa2048-sign").expect("measured");
        assert!(
            known.lanes == 4 && known.worth() <= known.lanes,
            "{known:?}"
        );
        let told = costs("Z80", "rsa2048-sign")
            .expect_err("no such CPU")
            .to_string();
        assert!(told.contains(cpu), "{told}");
        let told = costs(cpu, "dsa-sign")
            .expect_err("no such operation")
            .to_string();
        assert!(told.contains("rsa2048-sign, rsa3072-sign"), "{told}");
    }

    const HEAD: &str = "\
# Cycles of operations, from the records in lab/records: a pass for one, a full pass, and one by AWS-LC.
# A test makes this table anew and compares.
cpu,operation,lanes,first,full,alone
";
    const RECORDS: [(&str, &str, &str); 3] = [
        (
            "Xeon with two 512-bit multipliers",
            "2026-11-23-intel-r-xeon-r-processor-speed.jsonl",
            "avx512ifma",
        ),
        ("Zen 5", "2026-11-21-amd-epyc.jsonl", "avx512ifma"),
        (
            WITH_AVX2,
            "2026-11-28-intel-r-xeon-r-processor-speed.jsonl",
            "avx2",
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
