//! Cycles that products by floating-point multiply-adds take on the vector ports of Skylake and Cascade Lake: pure
//! arithmetic, which predicts where nothing was measured.
//!
//! A product takes five operations: two multiply-adds and a subtraction on ports that have a floating-point
//! unit, and two integer additions on any vector port (`crates/lanes/src/lower.rs`). For registers of 256 bits there
//! are three ports, of which two have such a unit; for 512 bits there are two, of which one or both have.

use crate::{Product, Target};

/// 512-bit floating-point units of a core of the data file's processor; `None` where no source says.
///
/// Intel's forum (J. McCalpin, "Calculate the Max Flops on Skylake"): two in Gold 6000, one in Gold 5000 but for the
/// 5122. ServeTheHome's review of the Silver 4116: one. WikiChip on the Platinum 8256: two, which is assumed of
/// other Platinums and of Core i9 of the X series.
pub fn wide_multipliers(cpu: &str) -> Option<u32> {
    let begins = |names: &[&str]| names.iter().any(|name| cpu.starts_with(name));
    if begins(&["Xeon Gold 61", "Xeon Gold 62", "Xeon Platinum 8", "Core i9-"]) {
        Some(2)
    } else if begins(&["Xeon Silver 41", "Xeon Silver 42", "Xeon Gold 51", "Xeon Gold 52"]) {
        Some(1)
    } else {
        None
    }
}

/// Fewest cycles that a product of digits in all lanes of a register takes on a core with `wide_multipliers` 512-bit
/// floating-point units; `None` for code that multiplies in another way.
pub fn product_cycles(target: Target, wide_multipliers: u32) -> Option<f64> {
    let (ports, multipliers) = match (target.product(), target.bits()) {
        (Product::Fma, 256) => (3.0, 2.0),
        (Product::Fma, _) => (2.0, f64::from(wide_multipliers.max(1))),
        _ => return None,
    };
    Some(f64::max(FLOATING / multipliers, (FLOATING + INTEGER) / ports))
}

/// Ratio of products per cycle to those in lanes of AVX2.
pub fn speed_up(target: Target, wide_multipliers: u32) -> Option<f64> {
    let lane = |target: Target| Some(product_cycles(target, wide_multipliers)? / target.lanes() as f64);
    Some(lane(Target::Avx2)? / lane(target)?)
}

/// Operations of a product by kind.
const FLOATING: f64 = 3.0;
const INTEGER: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::licence::{Generation, turbo};

    #[test]
    fn wide_registers_gain_a_third_with_two_units_and_a_ninth_with_one() {
        let cycles = |target, units| product_cycles(target, units).expect("it multiplies so");
        assert_eq!(cycles(Target::Avx2, 1), 5.0 / 3.0);
        assert_eq!(cycles(Target::Avx512F, 2), 2.5);
        assert_eq!(cycles(Target::Avx512F, 1), 3.0);
        let gain = |units| speed_up(Target::Avx512F, units).expect("it multiplies so");
        assert!((gain(2) - 4.0 / 3.0).abs() < 1e-9);
        assert!((gain(1) - 10.0 / 9.0).abs() < 1e-9);
        assert_eq!(speed_up(Target::Avx2, 1), Some(1.0));
        assert_eq!(speed_up(Target::Avx512Ifma, 2), None);
    }

    #[test]
    fn the_machines_of_the_published_experiments_are_known() {
        let units = |name: &str| wide_multipliers(name);
        assert_eq!(units("Xeon Gold 6130"), Some(2));
        assert_eq!(units("Xeon Silver 4116"), Some(1));
        assert_eq!(units("Xeon Platinum 8269CY"), Some(2));
        let old = [Generation::Skylake, Generation::CascadeLake];
        let rows = turbo().iter().filter(|row| old.contains(&row.generation));
        let unknown: Vec<_> = rows.filter(|row| units(row.cpu).is_none()).collect();
        assert!(unknown.iter().all(|row| row.cpu == "Xeon W-2104"), "{unknown:?}");
    }
}
