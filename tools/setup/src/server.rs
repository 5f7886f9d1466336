//! Programs that can be set up, and what to expect of each.

use crate::error::SetupError;
use crate::unit;
use std::fmt;
use widelane_files::Root;

/// A program that can be set up, by the name of its systemd unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    unit: String,
    known: Option<&'static Known>,
    suspends: bool,
}

impl Server {
    /// Names of the programs in the table.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|known| known.name)
    }

    /// The program of the table with this name. Of its units, it is the first that `root` has and that starts the
    /// program itself.
    pub fn named(root: &Root, name: &str) -> Option<Self> {
        let known = KNOWN.iter().find(|known| known.name == name)?;
        let mut units = known.units.iter();
        let unit = units.find(|unit| unit::starts_a_program(root, unit));
        Some(Self {
            unit: (*unit.unwrap_or(&known.units[0])).to_owned(),
            known: Some(known),
            suspends: false,
        })
    }

    /// The program of a systemd unit, in the table or not. `.service` may be left out.
    ///
    /// # Errors
    ///
    /// When no service has such a name, or files cannot have it.
    pub fn of_unit(name: &str) -> Result<Self, SetupError> {
        let unit = name.strip_suffix(".service").unwrap_or(name);
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@+".contains(c);
        let starts = unit.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let ends = !unit.ends_with('@') && !OTHER_UNITS.iter().any(|end| unit.ends_with(end));
        if !(starts && ends && unit.len() <= MOST_NAME && unit.chars().all(fits)) {
            return Err(SetupError::UnitName(name.to_owned()));
        }
        let of_template = unit.split_once('@').map_or(unit, |(template, _)| template);
        let has = |known: &&Known| {
            let mut units = known.units.iter();
            units.any(|known| *known == unit || *known == of_template)
        };
        Ok(Self {
            unit: unit.to_owned(),
            known: KNOWN.iter().find(has),
            suspends: false,
        })
    }

    /// The same, with the library that suspends handshakes also where the table does not say that the program has an
    /// event loop.
    pub fn suspending(self) -> Self {
        Self { suspends: true, ..self }
    }

    /// The row of the table for a program, by the name of its file.
    pub(crate) fn known_program(file: &str) -> Option<&'static Known> {
        KNOWN.iter().find(|known| known.files.contains(&file))
    }

    /// The row of the table.
    pub(crate) fn known(&self) -> Option<&'static Known> {
        self.known
    }

    /// Name of the unit, without `.service`.
    pub(crate) fn unit(&self) -> &str {
        &self.unit
    }

    /// Returns whether this is the program of the table with this name, in its usual unit.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.usual().is_some_and(|known| known.name == name)
    }

    /// Units that may have been set up under the name of this program.
    pub(crate) fn units(&self) -> Vec<String> {
        let usual = self.usual();
        match usual {
            Some(known) => known.units.iter().map(|unit| (*unit).to_owned()).collect(),
            None => vec![self.unit.clone()],
        }
    }

    /// The arguments of `widelane setup` that name it.
    pub fn argument(&self) -> String {
        match self.usual() {
            Some(known) => known.name.to_owned(),
            None => format!("{UNIT_OPTION}{}", self.unit),
        }
    }

    /// The same, with the option that it takes where the table does not say that it has an event loop.
    pub(crate) fn argument_with_options(&self) -> String {
        let plain = Self {
            suspends: false,
            ..self.clone()
        };
        let suspend = match self.needs_shim() && !plain.needs_shim() {
            true => " --suspend",
            false => "",
        };
        self.argument() + suspend
    }

    /// Returns whether a text is an [`argument`](Self::argument) of some program.
    pub(crate) fn is_argument(text: &str) -> bool {
        match text.strip_prefix(UNIT_OPTION) {
            Some(unit) => Self::of_unit(unit).is_ok_and(|server| server.unit == unit),
            None => Self::names().any(|name| name == text),
        }
    }

    /// Returns whether the library between the program and OpenSSL is given to it: the program has an event loop, in
    /// which only that library can suspend handshakes.
    pub fn needs_shim(&self) -> bool {
        let has_loop = |known: &Known| known.waits == Waits::EventLoop;
        self.suspends || self.known.is_some_and(has_loop)
    }

    /// Sentences that say what to expect of the program, and what it takes besides.
    pub fn expectations(&self) -> Vec<String> {
        match self.known {
            Some(known) => known.sentences(),
            None => vec![NOT_TRIED.to_owned()],
        }
    }

    fn usual(&self) -> Option<&'static Known> {
        self.known.filter(|known| known.units.contains(&&*self.unit))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.unit)
    }
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Name for `widelane setup`.
    pub(crate) name: &'static str,
    title: &'static str,
    /// Names of its systemd units in distributions, without `.service`.
    units: &'static [&'static str],
    /// Names of its program's file, and of the programs that it starts for TLS.
    files: &'static [&'static str],
    /// Way in which it waits for clients.
    pub(crate) waits: Waits,
    /// True if its program loads the TLS library itself, or starts other programs with it. Then its file does not
    /// name the library.
    pub(crate) loads_tls: bool,
    /// Sentences on what it takes besides.
    takes: &'static [&'static str],
}

/// Way in which a program waits for its clients, which decides what can share passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// One event loop a process, with epoll.
    EventLoop,
    /// An event loop, whose handshakes the program suspends by itself.
    Asynchronous,
    /// A thread for each connection, or for each of its turns.
    Threads,
    /// A process for each connection, or handshakes behind buffers of the program's own.
    Alone,
}

impl Waits {
    /// Returns what to expect, as a part of a sentence.
    pub fn expectation(self) -> &'static str {
        match self {
            Self::EventLoop => "single event loop, epoll: the preloaded library suspends handshakes, and lanes fill",
            Self::Asynchronous => {
                "with `ssl-mode-async` it suspends handshakes by itself, without a library: lanes fill"
            }
            Self::Threads => "threads that wait for their handshakes: those that wait at the same time share passes",
            Self::Alone => {
                "a process for each connection: provider only. There is nothing to share, and each process starts an \
                 engine of its own, which can cost more than it saves"
            }
        }
    }
}

impl Known {
    /// Its usual unit.
    pub(crate) fn unit(&self) -> &'static str {
        self.units[0]
    }

    /// Sentences that say what to expect.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let expectation = self.waits.expectation();
        let first = format!("To expect of {}: {expectation}.", self.title);
        let takes = self.takes.iter().map(|one| (*one).to_owned());
        [first].into_iter().chain(takes).collect()
    }
}

/// A sentence for programs that are not in the table.
pub(crate) const NOT_TRIED: &str = "This program was not tried with Widelane. With one event loop, lanes fill if \
    `--suspend` gives it the library that suspends handshakes; with a thread for each connection, threads share passes; with a process for each connection, there is \
    nothing to share. `sudo widelane setup --inspect PID` tells which of them it is while it runs, and `sudo widelane \
    status --prove` what it saves.";

/// The programs, in the order of help texts. Units are Debian's first.
const KNOWN: [Known; 11] = [
    Known {
        name: "nginx",
        title: "nginx",
        units: &["nginx"],
        files: &["nginx"],
        waits: Waits::EventLoop,
        loads_tls: false,
        takes: &[],
    },
    Known {
        name: "haproxy",
        title: "HAProxy",
        units: &["haproxy"],
        files: &["haproxy"],
        waits: Waits::Asynchronous,
        loads_tls: false,
        takes: &[],
    },
    Known {
        name: "apache2",
        title: "Apache",
        units: &["apache2"],
        files: &["apache2", "httpd"],
        waits: Waits::Threads,
        loads_tls: true,
        takes: &[
            "With the MPM prefork each process has one connection and passes are never shared: for RSA-2048 the \
             provider costs CPU there and gains nothing.",
        ],
    },
    Known {
        name: "lighttpd",
        title: "lighttpd",
        units: &["lighttpd"],
        files: &["lighttpd"],
        waits: Waits::EventLoop,
        loads_tls: true,
        takes: &[],
    },
    Known {
        name: "valkey",
        title: "Valkey",
        units: &["valkey-server", "valkey"],
        files: &["valkey-server"],
        waits: Waits::EventLoop,
        loads_tls: false,
        takes: &[
            "With `io-threads` above 1 its threads may do handshakes outside of the event loop; those are not suspended.",
        ],
    },
    Known {
        name: "redis",
        title: "Redis",
        units: &["redis-server", "redis"],
        files: &["redis-server"],
        waits: Waits::EventLoop,
        loads_tls: false,
        takes: &[],
    },
    Known {
        name: "pgbouncer",
        title: "PgBouncer",
        units: &["pgbouncer"],
        files: &["pgbouncer"],
        waits: Waits::EventLoop,
        loads_tls: false,
        takes: &[],
    },
    Known {
        name: "mosquitto",
        title: "Mosquitto",
        units: &["mosquitto"],
        files: &["mosquitto"],
        waits: Waits::EventLoop,
        loads_tls: false,
        takes: &[],
    },
    Known {
        name: "dovecot",
        title: "Dovecot",
        units: &["dovecot"],
        files: &[
            "dovecot",
            "imap-login",
            "pop3-login",
            "submission-login",
            "managesieve-login",
        ],
        waits: Waits::Alone,
        loads_tls: true,
        takes: &[
            "Also where one login process serves many connections, they are not suspended: Dovecot keeps buffers of \
             its own between OpenSSL and the socket.",
            "Dovecot gives its processes only the variables that it is told to: `doveconf import_environment` shows \
             them. Add OPENSSL_CONF to that setting in dovecot.conf, or nothing changes.",
        ],
    },
    Known {
        name: "postfix",
        title: "Postfix",
        // Debian starts it by the template. Where the other unit does, that one comes first.
        units: &["postfix", "postfix@-"],
        files: &["master", "smtpd", "tlsproxy"],
        waits: Waits::Alone,
        loads_tls: true,
        takes: &[
            "Measured, it accepts fewer connections a second with the provider than without.",
            "Postfix gives its processes only the variables that it is told to, so nothing changes without: postconf \
             -e \"import_environment=$(postconf -h import_environment) OPENSSL_CONF\"",
        ],
    },
    Known {
        name: "stunnel4",
        title: "stunnel",
        units: &["stunnel4", "stunnel"],
        files: &["stunnel4", "stunnel"],
        waits: Waits::Threads,
        loads_tls: false,
        takes: &[],
    },
];

const UNIT_OPTION: &str = "--unit ";
/// Units of systemd that start no program.
const OTHER_UNITS: [&str; 10] = [
    ".socket",
    ".timer",
    ".target",
    ".path",
    ".mount",
    ".automount",
    ".slice",
    ".scope",
    ".swap",
    ".device",
];
/// Longest name of a unit without `.service`: files of 255 bytes are made of it.
const MOST_NAME: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_name_and_file_stands_once_in_the_table() {
        let mut names: Vec<_> = Server::names().collect();
        let mut files: Vec<_> = KNOWN.iter().flat_map(|known| known.files).collect();
        let mut units: Vec<_> = KNOWN.iter().flat_map(|known| known.units).collect();
        let lengths = (names.len(), files.len(), units.len());
        names.sort_unstable();
        names.dedup();
        files.sort_unstable();
        files.dedup();
        units.sort_unstable();
        units.dedup();
        assert_eq!((names.len(), files.len(), units.len()), lengths);
    }

    #[test]
    fn a_unit_of_the_table_is_called_by_its_name_and_an_instance_is_not() {
        for (unit, argument, shim) in [
            ("nginx", "nginx", true),
            ("nginx.service", "nginx", true),
            ("redis-server", "redis", true),
            ("redis-server@a", "--unit redis-server@a", true),
            ("stunnel@web", "--unit stunnel@web", false),
            ("postfix@-", "postfix", false),
            ("haproxy", "haproxy", false),
            ("own-thing", "--unit own-thing", false),
        ] {
            let server = Server::of_unit(unit).unwrap();
            assert_eq!(server.argument(), argument);
            assert_eq!(server.needs_shim(), shim, "{unit}");
            assert!(server.clone().suspending().needs_shim());
            assert_eq!(server.to_string(), unit.strip_suffix(".service").unwrap_or(unit));
            assert!(Server::is_argument(argument));
        }
        assert!(!Server::is_argument("own-thing") && !Server::is_argument("--unit a/b"));
    }

    #[test]
    fn names_that_no_service_has_are_refused() {
        let long = "a".repeat(300);
        for name in [
            "", "a/b", "../x", "-x", ".x", "a b", "a.socket", "a@", "a\\x2d", "a\n", &long,
        ] {
            let message = Server::of_unit(name).unwrap_err().to_string();
            assert!(message.contains("no name of a service"), "{message}");
        }
    }

    /// Debian's postfix.service starts only other units.
    #[test]
    fn of_several_units_the_one_that_starts_the_program_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let unit = || Server::named(&root, "postfix").unwrap().to_string();
        let put = |name: &str, text: &str| {
            let path = Path::new("/lib/systemd/system").join(name);
            root.replace(&path, text.as_bytes(), 0o644).unwrap();
        };
        assert_eq!(unit(), "postfix");
        put("postfix.service", "[Service]\nExecStart=/bin/true\n");
        put(
            "postfix@.service",
            "[Service]\nExecStart=/usr/sbin/postmulti -i %i -p start\n",
        );
        assert_eq!(unit(), "postfix@-");
        put("postfix.service", "[Service]\nExecStart=/usr/sbin/postfix start\n");
        assert_eq!(unit(), "postfix");
        assert!(Server::named(&root, "caddy").is_none());
    }

    #[test]
    fn each_program_says_what_to_expect() {
        let first = |unit: &str| Server::of_unit(unit).unwrap().expectations()[0].clone();
        assert!(first("redis-server").contains("single event loop, epoll"));
        assert!(first("postfix").contains("a process for each connection: provider only"));
        assert!(first("own").contains("was not tried"));
    }
}
