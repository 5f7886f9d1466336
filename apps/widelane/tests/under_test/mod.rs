//! The program under test, which sees no folder of this machine. A guard refuses tests that start the program by
//! themselves.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test file uses its own part"
)]

use std::process::{Command, Output};

use serde_json::Value;
pub use widelane_testkit::apart::{ROOT, apart};

/// The program's path, for commands that start it: give those to [`apart`].
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_widelane");

/// The objects that a program has printed, one a line.
pub fn objects(output: &Output) -> Vec<Value> {
    let text = str::from_utf8(&output.stdout).expect("JSON is UTF-8");
    let object = |line| serde_json::from_str(line).expect("each line is an object");
    text.lines().map(object).collect()
}

/// The program.
pub fn widelane() -> Command {
    apart(Command::new(PROGRAM))
}
