//! Common setup of the servers of a comparison.

use crate::condition::Condition;
use std::net::SocketAddr;
use widelane_samples::named;

/// Setup of servers, alike for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) setting: Setting,
    /// The backend. Without one, a server must not need it: the terminator then has the path of a
    /// socket at which no program listens.
    pub(crate) backend: Option<SocketAddr>,
}

named! {
    /// TLS that the servers speak.
    pub(crate) enum Setting: "setting" {
        /// TLS 1.3 only, no tickets.
        Bare = "bare",
        /// Defaults of servers: TLS 1.2 and 1.3, two tickets in TLS 1.3.
        Usual = "usual",
        /// Defaults, and clients must show a certificate.
        Mutual = "mutual",
    }
}

impl Setup {
    /// Setup without tickets and without a backend.
    pub(crate) const BARE: Self = Self {
        setting: Setting::Bare,
        backend: None,
    };

    pub(crate) fn new(setting: Setting, backend: SocketAddr) -> Self {
        Self {
            setting,
            backend: Some(backend),
        }
    }
}

impl Setting {
    pub(crate) fn has_tickets(self) -> bool {
        self != Self::Bare
    }

    pub(crate) fn asks_for_certificates(self) -> bool {
        self == Self::Mutual
    }
}

/// Message for the case that one of the conditions needs servers with tickets, and there are none.
pub(crate) fn other_setting(conditions: &[Condition]) -> Option<String> {
    let other = conditions.iter().find(|one| one.setting() != Setting::Bare)?;
    Some(format!(
        "{} needs servers with tickets; measure it with `widelane-lab handshakes bench` or `pair`",
        other.name()
    ))
}
