//! Calls of assembled kernels. Only here slices become pointers.
#![allow(unsafe_code)]

use widelane_cpu::{Registers, Target, Token};
use widelane_lanes::{Definition, Kernel};

use crate::machine::Machine;

/// A kernel that can be called on `L` lanes: as machine code, and in tests also in portable Rust.
///
/// Families of `widelane-lanes` have sets of kernels, such as `ModularKernels`; a set of these is
/// what a caller holds, made once with [`Callable::new`].
#[derive(Clone, Copy, Debug)]
pub struct Callable<const L: usize> {
    kernel: Kernel,
    /// Vectors of the kernel's arrays; unused places are zero.
    lens: [usize; MAX_ARRAYS],
    arrays: usize,
    /// Number of arrays that the kernel writes: they come first.
    written: usize,
    code: Code,
}

/// An array that a kernel writes. Eight bytes are a lane, the lowest first.
#[derive(Debug)]
pub enum Written<'a, const L: usize> {
    /// Vectors.
    Lanes(&'a mut [[u64; L]]),
    /// Bytes, at any address.
    Bytes(&'a mut [u8]),
}

/// An array that a kernel only reads.
#[derive(Clone, Copy, Debug)]
pub enum Read<'a, const L: usize> {
    /// Vectors.
    Lanes(&'a [[u64; L]]),
    /// Bytes, at any address.
    Bytes(&'a [u8]),
}

#[derive(Clone, Copy, Debug)]
enum Code {
    /// An assembled function, and what the build has counted in it. The token of its target exists.
    #[cfg(target_arch = "x86_64")]
    Assembled {
        function: Function,
        slots: u32,
        multiply_adds: u32,
    },
    #[cfg(any(test, feature = "model"))]
    Model,
}

#[cfg(target_arch = "x86_64")]
type Function = unsafe extern "sysv64" fn(*mut u64, *mut u64, *mut u64, *mut u64, *mut u64, *mut u64);

impl<const L: usize> Callable<L> {
    /// The kernel on this machine.
    pub fn new(machine: impl Into<Machine<L>>, kernel: impl Into<Kernel>) -> Self {
        let kernel = kernel.into();
        let code = match machine.into().token() {
            Some(token) => assembled(kernel, token.target()),
            #[cfg(any(test, feature = "model"))]
            None => Code::Model,
            #[cfg(not(any(test, feature = "model")))]
            None => unreachable!("without the model, each machine has a token"),
        };
        let specs = kernel.arrays(L);
        let mut lens = [0; MAX_ARRAYS];
        for (len, spec) in lens.iter_mut().zip(&specs) {
            *len = spec.len;
        }
        let written = specs.iter().take_while(|spec| spec.written).count();
        Self {
            kernel,
            lens,
            arrays: specs.len(),
            written,
            code,
        }
    }

    /// Kernel of this code.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Vectors of scratch space that a call needs.
    pub fn slots(&self) -> usize {
        match self.code {
            #[cfg(target_arch = "x86_64")]
            Code::Assembled { slots, .. } => slots as usize,
            #[cfg(any(test, feature = "model"))]
            Code::Model => 0,
        }
    }

    /// 52-bit multiply-adds that a call runs, each on all lanes, as the build has counted them; none
    /// in portable Rust.
    pub fn multiply_adds(&self) -> usize {
        match self.code {
            #[cfg(target_arch = "x86_64")]
            Code::Assembled { multiply_adds, .. } => multiply_adds as usize,
            #[cfg(any(test, feature = "model"))]
            Code::Model => 0,
        }
    }

    /// Runs the kernel on the arrays that it writes and those that it only reads. Afterwards
    /// `scratch` holds intermediate values.
    ///
    /// # Panics
    ///
    /// If an array has another length than the kernel's, or `scratch` is too short.
    // Inline always: a separate function would compete with the kernels for the instruction cache.
    #[inline(always)]
    pub fn call<const W: usize, const N: usize>(
        &self,
        mut written: [&mut [[u64; L]]; W],
        read: [&[[u64; L]]; N],
        scratch: &mut [[u64; L]],
    ) {
        let lens = written
            .iter()
            .map(|array| array.len())
            .chain(read.iter().map(|array| array.len()));
        self.check::<W, N>(lens, 1, scratch.len());
        #[cfg(feature = "fault-injection")]
        let operands: [_; N] = std::array::from_fn(|i| crate::faults::operand((self.kernel, W + i), read[i]));
        #[cfg(feature = "fault-injection")]
        let read = operands.each_ref().map(|operand| &**operand);
        match self.code {
            #[cfg(target_arch = "x86_64")]
            Code::Assembled { function, .. } => {
                // The pointer to the scratch space comes after the arrays. The kernel ignores the
                // arguments after it.
                let mut pointers = [scratch.as_mut_ptr().cast::<u64>(); MAX_ARRAYS + 1];
                for (pointer, array) in pointers.iter_mut().zip(&mut written) {
                    *pointer = array.as_mut_ptr().cast();
                }
                for (pointer, array) in pointers[W..].iter_mut().zip(&read) {
                    *pointer = array.as_ptr().cast::<u64>().cast_mut();
                }
                let [a, b, c, d, e, f] = pointers;
                // SAFETY: the lengths of all arrays were compared with the kernel's above, and a
                // kernel addresses nothing beyond them, as its indices are constants within
                // `Kernel::arrays`; it writes `written` and `scratch` only, which are borrowed
                // mutably, so that they overlap nothing. The token of the function's target exists,
                // so that the CPU has its instructions. It keeps the
                // System V calling convention: besides vector and mask registers it changes
                // argument registers and rax, which that convention lets it.
                unsafe { function(a, b, c, d, e, f) }
            }
            #[cfg(any(test, feature = "model"))]
            Code::Model => crate::model::run(self.kernel, &mut written, &read),
        }
        #[cfg(feature = "fault-injection")]
        for (i, array) in written.iter_mut().enumerate() {
            let moment = crate::faults::Moment::Written;
            crate::faults::position(moment, (self.kernel, i), array);
        }
    }

    /// Calls the kernel on arrays of bytes, which may have any alignment.
    ///
    /// # Panics
    ///
    /// As [`call`](Self::call).
    #[inline(always)]
    pub fn call_on_bytes<const W: usize, const N: usize>(
        &self,
        mut written: [Written<'_, L>; W],
        read: [Read<'_, L>; N],
        scratch: &mut [[u64; L]],
    ) {
        let lens = written.iter().map(Written::bytes).chain(read.iter().map(Read::bytes));
        self.check::<W, N>(lens, 8 * L, scratch.len());
        match self.code {
            #[cfg(target_arch = "x86_64")]
            Code::Assembled { function, .. } => {
                let mut pointers = [scratch.as_mut_ptr().cast::<u64>(); MAX_ARRAYS + 1];
                for (pointer, array) in pointers.iter_mut().zip(&mut written) {
                    *pointer = match array {
                        Written::Lanes(lanes) => lanes.as_mut_ptr().cast(),
                        Written::Bytes(bytes) => bytes.as_mut_ptr().cast(),
                    };
                }
                for (pointer, array) in pointers[W..].iter_mut().zip(&read) {
                    *pointer = match array {
                        Read::Lanes(lanes) => lanes.as_ptr().cast::<u64>().cast_mut(),
                        Read::Bytes(bytes) => bytes.as_ptr().cast::<u64>().cast_mut(),
                    };
                }
                let [a, b, c, d, e, f] = pointers;
                // SAFETY: as in `call`, with lengths in bytes; and no instruction of a kernel needs
                // an address to be aligned: vectors move by VMOVDQU64, and other instructions with
                // EVEX prefixes take operands from anywhere.
                unsafe { function(a, b, c, d, e, f) }
            }
            #[cfg(any(test, feature = "model"))]
            Code::Model => {
                let mut copies = written.each_ref().map(Written::lanes);
                let read = read.map(Read::lanes);
                crate::model::run(
                    self.kernel,
                    &mut copies.each_mut().map(Vec::as_mut_slice),
                    &read.each_ref().map(Vec::as_slice),
                );
                for (array, copy) in written.iter_mut().zip(&copies) {
                    array.set(copy);
                }
            }
        }
    }
}

impl<const L: usize> Callable<L> {
    /// Panics unless the arrays are those of the kernel. `lens` counts words or bytes, and a vector has `units` of
    /// them.
    #[inline(always)]
    fn check<const W: usize, const N: usize>(&self, lens: impl Iterator<Item = usize>, units: usize, scratch: usize) {
        let mut lens = lens.zip(&self.lens);
        let fits = lens.all(|(len, &wanted)| len == wanted * units)
            && W == self.written
            && W + N == self.arrays
            && scratch >= self.slots();
        if !fits {
            other_arrays(self.kernel);
        }
    }
}

/// Apart, and with one argument, because every call of a kernel has it beside it.
#[cold]
#[inline(never)]
fn other_arrays(kernel: Kernel) -> ! {
    panic!("{} has other arrays or takes more scratch space", kernel.name())
}

impl<const L: usize> Written<'_, L> {
    fn as_read(&self) -> Read<'_, L> {
        match self {
            Written::Lanes(lanes) => Read::Lanes(lanes),
            Written::Bytes(bytes) => Read::Bytes(bytes),
        }
    }

    fn bytes(&self) -> usize {
        self.as_read().bytes()
    }

    #[cfg(any(test, feature = "model"))]
    fn lanes(&self) -> Vec<[u64; L]> {
        self.as_read().lanes()
    }

    #[cfg(any(test, feature = "model"))]
    fn set(&mut self, from: &[[u64; L]]) {
        match self {
            Written::Lanes(lanes) => lanes.copy_from_slice(from),
            Written::Bytes(bytes) => {
                let (words, _) = bytes.as_chunks_mut();
                for (word, lane) in words.iter_mut().zip(from.as_flattened()) {
                    *word = lane.to_le_bytes();
                }
            }
        }
    }
}

impl<const L: usize> Read<'_, L> {
    fn bytes(&self) -> usize {
        match self {
            Read::Lanes(lanes) => size_of_val(*lanes),
            Read::Bytes(bytes) => bytes.len(),
        }
    }

    #[cfg(any(test, feature = "model"))]
    fn lanes(self) -> Vec<[u64; L]> {
        match self {
            Read::Lanes(lanes) => lanes.to_vec(),
            Read::Bytes(bytes) => {
                let (words, _) = bytes.as_chunks();
                let lanes: Vec<_> = words.iter().copied().map(u64::from_le_bytes).collect();
                lanes.as_chunks().0.to_vec()
            }
        }
    }
}

#[cfg(test)]
impl<const L: usize> Callable<L> {
    /// Runs a kernel of any number of arrays.
    pub(crate) fn call_slices(&self, arrays: &mut [Vec<[u64; L]>], scratch: &mut [[u64; L]]) {
        match (self.written, arrays) {
            (1, [x]) => self.call([x], [], scratch),
            (1, [x, a]) => self.call([x], [a], scratch),
            (1, [x, a, b]) => self.call([x], [a, b], scratch),
            (1, [x, a, b, c]) => self.call([x], [a, b, c], scratch),
            (1, [x, a, b, c, d]) => self.call([x], [a, b, c, d], scratch),
            (2, [x, y]) => self.call([x, y], [], scratch),
            (2, [x, y, a]) => self.call([x, y], [a], scratch),
            (2, [x, y, a, b]) => self.call([x, y], [a, b], scratch),
            (2, [x, y, a, b, c]) => self.call([x, y], [a, b, c], scratch),
            (3, [x, y, z]) => self.call([x, y, z], [], scratch),
            (3, [x, y, z, a]) => self.call([x, y, z], [a], scratch),
            (3, [x, y, z, a, b]) => self.call([x, y, z], [a, b], scratch),
            (written, arrays) => panic!("no kernel writes {written} of {} arrays", arrays.len()),
        }
    }
}

/// Vectors of scratch space that are enough for each of these kernels.
pub(crate) fn most_slots<'a, const L: usize>(kernels: impl Iterator<Item = &'a Callable<L>>) -> usize {
    kernels.map(Callable::slots).max().unwrap_or(0)
}

/// Overwrites all vector and mask registers, in which kernels leave secrets behind.
pub fn wipe_registers<const L: usize>(token: Token<L>) {
    #[cfg(feature = "fault-injection")]
    crate::faults::wiped();
    match token.target().registers() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves that the CPU has these registers; the function changes those
        // only, which its calling convention lets it.
        Registers::Avx512 => unsafe { widelane_wipe_registers() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves that the CPU has AVX; the function changes ymm registers only, which its calling
        // convention lets it.
        Registers::Avx2 => unsafe { widelane_wipe_ymm_registers() },
        #[cfg(not(target_arch = "x86_64"))]
        _ => {}
    }
}

#[cfg(target_arch = "x86_64")]
fn assembled(kernel: Kernel, target: Target) -> Code {
    let symbol = kernel.symbol(target);
    let place = TABLE.binary_search_by(|row| row.symbol.cmp(&symbol));
    let row = &TABLE[place.expect("the build assembles every kernel of the library")];
    Code::Assembled {
        function: row.function,
        slots: row.slots,
        multiply_adds: row.multiply_adds,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn assembled(_: Kernel, _: Target) -> Code {
    unreachable!("no token exists on this architecture")
}

/// The most arrays that a kernel has.
const MAX_ARRAYS: usize = 5;

#[cfg(target_arch = "x86_64")]
struct Row {
    symbol: &'static str,
    function: Function,
    /// Spill slots that it needs.
    slots: u32,
    multiply_adds: u32,
}

#[cfg(target_arch = "x86_64")]
include!(concat!(env!("OUT_DIR"), "/table.rs"));

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/kernels.s")), options(raw));

#[cfg(target_arch = "x86_64")]
unsafe extern "sysv64" {
    fn widelane_wipe_registers();
    fn widelane_wipe_ymm_registers();
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
    // Which entry of a table was read shows in a mask. Clears all 64 bits.
    "    .irp i, 0,1,2,3,4,5,6,7",
    "    kxorw k\\i, k\\i, k\\i",
    "    .endr",
    "    ret",
    "    .size widelane_wipe_registers, . - widelane_wipe_registers",
    "    .p2align 4",
    "    .globl widelane_wipe_ymm_registers",
    "    .hidden widelane_wipe_ymm_registers",
    "    .type widelane_wipe_ymm_registers, @function",
    "widelane_wipe_ymm_registers:",
    "    vzeroall",
    "    ret",
    "    .size widelane_wipe_ymm_registers, . - widelane_wipe_ymm_registers",
);

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::arch::asm;

    use widelane_cpu::{Product, on_every_target};
    use widelane_lanes::{DIGIT_MASK, Modular};

    use super::*;

    /// MXCSR, and the same after it was set.
    fn mxcsr(set: Option<u32>) -> u32 {
        let mut now = set.unwrap_or_default();
        let at = &raw mut now;
        // SAFETY: `at` is a place for the four bytes that the instructions read or write. The test sets only
        // values whose reserved bits are zero, and sets back what was there.
        unsafe {
            if set.is_some() {
                asm!("ldmxcsr [{at}]", at = in(reg) at);
            }
            asm!("stmxcsr [{at}]", at = in(reg) at);
        }
        now
    }

    /// A caller may round in another way and want signals at inexact results.
    #[test]
    fn the_rounding_of_the_caller_changes_nothing_and_stays() {
        const UPWARDS_AND_UNMASKED: u32 = 0x5000;
        const FLUSHING_TO_ZERO: u32 = 0xffc0;
        const FLAGS_SET: u32 = 0x1fbf;
        fn products<const L: usize>(token: Token<L>) {
            let kernel = Callable::new(token, Modular::BlockProduct);
            let digits = vec![[DIGIT_MASK; L]; 10];
            let run = || {
                let mut columns = vec![[0; L]; 20];
                let mut scratch = vec![[0; L]; kernel.slots()];
                kernel.call([&mut columns], [&digits, &digits], &mut scratch);
                columns
            };
            let (expected, before) = (run(), mxcsr(None));
            for set in [UPWARDS_AND_UNMASKED, FLUSHING_TO_ZERO, FLAGS_SET] {
                mxcsr(Some(set));
                let found = run();
                let after = mxcsr(None);
                mxcsr(Some(before));
                assert_eq!(after, set, "{}", token.target());
                assert!(found == expected, "{}", token.target());
            }
            if token.target().product() == Product::Fma {
                assert_ne!(expected[1], [0; L]);
            }
        }
        on_every_target!(token => products(token));
    }

    /// Bits that stay in the vector and mask registers when `wipe` returns, where all were set before.
    fn left(registers: Registers, wipe: unsafe extern "sysv64" fn()) -> u64 {
        let mut left: u64;
        match registers {
            // SAFETY: the caller has a token for these registers. `wipe` is a function without arguments that follows
            // its calling convention, and what that lets it change is declared.
            Registers::Avx512 => unsafe {
                asm!(
                    ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                    "vpternlogq zmm\\i, zmm\\i, zmm\\i, 255",
                    ".endr",
                    ".irp i, 0,1,2,3,4,5,6,7",
                    "kxnorw k\\i, k\\i, k\\i",
                    ".endr",
                    "call {wipe}",
                    ".irp i, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                    "vporq zmm0, zmm0, zmm\\i",
                    ".endr",
                    "vextracti64x4 ymm1, zmm0, 1",
                    "vpor ymm0, ymm0, ymm1",
                    "vextracti128 xmm1, ymm0, 1",
                    "vpor xmm0, xmm0, xmm1",
                    "vpsrldq xmm1, xmm0, 8",
                    "vpor xmm0, xmm0, xmm1",
                    "vmovq rax, xmm0",
                    ".irp i, 0,1,2,3,4,5,6,7",
                    "kmovw ecx, k\\i",
                    "or rax, rcx",
                    ".endr",
                    "vzeroupper",
                    wipe = in(reg) wipe,
                    out("rax") left,
                    out("rcx") _,
                    clobber_abi("sysv64"),
                );
            },
            // SAFETY: the caller has a token for ymm registers. `wipe` is a function without arguments that follows its
            // calling convention, and what that lets it change is declared.
            Registers::Avx2 => unsafe {
                asm!(
                    ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                    "vpcmpeqd ymm\\i, ymm\\i, ymm\\i",
                    ".endr",
                    "call {wipe}",
                    ".irp i, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                    "vpor ymm0, ymm0, ymm\\i",
                    ".endr",
                    "vextracti128 xmm1, ymm0, 1",
                    "vpor xmm0, xmm0, xmm1",
                    "vpsrldq xmm1, xmm0, 8",
                    "vpor xmm0, xmm0, xmm1",
                    "vmovq rax, xmm0",
                    "vzeroupper",
                    wipe = in(reg) wipe,
                    out("rax") left,
                    clobber_abi("sysv64"),
                );
            },
        }
        left
    }

    #[test]
    fn a_wipe_leaves_nothing_in_registers() {
        unsafe extern "sysv64" fn nothing() {}
        on_every_target!(token => {
            let registers = token.target().registers();
            let wipe = match registers {
                Registers::Avx512 => widelane_wipe_registers,
                Registers::Avx2 => widelane_wipe_ymm_registers,
            };
            assert_eq!(left(registers, nothing), u64::MAX, "{}", token.target());
            assert_eq!(left(registers, wipe), 0, "{}", token.target());
        });
    }
}
