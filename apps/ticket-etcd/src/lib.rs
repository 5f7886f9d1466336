//! Ticket keys that several machines share through etcd: an agent beside the server, which writes the directory of
//! keys that `widelane serve` watches. The server knows nothing of etcd, and the agent nothing of TLS tickets: a file
//! of 80 bytes is where they meet.
//!
//! `rules` decides which keys are in force and what is to be written, without input or output. `sealed` is the form
//! in which keys lie in etcd. `gateway` speaks etcd's JSON over HTTP, `link` asks one endpoint after the other,
//! `directory` keeps the files, and [`Agent`] puts all of this together.

#![forbid(unsafe_code)]

mod agent;
mod directory;
mod gateway;
mod key;
mod link;
mod options;
mod rules;
mod sealed;

pub use agent::Agent;
pub use options::{Options, OptionsError};
pub use sealed::make_key_file;

/// Parts of the private modules for fuzz targets. No part of the interface.
#[doc(hidden)]
pub mod fuzzing {
    use crate::gateway;
    use crate::sealed::{self, Secret};

    /// A value of ticket keys in etcd: what opens under a secret, or the reason. `inside`: what is inside the
    /// encryption, as if it had opened. Generation, the place that encrypts, and how many keys.
    pub fn value(value: &[u8], inside: bool) -> Result<(u64, Option<u8>, usize), String> {
        let secret = Secret::parse(b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")?;
        let set = match inside {
            true => sealed::parse(value).ok_or("no set of keys")?,
            false => sealed::open(&secret, b"/p/keys", value).map_err(|error| error.to_string())?,
        };
        Ok((set.generation, set.encrypts, set.keys.len()))
    }

    /// Looks for a secret for ticket keys in etcd in a file. The error is why there is none.
    pub fn key_file(file: &[u8]) -> Result<(), String> {
        Secret::parse(file).map(|_| ())
    }

    /// Answers of etcd's gateway to a look and to a lease: the lengths of the three values that were read, or the
    /// reason why there are none.
    pub fn answer(status: u16, body: &[u8]) -> [Result<[Option<usize>; 3], String>; 2] {
        let answer = gateway::answer(status, body);
        let answer = || answer.as_ref().map_err(Clone::clone);
        let read = answer().and_then(gateway::entries);
        let read = read.map(|all| all.map(|entry| entry.map(|entry| entry.value.len())));
        let lease = answer().and_then(|answer| gateway::lease(answer).map(|_| [None; 3]));
        [read, lease]
    }
}
