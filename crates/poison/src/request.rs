//! Valgrind's client requests: a sequence of instructions that does nothing on a CPU and that
//! valgrind recognises ("The Client Request mechanism", Valgrind User Manual, section 3.1).

/// Asks whether valgrind runs this program: 0 if it does not.
pub(crate) const RUNNING_ON_VALGRIND: usize = 0x1001;
/// Asks for the number of errors reported so far.
pub(crate) const COUNT_ERRORS: usize = 0x1201;
/// Declares memory, from an address and of a length, uninitialised.
pub(crate) const MAKE_MEM_UNDEFINED: usize = MEMCHECK | 1;
/// Declares memory, from an address and of a length, initialised.
pub(crate) const MAKE_MEM_DEFINED: usize = MEMCHECK | 2;

/// Requests to memcheck begin with its initials.
const MEMCHECK: usize = (b'M' as usize) << 24 | (b'C' as usize) << 16;

/// Makes a request and returns valgrind's answer; 0 on a CPU without valgrind.
pub(crate) fn request(kind: usize, [first, second]: [usize; 2]) -> usize {
    let arguments: [usize; 6] = [kind, first, second, 0, 0, 0];
    let answer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the rotations of rdi add up to 128 bits and give its value back, and exchanging a
    // register with itself changes nothing. Valgrind reads `arguments`, which live for the block,
    // and writes rdx; what it notes about the memory that they name does not change its contents.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") &raw const arguments,
            inout("rdx") 0_usize => answer,
            out("rdi") _,
            options(nostack),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _unread = arguments;
        answer = 0;
    }
    answer
}
