//! A program that runs, as `setup` names it.

use crate::server::{Known, NOT_TRIED, Server, Waits};
use std::path::Path;
use widelane_threads::{Container, Proc, Thread, unit};

/// A program that runs: its row of the table, and how `setup` reaches it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Name of its file, or the one that it goes by. It may contain anything.
    pub name: String,
    pub(crate) known: Option<&'static Known>,
    /// Systemd unit of the process, without `.service`.
    pub(crate) unit: Option<String>,
    pub(crate) is_contained: bool,
}

impl Running {
    /// The program of a process, as far as this user may look at it.
    pub fn of(proc: &Proc, pid: u32) -> Self {
        let first = Thread::first_of(pid);
        let file = std::fs::read_link(proc.program(pid)).ok();
        let group = proc.cgroups(first).unwrap_or_default();
        let path = group.path();
        let is_contained = proc.own_number(pid).is_some_and(|own| own != pid)
            || path.is_some_and(|path| Container::of(path).is_some());
        // Not the units of a container, nor those of a user's own systemd.
        let unit = path
            .filter(|path| !is_contained && !path.contains("/user@"))
            .and_then(unit)
            .and_then(|unit| unit.strip_suffix(".service"));
        Self {
            unit: unit.map(str::to_owned),
            is_contained,
            ..Self::named(file.as_deref().map(file_name), proc.name(first))
        }
    }

    /// A program in no unit that is known, by its file or else by the name that it goes by: one file may have several
    /// names, as Redis's has.
    pub fn named(file: Option<String>, name: String) -> Self {
        let by_file = file.as_deref().and_then(Server::known_program);
        let by_name = Server::known_program(&name).filter(|_| by_file.is_none());
        Self {
            name: match by_name {
                Some(_) => name,
                None => file.unwrap_or(name),
            },
            known: by_file.or(by_name),
            ..Self::default()
        }
    }

    /// Way in which the program waits for its clients; `None` if it is not in the table.
    pub fn waits(&self) -> Option<Waits> {
        self.known.map(|known| known.waits)
    }

    /// The arguments of `widelane setup` that name it; `None` if it has to be set up by hand.
    pub fn argument(&self) -> Option<String> {
        self.server(false).map(|server| server.argument())
    }

    /// What sets it up: a part of a sentence. `has_loop` says of a program that is not in the table that it has an event
    /// loop.
    pub fn way_in(&self, has_loop: bool) -> String {
        if self.is_contained {
            return "put both libraries, the configuration and the variables into the image of its container"
                .to_owned();
        }
        match self.server(has_loop) {
            Some(server) => format!(
                "`sudo widelane setup {}`, then restart it",
                server.argument_with_options()
            ),
            None => {
                let suspend = if has_loop { " --suspend" } else { "" };
                let name = &self.name;
                format!("`env $(widelane setup --unit NAME{suspend} --env) {name}`, with a name of yours")
            }
        }
    }

    /// Sentences that say what to expect of the program, and what it takes besides.
    pub fn expectations(&self) -> Vec<String> {
        match self.known {
            Some(known) => known.sentences(),
            None => vec![NOT_TRIED.to_owned()],
        }
    }

    /// The server that `setup` would set up: the one of the unit, or else that of the table.
    fn server(&self, has_loop: bool) -> Option<Server> {
        let unit = self.unit.as_deref().filter(|_| !self.is_contained);
        let server = match unit.and_then(|unit| Server::of_unit(unit).ok()) {
            Some(server) => server,
            None => Server::of_unit(self.known?.unit()).ok()?,
        };
        let has_loop = self.waits().map_or(has_loop, |waits| waits == Waits::EventLoop);
        Some(match has_loop {
            true => server.suspending(),
            false => server,
        })
    }
}

/// The name of a program's file.
pub(crate) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Linux appends this when the file was replaced, as an upgrade does.
    name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(file: &str, unit: Option<&str>) -> Running {
        Running {
            unit: unit.map(str::to_owned),
            ..Running::named(Some(file.to_owned()), String::new())
        }
    }

    #[test]
    fn a_program_is_known_by_its_file_or_by_its_name() {
        let of = |file: &str, name: &str| {
            let running = Running::named(Some(file.to_owned()), name.to_owned());
            (running.name, running.known.map(|known| known.name))
        };
        let known = |name: &str, known| (name.to_owned(), Some(known));
        assert_eq!(of("redis-check-rdb", "redis-server"), known("redis-server", "redis"));
        assert_eq!(of("nginx", "redis-server"), known("nginx", "nginx"));
        assert_eq!(of("httpd", "x"), known("httpd", "apache2"));
        assert_eq!(of("own", "x"), ("own".to_owned(), None));
        assert_eq!(Running::named(None, "own".to_owned()).name, "own");
    }

    #[test]
    fn the_way_in_is_the_unit_or_the_table_or_by_hand() {
        for (running, has_loop, way) in [
            (running("redis-server", None), false, "`sudo widelane setup redis`"),
            (running("nginx", Some("nginx")), true, "`sudo widelane setup nginx`"),
            (
                running("redis-server", Some("cache")),
                false,
                "`sudo widelane setup --unit cache --suspend`",
            ),
            (
                running("smtpd", Some("postfix@-")),
                true,
                "`sudo widelane setup postfix`",
            ),
            (
                running("own", Some("own")),
                true,
                "`sudo widelane setup --unit own --suspend`",
            ),
            (running("own", Some("own")), false, "`sudo widelane setup --unit own`"),
            (
                running("own", None),
                false,
                "`env $(widelane setup --unit NAME --env) own`",
            ),
            (
                running("own", None),
                true,
                "`env $(widelane setup --unit NAME --suspend --env) own`",
            ),
        ] {
            let text = running.way_in(has_loop);
            assert!(text.starts_with(way), "{text}");
        }
        let contained = Running {
            is_contained: true,
            ..running("nginx", Some("docker"))
        };
        assert!(contained.way_in(false).contains("image of its container"));
        assert_eq!(running("own", None).argument(), None);
        assert_eq!(running("nginx", None).argument().as_deref(), Some("nginx"));
        assert_eq!(running("own", Some("x@1")).argument().as_deref(), Some("--unit x@1"));
    }

    #[test]
    fn this_process_is_known_by_its_file() {
        let own = Running::of(&Proc::here(), std::process::id());
        assert_eq!(own.name, file_name(&std::env::current_exe().unwrap()));
        assert!(own.waits().is_none() && own.expectations()[0].contains("was not tried"));
    }
}
