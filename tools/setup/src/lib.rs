//! Puts the OpenSSL provider into a program that uses OpenSSL: an OpenSSL configuration of the program's own, and the
//! environment variables that name it.
//!
//! It writes files of its own only. Configurations that belong to the administrator, such as
//! `openssl.cnf` and `nginx.conf`, are read and never changed. It starts no process, and asks and
//! prints nothing.
//!
//! [`Server`] is a program, by the name of its systemd unit, with what is known of it. [`Setup::plan`] and [`undo`] give
//! a [`Plan`]: [`Plan::diff`] shows it,
//! [`Plan::apply`] carries it out. [`Parts`] finds the libraries, and [`System`] is what the system's
//! OpenSSL configuration says already. All paths of the system are
//! below a [`Root`]. [`environment`] is for servers that are started by hand. [`Process`] looks at a program that runs,
//! and says what to expect before anything is changed; [`Running`] is the part of that which follows from the table.

#![forbid(unsafe_code)]

mod change;
mod config;
mod diff;
mod elf;
mod error;
mod inspect;
mod parts;
mod plan;
mod running;
mod server;
mod stamp;
mod surroundings;
mod system;
mod tls;
mod unit;

pub use change::{Change, Plan};
pub use config::{Options, measuring};
pub use elf::{Elf, Unfit};
pub use error::SetupError;
pub use inspect::{InspectError, Process};
pub use parts::{Library, Parts};
pub use plan::{Setup, Variables, Way, environment, undo};
pub use running::Running;
pub use server::{Server, Waits};
pub use surroundings::{already_set, forbidden, notes};
pub use system::System;
pub use tls::check_program;
pub use widelane_files::Root;
