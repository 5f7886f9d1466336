//! The operations that can be measured: those of the engine, and those that explain them.

use crate::chacha20poly1305;
use crate::multiply::{self, PORT_LIMIT};
use crate::openssl::Peer;
use crate::works;
use std::sync::LazyLock;
use widelane_cpu::Target;
use widelane_crypto::Backend;

/// Something whose speed can be measured.
#[derive(Debug)]
pub struct Operation {
    /// Name of the operation on the command line and in records.
    pub name: &'static str,
    /// One line for people.
    pub what: &'static str,
    /// Operations that are measured in the same run, because they explain this one's figures.
    pub(crate) beside: Vec<&'static str>,
    /// Operation of `openssl speed` that does the same.
    pub(crate) openssl: Option<Peer>,
    /// Bytes that one operation encrypts, if it encrypts.
    pub(crate) bytes: Option<usize>,
    /// The implementations in this process.
    pub(crate) implementations: Vec<Implementation>,
}

/// One implementation of an operation in this process: a backend, or another library.
pub(crate) struct Implementation {
    /// Name of the backend in the output.
    pub(crate) name: &'static str,
    /// Jobs in flight.
    pub(crate) in_flight: &'static [usize],
    /// Makes the subject to measure, or says why it cannot run on this machine.
    pub(crate) prepare: Box<Prepare>,
}

type Prepare = dyn Fn() -> Prepared + Send + Sync;

/// A subject to measure, or why it cannot run on this machine.
pub type Prepared = Result<Box<dyn Subject>, String>;

/// Makes a subject to measure.
pub type Constructor = fn() -> Prepared;

/// Another library beside which operations are measured.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// Name of the library in the output, in the place of a backend's.
    pub name: &'static str,
    /// Gives what makes its subject for the operation of a name; `None` if the library has no such
    /// operation.
    pub find: fn(&str) -> Option<Constructor>,
}

impl Library {
    /// Implementation of an operation by the library, if it has one. One job is in flight: a library without lanes
    /// gains nothing by more.
    pub(crate) fn of(&self, operation: &str) -> Option<Implementation> {
        let prepare = (self.find)(operation)?;
        Some(Implementation {
            name: self.name,
            in_flight: &[1],
            prepare: Box::new(prepare),
        })
    }
}

/// An operation of an implementation, ready to be measured.
pub trait Subject {
    /// Prepares for this many runs with this many jobs in flight. It is not measured.
    fn ready(&mut self, _in_flight: usize, _runs: usize) {}

    /// Does `in_flight` operations that wait together, and returns when the last of them is done.
    ///
    /// # Errors
    ///
    /// A text for people.
    fn run(&mut self, in_flight: usize) -> Result<Done, String>;
}

/// Work of one [`Subject::run`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Operations.
    pub operations: u64,
    /// Vector multiply-adds, where they are counted.
    pub multiply_adds: u64,
}

impl Done {
    /// Operations whose multiply-adds are not counted.
    pub fn operations(operations: usize) -> Self {
        Self {
            operations: operations as u64,
            multiply_adds: 0,
        }
    }
}

impl std::fmt::Debug for Implementation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Implementation")
            .field("name", &self.name)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

/// Every operation, in the order of the output.
pub fn operations() -> &'static [Operation] {
    static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
        let works = works::names().into_iter().map(work);
        works.chain(chacha20poly1305::operations()).chain(kernels()).collect()
    });
    &OPERATIONS
}

/// The operations that a name stands for: one, or a group. A group is all operations whose names
/// begin with it, or have it as a part between dashes, like `mlkem`, `p256` or `sign`. `all` is
/// everything.
pub(crate) fn named(name: &str) -> Vec<&'static Operation> {
    let exactly = operations().iter().filter(|operation| operation.name == name);
    let exactly: Vec<_> = exactly.collect();
    if !exactly.is_empty() {
        return exactly;
    }
    let belongs = |operation: &&Operation| {
        name == "all"
            || !name.is_empty() && operation.name.starts_with(name)
            || operation.name.split('-').any(|part| part == name)
    };
    operations().iter().filter(belongs).collect()
}

/// The name of the implementation that is the engine with its own choice.
pub(crate) const AUTO: &str = "auto";

/// An operation of the engine.
fn work(name: &'static str) -> Operation {
    let passes = |backend: Backend| Implementation {
        name: backend.name(),
        in_flight: IN_FLIGHT,
        prepare: Box::new(move || works::passes(name, backend)),
    };
    let mut implementations: Vec<_> = Backend::ALL.into_iter().rev().map(passes).collect();
    implementations.push(Implementation {
        name: AUTO,
        in_flight: &[1, 8],
        prepare: Box::new(move || works::engine(name)),
    });
    let (what, beside, openssl) = describe(name);
    Operation {
        name,
        what,
        beside,
        openssl,
        bytes: None,
        implementations,
    }
}

/// The description of an operation of the engine, what explains it, and its form in `openssl speed`.
fn describe(name: &str) -> (&'static str, Vec<&'static str>, Option<Peer>) {
    let rows = DESCRIPTIONS.lines().map(|row| row.split('|').map(str::trim));
    let mut found = rows.filter_map(|mut row| (row.next() == Some(name)).then_some(row));
    let Some(mut row) = found.next() else {
        return (UNDESCRIBED, Vec::new(), None);
    };
    let what = row.next().unwrap_or_default();
    let beside = row.next().unwrap_or_default();
    let peer = row.next().and_then(|peer| peer.split_once(' '));
    let peer = peer.map(|(operation, line)| Peer {
        arguments: operation.split(' ').collect(),
        line,
    });
    (what, beside.split_whitespace().collect(), peer)
}

/// Every target, the preferred one first.
fn targets() -> impl Iterator<Item = Target> {
    Target::ALL.into_iter().rev()
}

/// The operations that explain those with RSA.
fn kernels() -> impl Iterator<Item = Operation> {
    let kernel = |name, what, bits| Operation {
        name,
        what,
        beside: vec![PORT_LIMIT],
        openssl: None,
        bytes: None,
        implementations: targets()
            .map(|target| Implementation {
                name: target.name(),
                in_flight: match target.lanes() {
                    4 => &[4],
                    _ => &[8],
                },
                prepare: Box::new(move || multiply::power(bits, target)),
            })
            .collect(),
    };
    let limit = Operation {
        name: PORT_LIMIT,
        what: "independent vector multiply-adds (VPMADD52 or FMA): the most that the ports can do",
        beside: Vec::new(),
        openssl: None,
        bytes: None,
        implementations: targets()
            .map(|target| Implementation {
                name: target.name(),
                in_flight: &[1],
                prepare: Box::new(move || multiply::port_limit(target)),
            })
            .collect(),
    };
    [
        kernel(
            "power-1024",
            "exponentiation with 1024-bit moduli, one a lane: the kernel of RSA-2048",
            1024,
        ),
        kernel(
            "power-1536",
            "exponentiation with 1536-bit moduli, one a lane: the kernel of RSA-3072",
            1536,
        ),
        kernel(
            "power-2048",
            "exponentiation with 2048-bit moduli, one a lane: the kernel of RSA-4096",
            2048,
        ),
        limit,
    ]
    .into_iter()
}

const IN_FLIGHT: &[usize] = &[1, 2, 4, 8, 16];

/// Operations of the engine: name, description, what explains it, and the argument of `openssl speed` with the beginning
/// of its line.
const DESCRIPTIONS: &str = "\
rsa2048-sign     | RSA-2048 signature, PSS with SHA-256, blinded and checked | port-limit power-1024 | rsa2048 +R1:
rsa3072-sign     | RSA-3072 signature, PSS with SHA-256, blinded and checked | port-limit power-1536 | rsa3072 +R1:
rsa4096-sign     | RSA-4096 signature, PSS with SHA-256, blinded and checked | port-limit power-2048 | rsa4096 +R1:
rsa-sign         | RSA signature of another size: 2560 bits
rsa2048-verify   | check of an RSA-2048 signature, PSS with SHA-256, with a new key | port-limit | rsa2048 +R2:
p256-ecdsa-sign  | ECDSA signature with P-256 and SHA-256 |  | ecdsap256 +R5:
p256-ecdsa-verify | check of an ECDSA signature with P-256 |  | ecdsap256 +R6:
p384-ecdsa-sign  | ECDSA signature with P-384 and SHA-384 |  | ecdsap384 +R5:
p384-ecdsa-verify | check of an ECDSA signature with P-384 |  | ecdsap384 +R6:
ed25519-sign     | Ed25519 signature |  | ed25519 +R8:
ed25519-verify   | check of an Ed25519 signature |  | ed25519 +R9:
x25519-keygen    | X25519 public key of a new secret
x25519-derive    | X25519 shared secret |  | ecdhx25519 +R7:
p256-keygen      | P-256 public key of a new secret
p256-ecdh        | ECDH shared secret with P-256, the peer's point validated |  | ecdhp256 +R7:
p384-keygen      | P-384 public key of a new secret
p384-ecdh        | ECDH shared secret with P-384, the peer's point validated |  | ecdhp384 +R7:
mlkem512-keygen  | ML-KEM-512 key pair
mlkem512-encaps  | ML-KEM-512 encapsulation, the key checked
mlkem512-decaps  | ML-KEM-512 decapsulation
mlkem768-keygen  | ML-KEM-768 key pair
mlkem768-encaps  | ML-KEM-768 encapsulation, the key checked
mlkem768-decaps  | ML-KEM-768 decapsulation
mlkem1024-keygen | ML-KEM-1024 key pair
mlkem1024-encaps | ML-KEM-1024 encapsulation, the key checked
mlkem1024-decaps | ML-KEM-1024 decapsulation
mldsa44-sign     | ML-DSA-44 signature
mldsa44-verify   | check of an ML-DSA-44 signature
mldsa65-sign     | ML-DSA-65 signature
mldsa65-verify   | check of an ML-DSA-65 signature
mldsa87-sign     | ML-DSA-87 signature
mldsa87-verify   | check of an ML-DSA-87 signature";
/// Text for an operation of the engine that is not described here. A test finds it.
const UNDESCRIBED: &str = "an operation of the engine";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_explaining_operations_exist() {
        let all = operations();
        for (i, operation) in all.iter().enumerate() {
            let same = |name| all.iter().position(|other| other.name == name);
            assert_eq!(same(operation.name), Some(i));
            for &name in &operation.beside {
                assert!(same(name).is_some(), "{name}");
            }
            assert!(!operation.implementations.is_empty());
            assert_ne!(operation.what, UNDESCRIBED, "{}", operation.name);
        }
    }

    #[test]
    fn groups_are_beginnings_and_parts_of_names() {
        let names = |group| -> Vec<_> { named(group).iter().map(|o| o.name).collect() };
        assert_eq!(names("all").len(), operations().len());
        assert_eq!(names("p256-ecdh"), ["p256-ecdh"]);
        assert_eq!(
            names("mlkem768"),
            ["mlkem768-keygen", "mlkem768-encaps", "mlkem768-decaps"]
        );
        assert_eq!(names("mlkem").len(), 9);
        assert_eq!(names("ecdh"), ["p256-ecdh", "p384-ecdh"]);
        assert!(names("sign").contains(&"ed25519-sign"));
        for none in ["", "kem", "sig", "rsa1"] {
            assert!(names(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn every_operation_runs_on_every_implementation_of_this_machine() {
        for operation in operations() {
            for implementation in &operation.implementations {
                match (implementation.prepare)() {
                    Ok(mut subject) => {
                        for &in_flight in &implementation.in_flight[..1] {
                            subject.ready(in_flight, 2);
                            for _ in 0..2 {
                                let done = subject.run(in_flight).unwrap();
                                assert!(done.operations > 0);
                            }
                        }
                    }
                    Err(why) => {
                        assert!(!["aws-lc", AUTO].contains(&implementation.name), "{why}");
                        eprintln!("SKIP: {} on {}: {why}", operation.name, implementation.name);
                    }
                }
            }
        }
    }
}
