//! Programs that were not set up, and that a server or a shell starts with the variables of `widelane setup`: their
//! output and their handshakes are the same as without.

#![forbid(unsafe_code)]

mod common;

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::programs::Program;
use common::{Files, Kind, With, programs};
use rustls::{ServerConnection, StreamOwned};
use widelane_testkit::clients::{VERSIONS, server_config};
use widelane_testkit::process::Running;

/// Loads OpenSSL's shared library, and with it the provider.
const LOADS: bool = true;
/// Has OpenSSL in its own file, or another library.
const OWN: bool = false;

#[test]
fn command_line_tools() {
    let site = Site::start();
    site.same_output("curl", LOADS, CURL);
    site.same_output(
        "wget",
        OWN,
        &["--quiet", "--output-document=-", "--ca-certificate=DIR/ca.pem", URL],
    );
    // Children by fork and by exec, one after the other and side by side.
    let script = "curl -sS --cacert DIR/ca.pem URL | cat; (curl -sS --cacert DIR/ca.pem URL); \
                  echo | openssl s_client -connect localhost:PORT -CAfile DIR/ca.pem -verify_return_error 2>&1 | \
                  grep -e '^Verif' -e 'Cipher is' -e '^subject'; \
                  openssl dgst -sha256 -sign DIR/localhost.key -hex DIR/ca.pem; \
                  exec curl -sS --cacert DIR/ca.pem URL";
    site.same_output("sh", LOADS, &["-c", script]);
}

const URL: &str = "https://localhost:PORT/";
const CURL: &[&str] = &[
    "--silent",
    "--show-error",
    "--cacert",
    "DIR/ca.pem",
    "--write-out",
    "%{http_version} %{ssl_verify_result} %{num_connects}",
    URL,
    URL,
];

#[test]
fn python() {
    Site::start().script("/usr/bin/python3", LOADS, "session.py");
}

#[test]
fn node() {
    Site::start().script("node", OWN, "session.js");
}

#[test]
fn php() {
    Site::start().script("php", LOADS, "session.php");
}

#[test]
fn ruby() {
    Site::start().script("ruby", LOADS, "session.rb");
}

#[test]
fn gunicorn() {
    programs::gunicorn().subject.answers_are_the_same();
}

#[test]
fn puma() {
    programs::puma().subject.answers_are_the_same();
}

/// PHP-FPM has no TLS towards its clients; what it runs asks others.
#[test]
fn php_fpm() {
    // Its name has its version.
    let names = std::fs::read_dir("/usr/sbin")
        .expect("a folder")
        .flatten()
        .map(|file| file.path());
    let mut names = names.filter(|path| path.to_string_lossy().contains("/php-fpm"));
    let Some(program) = names.next() else {
        return println!("SKIP: php-fpm is not installed");
    };
    let site = Site::start();
    let address = common::free_address();
    let user = if common::is_root() {
        "user = nobody\ngroup = nogroup\n"
    } else {
        ""
    };
    let config = format!(
        "[global]\nerror_log = {folder}/error.log\n[www]\n{user}listen = {address}\npm = static\npm.max_children = 2\n",
        folder = site.files.path("").display()
    );
    let config = site.files.write("fpm.conf", config).display().to_string();
    same(|with| {
        let mut command = Command::new(&program);
        command.args(["--allow-to-run-as-root", "--nodaemonize", "--fpm-config", &config]);
        let files = &site.files;
        let log = File::create(files.path("stderr")).expect("a file of our own folder");
        let command = given(files, &mut command, with);
        let _fpm = Running(command.stdin(Stdio::null()).stderr(log).spawn().expect("it starts"));
        common::eventually("PHP-FPM listens", || TcpStream::connect(address).is_ok());
        let pages: Vec<_> = (0..4).map(|_| site.page(address).expect("a page")).collect();
        assert_eq!(has_provider(&files.read("stderr")), with != With::Nothing, "{with:?}");
        pages
    });
}

/// Clients of the servers that are set up.
#[test]
fn clients_of_data_stores_and_brokers() {
    let redis = "--tls --cacert DIR/ca.pem --sni rsa.test -h IP -p PORT PING";
    let mosquitto = "-h IP -p PORT --cafile DIR/ca.pem --insecure -t topic -m message -i name -d";
    let psql = "--no-psqlrc --file=DIR/query postgresql://user@rsa.test/pgbouncer?hostaddr=IP&port=PORT&\
                sslmode=verify-full&sslrootcert=DIR/ca.pem";
    let clients: [(_, _, fn() -> Program); 3] = [
        ("redis-cli", redis, programs::redis),
        ("mosquitto_pub", mosquitto, programs::mosquitto),
        ("psql", psql, programs::pgbouncer),
    ];
    for (program, arguments, server) in clients {
        if let Some(server) = (server().subject.start)(With::Nothing) {
            server.files.write("query", "SHOW VERSION;");
            let arguments: Vec<_> = arguments.split(' ').collect();
            same_output(&server.files, server.address, program, LOADS, &arguments);
        }
    }
}

/// A web server of rustls, whose files have a certificate for `localhost`.
struct Site {
    files: Files,
    address: SocketAddr,
}

impl Site {
    fn start() -> Self {
        let files = Files::new();
        let identity = files.certificate(Kind::Rsa, "localhost");
        let config = Arc::new(server_config(&identity, &VERSIONS));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let tls = ServerConnection::new(config.clone()).expect("a configuration");
                // A client that fails says so itself.
                std::thread::spawn(|| answer(StreamOwned::new(tls, client)));
            }
        });
        Self { files, address }
    }

    /// A program prints the same with and without.
    fn same_output(&self, program: &str, loads: bool, arguments: &[&str]) {
        same_output(&self.files, self.address, program, loads, arguments);
    }

    /// So does a script, for which it is an interpreter.
    fn script(&self, program: &str, loads: bool, script: &str) {
        let script = format!("{}/tests/inheritors/{script}", env!("CARGO_MANIFEST_DIR"));
        self.same_output(program, loads, &[&script, "DIR", "PORT"]);
    }

    /// What the script of PHP prints as a page, without the lines of its head.
    fn page(&self, fpm: SocketAddr) -> io::Result<String> {
        let script = format!("{}/tests/inheritors/session.php", env!("CARGO_MANIFEST_DIR"));
        let folder = self.files.path("").display().to_string();
        let port = self.address.port().to_string();
        let parameters = [
            ("SCRIPT_FILENAME", &script[..]),
            ("REQUEST_METHOD", "GET"),
            ("FOLDER", folder.trim_end_matches('/')),
            ("PORT", &port),
        ];
        let mut stream = TcpStream::connect(fpm)?;
        stream.write_all(&fastcgi::request(&parameters))?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let text = fastcgi::output(&answer);
        let (_, body) = text.split_once("\r\n\r\n").unwrap_or(("", &text));
        Ok(body.to_owned())
    }
}

fn answer(mut tls: StreamOwned<ServerConnection, TcpStream>) -> io::Result<()> {
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tls.read_exact(&mut byte)?;
        heard.extend(byte);
    }
    tls.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nhello\n")?;
    tls.conn.send_close_notify();
    tls.flush()
}

/// Runs `one` without our libraries and with them, in each way; the results are the same.
fn same<T: PartialEq + Debug>(one: impl Fn(With) -> T) {
    let plain = one(With::Nothing);
    println!("{plain:#?}");
    for with in [With::Provider, With::Shim, With::Imports] {
        assert_eq!(one(with), plain, "{with:?}");
    }
}

/// A program prints the same and ends in the same way. The provider is in it, or in a child of it, if `loads`.
fn same_output(files: &Files, server: SocketAddr, program: &str, loads: bool, arguments: &[&str]) {
    let Some(file) = common::installed(program) else { return };
    let folder = files.path("").display().to_string();
    let argument = |argument: &&str| {
        argument
            .replace("DIR", folder.trim_end_matches('/'))
            .replace("PORT", &server.port().to_string())
            .replace("IP", &server.ip().to_string())
            .replace("URL", &format!("https://localhost:{}/", server.port()))
    };
    let arguments: Vec<_> = arguments.iter().map(argument).collect();
    same(|with| {
        let mut command = Command::new(&file);
        command.args(&arguments).stdin(Stdio::null());
        let output = given(files, &mut command, with).output().expect("it starts");
        let [said, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(
            output.status.success(),
            "{program} {with:?}: {}\n{said}{errors}",
            output.status
        );
        assert_eq!(
            has_provider(&errors),
            loads && with != With::Nothing,
            "{program}, {with:?}: {errors}"
        );
        let own = errors.lines().filter(|line| !line.starts_with("widelane: "));
        (said, Vec::from_iter(own.map(str::to_owned)))
    });
}

/// A command with the variables of a set-up, or without them.
fn given<'a>(files: &Files, command: &'a mut Command, with: With) -> &'a mut Command {
    match with {
        With::Nothing => command.env_remove("OPENSSL_CONF").env_remove("LD_PRELOAD"),
        _ => files.environment(command, with),
    }
}

/// Whether the provider has said in these lines what it does.
fn has_provider(lines: &str) -> bool {
    lines.contains("suspends handshakes: ")
}

/// As much of FastCGI as a request without a body takes.
mod fastcgi {
    const BEGIN: u8 = 1;
    const PARAMETERS: u8 = 4;
    const INPUT: u8 = 5;
    const OUTPUT: u8 = 6;
    const RESPONDER: u8 = 1;
    const HEAD: usize = 8;

    /// A request with these parameters, each shorter than 128 bytes or not.
    pub(super) fn request(parameters: &[(&str, &str)]) -> Vec<u8> {
        let mut pairs = Vec::new();
        for (name, value) in parameters {
            for text in [name, value] {
                let length = u32::try_from(text.len()).expect("a short text");
                pairs.extend((length | 1 << 31).to_be_bytes());
            }
            pairs.extend([name.as_bytes(), value.as_bytes()].concat());
        }
        let begin = [0, RESPONDER, 0, 0, 0, 0, 0, 0];
        let records = [
            (BEGIN, &begin[..]),
            (PARAMETERS, &pairs),
            (PARAMETERS, &[]),
            (INPUT, &[]),
        ];
        records
            .iter()
            .flat_map(|(kind, content)| record(*kind, content))
            .collect()
    }

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let [high, low] = u16::try_from(content.len()).expect("a short record").to_be_bytes();
        [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
    }

    /// What the records of an answer have printed.
    pub(super) fn output(mut answer: &[u8]) -> String {
        let mut output = Vec::new();
        while let [_, kind, _, _, high, low, padding, ..] = *answer {
            let length = usize::from(u16::from_be_bytes([high, low]));
            if kind == OUTPUT {
                output.extend(&answer[HEAD..][..length]);
            }
            answer = &answer[HEAD + length + usize::from(padding)..];
        }
        String::from_utf8_lossy(&output).into_owned()
    }
}
