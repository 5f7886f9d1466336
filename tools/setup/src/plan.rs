//! Files that a server gets.

use crate::change::{Plan, own_folder};
use crate::config::{self, Options};
use crate::error::SetupError;
use crate::parts::{Parts, plain};
use crate::server::Server;
use crate::stamp::stamped;
use crate::surroundings::{Reexec, reexec};
use crate::system::System;
use std::path::{Path, PathBuf};
use widelane_files::Root;

/// Input from which the files of a server are made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The server.
    pub server: Server,
    /// The libraries.
    pub parts: Parts,
    /// Settings of the system that must be kept.
    pub system: System,
    /// The provider's settings.
    pub options: Options,
    /// Way of the library that suspends handshakes into the server.
    pub way: Way,
}

/// Way of the library that suspends handshakes into a server that needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// LD_PRELOAD in the server's environment.
    #[default]
    Preload,
    /// The provider puts it into the imports of the program.
    Imports,
}

impl Setup {
    /// The files that systemd and the server read, below `root`. With `force`, edited files are
    /// replaced.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or was edited.
    pub fn plan<'a>(&self, root: &'a Root, force: bool) -> Result<Plan<'a>, SetupError> {
        let server = &self.server;
        let config = self.config_path();
        let mut files = vec![(config.clone(), Some(self.config()?))];
        if server.is("nginx") && reexec(root)? == Reexec::Included {
            let body = NGINX_KEEPS.map(|variable| format!("env {variable};\n")).concat();
            let body = format!("# nginx hands these to its successor at an upgrade.\n{body}");
            files.push((NGINX_FILE.into(), Some(stamped(server, &body))));
        }
        let lines = self.variables(&config)?;
        let lines = lines
            .iter()
            .map(|(name, value)| format!("Environment={name}={value}\n"));
        let unit = format!("[Service]\n{}", Vec::from_iter(lines).concat());
        files.push((drop_in(server.unit()), Some(stamped(server, &unit))));
        Plan::new(root, files, force)
    }

    /// Path of the server's OpenSSL configuration, which [`plan`](Self::plan) writes.
    pub fn config_path(&self) -> PathBuf {
        config_of(self.server.unit()).into()
    }

    fn config(&self) -> Result<String, SetupError> {
        let library = self.parts.shim.as_deref();
        let library = library.filter(|_| self.way == Way::Imports);
        let text = config::text(&self.system, &self.parts.provider, library, &self.options)?;
        Ok(stamped(&self.server, &text))
    }

    fn variables(&self, config: &Path) -> Result<Variables, SetupError> {
        let mut variables = vec![(OPENSSL_CONF, plain(config)?.to_owned())];
        if let (true, Some(shim)) = (needs_preload(&self.server, self.way), &self.parts.shim) {
            variables.push((LD_PRELOAD, plain(shim)?.to_owned()));
        }
        Ok(variables)
    }
}

/// Environment variables with their values.
pub type Variables = Vec<(&'static str, String)>;

/// For a server that is started by hand: the plan that writes its OpenSSL configuration to `config`,
/// and the variables of its environment. `root` is that of this system.
///
/// # Errors
///
/// When a file cannot be read, was edited and `force` is not set, or is in a folder of other users.
pub fn environment<'a>(
    setup: &Setup,
    root: &'a Root,
    config: &Path,
    force: bool,
) -> Result<(Plan<'a>, Variables), SetupError> {
    let variables = setup.variables(config)?;
    if let Some(folder) = config.parent() {
        own_folder(folder)?;
    }
    let files = vec![(config.to_owned(), Some(setup.config()?))];
    Ok((Plan::new(root, files, force)?, variables))
}

/// Removes what [`Setup::plan`] writes, below `root`. With `force`, edited files too.
///
/// # Errors
///
/// When a file cannot be read, or was edited.
pub fn undo<'a>(server: &Server, root: &'a Root, force: bool) -> Result<Plan<'a>, SetupError> {
    let mut files = Vec::new();
    // An upgrade may have renamed the unit since.
    for unit in server.units() {
        // The server stops naming the configuration before this goes.
        files.push((drop_in(&unit), None));
        if server.is("nginx") {
            files.push((NGINX_FILE.into(), None));
        }
        files.push((config_of(&unit).into(), None));
    }
    Plan::new(root, files, force)
}

/// The drop-in of a unit.
pub(crate) fn drop_in(unit: &str) -> PathBuf {
    format!("/etc/systemd/system/{unit}.service.d/widelane.conf").into()
}

fn config_of(unit: &str) -> String {
    format!("/etc/widelane/openssl-{unit}.cnf")
}

/// Returns whether the environment must name the library that suspends handshakes.
pub(crate) fn needs_preload(server: &Server, way: Way) -> bool {
    server.needs_shim() && way == Way::Preload
}

pub(crate) const OPENSSL_CONF: &str = "OPENSSL_CONF";
pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";
/// nginx empties its environment for the program that replaces it.
pub(crate) const NGINX_KEEPS: [&str; 2] = [OPENSSL_CONF, LD_PRELOAD];
/// Debian's nginx.conf includes this folder in its main context.
const NGINX_FILE: &str = "/etc/nginx/modules-enabled/90-widelane.conf";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn setup(unit: &str) -> Setup {
        Setup {
            server: Server::of_unit(unit).unwrap(),
            parts: Parts {
                provider: "/lib/w.so".into(),
                shim: Some("/lib/shim.so".into()),
            },
            system: System::default(),
            options: Options::default(),
            way: Way::Preload,
        }
    }

    const UNITS: [&str; 8] = [
        "nginx",
        "haproxy",
        "apache2",
        "lighttpd",
        "redis-server",
        "postfix@-",
        "own",
        "own@1",
    ];

    fn paths<'a>(plan: &'a Plan<'_>) -> Vec<&'a str> {
        let paths = plan.changes().iter().map(|change| change.path());
        paths.map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn each_server_gets_its_files_and_undo_removes_them_all() {
        for unit in UNITS {
            let server = Server::of_unit(unit).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let root = &Root::open(folder.path()).unwrap();
            let nginx = folder.path().join("etc/nginx");
            fs::create_dir_all(&nginx).unwrap();
            let include = "include /etc/nginx/modules-enabled/*.conf;";
            fs::write(nginx.join("nginx.conf"), include).unwrap();
            let plan = setup(unit).plan(root, false).unwrap();
            let mut expected = vec![
                format!("/etc/widelane/openssl-{unit}.cnf"),
                format!("/etc/systemd/system/{unit}.service.d/widelane.conf"),
            ];
            if unit == "nginx" {
                expected.insert(1, NGINX_FILE.to_owned());
            }
            assert_eq!(paths(&plan), expected);
            assert_eq!(plan.diff().contains("+Environment=LD_PRELOAD=/lib/shim.so\n"), {
                server.needs_shim()
            });
            plan.apply().unwrap();
            assert!(setup(unit).plan(root, false).unwrap().changes().is_empty());
            let undone = undo(&server, root, false).unwrap();
            expected.reverse();
            assert_eq!(paths(&undone), expected);
            assert!(undone.changes().iter().all(|change| change.removes()));
            undone.apply().unwrap();
            assert!(undo(&server, root, false).unwrap().changes().is_empty());
        }
    }

    #[test]
    fn a_library_in_the_imports_is_named_in_the_configuration_and_not_preloaded() {
        let folder = tempfile::tempdir().unwrap();
        let root = &Root::open(folder.path()).unwrap();
        let setup = Setup {
            way: Way::Imports,
            ..setup("lighttpd")
        };
        let diff = setup.plan(root, false).unwrap().diff();
        assert!(diff.contains("+library = /lib/shim.so\n"), "{diff}");
        assert!(!diff.contains("LD_PRELOAD"), "{diff}");
    }

    #[test]
    fn by_hand_one_file_and_the_variables_suffice() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("own/x.cnf");
        let system = &Root::of_this_system();
        let (plan, variables) = environment(&setup("lighttpd"), system, &config, false).unwrap();
        plan.apply().unwrap();
        assert!(fs::read_to_string(&config).unwrap().contains("module = /lib/w.so"));
        let named = config.to_str().unwrap().to_owned();
        assert_eq!(
            variables,
            [("OPENSSL_CONF", named), ("LD_PRELOAD", "/lib/shim.so".into())]
        );
        let relative = environment(&setup("haproxy"), system, Path::new("x.cnf"), false);
        assert!(matches!(relative, Err(SetupError::Path { .. })));
    }
}
