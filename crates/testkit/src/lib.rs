//! Common needs of tests in several rooms.
//!
//! - [`wait`]: until something holds, without a clock.
//! - [`skip`]: programs that are not installed.
//! - [`folder`]: a temporary folder with files.
//! - [`process`]: processes that end with the test, and facts of the kernel about any.
//! - [`apart`]: programs that see no folder of this machine.
//! - [`c`]: programs in C.
//! - [`openssl`]: `openssl` programs, their configuration with the provider, and their server.
//! - [`servers`]: free addresses, and configurations of web servers.
//! - `certificates`, `clients`: keys, authorities and clients of TLS, with the feature `tls`.
//!
//! A failure is a panic that says what went wrong. Crates have this one as a dev-dependency alone.

#![forbid(unsafe_code)]

pub mod apart;
pub mod c;
#[cfg(feature = "tls")]
pub mod certificates;
#[cfg(feature = "tls")]
pub mod clients;
pub mod folder;
pub mod openssl;
pub mod process;
pub mod servers;
pub mod skip;
pub mod wait;
