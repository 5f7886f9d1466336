//! What `make build` does to the program.

use std::path::Path;
use std::process::Command;

#[test]
fn debug_information_moves_into_a_file_beside_the_program() {
    let tools = ["objcopy", "readelf"];
    if let Some(missing) = tools.iter().find(|tool| !runs(tool)) {
        println!("SKIP: no {missing}; install binutils");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("widelane");
    let debug = folder.path().join("widelane.debug");
    // A program of our own: whether ours has debug information depends on the profile of the tests.
    let source = folder.path().join("main.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("writable");
    let mut compile = Command::new("cc");
    let compiled = compile
        .arg("-g")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status();
    assert!(compiled.expect("a C compiler, as AWS-LC needs").success());
    std::fs::remove_file(&source).expect("it is ours");
    let before = size(&program);
    assert!(sections(&program).contains(" .debug_info "));
    split(&program);
    assert!(size(&program) < before);
    let left = sections(&program);
    for moved in [" .debug_info ", " .debug_line ", " .debug_str "] {
        assert!(!left.contains(moved), "{left}");
    }
    assert!(
        left.contains(" .gnu_debuglink ") && left.contains(" .symtab "),
        "{left}"
    );
    assert!(sections(&debug).contains(" .debug_info "));
    assert!(Command::new(&program).status().expect("it runs").success());
    // Once more changes nothing: the debug file must not be replaced by an empty one.
    let first = size(&debug);
    split(&program);
    assert_eq!(size(&debug), first);
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("readable").count(),
        2
    );
}

fn split(program: &Path) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/split-debug");
    let output = Command::new(script).arg(program).output().expect("bash");
    assert!(output.status.success(), "{output:?}");
}

fn sections(file: &Path) -> String {
    let output = Command::new("readelf")
        .args(["--wide", "--sections"])
        .arg(file)
        .output();
    String::from_utf8_lossy(&output.expect("readelf").stdout).into_owned()
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).expect("a file").len()
}

fn runs(tool: &str) -> bool {
    Command::new(tool)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}
