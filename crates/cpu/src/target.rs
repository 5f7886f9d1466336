//! The kinds of machine code in which kernels are printed: one place for what each is and needs.
//!
//! A further kind is a variant here, with a row. Symbols, tokens, passes, backends, their names in options
//! and tables, and messages follow from it.

use std::fmt;

use crate::licence::Class;
use crate::{Features, features};

/// A kind of machine code: a set of instructions in registers of one width.
///
/// The order is that of preference: of those that a CPU has, the last is used unless measurements
/// say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// AVX-IFMA (ymm, four lanes).
    AvxIfma,
    /// AVX2 and FMA (ymm, four lanes).
    Avx2,
    /// AVX-512 without IFMA (zmm, eight lanes).
    Avx512F,
    /// AVX-512 IFMA in 256-bit registers (ymm, four lanes).
    Avx512Ifma256,
    /// AVX-512 IFMA in 512-bit registers (zmm, eight lanes).
    Avx512Ifma,
}

/// Facts about a target.
struct Row {
    name: &'static str,
    instructions: &'static str,
    /// Bits of CPUID and XCR0 that the target needs, in words.
    needs: &'static str,
    bits: u32,
    registers: Registers,
    product: Product,
    symbols: &'static str,
    class: Class,
    /// Warning for users of the target.
    caveat: Option<&'static str>,
}

/// The registers that code changes besides general ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// Sixteen of 256 bits.
    Avx2,
    /// 32 of 512 bits, whatever part of them the code uses, and eight masks.
    Avx512,
}

/// Method that multiplies digits of 52 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Floating-point multiply-adds that round towards zero.
    Fma,
    /// VPMADD52.
    Vpmadd52,
}

impl Target {
    /// Every target, in the order of preference. The build assembles them in this order.
    ///
    /// One that is [never measured](Self::caveat) comes before the others: only a measurement prefers it.
    pub const ALL: [Self; 5] = [
        Self::AvxIfma,
        Self::Avx2,
        Self::Avx512F,
        Self::Avx512Ifma256,
        Self::Avx512Ifma,
    ];

    /// The one that needs least: a CPU without it has none.
    pub(crate) const LEAST: Self = Self::Avx2;

    const fn row(self) -> Row {
        match self {
            Self::AvxIfma => Row {
                name: "avxifma",
                instructions: "AVX-IFMA",
                needs: "AVX-IFMA and AVX2",
                bits: 256,
                registers: Registers::Avx2,
                product: Product::Vpmadd52,
                symbols: "avxifma",
                class: Class::Heavy256,
                caveat: Some("tested by emulation, never measured"),
            },
            Self::Avx2 => Row {
                name: "avx2",
                instructions: "AVX2 with FMA",
                needs: "AVX2 and FMA",
                bits: 256,
                registers: Registers::Avx2,
                product: Product::Fma,
                symbols: "avx2",
                class: Class::Heavy256,
                caveat: None,
            },
            Self::Avx512F => Row {
                name: "avx512f",
                instructions: "AVX-512 with FMA",
                needs: "AVX-512 F, BW and DQ",
                bits: 512,
                registers: Registers::Avx512,
                product: Product::Fma,
                symbols: "avx512f",
                class: Class::Heavy512,
                caveat: None,
            },
            Self::Avx512Ifma256 => Row {
                name: "avx512ifma-256",
                instructions: "AVX-512 IFMA",
                needs: "AVX-512 IFMA with AVX-512 VL",
                bits: 256,
                registers: Registers::Avx512,
                product: Product::Vpmadd52,
                symbols: "mb4",
                class: Class::Heavy256,
                caveat: None,
            },
            Self::Avx512Ifma => Row {
                name: "avx512ifma",
                instructions: "AVX-512 IFMA",
                needs: "AVX-512 IFMA",
                bits: 512,
                registers: Registers::Avx512,
                product: Product::Vpmadd52,
                symbols: "mb8",
                class: Class::Heavy512,
                caveat: None,
            },
        }
    }

    /// Returns whether a CPU with these features runs the target's code.
    pub(crate) const fn runs_on(self, features: Features) -> bool {
        match self {
            Self::AvxIfma => features.avxifma,
            Self::Avx2 => features.fma,
            Self::Avx512F => features.fma && features.dq,
            Self::Avx512Ifma256 => features.vl,
            Self::Avx512Ifma => features.ifma,
        }
    }

    /// Returns whether CPU, operating system and [`DISABLE_VARIABLE`](crate::DISABLE_VARIABLE) allow this target.
    pub fn is_available(self) -> bool {
        self.runs_on(features())
    }

    /// The targets that this process may use, in the order of [`ALL`](Self::ALL).
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.into_iter().filter(|target| target.is_available())
    }

    /// The stable spelling, in options, files and records alike.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The target of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// The set of instructions, for people.
    pub const fn instructions(self) -> &'static str {
        self.row().instructions
    }

    /// Features that the target needs from a CPU, as text for users.
    pub const fn needs(self) -> &'static str {
        self.row().needs
    }

    /// Warning for users of the target: says whether it has run on a CPU that has its instructions.
    pub const fn caveat(self) -> Option<&'static str> {
        self.row().caveat
    }

    /// The name with the [`caveat`](Self::caveat), if there is one: for people.
    pub fn with_caveat(self) -> String {
        match self.caveat() {
            Some(caveat) => format!("{self} ({caveat})"),
            None => self.to_string(),
        }
    }

    /// Says on standard error that a test leaves this target out, as the CPU lacks it: for tests. One that runs by
    /// emulation has tests of its own.
    pub fn tell_skipped(self) {
        if self.caveat().is_none() {
            eprintln!("SKIP: no {}", self.needs());
        }
    }

    /// Bits of a register.
    pub const fn bits(self) -> u32 {
        self.row().bits
    }

    /// Bytes of a register.
    pub const fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    /// 64-bit lanes of a register.
    pub const fn lanes(self) -> usize {
        self.bits() as usize / 64
    }

    /// Assembler's name of the target's registers, without the number.
    pub const fn register(self) -> &'static str {
        match self.bits() {
            256 => "ymm",
            _ => "zmm",
        }
    }

    /// The registers that its code changes.
    pub const fn registers(self) -> Registers {
        self.row().registers
    }

    /// Returns whether the target has 16 registers, not 32.
    pub const fn has_few_registers(self) -> bool {
        matches!(self.registers(), Registers::Avx2)
    }

    /// Method by which the target's code multiplies.
    pub const fn product(self) -> Product {
        self.row().product
    }

    /// The last part of the names of functions with such code. No two targets share one.
    pub const fn symbols(self) -> &'static str {
        self.row().symbols
    }

    /// Class of the target's multiplications, which decides about the clock.
    pub const fn class(self) -> Class {
        self.row().class
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Proof that this process may run the code of a target with `L` lanes.
#[derive(Clone, Copy, Debug)]
pub struct Token<const L: usize>(Target);

impl<const L: usize> Token<L> {
    /// The token, if the target has `L` lanes and is [available](Target::is_available).
    pub fn detect(target: Target) -> Option<Self> {
        (target.lanes() == L && target.is_available()).then_some(Self(target))
    }

    /// The target that it stands for.
    pub fn target(self) -> Target {
        self.0
    }
}

/// The token of a target, whatever its lanes are.
#[derive(Clone, Copy, Debug)]
pub enum AnyToken {
    /// Token of a target with four lanes.
    Four(Token<4>),
    /// Token of a target with eight lanes.
    Eight(Token<8>),
}

impl AnyToken {
    /// The token, if the target is [available](Target::is_available).
    pub fn detect(target: Target) -> Option<Self> {
        let four = Token::detect(target).map(Self::Four);
        four.or_else(|| Token::detect(target).map(Self::Eight))
    }
}

/// Evaluates an expression with the [`Token`] of every target that this CPU has, and says on standard
/// error which it lacks: for tests.
#[macro_export]
macro_rules! on_every_target {
    ($token:ident => $expression:expr) => {
        for target in $crate::Target::ALL {
            match $crate::AnyToken::detect(target) {
                Some($crate::AnyToken::Four($token)) => $expression,
                Some($crate::AnyToken::Eight($token)) => $expression,
                None => target.tell_skipped(),
            }
        }
    };
}

/// Evaluates an expression with the [`Token`] of the preferred target of this CPU; `else` if it has none.
#[macro_export]
macro_rules! on_preferred_target {
    ($token:ident => $some:expr, else $none:expr) => {
        match $crate::Target::available()
            .next_back()
            .and_then($crate::AnyToken::detect)
        {
            Some($crate::AnyToken::Four($token)) => $some,
            Some($crate::AnyToken::Eight($token)) => $some,
            None => $none,
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_target_has_a_token_of_its_lanes_where_it_runs() {
        for target in Target::ALL {
            let token = AnyToken::detect(target);
            assert_eq!(token.is_some(), target.is_available(), "{target}");
            let lanes = match token {
                Some(AnyToken::Four(token)) => (4, token.target()),
                Some(AnyToken::Eight(token)) => (8, token.target()),
                None => continue,
            };
            assert_eq!(lanes, (target.lanes(), target));
        }
        assert!(Target::available().all(Target::is_available));
    }

    #[test]
    fn names_and_symbols_are_unique() {
        let distinct = |what: fn(Target) -> &'static str| {
            let all: HashSet<_> = Target::ALL.into_iter().map(what).collect();
            assert_eq!(all.len(), Target::ALL.len());
        };
        distinct(Target::name);
        distinct(Target::symbols);
        for target in Target::ALL {
            assert_eq!(Target::named(target.name()), Some(target));
            assert!([4, 8].contains(&target.lanes()), "{target}");
        }
        assert_eq!(Target::named("avx512"), None);
    }

    #[test]
    fn what_was_never_measured_is_not_preferred() {
        let is_measured = |target: &Target| target.caveat().is_none();
        assert!(Target::ALL.iter().is_sorted_by_key(is_measured));
        assert!(is_measured(&Target::LEAST));
    }
}
