//! One item defines a kernel: the macro [`kernels!`], and what follows from a definition.
//!
//! A family is a file with one `kernels!` in it. That states, for each kernel, its name, formula,
//! reference, arrays (size, bound, who writes them, what is public) and body; and for each shape,
//! such as a size of modulus, which kernels belong together. The enum of the family, its
//! documentation, the list of all kernels, the symbols and the set that callers hold follow.

use widelane_cpu::Target;

use crate::allocate::{Allocated, allocate};
use crate::analysis::Report;
use crate::bounds::{Bounds, BoundsError, Holds, Proof};
use crate::lower::{is_lowered, lower};
use crate::machine::{Array, Machine};
use crate::model::Model;
use crate::print::print;
use crate::schedule::{Multipliers, schedule};
use crate::trace::Trace;

/// A kernel as its family defines it, and what follows from that.
pub trait Definition: Copy + PartialEq {
    /// Every kernel, in the order in which they lie in a program.
    fn all() -> Vec<Self>;

    /// Operation and shape, for example `amm52x20`. No two kernels share a name.
    fn name(self) -> String;

    /// Formula that the kernel computes, in one line.
    fn formula(self) -> &'static str;

    /// The standard or paper that the kernel follows, with the place in it.
    fn reference(self) -> &'static str;

    /// The arrays in the order of the argument list, for vectors of `lanes` lanes. The kernel
    /// writes the first ones and only reads the others.
    fn arrays(self, lanes: usize) -> Vec<ArraySpec>;

    /// The multipliers of the CPUs that its machine code is ordered for.
    fn multipliers(self) -> Multipliers {
        Multipliers::Two
    }

    /// Runs the body on any machine.
    fn run<M: Machine>(self, m: &mut M);

    /// The symbol of the assembled kernel: its name and the last part of those of the target.
    fn symbol(self, target: Target) -> String {
        format!("widelane_{}_{}", self.name(), target.symbols())
    }

    /// Runs the kernel in portable Rust on `L` lanes: on the arrays that it writes and those that
    /// it only reads.
    ///
    /// # Panics
    ///
    /// If the arrays differ from [`arrays`](Self::arrays), or a claim of the body fails.
    fn model<const L: usize>(self, written: &mut [&mut [[u64; L]]], read: &[&[[u64; L]]]) {
        self.assert_lengths(written, read);
        self.run(&mut Model::new(written, read));
    }

    /// Model without a check of claims: for operands that a fault may have hit, and for secret ones under valgrind.
    ///
    /// # Panics
    ///
    /// If the arrays differ from [`arrays`](Self::arrays).
    fn model_without_claims<const L: usize>(self, written: &mut [&mut [[u64; L]]], read: &[&[[u64; L]]]) {
        self.assert_lengths(written, read);
        self.run(&mut Model::new(written, read).without_claims());
    }

    #[doc(hidden)]
    fn assert_lengths<const L: usize>(self, written: &[&mut [[u64; L]]], read: &[&[[u64; L]]]) {
        let lens = written
            .iter()
            .map(|array| array.len())
            .chain(read.iter().map(|array| array.len()));
        assert!(
            lens.eq(self.arrays(L).iter().map(|spec| spec.len)),
            "{} has other arrays",
            self.name()
        );
    }

    /// Proves that no lane overflows and that every array keeps its bound.
    fn prove(self, target: Target) -> Result<Proof, BoundsError> {
        let lanes = target.lanes();
        let arrays = self.arrays(lanes);
        let arrays: Vec<_> = arrays.iter().map(|spec| (spec.len, spec.holds)).collect();
        let mut machine = Bounds::new(target, &arrays);
        self.run(&mut machine);
        machine.finish()
    }

    /// GNU assembly of the kernel (Intel syntax) for `target`.
    ///
    /// The function has the System V calling convention. It takes one pointer for each array, in
    /// order, and last a pointer to as many vectors as [`Report::slots`] says, for intermediate
    /// values.
    fn assembly(self, target: Target) -> String {
        self.code(target).0
    }

    /// Instruction mix, licence level and port bound of the kernel.
    fn report(self, target: Target) -> Report {
        Report::new(target, &allocated(self, target))
    }

    /// [`assembly`](Self::assembly) and [`report`](Self::report) of one recording.
    fn code(self, target: Target) -> (String, Report) {
        let code = allocated(self, target);
        let arrays = self.arrays(target.lanes());
        let arrays: Vec<_> = arrays
            .iter()
            .map(|spec| format!("{}[{}]", spec.name, spec.len))
            .collect();
        let comment = format!("{}; {}", self.formula(), arrays.join(" "));
        let symbol = self.symbol(target);
        let assembly = print(&symbol, &comment, arrays.len(), target, &code);
        (assembly, Report::new(target, &code))
    }
}

fn allocated(kernel: impl Definition, target: Target) -> Allocated {
    let mut trace = Trace::new(target);
    kernel.run(&mut trace);
    let ops = match is_lowered(target) {
        true => lower(&trace.ops, target),
        false => trace.ops,
    };
    let order = schedule(&ops, kernel.multipliers(), target.registers());
    allocate(&order, trace.scratch, target.registers())
}

/// One of a kernel's arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// Name of the array in the kernel's formula.
    pub name: &'static str,
    /// Vectors.
    pub len: usize,
    /// The bound of every lane. The caller keeps it where the kernel reads, the kernel where it
    /// writes.
    pub holds: Holds,
    /// True if the kernel writes the array. The kernel may read it first.
    pub written: bool,
    /// True if all lanes share the array's contents: 64-bit words in the order of memory.
    pub shared: bool,
    /// True if the array may hold secrets, in every lane.
    pub secret: bool,
}

impl ArraySpec {
    /// Makes the array one row of contents for all lanes: its length counts words.
    pub(crate) fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Marks the array as never holding a secret.
    pub(crate) fn public(self) -> Self {
        Self { secret: false, ..self }
    }

    /// Gives the array its name from the definition, in vectors of `lanes` lanes.
    pub(crate) fn named(self, name: &'static str, lanes: usize) -> Self {
        let len = match self.shared {
            true => self.len.div_ceil(lanes),
            false => self.len,
        };
        // An array may have the name of a keyword.
        let name = name.trim_start_matches("r#");
        Self { name, len, ..self }
    }
}

/// An array of `len` vectors that a kernel only reads, secret unless stated otherwise.
pub(crate) fn reads(len: usize, holds: Holds) -> ArraySpec {
    ArraySpec {
        name: "",
        len,
        holds,
        written: false,
        shared: false,
        secret: true,
    }
}

/// An array of `len` vectors that a kernel writes, secret unless stated otherwise.
pub(crate) fn writes(len: usize, holds: Holds) -> ArraySpec {
    ArraySpec {
        written: true,
        ..reads(len, holds)
    }
}

/// The arrays that a kernel has: a definition may state last ones that have no vectors.
pub(crate) fn present(mut arrays: Vec<ArraySpec>) -> Vec<ArraySpec> {
    while arrays.pop_if(|array| array.len == 0).is_some() {}
    arrays
}

/// The kernels of all shapes, each once: group by group, in each group shape by shape.
pub(crate) fn in_order<K: Copy + PartialEq>(shapes: &[Vec<Vec<K>>]) -> Vec<K> {
    let mut all = Vec::new();
    let groups = shapes.first().map_or(0, Vec::len);
    for kernel in (0..groups).flat_map(|group| shapes.iter().flat_map(move |shape| &shape[group])) {
        if !all.contains(kernel) {
            all.push(*kernel);
        }
    }
    all
}

/// The vectors of an array.
pub(crate) fn load<M: Machine>(m: &mut M, array: Array, len: usize) -> Vec<M::V> {
    (0..len).map(|i| m.load(array, i)).collect()
}

/// Writes the vectors of an array.
pub(crate) fn store<M: Machine>(m: &mut M, array: Array, values: &[M::V]) {
    for (i, &value) in values.iter().enumerate() {
        m.store(array, i, value);
    }
}

/// Defines a family of kernels: first each kernel, then the set that serves one shape.
///
/// ```text
/// kernels! {
///     /// What the kernels have in common.
///     pub enum Family {
///         /// What formula and arrays do not say.
///         Kernel(parameter: usize) {
///             name: "kernel{parameter}",
///             formula: "out := 2 a",
///             reference: "Standard, section 1",
///             multipliers: Multipliers::One, // can be left out: two
///             arrays: { out: writes(4, DIGITS), a: reads(4, DIGITS) },
///             body: |m| double(m, out, a),
///         }
///     }
///
///     /// The kernels for one shape.
///     pub struct FamilyKernels for shape: usize in [20, 30] {
///         kernel: Kernel(shape),
///     }
/// }
/// ```
///
/// Parameters may be used everywhere in a definition, names of arrays in the body. Arrays that the
/// kernel writes come first; an array of no vectors is left out, and only the last ones may be.
///
/// Each field of the set is a kernel of the family. Kernels between two semicolons are a group. In
/// a program the groups follow each other, and a group holds the kernels of all shapes, shape by
/// shape: so kernels that run alternately share the instruction cache evenly.
macro_rules! kernels {
    (
        $(#[$family_doc:meta])*
        pub enum $family:ident {
            $(
                $(#[$doc:meta])*
                $variant:ident $(($($parameter:ident: $type:ty),+))? {
                    name: $name:literal,
                    formula: $formula:literal,
                    reference: $reference:literal,
                    $(multipliers: $multipliers:expr,)?
                    arrays: { $($array:ident: $spec:expr),+ $(,)? },
                    body: |$m:ident| $body:expr,
                }
            )+
        }

        $(#[$set_doc:meta])*
        pub struct $set:ident $(for $shape:ident: $shape_type:ident in $shapes:tt)? {
            $($($field:ident: $kernel:expr),+ $(,)?);+ $(;)?
        }
    ) => {
        $(#[$family_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $family {
            $(
                #[doc = concat!("`", $formula, "` (", $reference, ").\n")]
                $(#[$doc])*
                #[doc = "\nArrays:\n"]
                $(#[doc = concat!("* `", stringify!($array), "`: `", stringify!($spec), "`")])+
                $variant $(($($type),+))?,
            )+
        }

        #[allow(unused_imports, unused_variables, clippy::useless_format)]
        impl $crate::definition::Definition for $family {
            fn all() -> Vec<Self> {
                $crate::definition::in_order(&kernels!(@shapes $set $(in $shapes)?))
            }

            fn name(self) -> String {
                match self {
                    $(Self::$variant $(($($parameter),+))? => format!($name),)+
                }
            }

            fn formula(self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $formula,)+
                }
            }

            fn reference(self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $reference,)+
                }
            }

            fn multipliers(self) -> $crate::schedule::Multipliers {
                match self {
                    $($(Self::$variant { .. } => $multipliers,)?)+
                    _ => $crate::schedule::Multipliers::Two,
                }
            }

            fn arrays(self, lanes: usize) -> Vec<$crate::definition::ArraySpec> {
                use $crate::definition::{reads, writes};
                $crate::definition::present(match self {
                    $(Self::$variant $(($($parameter),+))? => {
                        vec![$($spec.named(stringify!($array), lanes)),+]
                    })+
                })
            }

            fn run<M: $crate::machine::Machine>(self, m: &mut M) {
                match self {
                    $(Self::$variant $(($($parameter),+))? => {
                        let mut places = (0..).map($crate::machine::Array);
                        $(let $array = places.next().expect("places have no end");)+
                        let $m = m;
                        $body;
                    })+
                }
            }
        }

        $(#[$set_doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $set<T> {
            $($(#[doc = concat!("[`", stringify!($family), "`]`::", stringify!($kernel), "`")]
                pub $field: T,)+)+
        }

        impl<T> $set<T> {
            /// Makes one `T` of each kernel.
            #[allow(unused_imports)]
            pub fn new($($shape: $shape_type,)? mut of: impl FnMut($family) -> T) -> Self {
                use $family::*;
                Self {
                    $($($field: of($kernel),)+)+
                }
            }

            /// Groups of all kernels that lie apart in a program.
            fn groups(self) -> Vec<Vec<T>> {
                vec![$(vec![$(self.$field),+]),+]
            }

            /// Returns all kernels of the family.
            pub fn each(&self) -> impl Iterator<Item = &T> {
                [$($(&self.$field),+),+].into_iter()
            }
        }
    };
    (@shapes $set:ident) => {
        [$set::new(|kernel| kernel).groups()]
    };
    (@shapes $set:ident in $shapes:tt) => {
        $shapes.map(|shape| $set::new(shape, |kernel| kernel).groups())
    };
}
pub(crate) use kernels;
