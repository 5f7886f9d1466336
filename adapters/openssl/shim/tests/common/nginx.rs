//! nginx with one worker, the provider and the preloaded library.

use std::path::{Path, PathBuf};

use widelane_testkit::servers;

use super::{Files, Kind, Server, With};

/// Files with a certificate for `a.test`. `None` if nginx is not installed.
pub fn nginx_files() -> Option<Files> {
    super::installed("nginx")?;
    let files = Files::new();
    files.certificate(Kind::Rsa, "a.test");
    Some(files)
}

/// nginx with one worker and these lines in its `http` block.
pub fn nginx(files: Files, http: &str) -> Server {
    nginx_with(files, "", http)
}

/// Starts nginx with these lines before everything else.
pub fn nginx_with(files: Files, main: &str, http: &str) -> Server {
    nginx_of(files, main, http, With::Shim)
}

/// As [`nginx`], but nothing is preloaded: the provider replaces nginx's imports.
pub fn nginx_by_imports(files: Files, http: &str) -> Server {
    nginx_of(files, "", http, With::Imports)
}

/// Starts nginx with or without our libraries.
pub fn nginx_of(files: Files, main: &str, http: &str, with: With) -> Server {
    start(files, main, http, with, |program, arguments| {
        (program.to_owned(), arguments.to_vec())
    })
}

/// Starts nginx by a shell that ends with its input: nginx starts another binary only if
/// the process that has started it is gone.
pub fn nginx_of_shell(files: Files, http: &str) -> Server {
    start(files, "", http, With::Shim, |program, arguments| {
        let script = ["-c", r#""$@" & read -r line"#, "sh"].map(str::to_owned);
        let program = program.to_str().expect("a path of text").to_owned();
        let arguments = [&script[..], &[program], arguments].concat();
        ("/bin/sh".into(), arguments)
    })
}

/// As [`nginx`], but started by a shell, after these commands.
pub fn nginx_after(files: Files, commands: &str, http: &str) -> Server {
    start(files, "", http, With::Shim, |program, arguments| {
        let script = format!("{commands}; exec \"$@\"");
        let program = program.to_str().expect("a path of text").to_owned();
        let shell = ["-c".to_owned(), script, "sh".to_owned(), program];
        ("/bin/sh".into(), [&shell[..], arguments].concat())
    })
}

fn start(
    files: Files,
    main: &str,
    http: &str,
    with: With,
    command: impl FnOnce(&Path, &[String]) -> (PathBuf, Vec<String>),
) -> Server {
    let address = super::free_address();
    let directory = files.path("");
    let http = http
        .replace("LISTEN", &format!("listen {address}"))
        .replace("ADDRESS", &address.to_string())
        .replace("DIR/", &directory.display().to_string());
    let main = format!("{main} user root root; env LD_PRELOAD; env OPENSSL_CONF; env WIDELANE_CPU_DISABLE;");
    let http = format!("ssl_protocols TLSv1.2 TLSv1.3; {http}");
    let config = servers::nginx(&directory, &main, &http);
    let program = super::installed("nginx").expect("the test has looked");
    let text = |path: PathBuf| path.to_str().expect("a path of text").to_owned();
    let arguments = ["-c".into(), text(config), "-e".into(), text(files.path("error.log"))];
    let (program, arguments) = command(&program, &arguments);
    Server::start(files, address, &program, &arguments, with)
}

/// A server block for each kind of key, under the name of the kind.
pub const KINDS: [(Kind, &str); 4] = [
    (Kind::Rsa, "rsa.test"),
    (Kind::Ecdsa, "ecdsa.test"),
    (Kind::EcdsaP384, "p384.test"),
    (Kind::Ed25519, "ed25519.test"),
];

pub fn servers_of_each_kind(files: &Files) -> String {
    let block = |(kind, name): &(Kind, &str)| {
        files.certificate(*kind, name);
        format!(
            "server {{
                 LISTEN ssl; server_name {name};
                 ssl_certificate DIR/{name}.pem; ssl_certificate_key DIR/{name}.key;
                 location / {{ return 200 {name}; }}
             }}"
        )
    };
    KINDS.iter().map(block).collect()
}

/// A server block's name and key.
pub const CERTIFICATE: &str = "server_name a.test;
    ssl_certificate DIR/a.test.pem; ssl_certificate_key DIR/a.test.key;";

/// Levels of nginx's log that no test here may reach.
pub const BAD: &[&str] = &["[emerg]", "[alert]", "[crit]"];
