//! Programs and libraries in C.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Compiles `source` into `output`, with warnings as errors. Returns `None`, and prints why, without a compiler, or
/// without OpenSSL's headers if it includes them.
///
/// # Panics
///
/// With the compiler's messages.
pub fn compile(source: &str, output: &Path, arguments: &[&str]) -> Option<()> {
    compile_by("cc", source, output, arguments)
}

/// As [`compile`], by another compiler.
pub fn compile_by(compiler: &str, source: &str, output: &Path, arguments: &[&str]) -> Option<()> {
    let text = fs::read_to_string(source).expect("a file of the tests");
    let header = Path::new("/usr/include/openssl/ssl.h");
    if text.contains("#include <openssl/") && !header.exists() {
        println!("SKIP: OpenSSL's headers are not installed (Debian: libssl-dev)");
        return None;
    }
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    let Ok(compiled) = command.arg(output).arg(source).args(arguments).output() else {
        println!("SKIP: there is no C compiler");
        return None;
    };
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{source}: {said}");
    Some(())
}
