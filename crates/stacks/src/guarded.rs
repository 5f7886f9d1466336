//! A stack with a guard area, and a pool of them.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::ManuallyDrop;
use std::ptr;

use corosensei::stack::valgrind::ValgrindStackRegistration;
use corosensei::stack::{Stack, StackPointer};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

/// The stacks of one thread: those in use are counted, those free are kept for the next call.
#[derive(Default)]
pub struct Stacks {
    free: RefCell<Vec<GuardedStack>>,
    live: Cell<usize>,
}

impl Stacks {
    /// A stack from the pool, or a new one.
    ///
    /// # Errors
    ///
    /// When the kernel gives no memory.
    pub fn take(&self) -> io::Result<GuardedStack> {
        let free = self.free.borrow_mut().pop();
        let stack = match free {
            Some(stack) => stack,
            None => GuardedStack::new()?,
        };
        self.live.set(self.live.get() + 1);
        Ok(stack)
    }

    /// Takes a stack back on which nothing runs any more.
    pub fn put(&self, mut stack: GuardedStack) {
        self.live.set(self.live.get() - 1);
        let mut free = self.free.borrow_mut();
        if free.len() < MAX_FREE {
            stack.release_deep_pages();
            free.push(stack);
        }
    }

    /// Number of stacks in use.
    pub fn live(&self) -> usize {
        self.live.get()
    }

    /// Number of free stacks, kept for later.
    pub fn free(&self) -> usize {
        self.free.borrow().len()
    }
}

/// A stack of 256 KiB above a guard area of 64 KiB.
///
/// A function that is compiled without stack probes, as C code may be, can step over one guard page
/// by one large frame. 64 KiB is more than any such frame of AWS-LC.
pub struct GuardedStack {
    /// The lowest address of the mapping.
    limit: StackPointer,
    /// Tells valgrind that this is a stack. Ends before the memory does.
    valgrind: ManuallyDrop<ValgrindStackRegistration>,
}

// SAFETY: base and limit enclose a mapping that this value owns and keeps until it is dropped. Both
// are aligned to pages. Its lowest `GUARD` bytes are inaccessible, and the `SIZE` bytes above, more
// than the smallest stack, are readable and writable.
unsafe impl Stack for GuardedStack {
    fn base(&self) -> StackPointer {
        self.limit.saturating_add(GUARD + SIZE)
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

impl GuardedStack {
    fn new() -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
        let memory = unsafe { mmap_anonymous(ptr::null_mut(), GUARD + SIZE, ProtFlags::empty(), MapFlags::PRIVATE)? };
        let limit = StackPointer::new(memory.expose_provenance()).ok_or(io::ErrorKind::OutOfMemory)?;
        let valgrind = ValgrindStackRegistration::new(memory.cast(), GUARD + SIZE);
        let stack = Self {
            limit,
            valgrind: ManuallyDrop::new(valgrind),
        };
        let usable = stack.pointer(limit.get() + GUARD);
        // SAFETY: the range lies inside the new mapping, to which nothing refers.
        unsafe { mprotect(usable.cast(), SIZE, MprotectFlags::READ | MprotectFlags::WRITE)? };
        Ok(stack)
    }

    /// Gives the pages below `KEPT` back to the kernel if a call has been there.
    ///
    /// A call that went deeper has left its frames in the page at that depth, which is zero until
    /// then.
    fn release_deep_pages(&mut self) {
        let lowest = self.limit().get() + GUARD;
        let border = self.base().get() - KEPT;
        let page = self.pointer(border - PAGE).cast::<[u64; PAGE / 8]>();
        // SAFETY: the page is inside the stack, above the guard area, aligned and readable; the
        // stack is borrowed mutably and no coroutine runs on it, so that nothing else refers to it.
        let untouched = unsafe { (*page).iter().all(|word| *word == 0) };
        if untouched {
            return;
        }
        // SAFETY: the range lies inside the stack, above the guard area; nothing runs on the stack
        // and nothing refers to it. The kernel replaces the pages by zero pages.
        let released = unsafe { madvise(self.pointer(lowest).cast(), border - lowest, Advice::LinuxDontNeed) };
        debug_assert!(released.is_ok(), "{released:?}");
    }

    /// A pointer to an address inside the stack.
    fn pointer(&self, address: usize) -> *mut u8 {
        debug_assert!((self.limit().get()..self.base().get()).contains(&address));
        ptr::with_exposed_provenance_mut(address)
    }
}

impl Drop for GuardedStack {
    fn drop(&mut self) {
        // SAFETY: it is dropped here and not used again.
        unsafe { ManuallyDrop::drop(&mut self.valgrind) };
        let memory = self.pointer(self.limit.get());
        // SAFETY: the mapping was made by `new` with this length. No coroutine runs on it, because
        // a coroutine owns its stack, and no reference into it outlives a method.
        let unmapped = unsafe { munmap(memory.cast(), GUARD + SIZE) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Bytes that a call can use; only the pages that are touched cost memory.
const SIZE: usize = 256 * 1024;

/// Inaccessible bytes below them.
const GUARD: usize = 64 * 1024;

/// Bytes at the top that a pooled stack keeps. An ordinary handshake step needs less.
const KEPT: usize = 48 * 1024;

/// Free stacks beyond these are unmapped.
const MAX_FREE: usize = 128;

/// Bytes of a page of memory.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use std::fs;

    use corosensei::{Coroutine, CoroutineResult};

    use super::*;

    /// Uses at least `bytes` bytes of the stack that it runs on.
    #[inline(never)]
    fn use_stack(bytes: usize) -> u64 {
        let frame = std::hint::black_box([0xa5_u8; 1024]);
        let deeper = match bytes.checked_sub(frame.len()) {
            Some(rest) => use_stack(rest),
            None => 0,
        };
        deeper + u64::from(std::hint::black_box(&frame)[17])
    }

    fn run_on(stack: GuardedStack, bytes: usize) -> GuardedStack {
        let mut coroutine = Coroutine::<(), (), u64, GuardedStack>::with_stack(stack, move |_, ()| use_stack(bytes));
        match coroutine.resume(()) {
            CoroutineResult::Return(sum) => assert!(sum > 0),
            CoroutineResult::Yield(()) => unreachable!("it never suspends"),
        }
        coroutine.into_stack()
    }

    /// Returns whether any byte more than `depth` bytes below the top of the stack is not zero.
    fn touched_below(stack: &GuardedStack, depth: usize) -> bool {
        let lowest = stack.limit().get() + GUARD;
        let len = stack.base().get() - depth - lowest;
        // SAFETY: the range is inside the usable part of a stack on which nothing runs.
        let bytes = unsafe { std::slice::from_raw_parts(stack.pointer(lowest), len) };
        bytes.iter().any(|byte| *byte != 0)
    }

    #[test]
    fn deep_pages_are_given_back_and_shallow_ones_stay() {
        let stacks = Stacks::default();
        let stack = run_on(stacks.take().unwrap(), 64 * 1024);
        assert!(touched_below(&stack, KEPT), "the call went that deep");
        stacks.put(stack);
        let stack = stacks.take().unwrap();
        assert!(!touched_below(&stack, KEPT));
        assert!(touched_below(&stack, 0), "what is used each time stays");
        // The stack is as good as before.
        stacks.put(run_on(stack, 64 * 1024));
        assert_eq!((stacks.live(), stacks.free()), (0, 1));
    }

    #[test]
    fn the_guard_is_64_kib_and_inaccessible() {
        let stacks = Stacks::default();
        let stack = stacks.take().unwrap();
        let limit = stack.limit().get();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mapping = maps
            .lines()
            .find(|line| line.starts_with(&format!("{limit:x}-")))
            .unwrap_or_else(|| panic!("no mapping begins at {limit:x}:\n{maps}"));
        let (_, rest) = mapping.split_once('-').unwrap();
        let (end, rest) = rest.split_once(' ').unwrap();
        let end = usize::from_str_radix(end, 16).unwrap();
        assert!(rest.starts_with("---p"), "{mapping}");
        assert!(end - limit >= 64 * 1024, "{mapping}");
        assert!(stack.base().get() - end >= SIZE, "{mapping}");
    }

    #[test]
    fn free_stacks_are_bounded() {
        let stacks = Stacks::default();
        let many: Vec<_> = (0..MAX_FREE + 10).map(|_| stacks.take().unwrap()).collect();
        assert_eq!(stacks.live(), MAX_FREE + 10);
        many.into_iter().for_each(|stack| stacks.put(stack));
        assert_eq!((stacks.live(), stacks.free()), (0, MAX_FREE));
    }
}
