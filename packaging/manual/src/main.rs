//! Writes the manual pages and the shell completions of `widelane`, for packages.
//!
//! ```text
//! cargo run -p widelane-manual -- FOLDER
//! ```
//!
//! They are made from the definitions by which the program reads its arguments, so they cannot
//! differ from it. This is a program of its own because the code that makes them need not ship.

#![forbid(unsafe_code)]

mod page;

use clap::Command;
use clap_complete::{Shell, generate};
use std::env;
use std::io;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: widelane-manual FOLDER");
        return ExitCode::from(2);
    };
    match write(widelane_program::command(), Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("widelane-manual: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// Writes a page for the program and for each sub-command, and a file for each shell, under the
/// names that `man` and the shells look for.
fn write(mut program: Command, folder: &Path) -> io::Result<()> {
    let pages = folder.join("man");
    widelane_files::make_folder(&pages)?;
    for (name, text) in page::all(program.clone())? {
        widelane_files::replace(&pages.join(name), &text, 0o644)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let place = folder.join(shell.to_string());
        widelane_files::make_folder(&place)?;
        let name = match shell {
            Shell::Zsh => "_widelane",
            Shell::Fish => "widelane.fish",
            _ => "widelane",
        };
        let mut script = Vec::new();
        generate(shell, &mut program, "widelane", &mut script);
        widelane_files::replace(&place.join(name), &script, 0o644)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::process::{Command as Process, Stdio};

    fn subcommands() -> Vec<String> {
        let program = widelane_program::command();
        let names: Vec<_> = program
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .collect();
        assert!(names.len() > 10, "{names:?}");
        names
    }

    /// The pages of sub-commands that have sub-commands of their own, such as `trace` and `tickets`.
    fn parts() -> Vec<String> {
        let program = widelane_program::command();
        let pages = |whole: &Command| {
            let name = whole.get_name().to_owned();
            let parts = whole.get_subcommands();
            let page = |part: &Command| format!("widelane-{name}-{}.1", part.get_name());
            parts.map(page).collect::<Vec<_>>()
        };
        let pages: Vec<_> = program.get_subcommands().flat_map(pages).collect();
        assert!(pages.len() > 6, "{pages:?}");
        pages
    }

    fn names(folder: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let names = entries.map(|entry| entry.expect("readable").file_name());
        names.map(|name| name.into_string().expect("text")).collect()
    }

    #[test]
    fn every_subcommand_has_a_page_and_every_shell_knows_it() {
        let folder = tempfile::tempdir().expect("a folder");
        write(widelane_program::command(), folder.path()).expect("writable");
        let pages = subcommands()
            .iter()
            .map(|name| format!("widelane-{name}.1"))
            .chain(["widelane.1".to_owned()])
            .chain(parts())
            .collect::<BTreeSet<_>>();
        assert_eq!(names(&folder.path().join("man")), pages);
        for file in ["bash/widelane", "zsh/_widelane", "fish/widelane.fish"] {
            let script = fs::read_to_string(folder.path().join(file)).expect(file);
            for name in subcommands() {
                assert!(script.contains(&name), "{name} in {file}");
            }
            // Values too: the servers that can be set up. fish gets none of arguments without options.
            let servers = ["nginx", "haproxy", "apache2", "lighttpd"];
            let known = servers.iter().all(|server| script.contains(server));
            assert!(known || file.starts_with("fish"), "{file}");
        }
    }

    #[test]
    fn shells_and_man_read_them_without_complaint() {
        let folder = tempfile::tempdir().expect("a folder");
        write(widelane_program::command(), folder.path()).expect("writable");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut checks = vec![
            ("bash", vec!["-n".to_owned(), path("bash/widelane")]),
            ("zsh", vec!["-n".to_owned(), path("zsh/_widelane")]),
            ("fish", vec!["-n".to_owned(), path("fish/widelane.fish")]),
        ];
        for name in names(&folder.path().join("man")) {
            let page = path(&format!("man/{name}"));
            let format = ["-Kutf8", "-man", "-ww", "-Tutf8", "-z"].map(str::to_owned);
            checks.push(("groff", format.into_iter().chain([page]).collect()));
        }
        let mut missing = BTreeSet::new();
        for (program, arguments) in checks {
            let mut process = Process::new(program);
            match process.args(&arguments).stdin(Stdio::null()).output() {
                Err(_) => {
                    missing.insert(program);
                }
                Ok(output) => {
                    let said = String::from_utf8_lossy(&output.stderr);
                    assert!(output.status.success() && said.is_empty(), "{said}");
                }
            }
        }
        if !missing.is_empty() {
            println!("SKIP: not installed: {missing:?}");
        }
    }
}
