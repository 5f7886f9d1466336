//! One view of the processes and threads of this machine, for every tool that looks at them.
//!
//! [`Proc`] lists threads and reads what the kernel says of each: times, names, parents, use of
//! AVX-512. [`Code`] lists the code that a process has mapped and opens the files behind it, which
//! is safe for root even if the process is hostile. [`Memory`] lists all that it has mapped and reads
//! parts of it. [`Cgroups`] tells in which cgroup, unit and
//! container a process is, and [`Weights`] what share of the CPUs the kernel gives a cgroup. [`Socket`]
//! is what waits in a TCP socket.
//!
//! Usual formats are read by the crate `procfs-core`. This crate reads the few
//! that it does not know, or whose content need not be text.
//!
//! This crate decides nothing, and changes nothing but a number in another process's memory, for who asks
//! [`Memory::write`] to. Sets of CPUs and affinities are
//! `widelane-affinity`'s.

#![forbid(unsafe_code)]

mod cgroup;
mod code;
mod file;
mod memory;
mod patience;
mod proc;
mod socket_diag;
mod sockets;
mod weight;

pub use cgroup::{Cgroups, Container, unit};
pub use code::{Code, Mapping};
pub use file::{Identity, RegularFile};
pub use memory::Memory;
pub use proc::{Avx512, Proc, Stat, Thread, Times};
pub use sockets::Socket;
pub use weight::Weights;
