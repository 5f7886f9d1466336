//! Named functions that lead to a nameless one: what a stripped library exports keeps its name, and hand-written
//! assembly is never far from it.

use std::collections::{BTreeMap, HashMap, HashSet};

use iced_x86::{FlowControl, Instruction, Mnemonic};

/// References between functions: calls, jumps and addresses taken.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// References from a function to an address.
    found: Vec<(u64, u64)>,
}

impl References {
    /// Notes what an instruction of the function at `from` refers to.
    pub(crate) fn note(&mut self, from: u64, instruction: &Instruction) {
        let target = match instruction.flow_control() {
            FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                instruction.near_branch_target()
            }
            _ if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() => {
                instruction.ip_rel_memory_address()
            }
            _ => return,
        };
        self.found.push((from, target));
    }

    /// Turns them around. `functions` has the size of each function by its address.
    pub(crate) fn callers(self, functions: &BTreeMap<u64, u64>) -> Callers {
        let mut of = HashMap::<u64, Vec<u64>>::new();
        for (from, target) in self.found {
            let at = functions.range(..=target).next_back();
            if let Some((&to, &size)) = at
                && target - to < size
                && to != from
            {
                of.entry(to).or_default().push(from);
            }
        }
        Callers { of }
    }
}

/// Callers of each function.
#[derive(Debug)]
pub(crate) struct Callers {
    of: HashMap<u64, Vec<u64>>,
}

impl Callers {
    /// The names nearest to the function at `address`: of those that refer to it, or else of those
    /// that refer to these, and so on for a few steps. In alphabetical order.
    pub(crate) fn names(&self, address: u64, mut name: impl FnMut(u64) -> Option<String>) -> Vec<String> {
        let mut seen = HashSet::from([address]);
        let mut front = vec![address];
        for _ in 0..MOST_STEPS {
            let referring = front.iter().filter_map(|function| self.of.get(function));
            front = referring
                .flatten()
                .take(MOST_CALLERS)
                .copied()
                .filter(|&caller| seen.insert(caller))
                .collect();
            let mut names: Vec<_> = front.iter().filter_map(|&caller| name(caller)).collect();
            if !names.is_empty() {
                names.sort_unstable();
                return names;
            }
        }
        Vec::new()
    }
}

/// Most steps to a named function: a name that is farther away is of no use.
const MOST_STEPS: usize = 4;
/// Most callers that are kept of functions to which more lead.
const MOST_CALLERS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn names_are_found_over_calls_jumps_and_addresses_nearest_first() {
        // 0x10 calls 0x20, which jumps into the middle of 0x30, which takes the address of 0x40.
        let code: [(u64, &[u8]); 4] = [
            (0x10, &[0xe8, 0x0b, 0, 0, 0]),
            (0x20, &[0xe9, 0x0f, 0, 0, 0]),
            (0x30, &[0x48, 0x8d, 0x05, 0x09, 0, 0, 0]),
            (0x40, &[0xc3]),
        ];
        let mut references = References::default();
        for (address, bytes) in code {
            let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
            references.note(address, &decoder.decode());
        }
        let functions = code.iter().map(|&(address, _)| (address, 8)).collect();
        let callers = references.callers(&functions);
        let name = |known: &'static [u64]| move |address| known.contains(&address).then(|| format!("at_{address:x}"));
        assert_eq!(callers.names(0x40, name(&[0x10])), ["at_10"]);
        assert_eq!(callers.names(0x40, name(&[0x10, 0x30])), ["at_30"]);
        assert!(callers.names(0x40, name(&[])).is_empty());
        assert!(callers.names(0x10, name(&[0x10])).is_empty(), "no caller leads to it");
    }

    #[test]
    fn circles_end() {
        let mut references = References::default();
        for (from, to) in [(1, 2), (2, 3), (3, 1)] {
            references.found.push((from, to));
        }
        let functions = [1, 2, 3].map(|address| (address, 1)).into();
        assert!(references.callers(&functions).names(1, |_| None).is_empty());
    }
}
