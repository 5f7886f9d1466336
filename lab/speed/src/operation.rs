//! The operations that can be measured: a table, one entry an operation.

use crate::multiply::{self, PORT_LIMIT};
use crate::openssl::Peer;
use crate::rsa;
use widelane_crypto::Backend;
use widelane_crypto::rsa::Size;

/// Something whose speed can be measured.
#[derive(Debug)]
pub struct Operation {
    /// How it is spelt on the command line and in records.
    pub name: &'static str,
    /// One line for people.
    pub what: &'static str,
    /// Operations measured in the same run, since they explain this one's figures.
    pub(crate) beside: &'static [&'static str],
    /// The same in `openssl speed`.
    pub(crate) openssl: Option<Peer>,
    /// Backends, and the numbers of jobs in flight for each.
    pub(crate) conditions: &'static [(Backend, &'static [usize])],
    /// Makes what is measured, or says why it cannot run on this machine.
    pub(crate) prepare: fn(Backend) -> Result<Box<dyn Subject>, String>,
}

/// An operation on a backend, ready to be measured.
pub(crate) trait Subject {
    /// Does `in_flight` operations that are waiting together, and returns when the last of them is
    /// done. The error is for people.
    fn run(&mut self, in_flight: usize) -> Result<Done, String>;
}

/// What one [`Subject::run`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Operations.
    pub(crate) operations: u64,
    /// Vector multiply-adds, where they are counted.
    pub(crate) multiply_adds: u64,
}

/// Every operation, in the order of the output.
pub fn operations() -> &'static [Operation] {
    &OPERATIONS
}

static OPERATIONS: [Operation; 7] = [
    Operation {
        name: "rsa2048-sign",
        what: "RSA-2048 signature, PSS with SHA-256, blinded and checked",
        beside: &[PORT_LIMIT, "power-1024"],
        openssl: Some(Peer {
            algorithm: "rsa2048",
            line: "+R1:",
        }),
        conditions: ALL_BACKENDS,
        prepare: |backend| rsa::sign(Size::Rsa2048, backend),
    },
    Operation {
        name: "rsa3072-sign",
        what: "RSA-3072 signature, PSS with SHA-256, blinded and checked",
        beside: &[PORT_LIMIT, "power-1536"],
        openssl: Some(Peer {
            algorithm: "rsa3072",
            line: "+R1:",
        }),
        conditions: ALL_BACKENDS,
        prepare: |backend| rsa::sign(Size::Rsa3072, backend),
    },
    Operation {
        name: "rsa4096-sign",
        what: "RSA-4096 signature, PSS with SHA-256, blinded and checked",
        beside: &[PORT_LIMIT, "power-2048"],
        openssl: Some(Peer {
            algorithm: "rsa4096",
            line: "+R1:",
        }),
        conditions: ALL_BACKENDS,
        prepare: |backend| rsa::sign(Size::Rsa4096, backend),
    },
    Operation {
        name: "power-1024",
        what: "exponentiation with 1024-bit moduli, one a lane: the kernel of RSA-2048",
        beside: &[PORT_LIMIT],
        openssl: None,
        conditions: FULL_REGISTERS,
        prepare: |backend| multiply::power(1024, backend),
    },
    Operation {
        name: "power-1536",
        what: "exponentiation with 1536-bit moduli, one a lane: the kernel of RSA-3072",
        beside: &[PORT_LIMIT],
        openssl: None,
        conditions: FULL_REGISTERS,
        prepare: |backend| multiply::power(1536, backend),
    },
    Operation {
        name: "power-2048",
        what: "exponentiation with 2048-bit moduli, one a lane: the kernel of RSA-4096",
        beside: &[PORT_LIMIT],
        openssl: None,
        conditions: FULL_REGISTERS,
        prepare: |backend| multiply::power(2048, backend),
    },
    Operation {
        name: PORT_LIMIT,
        what: "independent vector multiply-adds (VPMADD52): the most that the ports can do",
        beside: &[],
        openssl: None,
        conditions: &[(Backend::Avx512Ifma, &[1]), (Backend::Avx512Ifma256, &[1])],
        prepare: multiply::port_limit,
    },
];

/// For operations that requests ask for.
const ALL_BACKENDS: &[(Backend, &[usize])] = &[
    (Backend::Avx512Ifma, IN_FLIGHT),
    (Backend::Avx512Ifma256, IN_FLIGHT),
    (Backend::AwsLc, IN_FLIGHT),
];

/// For operations on all lanes of a register.
const FULL_REGISTERS: &[(Backend, &[usize])] =
    &[(Backend::Avx512Ifma, &[8]), (Backend::Avx512Ifma256, &[4])];

const IN_FLIGHT: &[usize] = &[1, 2, 4, 8, 16];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_what_is_beside_exists() {
        for (i, operation) in OPERATIONS.iter().enumerate() {
            let same = |name| OPERATIONS.iter().position(|other| other.name == name);
            assert_eq!(same(operation.name), Some(i));
            for &name in operation.beside {
                assert!(same(name).is_some(), "{name}");
            }
            assert!(!operation.conditions.is_empty());
        }
    }

    #[test]
    fn every_operation_runs_on_every_backend_that_is_here() {
        for operation in &OPERATIONS {
            for &(backend, in_flight) in operation.conditions {
                match (operation.prepare)(backend) {
                    Ok(mut subject) => {
                        assert!(backend.is_available());
                        let done = subject.run(in_flight[0]).unwrap();
                        assert!(done.operations > 0);
                    }
                    Err(why) => {
                        assert!(!backend.is_available());
                        eprintln!("SKIP: {} on {backend}: {why}", operation.name);
                    }
                }
            }
        }
    }
}
