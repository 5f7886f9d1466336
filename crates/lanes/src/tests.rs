//! Tests of the machines' guarantees on all kernels.

use widelane_cpu::Registers;

use crate::allocate::{Instruction, Memory, Operand};
use crate::bounds::Bounds;
use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};
use crate::montgomery::{product, reduce};
use crypto_bigint::{BoxedUint, NonZero};

use crate::trace::{Name, Op, ThreeOp, Trace, TwoOp};
use crate::{ChaCha20Poly1305, Definition, Holds, Kernel, Licence, Model, Modular, Multipliers, Target};

#[test]
fn every_kernel_is_proved() {
    for kernel in Kernel::all() {
        for width in Target::ALL {
            let proof = kernel
                .prove(width)
                .unwrap_or_else(|error| panic!("{}: {error}", kernel.symbol(width)));
            assert!(proof.widest_bits <= 64, "{}: {proof:?}", kernel.name());
        }
    }
}

#[test]
fn definitions_are_complete() {
    let mut names = std::collections::BTreeSet::new();
    for kernel in Kernel::all() {
        let name = kernel.name();
        assert!(names.insert(name.clone()), "two kernels are called {name}");
        for width in Target::ALL {
            let arrays = kernel.arrays(width.lanes());
            assert!(arrays.iter().all(|array| array.len > 0), "{name}");
            // Callers pass what is written first.
            assert!(arrays.is_sorted_by_key(|array| !array.written), "{name}");
            // A value computed from a secret is secret.
            let public = |array: &crate::ArraySpec| !array.secret;
            let mut written = arrays.iter().filter(|array| array.written);
            let tells = written.any(public);
            assert!(!tells || arrays.iter().all(public), "{name} makes a secret public");
        }
    }
}

#[test]
fn the_model_multiplies_and_squares_modulo_n() {
    for d in [20, 30, 40] {
        for seed in 0..8 {
            let n = number(d, seed);
            let (a, b) = (number(d, 100 + seed), number(d, 200 + seed));
            let [a, b] = [a, b].map(|mut x| {
                // Below 2 n, as n has its highest bit in this place.
                x[d - 1][0] >>= 1;
                x
            });
            let mut modulus = n.clone();
            let newton = |x: u64, _| x.wrapping_mul(2u64.wrapping_sub(n[0][0].wrapping_mul(x)));
            modulus.push([(0..5).fold(n[0][0], newton).wrapping_neg() & DIGIT_MASK]);

            let mut product = vec![[0; 1]; d];
            Kernel::from(Modular::Amm(d)).model(&mut [&mut product], &[&a, &b, &modulus]);
            assert_montgomery(&product, &a, &b, &n);
            let mut square = vec![[0; 1]; d];
            Kernel::from(Modular::Ams(d)).model(&mut [&mut square], &[&a, &modulus]);
            assert_montgomery(&square, &a, &a, &n);
        }
    }
}

/// `out 2^(52 d) = a b mod n`, and `out < 2 n`.
fn assert_montgomery(out: &[[u64; 1]], a: &[[u64; 1]], b: &[[u64; 1]], n: &[[u64; 1]]) {
    let digits = n.len();
    let [out, a, b, n] = [out, a, b, n].map(integer);
    let one = BoxedUint::one_with_precision(n.bits_precision());
    let r = one.shl(u32::try_from(52 * digits).expect("few digits"));
    assert!(out < &n + &n);
    let n = NonZero::new(n).expect("n is odd");
    assert_eq!((&out * &r) % &n, (&a * &b) % &n);
}

/// A number of `d` digits whose highest digit is in [2^34, 2^35), odd.
fn number(d: usize, seed: u64) -> Vec<[u64; 1]> {
    let digit = |i: usize| {
        // SplitMix64.
        let z = (seed << 32 | i as u64)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        [(z ^ (z >> 31)) & DIGIT_MASK]
    };
    let mut number: Vec<_> = (0..d).map(digit).collect();
    number[0][0] |= 1;
    number[d - 1][0] = number[d - 1][0] >> 18 | 1 << 34;
    number
}

fn integer(digits: &[[u64; 1]]) -> BoxedUint {
    let precision = 64 * 52 * 3;
    digits
        .iter()
        .rev()
        .fold(BoxedUint::zero_with_precision(precision), |sum, digit| {
            sum.shl(52) + BoxedUint::from_words_with_precision([digit[0]], precision)
        })
}

#[test]
fn a_planted_overflow_is_found() {
    // Columns of 2^63 leave no room for a product.
    let mut machine = Bounds::new(Target::Avx512Ifma, &[below(20, 63), below(20, 52), below(1, 52)]);
    let t = (0..40).map(|i| machine.load(Array(0), i % 20)).collect();
    let n: Vec<_> = (0..20).map(|i| machine.load(Array(1), i)).collect();
    let k0 = machine.load(Array(2), 0);
    reduce(&mut machine, t, &n, k0);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("may exceed 2^63"), "{error}");
}

#[test]
fn a_planted_carry_out_of_a_lane_is_found() {
    let mut machine = Bounds::new(Target::Avx512Ifma, &[below(1, 64)]);
    let a = machine.load(Array(0), 0);
    machine.add(a, a);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("does not fit 64 bits"), "{error}");
}

#[test]
fn a_planted_wide_digit_is_found() {
    let mut machine = Bounds::new(Target::Avx512Ifma, &[below(20, 53)]);
    let a: Vec<_> = (0..20).map(|i| machine.load(Array(0), i)).collect();
    product(&mut machine, &a, &a);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("is not a 52-bit digit"), "{error}");
}

#[test]
fn a_planted_broken_promise_is_found() {
    let mut machine = Bounds::new(Target::Avx512Ifma, &[below(1, 52), below(1, 52)]);
    let a = machine.load(Array(1), 0);
    let twice = machine.add(a, a);
    machine.store(Array(0), 0, twice);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("promised below 2^52"), "{error}");
}

#[test]
fn the_model_checks_claims() {
    let claim = |lane| Model::<1>::new(&mut [], &[]).claim([lane], 52, "it is a digit");
    claim(DIGIT_MASK);
    let broken = std::panic::catch_unwind(|| claim(DIGIT_MASK + 1));
    assert!(broken.is_err());
}

#[test]
fn multiplications_in_wide_registers_ask_for_the_slowest_clock() {
    for (kernel, target, expected) in [
        (Modular::Amm(20), Target::Avx512Ifma, Licence::Level2),
        (Modular::Amm(20), Target::Avx512Ifma256, Licence::Level1),
        (Modular::Amm(20), Target::Avx2, Licence::Level1),
        (Modular::Subtract(20), Target::Avx512Ifma, Licence::Level1),
        (Modular::Subtract(20), Target::Avx512Ifma256, Licence::Level0),
    ] {
        assert_eq!(Kernel::from(kernel).report(target).licence, expected);
    }
}

#[test]
fn assembly_names_itself_and_its_size() {
    let text = Kernel::from(Modular::Ams(20)).assembly(Target::Avx512Ifma);
    for line in [
        "    .type widelane_ams52x20_mb8, @function",
        "widelane_ams52x20_mb8:",
        "    .size widelane_ams52x20_mb8, . - widelane_ams52x20_mb8",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn a_planted_wrap_of_a_word_is_found() {
    let holds = Holds::Words16 { limit: 20_000 };
    let mut machine = Bounds::new(Target::Avx512Ifma, &[(1, holds)]);
    let a = machine.load(Array(0), 0);
    machine.add16(a, a);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("does not fit 16 bits"), "{error}");
}

#[test]
fn a_planted_broken_promise_of_words_is_found() {
    let words = |limit| (1, Holds::Words16 { limit });
    let mut machine = Bounds::new(Target::Avx512Ifma, &[words(1700), words(1664)]);
    let a = machine.load(Array(0), 0);
    machine.store(Array(1), 0, a);
    let error = machine.finish().unwrap_err();
    assert!(error.what.contains("promised words up to 1664"), "{error}");
}

#[test]
fn words_are_followed_through_lanes() {
    let mut machine = Bounds::new(Target::Avx512Ifma, &[(1, Holds::Words16 { limit: 3328 })]);
    let a = machine.load(Array(0), 0);
    // The sign of each word is a mask for what is added to it.
    let sign = machine.sra16(a, 15);
    let q = machine.splat(3329 * 0x0001_0001_0001_0001);
    let masked = machine.and(sign, q);
    let positive = machine.add16(a, masked);
    let turned = machine.rol(positive, 32);
    let twice = machine.add16(turned, positive);
    machine.add16(twice, twice);
    assert!(machine.finish().is_ok());
}

#[test]
fn a_vector_written_before_it_is_read_is_found() {
    let mut trace = Trace::new(Target::Avx512Ifma);
    let a = trace.load(Array(0), 0);
    trace.store(Array(0), 0, a);
    trace.load(Array(0), 1);
    let read = std::panic::AssertUnwindSafe(|| trace.load(Array(0), 0));
    assert!(std::panic::catch_unwind(read).is_err());
}

#[test]
fn a_vector_may_be_put_back_where_it_was_read() {
    let mut trace = Trace::new(Target::Avx512Ifma);
    let a = trace.load(Array(0), 0);
    let twice = trace.add(a, a);
    trace.store(Array(0), 0, a);
    trace.store(Array(0), 1, twice);
    let scheduled = crate::schedule::schedule(&trace.ops, Multipliers::Two, Registers::Avx512);
    assert_eq!(scheduled.len(), trace.ops.len());
    let stored = |op: &crate::trace::Op| matches!(op, crate::trace::Op::Store(_, 0, _));
    // The sum is read off before the place is written.
    let put_back = scheduled.iter().position(stored);
    let sum = scheduled.iter().position(|op| matches!(op, crate::trace::Op::Two(..)));
    assert!(sum < put_back);
}

/// A loop of three turns in which values change places, some in circles, one moves on without
/// coming back, and one is added up; what goes in is read again afterwards.
fn shuffle<M: Machine>(m: &mut M) {
    let mut values: Vec<_> = (0..8).map(|i| m.load(Array(1), i)).collect();
    // Computed, so that it is nowhere in memory.
    values[0] = m.add(values[0], values[1]);
    values.push(values[0]);
    let first = values[0];
    let values = m.repeat(3, values, |m, old| {
        let [a, b, c, d, e, _, g, h, i] = old.try_into().ok().expect("nine of them");
        let sum = m.add(a, h);
        vec![b, a, d, e, c, g, g, sum, i]
    });
    for (i, value) in values.into_iter().enumerate() {
        let value = m.add(value, first);
        m.store(Array(0), i, value);
    }
}

#[test]
fn values_may_change_places_in_a_loop() {
    let text: Vec<[u64; 1]> = (0..8).map(|i| [1 << (4 * i)]).collect();
    let mut expected = vec![[0; 1]; 9];
    shuffle(&mut Model::new(&mut [&mut expected], &[&text]));

    let mut trace = Trace::new(Target::Avx512Ifma);
    shuffle(&mut trace);
    for ops in [
        trace.ops.clone(),
        crate::schedule::schedule(&trace.ops, Multipliers::Two, Registers::Avx512),
    ] {
        let code = crate::allocate::allocate(&ops, 0, Registers::Avx512).instructions;
        let mut memory: Vec<_> = (0..8).map(|i| (Memory::Array(Array(1), i), text[i][0])).collect();
        execute(&code, &mut memory);
        let found = (0..9).map(|i| [read(&memory, Memory::Array(Array(0), i))]);
        assert!(found.eq(expected.iter().copied()), "{code:?}");
    }
}

/// Turns that add to the scratch memory before them, and carry a sum that they read again afterwards.
fn walk<M: Machine>(m: &mut M) {
    let memory = m.scratch(8);
    let (one, factor) = (m.load(Array(1), 0), m.load(Array(1), 1));
    for i in 0..8 {
        let value = m.splat(100 + i);
        let value = m.add(value, one);
        m.store(memory, i as usize, value);
    }
    let last = m.walk(3, 2, vec![one], |m, at, values| {
        let [a, b, c] = [0, 1, 2].map(|i| m.load(memory, at + i));
        let sum = m.add(values[0], a);
        // Both halves of a product, one of them in each vector that later turns read.
        let b = m.madd_lo(b, factor, one);
        let c = m.madd_hi(c, factor, factor);
        let c = m.madd_lo(c, factor, factor);
        let c = m.add(c, b);
        m.store(memory, at + 2, c);
        vec![sum]
    });
    m.store(Array(0), 0, last[0]);
    for i in 6..8 {
        let value = m.load(memory, i);
        m.store(Array(0), i - 5, value);
    }
}

#[test]
fn a_loop_walks_through_scratch_memory() {
    let read_only: [[u64; 1]; 2] = [[3], [0x000f_0123_4567_89ab]];
    let mut expected = vec![[0; 1]; 3];
    walk(&mut Model::new(&mut [&mut expected], &[&read_only]));

    for target in [Target::Avx2, Target::Avx512Ifma] {
        let mut trace = Trace::new(target);
        walk(&mut trace);
        let ops = match crate::lower::is_lowered(target) {
            true => crate::lower::lower(&trace.ops, target),
            false => trace.ops.clone(),
        };
        let ops = crate::schedule::schedule(&ops, Multipliers::Two, target.registers());
        let code = crate::allocate::allocate(&ops, trace.scratch, target.registers()).instructions;
        let mut memory: Vec<_> = (0..2).map(|i| (Memory::Array(Array(1), i), read_only[i][0])).collect();
        execute(&code, &mut memory);
        let found = (0..3).map(|i| [read(&memory, Memory::Array(Array(0), i))]);
        assert!(found.eq(expected.iter().copied()), "{target}: {code:?}");
    }
}

#[test]
#[should_panic(expected = "reads scratch memory after it has written there")]
fn a_turn_that_needs_what_it_has_overwritten_is_found() {
    let mut trace = Trace::new(Target::Avx512Ifma);
    let memory = trace.scratch(4);
    let one = trace.load(Array(1), 0);
    (0..4).for_each(|i| trace.store(memory, i, one));
    trace.walk(2, 1, vec![one], |m, at, values| {
        let old = m.load(memory, at);
        m.store(memory, at, values[0]);
        vec![m.add(old, values[0])]
    });
    crate::allocate::allocate(&trace.ops, trace.scratch, Registers::Avx512);
}

/// Runs the few instructions that the code above has, on one lane.
fn execute(code: &[Instruction], memory: &mut Vec<(Memory, u64)>) {
    let mut registers = [0; 32];
    let (mut at, mut head, mut left) = (0, 0, 0);
    // Current position of scratch memory in the loop.
    let mut moved = 0;
    let place = |place: Memory, moved: usize| match place {
        Memory::Moving(index) => Memory::Slot(index + moved),
        other => other,
    };
    let read = |memory: &[(Memory, u64)], from: Memory| match from {
        Memory::Constant(value) => value,
        from => read(memory, from),
    };
    while let Some(&instruction) = code.get(at) {
        match instruction {
            Instruction::Load { to, from } => registers[to.0] = read(memory, place(from, moved)),
            Instruction::Store { to, from } => memory.push((place(to, moved), registers[from.0])),
            Instruction::Zero { to } => registers[to.0] = 0,
            Instruction::Move { to, from } => registers[to.0] = registers[from.0],
            Instruction::Two { op, to, a, b } => {
                let b = match b {
                    Operand::Register(b) => registers[b.0],
                    Operand::Memory(b) => read(memory, place(b, moved)),
                };
                let a = registers[a.0];
                registers[to.0] = match op {
                    TwoOp::Sub => a.wrapping_sub(b),
                    TwoOp::Or => a | b,
                    TwoOp::SubDouble => (f64::from_bits(a) - f64::from_bits(b)).to_bits(),
                    _ => a.wrapping_add(b),
                };
            }
            Instruction::Three { op, acc, a, b } => {
                let b = match b {
                    Operand::Register(b) => registers[b.0],
                    Operand::Memory(b) => read(memory, place(b, moved)),
                };
                let (sum, a) = (registers[acc.0], registers[a.0]);
                registers[acc.0] = match op {
                    ThreeOp::MaddLo => sum + ((u128::from(a) * u128::from(b)) as u64 & DIGIT_MASK),
                    ThreeOp::MaddHi => sum + ((u128::from(a) * u128::from(b)) >> DIGIT_BITS) as u64,
                    ThreeOp::Fma => fma_towards_zero(a, b, sum),
                    other => panic!("{other:?} is not expected"),
                };
            }
            Instruction::Head { times, .. } => (head, left, moved) = (at, times, 0),
            Instruction::Foot { stride, .. } if left > 1 => {
                (at, left, moved) = (head, left - 1, moved + stride);
            }
            Instruction::Foot { .. } => {}
            other => panic!("{other:?} is not expected"),
        }
        at += 1;
    }
}

/// `a b + c` of doubles that are integers, with a sum of at least 2^52, rounded towards zero.
fn fma_towards_zero(a: u64, b: u64, c: u64) -> u64 {
    let integer = |bits: u64| f64::from_bits(bits) as i128;
    let sum = (integer(a) * integer(b) + integer(c)) as u128;
    let dropped = (128 - sum.leading_zeros()) - 53;
    (((sum >> dropped) << dropped) as f64).to_bits()
}

/// Last value written to `place`.
fn read(memory: &[(Memory, u64)], place: Memory) -> u64 {
    let written = memory.iter().rfind(|(written, _)| *written == place);
    written
        .unwrap_or_else(|| panic!("{place:?} is read before it is written"))
        .1
}

#[test]
fn a_loop_keeps_its_order() {
    let mut trace = Trace::new(Target::Avx512Ifma);
    let values = (0..40).map(|i| trace.load(Array(1), i)).collect();
    let values = trace.repeat(2, values, |m, mut values| {
        // The last one is the head of a chain.
        for value in &mut values {
            *value = m.shl(*value, 1);
        }
        let last = values.len() - 1;
        values[last] = (0..40).fold(values[last], |value, _| m.shl(value, 1));
        values
    });
    for (i, value) in values.into_iter().enumerate() {
        let value = trace.shl(value, 2);
        trace.store(Array(0), i, value);
    }
    let shifts = |ops: &[Op]| -> Vec<_> {
        let inside = |op: &&Op| **op != Op::End;
        let body = ops.iter().take_while(inside);
        let shift = |op: &Op| match *op {
            Op::Shift(_, Name(from), _) => Some(ops[from]),
            _ => None,
        };
        let carried = body.filter_map(shift);
        carried.map(|from| matches!(from, Op::Carried(_))).collect()
    };
    let scheduled = crate::schedule::schedule(&trace.ops, Multipliers::Two, Registers::Avx512);
    assert_eq!(shifts(&scheduled), shifts(&trace.ops));
}

#[test]
fn a_loop_that_needs_more_than_it_is_given_is_found() {
    fn refused(body: impl Fn(&mut Trace, Name, Name) -> Name) {
        let mut trace = Trace::new(Target::Avx512Ifma);
        let a = trace.load(Array(1), 0);
        let outer = trace.add(a, a);
        let run = || trace.repeat(2, vec![a], |m, values| vec![body(m, values[0], outer)]);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    }
    refused(|m, a, outer| m.add(a, outer));
    refused(|m, a, _| {
        m.store(Array(0), 0, a);
        a
    });
    refused(|m, a, _| m.repeat(2, vec![a], |_, values| values)[0]);
}

#[test]
fn instructions_of_a_loop_count_as_often_as_they_run() {
    let report = Kernel::from(ChaCha20Poly1305::Encrypt(1)).report(Target::Avx512Ifma256);
    // 20 rounds of 4 quarter rounds of 12 operations.
    assert!((960..1200).contains(&report.simple), "{report:?}");
    let text = Kernel::from(ChaCha20Poly1305::Encrypt(1)).assembly(Target::Avx512Ifma256);
    assert!(text.lines().count() < 500, "{text}");
}

/// Array of `len` vectors below 2^bits.
fn below(len: usize, bits: u32) -> (usize, Holds) {
    (len, Holds::Bits(bits))
}
