//! The servers that can be set up.

use std::fmt;

/// A server, by the name of its systemd unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// nginx: the preloaded library suspends its handshakes.
    Nginx,
    /// HAProxy suspends handshakes by itself, with `ssl-mode-async`.
    Haproxy,
    /// Apache: the threads of its event MPM share passes while they wait.
    Apache2,
    /// lighttpd: the preloaded library suspends its handshakes.
    Lighttpd,
}

impl Server {
    /// All servers.
    pub const ALL: [Self; 4] = [Self::Nginx, Self::Haproxy, Self::Apache2, Self::Lighttpd];

    /// The name of its unit, without `.service`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Apache2 => "apache2",
            Self::Lighttpd => "lighttpd",
        }
    }

    /// Returns whether the server runs one synchronous event loop, in which only the library between it and OpenSSL can
    /// suspend handshakes.
    pub fn needs_shim(self) -> bool {
        matches!(self, Self::Nginx | Self::Lighttpd)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
