//! The live picture of a machine that runs wide code: the clock of each CPU, the licence levels
//! that are possible, what a `widelane serve` and processes with the OpenSSL provider do, who uses
//! wide registers, and the TLS handshakes of any process.
//!
//! [`Monitor`] takes a [`Snapshot`] at a time; [`Screen`] shows it on a terminal of any size, and
//! [`plain`] is its text for a pipe. What cannot be known is missing in a snapshot, with the reason
//! ([`Known`]). Nothing is guessed.

#![forbid(unsafe_code)]

mod clock;
mod licence;
pub mod metrics;
mod overload;
#[cfg(feature = "terminal")]
mod picture;
mod provider;
#[cfg(feature = "terminal")]
mod screen;
mod server;
mod snapshot;
mod tls;
mod users;
mod view;

pub use clock::{Clocks, Core, Source};
pub use licence::Licence;
pub use overload::Overload;
pub use provider::{ProofSeen, Provider, ProviderOperation, Providers, Work};
#[cfg(feature = "terminal")]
pub use screen::{Screen, Told};
pub use server::{Operation, Server, rates};
pub use snapshot::{ClassClock, Known, Monitor, Options, Snapshot};
pub use tls::{Tls, TlsFunction, TlsProcess};
pub use users::{User, Users};
pub use view::plain;
