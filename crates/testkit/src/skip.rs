//! Reasons why a test cannot run on this machine. A function that returns `None` has printed `SKIP: …`, by which the
//! test is counted.

use std::env;
use std::path::PathBuf;

/// File of a program, in `PATH` or where systems have their servers.
pub fn installed(program: &str) -> Option<PathBuf> {
    let found = find(program);
    if found.is_none() {
        println!("SKIP: {program} is not installed");
    }
    found
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let folders = env::split_paths(&path).chain(servers);
    let mut files = folders.map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_their_names() {
        assert!(find("sh").is_some_and(|file| file.ends_with("sh")));
        assert_eq!(find("no-such-program"), None);
    }
}
