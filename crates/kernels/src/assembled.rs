//! Calls of assembled kernels: the one place where lengths become pointers.
#![allow(unsafe_code)]

use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_lanes::{Kernel, Width};

/// A kernel that can be called on `L` lanes: as machine code, or in portable Rust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callable<const L: usize> {
    kernel: Kernel,
    /// Vectors of the kernel's arrays, the output first; unused places are zero.
    lens: [usize; MAX_ARRAYS],
    arrays: usize,
    code: Code,
}

#[derive(Clone, Copy, Debug)]
enum Code {
    /// An assembled function and the spill slots that it needs. The token of its width has been
    /// seen.
    #[cfg(target_arch = "x86_64")]
    Assembled {
        function: Function,
        slots: usize,
    },
    Model,
}

#[cfg(target_arch = "x86_64")]
type Function =
    unsafe extern "sysv64" fn(*mut u64, *const u64, *const u64, *const u64, *const u64, *mut u64);

impl Callable<8> {
    /// The kernel for 512-bit registers.
    pub(crate) fn zmm(_: Avx512Ifma, kernel: Kernel) -> Self {
        Self::new(kernel, assembled(kernel, Width::Zmm))
    }
}

impl Callable<4> {
    /// The kernel for 256-bit registers.
    pub(crate) fn ymm(_: Avx512IfmaVl, kernel: Kernel) -> Self {
        Self::new(kernel, assembled(kernel, Width::Ymm))
    }
}

impl<const L: usize> Callable<L> {
    /// The kernel in portable Rust.
    pub(crate) fn model(kernel: Kernel) -> Self {
        Self::new(kernel, Code::Model)
    }

    fn new(kernel: Kernel, code: Code) -> Self {
        let mut lens = [0; MAX_ARRAYS];
        let specs = kernel.arrays();
        for (len, spec) in lens.iter_mut().zip(&specs) {
            *len = spec.len;
        }
        Self {
            kernel,
            lens,
            arrays: specs.len(),
            code,
        }
    }

    /// Vectors of scratch space that a call needs.
    pub(crate) fn slots(&self) -> usize {
        match self.code {
            #[cfg(target_arch = "x86_64")]
            Code::Assembled { slots, .. } => slots,
            Code::Model => 0,
        }
    }

    /// Runs the kernel: `out` is written, `inputs` are read, `scratch` is left with intermediate
    /// values.
    ///
    /// # Panics
    ///
    /// If an array has another length than the kernel's, or `scratch` is too short.
    #[inline]
    pub(crate) fn call<const N: usize>(
        &self,
        out: &mut [[u64; L]],
        inputs: [&[[u64; L]]; N],
        scratch: &mut [[u64; L]],
    ) {
        assert!(N + 1 == self.arrays && out.len() == self.lens[0] && scratch.len() >= self.slots());
        for (input, &len) in inputs.iter().zip(&self.lens[1..]) {
            assert_eq!(input.len(), len);
        }
        match self.code {
            #[cfg(target_arch = "x86_64")]
            Code::Assembled { function, .. } => {
                let scratch = scratch.as_mut_ptr().cast::<u64>();
                // The pointer to the scratch space comes after the arrays; what follows it is not
                // looked at.
                let input = |i: usize| match inputs.get(i) {
                    Some(input) => input.as_ptr().cast::<u64>(),
                    None => scratch.cast_const(),
                };
                let out = out.as_mut_ptr().cast::<u64>();
                // SAFETY: the lengths of all arrays were compared with the kernel's above, and a
                // kernel addresses nothing beyond them, as its indices are constants within
                // `Kernel::arrays`; `out` and `scratch` are borrowed mutably, so that they overlap
                // nothing. The function exists only for a token of its width, so that the CPU has
                // its instructions. It keeps the System V calling convention: it changes vector
                // and mask registers only, which that convention lets it.
                unsafe { function(out, input(0), input(1), input(2), input(3), scratch) }
            }
            Code::Model => self.kernel.model(out, &inputs),
        }
    }
}

#[cfg(test)]
impl<const L: usize> Callable<L> {
    /// Runs a kernel of any number of arrays.
    pub(crate) fn call_slices(
        &self,
        out: &mut [[u64; L]],
        inputs: &[Vec<[u64; L]>],
        scratch: &mut [[u64; L]],
    ) {
        match inputs {
            [a] => self.call(out, [a], scratch),
            [a, b] => self.call(out, [a, b], scratch),
            [a, b, c] => self.call(out, [a, b, c], scratch),
            [a, b, c, d] => self.call(out, [a, b, c, d], scratch),
            _ => panic!("no kernel has {} inputs", inputs.len()),
        }
    }
}

/// Overwrites all vector registers, in which kernels leave secrets behind.
pub fn wipe_registers(_: Avx512Ifma) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the token proves that the CPU has 32 512-bit registers; the function changes vector
    // registers only, which its calling convention lets it.
    unsafe {
        widelane_wipe_registers();
    }
}

#[cfg(target_arch = "x86_64")]
fn assembled(kernel: Kernel, width: Width) -> Code {
    let row = TABLE
        .iter()
        .find(|row| row.kernel == kernel && row.width == width)
        .expect("the build assembles every kernel of the library");
    Code::Assembled {
        function: row.function,
        slots: row.slots,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn assembled(_: Kernel, _: Width) -> Code {
    unreachable!("no token exists on this architecture")
}

/// Arrays of the kernel with the most of them.
const MAX_ARRAYS: usize = 5;

#[cfg(target_arch = "x86_64")]
struct Row {
    kernel: Kernel,
    width: Width,
    function: Function,
    slots: usize,
}

#[cfg(target_arch = "x86_64")]
include!(concat!(env!("OUT_DIR"), "/table.rs"));

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    include_str!(concat!(env!("OUT_DIR"), "/kernels.s")),
    options(raw)
);

#[cfg(target_arch = "x86_64")]
unsafe extern "sysv64" {
    fn widelane_wipe_registers();
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    "    .text",
    "    .p2align 4",
    "    .globl widelane_wipe_registers",
    "    .hidden widelane_wipe_registers",
    "    .type widelane_wipe_registers, @function",
    "widelane_wipe_registers:",
    "    vzeroall",
    "    .irp i, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "    vpxorq zmm\\i, zmm\\i, zmm\\i",
    "    .endr",
    "    ret",
    "    .size widelane_wipe_registers, . - widelane_wipe_registers",
);
