//! Settings of the administrator that decide whether a server uses the provider: read, never changed.

use crate::error::SetupError;
use crate::parts::Parts;
use crate::plan::{LD_PRELOAD, NGINX_KEEPS, OPENSSL_CONF, Way, drop_in, needs_preload};
use crate::server::Server;
use crate::system::read;
use crate::unit::{self, Unit};
use std::path::{Path, PathBuf};
use widelane_files::Root;

/// Notes for the administrator, a sentence or two each.
///
/// # Errors
///
/// When a configuration of the server cannot be read.
pub fn notes(root: &Root, server: &Server) -> Result<Vec<String>, SetupError> {
    let mut notes = Vec::new();
    if unit::files(root, server.unit()).is_empty() && server.known().is_some() {
        notes.push(format!(
            "There is no unit {server}.service here. For a server that is started by hand, see \
             `widelane setup {} --env`.",
            server.argument()
        ));
    }
    if server.is("nginx") {
        notes.extend(nginx(root)?);
    }
    if server.is("haproxy") {
        notes.push(haproxy(root)?);
    }
    if server.is("apache2") && root.has(Path::new(PREFORK)) {
        notes.push(
            "Apache uses the MPM prefork, with which the provider costs CPU and gains nothing for RSA-2048. Use the \
             MPM event: `a2dismod mpm_prefork && a2enmod mpm_event`."
                .to_owned(),
        );
    }
    Ok(notes)
}

/// A note for each library that the unit does not let the server load.
///
/// # Errors
///
/// When the unit cannot be read.
pub fn forbidden(root: &Root, server: &Server, parts: &Parts) -> Result<Vec<String>, SetupError> {
    let Some(unit) = Unit::read(root, server.unit())? else {
        return Ok(Vec::new());
    };
    let libraries = [Some(&parts.provider), parts.shim.as_ref()];
    let libraries = libraries.into_iter().flatten();
    let refused = libraries.filter(|library| !unit.may_load(library));
    let note = |library: &PathBuf| {
        format!(
            "{server}.service lets no code be loaded from {0} (NoExecPaths=): OpenSSL would do everything by itself. Add \
             this to the unit:\n[Service]\nExecPaths={0}",
            library.display()
        )
    };
    Ok(refused.map(note).collect())
}

/// Checks that no file of others sets or unsets a variable that the server needs: only one of both settings would have
/// an effect.
///
/// # Errors
///
/// With the file and the line, or when a file cannot be read.
pub fn already_set(root: &Root, server: &Server, way: Way) -> Result<(), SetupError> {
    let mut files = unit::files(root, server.unit());
    files.extend(unit::drop_ins(root, server.unit()));
    // Environment files of units override what our drop-in sets.
    let read_by_units = [format!("/etc/default/{server}"), format!("/etc/sysconfig/{server}")];
    files.extend(read_by_units.map(PathBuf::from));
    let named = Unit::read(root, server.unit())?.unwrap_or_default();
    files.extend(named.environment_files);
    if server.is("apache2") {
        files.push(PathBuf::from(ENVVARS));
    }
    let ours = drop_in(server.unit());
    files.retain(|path| *path != ours);
    let is_drop_in = |path: &Path| path.parent().and_then(Path::extension).is_some_and(|end| end == "d");
    let needed: &[&'static str] = match needs_preload(server, way) {
        true => &[OPENSSL_CONF, LD_PRELOAD],
        false => &[OPENSSL_CONF],
    };
    for path in files {
        let Some(text) = unit::text(root, &path)? else {
            continue;
        };
        // Drop-ins are read in the order of their names.
        let is_later = is_drop_in(&path) && path.file_name() > ours.file_name();
        for (line, number) in text.lines().zip(1..) {
            let decides = |variable: &str| sets(line, variable) || unsets(line, variable, is_later);
            let found = needed.iter().find(|variable| decides(variable));
            if let Some(variable) = found {
                return Err(SetupError::AlreadySet {
                    path: root.outside(&path),
                    line: number,
                    variable,
                    server: server.clone(),
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
    let lines = || NGINX_KEEPS.map(|variable| format!("  env {variable};\n")).concat();
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
                characters.by_ref().take_while(|c| *c != '\n').for_each(drop);
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

/// Returns whether a line of a unit takes a variable away, which one that forgets all settings does with those before
/// it.
fn unsets(line: &str, variable: &str, is_later: bool) -> bool {
    let Some((name, value)) = line.split_once('=') else {
        return false;
    };
    let mut words = value.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
    match name.trim() {
        "UnsetEnvironment" => words.any(|word| word == variable),
        "Environment" => is_later && words.next().is_none(),
        _ => false,
    }
}

const NGINX_CONF: &str = "/etc/nginx/nginx.conf";
/// Paths of nginx are relative to the folder of its configuration.
const MODULES: [&str; 2] = ["/etc/nginx/modules-enabled/*.conf", "modules-enabled/*.conf"];
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

    fn server(unit: &str) -> Server {
        Server::of_unit(unit).unwrap()
    }

    #[test]
    fn an_include_counts_only_in_the_main_context() {
        let of = |text: &str| reexec(&tree(&[(NGINX_CONF, text)])).unwrap();
        let include = "include /etc/nginx/modules-enabled/*.conf;";
        assert_eq!(of(&format!("user x;\n{include}\nevents {{ }}")), Reexec::Included);
        assert_eq!(
            of("events { a b; }\ninclude 'modules-enabled/*.conf' ;"),
            Reexec::Included
        );
        assert_eq!(of(&format!("http {{ server {{ }} {include} }}")), Reexec::Lost);
        assert_eq!(of(&format!("# {include}\nuser \"a;b\";")), Reexec::Lost);
        assert_eq!(of(&format!("{include} env LD_PRELOAD;env OPENSSL_CONF;")), Reexec::Kept);
        assert_eq!(of("env LD_PRELOAD; env OPENSSL_CONF=/a;"), Reexec::Lost);
        assert_eq!(reexec(&tree(&[])).unwrap(), Reexec::NoFile);
    }

    #[test]
    fn nginx_tells_which_lines_it_needs() {
        let root = tree(&[(NGINX_CONF, "user x;"), ("/lib/systemd/system/nginx.service", "")]);
        let notes = notes(&root, &server("nginx")).unwrap();
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
        assert_eq!(notes(&event, &server("apache2")).unwrap(), [""; 0]);
        let prefork = tree(&[unit, (PREFORK, "")]);
        let note = &notes(&prefork, &server("apache2")).unwrap()[0];
        assert!(
            note.contains("costs CPU and gains nothing") && note.contains("mpm_event"),
            "{note}"
        );
    }

    #[test]
    fn variables_that_others_set_are_found_with_their_line() {
        let refused = |unit, name: &str, text: &str| {
            let root = tree(&[(name, text)]);
            match already_set(&root, &server(unit), Way::Preload) {
                Err(SetupError::AlreadySet { line, variable, .. }) => Some((line, variable)),
                other => other.map(|()| None).unwrap(),
            }
        };
        let unit = "/etc/systemd/system/nginx.service.d/malloc.conf";
        let text = "[Service]\n# LD_PRELOAD=x\nEnvironment=\"LD_PRELOAD=/lib/jemalloc.so\"\n";
        assert_eq!(refused("nginx", unit, text), Some((3, LD_PRELOAD)));
        assert_eq!(refused("lighttpd", unit, text), None);
        let others = tree(&[(unit, text)]);
        already_set(&others, &server("nginx"), Way::Imports).unwrap();
        // HAProxy needs only the other variable.
        let default = "/etc/default/haproxy";
        assert_eq!(refused("haproxy", default, "LD_PRELOAD=/x\n"), None);
        assert_eq!(
            refused("haproxy", default, "MY_OPENSSL_CONF=/x\nOPENSSL_CONF=/x\n"),
            Some((2, OPENSSL_CONF))
        );
        let ours = drop_in("nginx");
        assert_eq!(refused("nginx", ours.to_str().unwrap(), text), None);
        let unsets = "[Service]\n#UnsetEnvironment=LD_PRELOAD\nUnsetEnvironment=MY_LD_PRELOAD 'LD_PRELOAD'\n";
        assert_eq!(refused("nginx", unit, unsets), Some((3, LD_PRELOAD)));
        assert_eq!(refused("haproxy", &unit.replace("nginx", "haproxy"), unsets), None);
        let forgets = "[Service]\nEnvironment=\n";
        assert_eq!(refused("nginx", unit, forgets), None, "ours comes later");
        let later = "/run/systemd/system/nginx.service.d/x.conf";
        assert_eq!(refused("nginx", later, forgets), Some((2, OPENSSL_CONF)));
        assert_eq!(refused("zebra", "/etc/systemd/system/zebra.service", forgets), None);
        let shell = "export OPENSSL_CONF=/x\n";
        assert_eq!(refused("apache2", ENVVARS, shell), Some((1, OPENSSL_CONF)));
    }

    #[test]
    fn variables_in_files_that_the_unit_or_its_template_names_are_found() {
        let unit = "/lib/systemd/system/own@.service";
        let text = "[Service]\nExecStart=/x\nEnvironmentFile=-/etc/own.env\n";
        let root = tree(&[(unit, text), ("/etc/own.env", "A=b\nOPENSSL_CONF=/x\n")]);
        let found = already_set(&root, &server("own@1"), Way::Preload);
        let message = found.unwrap_err().to_string();
        assert!(
            message.contains("own.env:2 sets or unsets OPENSSL_CONF for own@1;"),
            "{message}"
        );
        assert!(message.contains("`widelane setup --unit own@1 --print`"), "{message}");
        already_set(&root, &server("own"), Way::Preload).unwrap();
    }

    /// Debian's unit of Redis loads code from three places only.
    #[test]
    fn libraries_that_a_unit_forbids_are_told() {
        let text = "[Service]\nNoExecPaths=/\nExecPaths=/usr/bin/redis-server /usr/lib /lib\n";
        let root = tree(&[("/lib/systemd/system/redis-server.service", text)]);
        let notes = |shim: &str| {
            let parts = Parts {
                provider: "/usr/lib/w.so".into(),
                shim: Some(shim.into()),
            };
            forbidden(&root, &server("redis-server"), &parts).unwrap()
        };
        assert_eq!(notes("/usr/lib/widelane/s.so"), [""; 0]);
        let told = notes("/usr/local/lib/s.so");
        assert_eq!(told.len(), 1);
        assert!(
            told[0].ends_with("\n[Service]\nExecPaths=/usr/local/lib/s.so"),
            "{told:?}"
        );
        let other = Parts {
            provider: "/opt/w.so".into(),
            shim: None,
        };
        assert_eq!(forbidden(&root, &server("none"), &other).unwrap(), [""; 0]);
    }
}
