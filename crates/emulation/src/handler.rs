//! The handler: registers of the interrupted code, as the system lays them out (Linux, x86-64: `ucontext_t`, and the
//! standard form of XSAVE behind it).
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use iced_x86::{Decoder, DecoderOptions, Instruction, Register};
use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::multiply::{Multiply, multiply_add};

/// Installs the handler. What was there before is asked about every other SIGILL.
pub(crate) fn install() {
    // Tables of the decoder, which it makes when it is first used.
    let mut decoder = Decoder::with_ip(64, &[0xc3], 0, DecoderOptions::NONE);
    assert!(!decoder.decode().is_invalid());
    // SAFETY: zeros are a valid `sigaction`, and the handler has the form that SA_SIGINFO wants.
    let before = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_illegal_instruction as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        let status = libc::sigaction(libc::SIGILL, &raw const action, before.as_mut_ptr());
        assert_eq!(status, 0, "SIGILL has a handler");
        before.assume_init()
    };
    BEFORE.get_or_init(|| before);
}

static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Goes on behind the multiplications that stand there, or lets the instruction fail as it did before.
extern "C" fn on_illegal_instruction(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the system passes the registers of the interrupted code, and no other code has them
    // while the handler runs.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    let mut any = false;
    // The next instruction is often a multiplication, too, and a signal takes long.
    while let Some(instruction) = next(context) {
        let Some(multiply) = Multiply::of(&instruction) else {
            break;
        };
        if run(context, &instruction, multiply).is_none() {
            break;
        }
        context.uc_mcontext.gregs[libc::REG_RIP as usize] = instruction.next_ip() as i64;
        any = true;
    }
    if !any {
        let before = BEFORE.get();
        // SAFETY: zeros are a valid `sigaction`: the default. The instruction fails once more, and ends the process.
        unsafe {
            let default = std::mem::zeroed();
            libc::sigaction(libc::SIGILL, before.unwrap_or(&default), ptr::null_mut());
        }
    }
}

/// The instruction at which the code stands.
fn next(context: &ucontext_t) -> Option<Instruction> {
    let ip = context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
    // SAFETY: the CPU was about to run what stands there, so that its first byte can be read.
    let first = unsafe { (ip as *const u8).read() };
    if first != VEX_OF_THREE_BYTES {
        return None;
    }
    // SAFETY: the rest of the instruction can be read, too, and behind a kernel there is other code of the program,
    // which is longer than what an instruction may lack of these bytes.
    let bytes = unsafe { std::slice::from_raw_parts(ip as *const u8, LONGEST) };
    let instruction = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Computes one multiplication in the registers of the interrupted code. `None` if the system has not saved them.
fn run(context: &mut ucontext_t, instruction: &Instruction, multiply: Multiply) -> Option<()> {
    let Multiply { half, sum, a, b } = multiply;
    let b = match b {
        Some(b) => ymm(context)?.read(b),
        None => {
            let address = instruction.virtual_address(2, 0, |register, _, _| {
                match register {
                    // No other segment of 64-bit code than FS and GS has a base.
                    Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
                    _ => general(register).map(|at| context.uc_mcontext.gregs[at] as u64),
                }
            })?;
            // SAFETY: the instruction would have read these 32 bytes, of any alignment.
            unsafe { (address as *const [u64; 4]).read_unaligned() }
        }
    };
    let mut registers = ymm(context)?;
    let result = multiply_add(half, registers.read(sum), registers.read(a), b);
    registers.write(sum, result);
    Some(())
}

/// The place of a general register among those that were saved.
fn general(register: Register) -> Option<usize> {
    let place = match register {
        Register::RAX => libc::REG_RAX,
        Register::RBX => libc::REG_RBX,
        Register::RCX => libc::REG_RCX,
        Register::RDX => libc::REG_RDX,
        Register::RSI => libc::REG_RSI,
        Register::RDI => libc::REG_RDI,
        Register::RBP => libc::REG_RBP,
        Register::RSP => libc::REG_RSP,
        Register::R8 => libc::REG_R8,
        Register::R9 => libc::REG_R9,
        Register::R10 => libc::REG_R10,
        Register::R11 => libc::REG_R11,
        Register::R12 => libc::REG_R12,
        Register::R13 => libc::REG_R13,
        Register::R14 => libc::REG_R14,
        Register::R15 => libc::REG_R15,
        _ => return None,
    };
    Some(place as usize)
}

/// The 256-bit registers of the interrupted code.
struct Ymm {
    area: *mut u8,
}

/// Finds them, and makes sure that the system restores both halves.
fn ymm(context: &mut ucontext_t) -> Option<Ymm> {
    let area = context.uc_mcontext.fpregs.cast::<u8>();
    if area.is_null() {
        return None;
    }
    let word = |at: usize| {
        // SAFETY: the area begins with the 512 bytes of FXSAVE.
        unsafe { area.add(at).cast::<u32>().read_unaligned() }
    };
    let has_more = word(MAGIC_AT) == MAGIC;
    let features = u64::from(word(FEATURES_AT)) | u64::from(word(FEATURES_AT + 4)) << 32;
    if !has_more || features & AVX == 0 {
        return None;
    }
    // SAFETY: the number says that the area goes on with the header of XSAVE and, as the features say, with the upper
    // halves at their place of the standard form.
    unsafe {
        let used = area.add(USED_AT).cast::<u64>();
        let was = used.read_unaligned();
        // A feature that is not in use has zeros, whatever the area holds.
        if was & SSE == 0 {
            area.add(LOW_AT).write_bytes(0, 16 * 16);
        }
        if was & AVX == 0 {
            area.add(HIGH_AT).write_bytes(0, 16 * 16);
        }
        used.write_unaligned(was | SSE | AVX);
    }
    Some(Ymm { area })
}

impl Ymm {
    fn halves(&self, register: usize) -> [*mut [u64; 2]; 2] {
        assert!(register < 16);
        // SAFETY: `ymm` has found both areas of 16 halves.
        [LOW_AT, HIGH_AT].map(|at| unsafe { self.area.add(at + 16 * register).cast() })
    }

    fn read(&self, register: usize) -> [u64; 4] {
        // SAFETY: `halves` points into the areas.
        let [[a, b], [c, d]] = self.halves(register).map(|half| unsafe { half.read_unaligned() });
        [a, b, c, d]
    }

    fn write(&mut self, register: usize, [a, b, c, d]: [u64; 4]) {
        let [low, high] = self.halves(register);
        // SAFETY: `halves` points into the areas.
        unsafe {
            low.write_unaligned([a, b]);
            high.write_unaligned([c, d]);
        }
    }
}

/// The first byte of every instruction that is emulated.
const VEX_OF_THREE_BYTES: u8 = 0xc4;
/// Bytes that an instruction of the code can have: prefix, opcode, two of the address, four of its constant.
const LONGEST: usize = 3 + 1 + 2 + 4;

/// `struct _fpx_sw_bytes` of Linux, in what FXSAVE leaves free.
const MAGIC_AT: usize = 464;
const MAGIC: u32 = 0x4650_5853;
const FEATURES_AT: usize = MAGIC_AT + 8;
/// XMM registers, the header's first word, and the upper halves of YMM registers (Intel, "XSAVE-managed features").
const LOW_AT: usize = 160;
const USED_AT: usize = 512;
const HIGH_AT: usize = 576;
/// Bits of features in XCR0 and in the header.
const SSE: u64 = 1 << 1;
const AVX: u64 = 1 << 2;
