//! Names that any user can give to processes and files: no command lets them reach a terminal as they are.

mod under_test;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Erases a screen in one and in two bytes, reverses the direction, begins a line.
const NAME: &str = "\u{1b}\u{9b}\u{202e}evil\n";

/// A process with this name. The kernel runs the copy of a program under the name of its file.
struct Named(Child);

impl Named {
    fn start(program: &Path) -> Self {
        // Busy, so that it is among those that use a CPU.
        let yes = ["/bin/yes", "/usr/bin/yes"];
        let yes = yes.iter().find(|path| Path::new(path).is_file());
        fs::copy(yes.expect("yes(1)"), program).expect("a copy");
        let mut command = Command::new(program);
        // The loader complains about the library, which is not there, and goes on. `status` shows who names it.
        command.env("LD_PRELOAD", "/none/libwidelane_openssl_shim.so");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("it starts"))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_command_lets_a_name_steer_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join(NAME);
    let named = Named::start(&program);
    let pid = named.0.id().to_string();
    let path = program.to_str().expect("a text");
    let output = folder.path().join("output");
    let mut shown = 0;
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["status", "--prometheus"],
        &["scan", path],
        &["scan", path, "--json"],
        &["scan", &pid],
        &["scan", &pid, "--json"],
        &["scan", "no/such\u{9b}\u{202e}evil"],
        &["usage", "--once", "--limit", "0"],
        &["usage", "--once", "--json"],
        &["usage", "--once", "--by", "thread", "--prometheus"],
        &["top", "--once"],
        &["top", "--once", "--json"],
        &["advise", "--profile", path],
        &["status", "--prometheus", "--output", "/none\u{9b}\u{202e}evil/x"],
    ] {
        let output = fs::File::create(&output).and_then(|file| {
            let mut command = under_test::widelane();
            command.args(arguments).stdin(Stdio::null());
            command.stderr(file.try_clone()?).stdout(file).status()?;
            fs::read(&output)
        });
        let text = String::from_utf8(output.expect("it runs")).expect("a text");
        let obeyed = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!text.contains(obeyed), "{arguments:?}: {text:?}");
        shown += usize::from(text.contains("evil"));
    }
    // `usage` needs AVX-512, and `top` shows no process without. No function of that program is wide.
    assert!(shown >= 8, "{shown}");
}
