//! A program that rounds in its own way and takes signals at floating-point exceptions: lanes that multiply by
//! floating-point numbers must neither be disturbed by it nor disturb it.

#![forbid(unsafe_code)]

mod common;

use common::{KEYS, Scratch, With, counted, text};
use widelane_cpu::{DISABLE_VARIABLE, Product, Target};

/// Lanes that multiply so, and what is taken away from a CPU that they are its best.
fn without() -> Vec<(Target, &'static str)> {
    let mut lanes = Vec::new();
    for (target, disabled) in [(Target::Avx2, "avx512f"), (Target::Avx512F, "avx512ifma")] {
        assert_eq!(target.product(), Product::Fma);
        match target.is_available() {
            true => lanes.push((target, disabled)),
            false => println!("SKIP: no {}", target.needs()),
        }
    }
    lanes
}

#[test]
fn the_rounding_of_a_program_changes_no_signature_and_stays() {
    for scratch in Scratch::all("") {
        let Some(program) = scratch.build("rounding") else {
            return;
        };
        for (target, disabled) in without() {
            // Named, because some cost more than AWS-LC on some machines, and are not chosen there.
            let named = scratch.with(&format!("backend = {target}"));
            named.keys();
            for (name, _) in KEYS.iter().filter(|(name, _)| ["rsa", "p256"].contains(name)) {
                let key = format!("{name}.pem");
                let mut command = named.command(With::Widelane, &program, &key);
                command.env(DISABLE_VARIABLE, disabled);
                let (ended, report) = counted(command);
                let said = text(&ended);
                assert!(ended.status.success(), "{target}, {name}: {}: {said}", ended.status);
                let report = report.expect("the provider has counted");
                let passes: u64 = report.operations.iter().map(|row| row.totals.passes).sum();
                assert!(passes > 0, "{target}, {name}: no pass in lanes: {said}");
            }
        }
    }
}
