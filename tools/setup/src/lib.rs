//! Puts the OpenSSL provider into a web server: an OpenSSL configuration of the server's own, and the
//! environment variables that name it.
//!
//! It writes files of its own only. Configurations that belong to the administrator, such as
//! `openssl.cnf` and `nginx.conf`, are read and never changed. It starts no process, and asks and
//! prints nothing.
//!
//! Start with [`Setup::plan`] and [`undo`], which give a [`Plan`]: [`Plan::diff`] shows it,
//! [`Plan::apply`] carries it out. [`Parts`] finds the libraries, and [`System`] is what the system's
//! OpenSSL configuration says already. All paths of the system are
//! below a [`Root`]. [`environment`] is for servers that are started by hand.

#![forbid(unsafe_code)]

mod change;
mod config;
mod diff;
mod error;
mod parts;
mod plan;
mod server;
mod stamp;
mod surroundings;
mod system;

pub use change::{Change, Plan};
pub use config::{Options, measuring};
pub use error::SetupError;
pub use parts::{Library, Parts};
pub use plan::{Setup, Variables, Way, environment, undo};
pub use server::Server;
pub use surroundings::{already_set, notes};
pub use system::System;
pub use widelane_files::Root;
