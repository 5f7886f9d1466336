//! The lists of `ARCHITECTURE.md`: rooms, and files with `unsafe` code.

use crate::{EDGES, UNSAFE_ROOMS, packages, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Differences between the list of rooms in `page` and the workspace: members that are not in it, folders that are
/// gone, and dependencies on rooms further down. Takes what `cargo metadata` prints.
///
/// A room may use what is inside its own folder.
pub fn misplaced_rooms(page: &str, metadata: &Value) -> Vec<String> {
    let root = Path::new(text(metadata, "workspace_root"));
    let rooms = rooms(page);
    let gone = rooms.iter().filter(|room| !root.join(room).is_dir());
    let mut violations: Vec<String> = gone.map(|room| format!("{room}: is listed, and gone")).collect();
    let mut places = BTreeMap::new();
    let members = metadata["workspace_members"].as_array();
    for package in packages(metadata) {
        if !members.is_some_and(|members| members.contains(&package["id"])) {
            continue;
        }
        let folder = Path::new(text(package, "manifest_path")).parent();
        let folder = folder.and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.unwrap_or(Path::new("")).display().to_string();
        match rooms.iter().position(|room| *room == folder) {
            Some(place) => {
                places.insert(text(package, "name"), place);
            }
            None => violations.push(format!("{folder}: is not listed")),
        }
    }
    for (from, used) in EDGES {
        for to in *used {
            let (Some(&from), Some(&to)) = (places.get(from), places.get(to)) else {
                continue;
            };
            let (from, below) = (&rooms[from], to > from);
            let to = &rooms[to];
            if below && !to.starts_with(&format!("{from}/")) {
                violations.push(format!("{from}: uses {to}, which is listed below it"));
            }
        }
    }
    violations
}

/// Folders of the list in `page`, from top to bottom: the first block between fences, in which a line that begins with
/// a name and a slash is a folder inside the nearest one above it that is indented less.
fn rooms(page: &str) -> Vec<String> {
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut rooms = Vec::new();
    for line in page.split("```").nth(1).unwrap_or_default().lines() {
        let begin = line.trim_start();
        let indent = line.len() - begin.len();
        let name = begin.split(' ').next().and_then(|word| word.strip_suffix('/'));
        let Some(name) = name.filter(|_| indent < DESCRIPTIONS) else {
            continue;
        };
        path.retain(|(outer, _)| *outer < indent);
        path.push((indent, name));
        let names: Vec<&str> = path.iter().map(|(_, name)| *name).collect();
        rooms.push(names.join("/"));
    }
    rooms
}

/// Files with `unsafe` code that only one of [`UNSAFE_ROOMS`] and the table in `page` names.
pub fn unlisted_unsafe(page: &str) -> Vec<String> {
    let section = page.split("\n## ").find(|part| part.starts_with(UNSAFE_SECTION));
    let rows = section.unwrap_or_default().lines();
    let mut listed = BTreeSet::new();
    for row in rows.filter_map(|line| line.strip_prefix("| `")) {
        let cell = row.split(" | ").next().unwrap_or_default();
        // A file without a folder is in that of the file before it.
        let mut folder = "";
        for name in cell.split('`').step_by(2) {
            let place = match name.rsplit_once('/') {
                Some((its_folder, _)) => {
                    folder = its_folder;
                    name.to_owned()
                }
                None => format!("{folder}/{name}"),
            };
            listed.insert(place);
        }
    }
    let known: BTreeSet<String> = UNSAFE_ROOMS.iter().map(|room| (*room).to_owned()).collect();
    listed.symmetric_difference(&known).cloned().collect()
}

const UNSAFE_SECTION: &str = "Where `unsafe` lives";
/// Column at which the descriptions of rooms begin.
const DESCRIPTIONS: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    fn page() -> (String, Value) {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).expect("two levels up");
        let page = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("a page");
        (page, crate::metadata(root).expect("cargo metadata"))
    }

    #[test]
    fn the_architecture_lists_the_workspace_and_its_unsafe_files() {
        let (page, metadata) = page();
        let mut violations = misplaced_rooms(&page, &metadata);
        violations.extend(unlisted_unsafe(&page));
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }

    #[test]
    fn planted_rooms_are_found() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        let root = tree.path();
        for folder in ["crates/lanes", "crates/cpu", "crates/engine", "a/openssl/tables"] {
            fs::create_dir_all(root.join(folder)).expect("writable");
        }
        let package = |name: &str, folder: &str| json!({"id": name, "name": name, "manifest_path": root.join(folder).join("Cargo.toml")});
        let metadata = json!({
            "workspace_root": root,
            "workspace_members": ["widelane-lanes", "widelane-cpu", "widelane-engine", "widelane-openssl", "widelane-openssl-tables"],
            "packages": [
                package("widelane-lanes", "crates/lanes"),
                package("widelane-cpu", "crates/cpu"),
                package("widelane-engine", "crates/engine"),
                package("widelane-openssl", "a/openssl"),
                package("widelane-openssl-tables", "a/openssl/tables"),
                package("serde", "elsewhere"),
            ],
        });
        let page = "# A\n```\ncrates/        all\n  lanes/       uses cpu\n               gone/ too\n  cpu/         \n  gone/        \n\
                    a/             \n  openssl/     \n    tables/    \n```\n";
        assert_eq!(
            misplaced_rooms(page, &metadata),
            [
                "crates/gone: is listed, and gone",
                "crates/engine: is not listed",
                "crates/lanes: uses crates/cpu, which is listed below it",
            ]
        );
    }

    #[test]
    fn planted_unsafe_files_are_found() {
        let (page, _) = page();
        let row = "| `crates/kernels/src/arena.rs` |";
        assert!(page.contains(row));
        let other = page.replace(row, "| `crates/kernels/src/a.rs`, `b.rs` |");
        let expected = ["arena.rs", "a.rs", "b.rs"].map(|file| format!("crates/kernels/src/{file}"));
        let found = unlisted_unsafe(&other);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(expected.iter().all(|file| found.contains(file)), "{found:?}");
    }
}
