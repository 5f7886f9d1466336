//! Register allocation: names become registers, spill slots and memory operands.
//!
//! Kernels are straight lines of code, so the farthest-next-use rule (Belady 1966) is exact where
//! it matters: the value that is needed last gives up its register. Loads and constants cost
//! nothing to evict, as they can be read again. If no register stays free for one of them until its
//! next use, the instruction that uses it reads it straight from memory.
//!
//! A loop is a straight line between a head and a foot. At both, each value that the loop carries
//! is in the same register, and the other registers are empty.

use widelane_cpu::Registers;

use crate::machine::Array;
use crate::trace::{CompareOp, Name, Op, ShiftOp, ThreeOp, TwoOp};

/// Mask registers that can mask: k0 cannot.
const MASK_REGISTERS: usize = 7;

/// A machine instruction after allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// `to := memory`
    Load { to: Register, from: Memory },
    /// `memory := from`
    Store { to: Memory, from: Register },
    /// `to := 0`
    Zero { to: Register },
    /// `to := from`
    Move { to: Register, from: Register },
    /// `to := a op b`
    Two {
        op: TwoOp,
        to: Register,
        a: Register,
        b: Operand,
    },
    /// `to := a op bits`
    Shift {
        op: ShiftOp,
        to: Register,
        a: Operand,
        bits: u32,
    },
    /// `to := a`, as a double-precision number
    Double { to: Register, a: Operand },
    /// `acc := op(acc, a, b)`
    Three {
        op: ThreeOp,
        acc: Register,
        a: Register,
        b: Operand,
    },
    /// `mask := a op b`
    Compare {
        op: CompareOp,
        mask: MaskRegister,
        a: Register,
        b: Operand,
    },
    /// `to := yes` in the lanes of `mask`
    Select {
        mask: MaskRegister,
        to: Register,
        yes: Operand,
    },
    /// `to := yes` in the lanes whose highest bit is set in `mask`, else `no`
    Blend {
        to: Register,
        no: Register,
        yes: Operand,
        mask: Register,
    },
    /// The instructions up to the foot run `times` times. Each turn begins `stride` vectors of scratch
    /// memory after the one before.
    Head { number: usize, times: usize, stride: usize },
    /// The end of that loop.
    Foot { number: usize, stride: usize },
}

impl Instruction {
    /// The operand that may lie in memory, of an instruction that reads one.
    pub(crate) fn operand(&self) -> Option<Operand> {
        match *self {
            Instruction::Load { from, .. } => Some(Operand::Memory(from)),
            Instruction::Shift { a: operand, .. }
            | Instruction::Double { a: operand, .. }
            | Instruction::Two { b: operand, .. }
            | Instruction::Three { b: operand, .. }
            | Instruction::Compare { b: operand, .. }
            | Instruction::Select { yes: operand, .. }
            | Instruction::Blend { yes: operand, .. } => Some(operand),
            Instruction::Store { .. }
            | Instruction::Zero { .. }
            | Instruction::Move { .. }
            | Instruction::Head { .. }
            | Instruction::Foot { .. } => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register(pub(crate) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskRegister(pub(crate) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(Register),
    Memory(Memory),
}

/// Place of a vector in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// A vector of one of the kernel's arrays.
    Array(Array, usize),
    /// A 64-bit word of one of the kernel's arrays, broadcast.
    Word(Array, usize),
    /// A slot: of scratch memory, or of spilled values behind it.
    Slot(usize),
    /// A vector of scratch memory, counted from where a turn of the loop begins.
    Moving(usize),
    /// A 64-bit constant, broadcast.
    Constant(u64),
    /// A constant for each lane.
    Vector([u64; 8]),
}

/// A kernel in registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    pub(crate) instructions: Vec<Instruction>,
    /// Spill slots used.
    pub(crate) slots: usize,
}

/// Allocates registers for a trace.
///
/// A load happens when its value is first needed, and may happen again. That is safe because a
/// trace stores to a vector in memory only when no later operation reads the old value.
///
/// The first slots are the `scratch` vectors of scratch memory.
pub(crate) fn allocate(ops: &[Op], scratch: usize, registers: Registers) -> Allocated {
    let mut allocator = Allocator::new(ops, scratch, registers);
    for (at, op) in ops.iter().enumerate() {
        allocator.step(at, *op);
    }
    Allocated {
        instructions: allocator.out,
        slots: allocator.slots,
    }
}

struct Allocator<'a> {
    ops: &'a [Op],
    /// For each name the places that read it, last first; the end of the list is the next use.
    uses: Vec<Vec<usize>>,
    register_of: Vec<Option<Register>>,
    slot_of: Vec<Option<usize>>,
    mask_of: Vec<Option<MaskRegister>>,
    holds: Vec<Option<Name>>,
    /// True if instructions can read one 64-bit word for all lanes from memory, and shifts can read memory.
    is_evex: bool,
    masks: [Option<Name>; MASK_REGISTERS],
    free_slots: Vec<usize>,
    /// Slots that the current operation is the last to read: free from the next one on, as the
    /// instruction that reads them may come after a spill.
    dying_slots: Vec<usize>,
    slots: usize,
    /// The registers of the values that the current loop carries, at its head and its foot.
    homes: Vec<Register>,
    loops: usize,
    /// Distance by which each turn of the current loop moves scratch memory.
    stride: usize,
    /// Values from before the current loop that each turn reads: memory keeps them until its end.
    outer: Vec<Name>,
    /// The vectors of scratch memory that the current turn has written.
    overwritten: Vec<usize>,
    out: Vec<Instruction>,
}

impl<'a> Allocator<'a> {
    fn new(ops: &'a [Op], scratch: usize, registers: Registers) -> Self {
        let (count, is_evex) = match registers {
            Registers::Avx2 => (16, false),
            Registers::Avx512 => (32, true),
        };
        let mut uses = vec![Vec::new(); ops.len()];
        for (at, op) in ops.iter().enumerate().rev() {
            for name in op.reads() {
                uses[name.0].push(at);
            }
        }
        // Values from before a loop are read again by each of its turns.
        let mut head = None;
        for (at, op) in ops.iter().enumerate() {
            match op {
                Op::Repeat(..) => head = Some(at),
                Op::End => {
                    let head = head.take().expect("a loop has a head");
                    for uses in &mut uses[..head] {
                        let after = uses.iter().position(|&place| place < at);
                        if let Some(place) = after.filter(|&place| uses[place] > head) {
                            uses.insert(place, at);
                        }
                    }
                }
                _ => {}
            }
        }
        Self {
            ops,
            uses,
            register_of: vec![None; ops.len()],
            slot_of: vec![None; ops.len()],
            mask_of: vec![None; ops.len()],
            holds: vec![None; count],
            is_evex,
            masks: [None; MASK_REGISTERS],
            free_slots: Vec::new(),
            dying_slots: Vec::new(),
            slots: scratch,
            homes: Vec::new(),
            loops: 0,
            stride: 0,
            outer: Vec::new(),
            overwritten: Vec::new(),
            out: Vec::new(),
        }
    }

    fn step(&mut self, at: usize, op: Op) {
        self.free_slots.append(&mut self.dying_slots);
        match op {
            Op::Repeat(times, stride) => self.head(at, times, stride),
            Op::Carried(_) => self.done(at, op),
            Op::Next(_) => {
                if !matches!(self.ops[at - 1], Op::Next(_)) {
                    self.foot(at);
                }
                self.done(at, op);
            }
            Op::End => {
                let (number, stride) = (self.loops, std::mem::take(&mut self.stride));
                self.out.push(Instruction::Foot { number, stride });
                self.homes.clear();
                self.overwritten.clear();
                self.loops += 1;
                for name in std::mem::take(&mut self.outer) {
                    self.used(at, name);
                }
            }
            // Read when first needed.
            Op::Splat(_) | Op::Vector(_) | Op::Load(..) | Op::Broadcast(..) => {}
            Op::Store(array, index, value) => {
                let from = self.in_register(value, &[]);
                let to = self.place(array, index);
                self.out.push(Instruction::Store { to, from });
                if let Memory::Moving(index) = to {
                    self.overwritten.push(index);
                }
                self.done(at, op);
            }
            Op::Two(op, a, b) => self.two(at, op, a, b),
            Op::Shift(op, a, bits) => self.shift(at, op, a, bits),
            Op::Double(a) => {
                let a = self.operand(at, a, &[], true);
                self.done(at, op);
                let to = self.result(a.register());
                self.out.push(Instruction::Double { to, a });
                self.define(at, to);
            }
            Op::Three(op, acc, a, b) => self.three(at, op, acc, a, b),
            Op::Compare(compare, a, b) => {
                let keep: Vec<_> = self.register_of[b.0].into_iter().collect();
                let a = self.in_register(a, &keep);
                let b = self.operand(at, b, &[a], true);
                let free = self.masks.iter().position(Option::is_none);
                let mask = MaskRegister(free.expect("a kernel keeps at most 7 masks alive"));
                self.masks[mask.0] = Some(Name(at));
                self.mask_of[at] = Some(mask);
                self.out.push(Instruction::Compare {
                    op: compare,
                    mask,
                    a,
                    b,
                });
                self.done(at, op);
            }
            Op::Blend(mask, yes, no) => self.blend(at, mask, yes, no),
            Op::Select(mask, yes, no) => {
                let mask = self.mask_of[mask.0].expect("the mask is alive until its last use");
                let keep: Vec<_> = self.register_of[no.0].into_iter().collect();
                let yes = self.operand(at, yes, &keep, true);
                let to = self.overwritable(at, no, yes.register().as_slice());
                self.out.push(Instruction::Select { mask, to, yes });
                self.done(at, op);
                self.define(at, to);
            }
        }
    }

    fn blend(&mut self, at: usize, mask: Name, yes: Name, no: Name) {
        let keep = |this: &Self, names: &[Name]| -> Vec<Register> {
            names.iter().filter_map(|name| this.register_of[name.0]).collect()
        };
        let mask_in = self.in_register(mask, &keep(self, &[yes, no]));
        let no_in = self.in_register(no, &keep(self, &[mask, yes]));
        let yes = self.operand(at, yes, &[mask_in, no_in], false);
        self.done(at, self.ops[at]);
        let to = self.result(Some(no_in));
        self.out.push(Instruction::Blend {
            to,
            no: no_in,
            yes,
            mask: mask_in,
        });
        self.define(at, to);
    }

    fn two(&mut self, at: usize, op: TwoOp, a: Name, b: Name) {
        // The first operand must be in a register; the second one may be read from memory.
        let swap = op.commutes() && self.register_of[a.0].is_none() && self.register_of[b.0].is_some();
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let keep: Vec<_> = self.register_of[b.0].into_iter().collect();
        let first = self.in_register(a, &keep);
        let second = self.operand(at, b, &[first], op.broadcasts());
        self.done(at, self.ops[at]);
        let to = self.result(Some(first));
        self.out.push(Instruction::Two {
            op,
            to,
            a: first,
            b: second,
        });
        self.define(at, to);
    }

    fn shift(&mut self, at: usize, op: ShiftOp, a: Name, bits: u32) {
        let a = match self.is_evex {
            true => self.operand(at, a, &[], op.broadcasts()),
            false => Operand::Register(self.in_register(a, &[])),
        };
        self.done(at, self.ops[at]);
        let to = self.result(a.register());
        self.out.push(Instruction::Shift { op, to, a, bits });
        self.define(at, to);
    }

    fn three(&mut self, at: usize, mut op: ThreeOp, mut acc: Name, mut a: Name, mut b: Name) {
        // If the operation allows a choice, it overwrites a register that is not read again.
        let dies =
            |this: &Self, name: Name| this.register_of[name.0].is_some() && this.next_use_after(name, at) == NEVER;
        for _ in 0..2 {
            if dies(self, acc) {
                break;
            }
            if dies(self, a)
                && let Some(rotated) = op.rotated()
            {
                (op, acc, a) = (rotated, a, acc);
            } else if let (true, Some(swapped)) = (op.rotated().is_some(), op.swapped()) {
                (op, a, b) = (swapped, b, a);
            }
        }
        // The last operand may be read from memory.
        if self.register_of[a.0].is_none()
            && self.register_of[b.0].is_some()
            && let Some(swapped) = op.swapped()
        {
            (op, a, b) = (swapped, b, a);
        }
        let in_registers = [acc, b].map(|name| self.register_of[name.0]);
        let keep: Vec<_> = in_registers.into_iter().flatten().collect();
        let first = self.in_register(a, &keep);
        let keep: Vec<_> = [Some(first), self.register_of[acc.0]].into_iter().flatten().collect();
        let second = self.operand(at, b, &keep, true);
        let keep: Vec<_> = [Some(first), second.register()].into_iter().flatten().collect();
        let to = self.overwritable(at, acc, &keep);
        self.out.push(Instruction::Three {
            op,
            acc: to,
            a: first,
            b: second,
        });
        self.done(at, self.ops[at]);
        self.define(at, to);
    }

    /// Puts the values that a loop carries into registers, and all others that are read later into
    /// memory. The operation at `at` is the loop's head.
    ///
    /// # Panics
    ///
    /// If the loop carries more than there are registers.
    fn head(&mut self, at: usize, times: usize, stride: usize) {
        let end = self.ops[at..].iter().position(|op| *op == Op::End);
        let end = at + end.expect("a loop has an end");
        let names = (0..at).map(Name);
        self.outer = names.filter(|name| self.uses[name.0].contains(&end)).collect();
        let first = |op: &Op| match *op {
            Op::Carried(name) => Some(name),
            _ => None,
        };
        let firsts: Vec<_> = self.ops[at + 1..].iter().map_while(first).collect();
        // A value that is in a register stays there, and is copied to memory if it is read again.
        let mut homes: Vec<Option<Register>> = vec![None; firsts.len()];
        for (i, &first) in firsts.iter().enumerate() {
            if let Some(register) = self.register_of[first.0] {
                if self.next_use_after(first, at + 1 + i) < NEVER {
                    self.save(first, register);
                }
                self.release(first);
                self.hold(Name(at + 1 + i), register);
                homes[i] = Some(register);
            }
        }
        for register in (0..self.holds.len()).map(Register) {
            let Some(name) = self.holds[register.0] else {
                continue;
            };
            if !homes.contains(&Some(register)) {
                self.save(name, register);
                self.release(name);
            }
        }
        for (i, &first) in firsts.iter().enumerate() {
            if homes[i].is_none() {
                let free = self.holds.iter().position(Option::is_none);
                let to = Register(free.expect("a loop carries at most 32 values"));
                self.read(first, to);
                self.hold(Name(at + 1 + i), to);
                homes[i] = Some(to);
            }
        }
        self.homes = homes.into_iter().flatten().collect();
        let number = self.loops;
        self.stride = stride;
        self.out.push(Instruction::Head { number, times, stride });
    }

    /// Puts the values of the next turn into the registers in which the loop carries them. The
    /// operation at `at` is the first [`Op::Next`].
    fn foot(&mut self, at: usize) {
        let next = |op: &Op| match *op {
            Op::Next(name) => Some(name),
            _ => None,
        };
        let nexts: Vec<_> = self.ops[at..].iter().map_while(next).collect();
        let mut pending: Vec<_> = nexts.iter().copied().zip(self.homes.clone()).collect();
        loop {
            pending.retain(|&(name, home)| self.register_of[name.0] != Some(home));
            // A register can be overwritten if no pending move reads it.
            let is_source = |home: Register| {
                let source = |&(name, _): &(Name, Register)| self.register_of[name.0] == Some(home);
                pending.iter().any(source)
            };
            if let Some(place) = pending.iter().position(|&(_, home)| !is_source(home)) {
                let (name, to) = pending.remove(place);
                match self.register_of[name.0] {
                    Some(from) => self.out.push(Instruction::Move { to, from }),
                    None => self.read(name, to),
                }
            } else if let Some(&(name, home)) = pending.first() {
                // The pending moves form circles: break one with a copy in memory.
                let from = self.register_of[name.0].unwrap_or(home);
                self.save(name, from);
                self.release(name);
            } else {
                break;
            }
        }
        for register in 0..self.holds.len() {
            if let Some(name) = self.holds[register] {
                self.release(name);
            }
        }
        for (i, home) in self.homes.clone().into_iter().enumerate() {
            self.define(at + i, home);
        }
    }

    /// A register for a result. In a loop it is that of the operand `first`, if that is free now,
    /// so that carried values stay in their registers.
    fn result(&mut self, first: Option<Register>) -> Register {
        let free = |register: &Register| self.holds[register.0].is_none();
        match first.filter(free) {
            Some(register) if !self.homes.is_empty() => register,
            _ => self.fresh(&[]),
        }
    }

    /// A register that holds `name`; the registers in `keep` stay as they are.
    fn in_register(&mut self, name: Name, keep: &[Register]) -> Register {
        if let Some(register) = self.register_of[name.0] {
            return register;
        }
        let to = self.fresh(keep);
        self.read(name, to);
        self.hold(name, to);
        to
    }

    /// Reads `name` from memory.
    fn read(&mut self, name: Name, to: Register) {
        match self.memory(name) {
            Memory::Constant(0) => self.out.push(Instruction::Zero { to }),
            from => self.out.push(Instruction::Load { to, from }),
        }
    }

    /// `name` where it is cheapest: in its register; in a new register if it is read again before
    /// the value that would lose that register; otherwise straight from memory. A constant comes
    /// from memory only if the instruction `broadcasts` it.
    fn operand(&mut self, at: usize, name: Name, keep: &[Register], broadcasts: bool) -> Operand {
        if let Some(register) = self.register_of[name.0] {
            return Operand::Register(register);
        }
        let again = self.next_use_after(name, at);
        let worth = again < NEVER
            && (self.holds.iter().any(Option::is_none)
                || self.victim(keep).is_some_and(|victim| {
                    let held = self.holds[victim.0].expect("a victim holds something");
                    self.next_use_after(held, at) > again && self.is_free_to_evict(held)
                }));
        let memory = self.memory(name);
        let unfit = match memory {
            Memory::Constant(0) => true,
            // Without embedded broadcasts, constants are whole vectors in memory.
            Memory::Constant(_) => self.is_evex && !broadcasts,
            Memory::Word(..) => !self.is_evex || !broadcasts,
            _ => false,
        };
        if worth || unfit {
            Operand::Register(self.in_register(name, keep))
        } else {
            Operand::Memory(memory)
        }
    }

    /// A register with the value of `name` that the instruction at `at` may overwrite.
    fn overwritable(&mut self, at: usize, name: Name, keep: &[Register]) -> Register {
        let again = self.next_use_after(name, at) < NEVER;
        // The addend of each product: a register costs less than a load for each.
        let is_addend = matches!(self.ops[at], Op::Three(ThreeOp::Fma, ..));
        if again && is_addend && matches!(self.ops[name.0], Op::Splat(_)) {
            self.in_register(name, keep);
        }
        match self.register_of[name.0] {
            Some(register) if !again => {
                self.release(name);
                register
            }
            Some(from) => {
                let mut keep = keep.to_vec();
                keep.push(from);
                let to = self.fresh(&keep);
                self.out.push(Instruction::Move { to, from });
                to
            }
            None => {
                let to = self.fresh(keep);
                self.read(name, to);
                to
            }
        }
    }

    /// A register without a value. If none is free, the value that is needed last loses its own.
    fn fresh(&mut self, keep: &[Register]) -> Register {
        let free = |i: &usize| self.holds[*i].is_none() && !keep.contains(&Register(*i));
        if let Some(free) = (0..self.holds.len()).find(free) {
            return Register(free);
        }
        let victim = self.victim(keep).expect("an instruction keeps at most three registers");
        let name = self.holds[victim.0].expect("a victim holds something");
        self.save(name, victim);
        self.release(name);
        victim
    }

    /// Writes `name`, which is in the register, to a slot if memory does not have it yet.
    fn save(&mut self, name: Name, from: Register) {
        if self.is_free_to_evict(name) {
            return;
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.slot_of[name.0] = Some(slot);
        let to = Memory::Slot(slot);
        self.out.push(Instruction::Store { to, from });
    }

    /// The register whose value is needed last. Of two needed almost as late, the one that can be
    /// dropped without writing it to memory.
    fn victim(&self, keep: &[Register]) -> Option<Register> {
        (0..self.holds.len())
            .map(Register)
            .filter(|register| !keep.contains(register))
            .filter_map(|register| Some((register, self.holds[register.0]?)))
            .max_by_key(|(_, name)| {
                let distance = self.next_use(*name);
                if self.is_free_to_evict(*name) {
                    distance
                } else {
                    distance.saturating_sub(8)
                }
            })
            .map(|(register, _)| register)
    }

    /// Returns whether the value is in memory already.
    fn is_free_to_evict(&self, name: Name) -> bool {
        self.ops[name.0].is_read() || self.slot_of[name.0].is_some()
    }

    fn memory(&self, name: Name) -> Memory {
        match (self.ops[name.0], self.slot_of[name.0]) {
            (Op::Splat(value), _) => Memory::Constant(value),
            (Op::Vector(values), _) => Memory::Vector(values),
            (Op::Load(array, index), _) => {
                let place = self.place(array, index);
                let is_old = matches!(place, Memory::Moving(index) if self.overwritten.contains(&index));
                assert!(!is_old, "a loop reads scratch memory after it has written there");
                place
            }
            (Op::Broadcast(array, index), _) => Memory::Word(array, index),
            (_, Some(slot)) => Memory::Slot(slot),
            (op, None) => unreachable!("{op:?} is neither in a register nor in memory"),
        }
    }

    /// Current place of a vector of an array.
    fn place(&self, array: Array, index: usize) -> Memory {
        match (array == Array::SCRATCH, self.stride) {
            (false, _) => Memory::Array(array, index),
            (true, 0) => Memory::Slot(index),
            (true, _) => Memory::Moving(index),
        }
    }

    fn next_use(&self, name: Name) -> usize {
        self.uses[name.0].last().copied().unwrap_or(NEVER)
    }

    fn next_use_after(&self, name: Name, at: usize) -> usize {
        self.uses[name.0]
            .iter()
            .rev()
            .copied()
            .find(|&place| place > at)
            .unwrap_or(NEVER)
    }

    /// Removes the uses by the operation at `at`, and frees what no later operation reads.
    fn done(&mut self, at: usize, op: Op) {
        for name in op.reads() {
            self.used(at, name);
        }
    }

    fn used(&mut self, at: usize, name: Name) {
        while self.uses[name.0].last() == Some(&at) {
            self.uses[name.0].pop();
        }
        if self.uses[name.0].is_empty() {
            self.release(name);
            if let Some(slot) = self.slot_of[name.0].take() {
                self.dying_slots.push(slot);
            }
            if let Some(mask) = self.mask_of[name.0].take() {
                self.masks[mask.0] = None;
            }
        }
    }

    fn define(&mut self, at: usize, register: Register) {
        if !self.uses[at].is_empty() {
            self.hold(Name(at), register);
        }
    }

    fn hold(&mut self, name: Name, register: Register) {
        self.holds[register.0] = Some(name);
        self.register_of[name.0] = Some(register);
    }

    fn release(&mut self, name: Name) {
        if let Some(register) = self.register_of[name.0].take() {
            self.holds[register.0] = None;
        }
    }
}

impl Operand {
    fn register(self) -> Option<Register> {
        match self {
            Operand::Register(register) => Some(register),
            Operand::Memory(_) => None,
        }
    }
}

/// Later than every place in a trace.
const NEVER: usize = usize::MAX;
