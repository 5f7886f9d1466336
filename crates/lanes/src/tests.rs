//! What the machines promise, tried on all kernels.

use crate::bounds::Bounds;
use crate::machine::{Array, DIGIT_MASK, Machine};
use crate::montgomery::{product, reduce};
use crate::{Kernel, Licence, Width};

#[test]
fn every_kernel_is_proved() {
    for kernel in Kernel::all() {
        let proof = kernel
            .prove()
            .unwrap_or_else(|error| panic!("{}: {error}", kernel.name()));
        assert!(proof.widest_bits <= 64, "{}: {proof:?}", kernel.name());
    }
}

#[test]
fn a_planted_overflow_is_found() {
    // Columns of 2^63 leave no room for a product.
    let mut machine = Bounds::new(&[20, 20, 1], &[63, 52, 52]);
    let t = (0..40).map(|i| machine.load(Array(0), i % 20)).collect();
    let n: Vec<_> = (0..20).map(|i| machine.load(Array(1), i)).collect();
    let k0 = machine.load(Array(2), 0);
    reduce(&mut machine, t, &n, k0);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("may exceed 2^63"), "{error}");
}

#[test]
fn a_planted_carry_out_of_a_lane_is_found() {
    let mut machine = Bounds::new(&[1], &[64]);
    let a = machine.load(Array(0), 0);
    machine.add(a, a);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("does not fit 64 bits"), "{error}");
}

#[test]
fn a_planted_wide_digit_is_found() {
    let mut machine = Bounds::new(&[20], &[53]);
    let a: Vec<_> = (0..20).map(|i| machine.load(Array(0), i)).collect();
    product(&mut machine, &a, &a);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("is not a 52-bit digit"), "{error}");
}

#[test]
fn a_planted_broken_promise_is_found() {
    let mut machine = Bounds::new(&[1, 1], &[52, 52]);
    let a = machine.load(Array(1), 0);
    let twice = machine.add(a, a);
    machine.store(Array(0), 0, twice);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("promised below 2^52"), "{error}");
}

#[test]
fn the_model_checks_claims() {
    let mut out = [[0; 2]];
    let mut machine = crate::Model::new(&mut out, &[]);
    machine.claim([1, DIGIT_MASK], 52, "both are digits");
    let broken = std::panic::catch_unwind(move || {
        let mut out = [[0; 2]];
        crate::Model::new(&mut out, &[]).claim([1, DIGIT_MASK + 1], 52, "it is not");
    });
    assert!(broken.is_err());
}

#[test]
fn multiplications_in_wide_registers_ask_for_the_slowest_clock() {
    let licence = |kernel: Kernel, width| kernel.report(width).licence;
    assert_eq!(licence(Kernel::Amm(20), Width::Zmm), Licence::Level2);
    assert_eq!(licence(Kernel::Amm(20), Width::Ymm), Licence::Level1);
    assert_eq!(licence(Kernel::Subtract(20), Width::Zmm), Licence::Level1);
    assert_eq!(licence(Kernel::Subtract(20), Width::Ymm), Licence::Level0);
}

#[test]
fn assembly_names_itself_and_its_size() {
    let text = Kernel::Ams(20).assembly(Width::Zmm);
    for line in [
        "    .type widelane_ams52x20_mb8, @function",
        "widelane_ams52x20_mb8:",
        "    .size widelane_ams52x20_mb8, . - widelane_ams52x20_mb8",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
}
