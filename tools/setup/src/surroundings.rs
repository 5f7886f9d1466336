//! Settings of the administrator that decide whether a server uses the provider: read, never changed.

use crate::error::SetupError;
use crate::plan::{LD_PRELOAD, NGINX_KEEPS, OPENSSL_CONF, Way, drop_in, needs_preload};
use crate::server::Server;
use crate::system::read;
use std::path::{Path, PathBuf};
use widelane_files::Root;

/// Notes for the administrator, a sentence or two each.
///
/// # Errors
///
/// When a configuration of the server cannot be read.
pub fn notes(root: &Root, server: Server) -> Result<Vec<String>, SetupError> {
    let mut notes = Vec::new();
    if units(root, server).is_empty() {
        notes.push(format!(
            "There is no unit {server}.service here. For a server that is started by hand, see \
             `widelane setup {server} --env`."
        ));
    }
    match server {
        Server::Nginx => notes.extend(nginx(root)?),
        Server::Haproxy => notes.push(haproxy(root)?),
        Server::Apache2 => {
            let prefork = root.has(Path::new(PREFORK));
            notes.extend(prefork.then(|| {
                "Apache uses the MPM prefork, in which each process has one connection and passes \
                 are never shared. Use the MPM event: `a2dismod mpm_prefork && a2enmod mpm_event`."
                    .to_owned()
            }));
        }
        Server::Lighttpd => {}
    }
    Ok(notes)
}

/// Checks that no file of others sets a variable that the server needs: only one of both settings would have an effect.
///
/// # Errors
///
/// With the file and the line, or when a file cannot be read.
pub fn already_set(root: &Root, server: Server, way: Way) -> Result<(), SetupError> {
    let mut files = units(root, server);
    for folder in UNITS {
        files.extend(drop_ins(root, Path::new(folder), server));
    }
    // Environment files of units override what our drop-in sets.
    let read_by_units = [
        format!("/etc/default/{server}"),
        format!("/etc/sysconfig/{server}"),
    ];
    files.extend(read_by_units.map(PathBuf::from));
    if server == Server::Apache2 {
        files.push(PathBuf::from(ENVVARS));
    }
    let ours = drop_in(server);
    files.retain(|path| *path != ours);
    let needed: &[&'static str] = match needs_preload(server, way) {
        true => &[OPENSSL_CONF, LD_PRELOAD],
        false => &[OPENSSL_CONF],
    };
    for path in files {
        let Some(text) = read(root, &path)? else {
            continue;
        };
        for (line, number) in text.lines().zip(1..) {
            let found = needed.iter().find(|variable| sets(line, variable));
            if let Some(variable) = found {
                return Err(SetupError::AlreadySet {
                    path: root.outside(&path),
                    line: number,
                    variable,
                    server,
                });
            }
        }
    }
    Ok(())
}

/// State of nginx.conf for the variables that a successor of the running nginx needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reexec {
    /// The file includes the folder of modules in its main context: a file there keeps the variables.
    Included,
    /// The file keeps the variables.
    Kept,
    /// The file must be changed.
    Lost,
    /// There is no such file.
    NoFile,
}

/// Looks at nginx.conf.
pub(crate) fn reexec(root: &Root) -> Result<Reexec, SetupError> {
    let Some(text) = read(root, Path::new(NGINX_CONF))? else {
        return Ok(Reexec::NoFile);
    };
    let main = main_context(&text);
    let has = |directive: &str, argument: &str| {
        let wanted = [directive, argument];
        main.iter().any(|words| words.iter().eq(wanted))
    };
    Ok(if NGINX_KEEPS.iter().all(|variable| has("env", variable)) {
        Reexec::Kept
    } else if MODULES.iter().any(|pattern| has("include", pattern)) {
        Reexec::Included
    } else {
        Reexec::Lost
    })
}

fn nginx(root: &Root) -> Result<Option<String>, SetupError> {
    let lines = || {
        NGINX_KEEPS
            .map(|variable| format!("  env {variable};\n"))
            .concat()
    };
    Ok(match reexec(root)? {
        Reexec::Included | Reexec::Kept => None,
        Reexec::Lost => Some(format!(
            "nginx that is upgraded while it runs (SIGUSR2) loses these variables, unless {NGINX_CONF} \
             has these lines at its top:\n{}",
            lines().trim_end()
        )),
        Reexec::NoFile => Some(format!(
            "There is no {NGINX_CONF}. nginx that is upgraded while it runs (SIGUSR2) needs these \
             lines at the top of its configuration:\n{}",
            lines().trim_end()
        )),
    })
}

fn haproxy(root: &Root) -> Result<String, SetupError> {
    let Some(text) = read(root, Path::new(HAPROXY_CFG))? else {
        return Ok(format!(
            "HAProxy needs `ssl-mode-async` in its section `global`. There is no {HAPROXY_CFG}."
        ));
    };
    let mut global = false;
    let mut found = false;
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        // Sections begin at the margin or not: only their names tell.
        match line.split_whitespace().next() {
            Some("global") => global = true,
            Some(name) if SECTIONS.contains(&name) => global = false,
            Some("ssl-mode-async") if global => found = true,
            _ => {}
        }
    }
    Ok(match found {
        true => format!("{HAPROXY_CFG} has `ssl-mode-async`, as it should."),
        false => format!(
            "Without `ssl-mode-async` HAProxy waits for each signature. Add it to {HAPROXY_CFG}:\n\
             global\n    ssl-mode-async"
        ),
    })
}

/// The directives of a configuration of nginx that are in no block, as words.
fn main_context(text: &str) -> Vec<Vec<String>> {
    let mut directives = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut depth = 0_usize;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '#' if word.is_empty() => {
                characters
                    .by_ref()
                    .take_while(|c| *c != '\n')
                    .for_each(drop);
            }
            '"' | '\'' if word.is_empty() => {
                word.extend(characters.by_ref().take_while(|end| *end != c));
            }
            c if c.is_whitespace() || matches!(c, ';' | '{' | '}') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                let ended = match c {
                    ';' if depth == 0 => Some(std::mem::take(&mut words)),
                    _ => None,
                };
                directives.extend(ended);
                match c {
                    '{' => depth += 1,
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if matches!(c, ';' | '{' | '}') {
                    words.clear();
                }
            }
            c => word.push(c),
        }
    }
    directives
}

/// The files of its unit that exist.
fn units(root: &Root, server: Server) -> Vec<PathBuf> {
    let name = format!("{server}.service");
    let paths = UNITS.iter().map(|folder| Path::new(folder).join(&name));
    paths.filter(|path| root.has(path)).collect()
}

fn drop_ins(root: &Root, folder: &Path, server: Server) -> Vec<PathBuf> {
    let folder = folder.join(format!("{server}.service.d"));
    let names = root.names(&folder).unwrap_or_default();
    let paths = names.iter().map(|name| folder.join(name));
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "conf"))
        .collect()
}

/// Returns whether a line of a unit, an environment file or a shell script sets a variable.
fn sets(line: &str, variable: &str) -> bool {
    if line.trim_start().starts_with(['#', ';']) {
        return false;
    }
    line.match_indices(variable).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let part = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !part && line[at + variable.len()..].starts_with('=')
    })
}

const UNITS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
const NGINX_CONF: &str = "/etc/nginx/nginx.conf";
/// Paths of nginx are relative to the folder of its configuration.
const MODULES: [&str; 2] = [
    "/etc/nginx/modules-enabled/*.conf",
    "modules-enabled/*.conf",
];
const HAPROXY_CFG: &str = "/etc/haproxy/haproxy.cfg";
/// Keywords that end the section `global`.
const SECTIONS: [&str; 16] = [
    "backend",
    "cache",
    "crt-store",
    "defaults",
    "fcgi-app",
    "frontend",
    "http-errors",
    "listen",
    "log-forward",
    "mailers",
    "namespace_list",
    "peers",
    "program",
    "resolvers",
    "ring",
    "userlist",
];
const ENVVARS: &str = "/etc/apache2/envvars";
const PREFORK: &str = "/etc/apache2/mods-enabled/mpm_prefork.load";

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Deref;

    struct Tree(
        Root,
        #[expect(dead_code, reason = "goes when this does")] tempfile::TempDir,
    );

    impl Deref for Tree {
        type Target = Root;

        fn deref(&self) -> &Root {
            &self.0
        }
    }

    fn tree(files: &[(&str, &str)]) -> Tree {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        for (name, text) in files {
            let written = root.replace(Path::new(name), text.as_bytes(), 0o644);
            written.unwrap();
        }
        Tree(root, folder)
    }

    #[test]
    fn an_include_counts_only_in_the_main_context() {
        let of = |text: &str| reexec(&tree(&[(NGINX_CONF, text)])).unwrap();
        let include = "include /etc/nginx/modules-enabled/*.conf;";
        assert_eq!(
            of(&format!("user x;\n{include}\nevents {{ }}")),
            Reexec::Included
        );
        assert_eq!(
            of("events { a b; }\ninclude 'modules-enabled/*.conf' ;"),
            Reexec::Included
        );
        assert_eq!(
            of(&format!("http {{ server {{ }} {include} }}")),
            Reexec::Lost
        );
        assert_eq!(of(&format!("# {include}\nuser \"a;b\";")), Reexec::Lost);
        assert_eq!(
            of(&format!("{include} env LD_PRELOAD;env OPENSSL_CONF;")),
            Reexec::Kept
        );
        assert_eq!(of("env LD_PRELOAD; env OPENSSL_CONF=/a;"), Reexec::Lost);
        assert_eq!(reexec(&tree(&[])).unwrap(), Reexec::NoFile);
    }

    #[test]
    fn nginx_tells_which_lines_it_needs() {
        let root = tree(&[
            (NGINX_CONF, "user x;"),
            ("/lib/systemd/system/nginx.service", ""),
        ]);
        let notes = notes(&root, Server::Nginx).unwrap();
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].ends_with("  env OPENSSL_CONF;\n  env LD_PRELOAD;"),
            "{notes:?}"
        );
    }

    #[test]
    fn haproxy_is_asynchronous_only_if_its_global_section_says_so() {
        let of = |text: &str| haproxy(&tree(&[(HAPROXY_CFG, text)])).unwrap();
        let right = "as it should";
        assert!(of("global\n\tdaemon\n\tssl-mode-async # x\ndefaults\n").contains(right));
        for wrong in [
            "global\n daemon\n",
            "global\n # ssl-mode-async\n",
            "defaults\n ssl-mode-async\n",
            "global\n daemon\nfrontend f\n ssl-mode-async\n",
        ] {
            assert!(of(wrong).contains("Add it to"), "{wrong}");
        }
        assert!(haproxy(&tree(&[])).unwrap().contains("There is no"));
    }

    #[test]
    fn apache_with_one_connection_a_process_is_told() {
        let unit = ("/lib/systemd/system/apache2.service", "");
        let event = tree(&[unit, ("/etc/apache2/mods-enabled/mpm_event.load", "")]);
        assert_eq!(notes(&event, Server::Apache2).unwrap(), [""; 0]);
        let prefork = tree(&[unit, (PREFORK, "")]);
        assert!(notes(&prefork, Server::Apache2).unwrap()[0].contains("mpm_event"));
    }

    #[test]
    fn variables_that_others_set_are_found_with_their_line() {
        let refused = |server, name: &str, text: &str| {
            let root = tree(&[(name, text)]);
            match already_set(&root, server, Way::Preload) {
                Err(SetupError::AlreadySet { line, variable, .. }) => Some((line, variable)),
                other => other.map(|()| None).unwrap(),
            }
        };
        let unit = "/etc/systemd/system/nginx.service.d/malloc.conf";
        let text = "[Service]\n# LD_PRELOAD=x\nEnvironment=\"LD_PRELOAD=/lib/jemalloc.so\"\n";
        assert_eq!(refused(Server::Nginx, unit, text), Some((3, LD_PRELOAD)));
        assert_eq!(refused(Server::Lighttpd, unit, text), None);
        let others = tree(&[(unit, text)]);
        already_set(&others, Server::Nginx, Way::Imports).unwrap();
        // HAProxy needs only the other variable.
        let default = "/etc/default/haproxy";
        assert_eq!(refused(Server::Haproxy, default, "LD_PRELOAD=/x\n"), None);
        assert_eq!(
            refused(
                Server::Haproxy,
                default,
                "MY_OPENSSL_CONF=/x\nOPENSSL_CONF=/x\n"
            ),
            Some((2, OPENSSL_CONF))
        );
        let ours = drop_in(Server::Nginx);
        assert_eq!(refused(Server::Nginx, ours.to_str().unwrap(), text), None);
        let shell = "export OPENSSL_CONF=/x\n";
        assert_eq!(
            refused(Server::Apache2, ENVVARS, shell),
            Some((1, OPENSSL_CONF))
        );
    }
}
