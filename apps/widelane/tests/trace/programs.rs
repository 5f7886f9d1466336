//! One handshake of each kind through the programs and libraries that servers use. Where one is missing,
//! its test SKIPs.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    Client, Running, Tracer, alone, compile, eventually, free_port, installed, kernels, listening, make_certificate,
    make_certificate_with, openssl_server, openssl_server_at, send,
};

#[test]
fn haproxy() {
    is_told("openssl", "haproxy", |folder, port| {
        installed(&["/usr/sbin/haproxy"])?;
        let both = ["certificate", "key"].map(|name| fs::read_to_string(folder.join(name)).unwrap());
        let root = folder.display();
        fs::write(folder.join("both"), both.concat()).unwrap();
        let configuration = format!(
            "defaults\n mode http\n timeout client 10s\n timeout connect 10s\n timeout server 10s\n\
             frontend f\n bind 127.0.0.1:{port} ssl crt {root}/both\n http-request return status 200\n"
        );
        let file = folder.join("haproxy.cfg");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new("/usr/sbin/haproxy");
        Ok(listening(command.arg("-db").arg("-f").arg(file), port))
    });
}

#[test]
fn apache() {
    is_told("openssl", "apache2", |folder, port| {
        const MODULES: &str = "/usr/lib/apache2/modules";
        installed(&["/usr/sbin/apache2", &format!("{MODULES}/mod_ssl.so")])?;
        let root = folder.display();
        let configuration = format!(
            "ServerRoot {root}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {root}/pid\n\
             ErrorLog {root}/error.log\nDefaultRuntimeDir {root}\n\
             LoadModule mpm_event_module {MODULES}/mod_mpm_event.so\n\
             LoadModule authz_core_module {MODULES}/mod_authz_core.so\n\
             LoadModule ssl_module {MODULES}/mod_ssl.so\n\
             SSLEngine on\nSSLCertificateFile {root}/certificate\nSSLCertificateKeyFile {root}/key\n"
        );
        let file = folder.join("apache.conf");
        fs::write(&file, configuration).unwrap();
        // -X: all in one process.
        let mut command = Command::new("/usr/sbin/apache2");
        Ok(listening(command.arg("-X").arg("-f").arg(file), port))
    });
}

#[test]
fn gnutls() {
    is_told("gnutls", "gnutls-serv", |folder, port| {
        installed(&["/usr/bin/gnutls-serv"])?;
        let mut command = Command::new("/usr/bin/gnutls-serv");
        command.args(["--echo", "--port", &port.to_string()]);
        command.arg("--x509certfile").arg(folder.join("certificate"));
        command.arg("--x509keyfile").arg(folder.join("key"));
        Ok(listening(&mut command, port))
    });
}

/// OpenSSL 1.1.1, inside a program: its functions call each other in other ways than those of 3.0.
#[test]
fn openssl_1_1_1() {
    let Some(program) = openssl_1() else {
        return;
    };
    let comm = program.file_name().unwrap().to_str().unwrap().to_owned();
    is_told("openssl", &comm, |folder, port| {
        installed(&["/usr/bin/openssl"])?;
        Ok(openssl_server_at(&program, folder, port))
    });
}

/// The same program as a client, which makes one handshake after the other.
#[test]
fn openssl_1_1_1_as_a_client() {
    let Some(program) = openssl_1() else {
        return;
    };
    let _alone = alone();
    let Some(folder) = certified(&["/usr/bin/openssl"], &[]) else {
        return;
    };
    let (_server, port) = openssl_server(Path::new("/usr/bin/openssl"), folder.path());
    let mut command = Command::new(&program);
    command.args(["s_time", "-new", "-time", "120", "-connect"]);
    let client = Running::start(command.arg(format!("127.0.0.1:{port}")));
    let mut tracer = match Tracer::start(&["handshakes", "--json", "--pid", &client.pid()]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    // The first may have begun before.
    eventually("a whole handshake is printed", || {
        tracer.has_told(|line| !line["group"].is_null())
    });
    drop(client);
    let lines = tracer.objects();
    let line = lines.iter().find(|line| !line["group"].is_null()).unwrap();
    for (key, value) in [
        ("library", "openssl"),
        ("side", "client"),
        ("result", "ok"),
        ("version", "TLSv1.3"),
        ("group", "x25519"),
    ] {
        assert_eq!(line[key], value, "{line}");
    }
    assert_eq!(line["resumed"], false, "{line}");
    let functions = line["functions"].as_array().unwrap();
    let has = |name: &str| functions.iter().any(|one| one["name"] == name);
    assert!(
        has("x25519 derive") && has("rsa-2048 verify") && has("chain verify"),
        "{line}"
    );
}

/// OpenSSL 1.1.1 as lab/openssl builds it. `None`, after a line that says so, if it has not.
fn openssl_1() -> Option<std::path::PathBuf> {
    let program = std::env::var_os("WIDELANE_OPENSSL_1").map(Into::into);
    if program.is_none() {
        println!("SKIP: WIDELANE_OPENSSL_1 names no program of OpenSSL 1.1.1");
    }
    program
}

/// OpenSSL writes a long flight of TLS 1.2 in pieces. The key exchange stands behind the certificate.
#[test]
fn a_group_behind_a_long_certificate() {
    let _alone = alone();
    let names: Vec<_> = (0..300)
        .map(|number| format!("DNS:name-{number}.example.org"))
        .collect();
    let names = format!("subjectAltName={}", names.join(","));
    let Some(folder) = certified(&["/usr/bin/openssl"], &["-addext", &names]) else {
        return;
    };
    let (server, port) = openssl_server(Path::new("/usr/bin/openssl"), folder.path());
    let tracer = match Tracer::start(&["handshakes", "--json", "--pid", &server.pid()]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    // The second one is of another connection with the same descriptor.
    for _ in 0..2 {
        Client::to(port).run(&["-tls1_2", "-groups", "P-256"]);
    }
    let (lines, complaints) = tracer.finish();
    assert_eq!(lines.len(), 2, "{lines:#?} {complaints}");
    for line in lines {
        assert_eq!(
            (&line["version"], &line["group"], &line["resumed"]),
            (&"TLSv1.2".into(), &"secp256r1".into(), &false.into()),
            "{line}"
        );
    }
}

/// NSS in a program that asks for its handshakes.
#[test]
fn nss() {
    is_told("nss", "program", |folder, port| {
        let mut command = nss_program(folder)?;
        command.arg("server").args(files(folder));
        Ok(listening(command.arg(port.to_string()), port))
    });
}

#[test]
fn an_nss_client_whose_times_fit_its_own_clock() {
    times_fit("nss", "client", nss_program);
}

/// The program, with a database of the certificate and its key.
fn nss_program(folder: &Path) -> Result<Command, String> {
    const HEADERS: [&str; 2] = ["/usr/include/nss/ssl.h", "/usr/include/nspr/nspr.h"];
    installed(&["/usr/bin/certutil", "/usr/bin/pk12util"])?;
    installed(&HEADERS)?;
    let include = ["-I/usr/include/nss", "-I/usr/include/nspr"];
    let libraries = ["-lssl3", "-lnss3", "-lnspr4"];
    let program = compile(NSS_PROGRAM, folder, &[&include[..], &libraries].concat())?;
    let database = folder.join("database");
    fs::create_dir(&database).unwrap();
    let [certificate, key] = files(folder);
    let (both, database) = (folder.join("both"), format!("sql:{}", database.display()));
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let mut pack = Command::new("/usr/bin/openssl");
    pack.args(["pkcs12", "-export", "-name", "server", "-passout", "pass:"]);
    pack.arg("-in").arg(certificate).arg("-inkey").arg(key);
    run(pack.arg("-out").arg(&both));
    let mut make = Command::new("/usr/bin/certutil");
    run(make.args(["-N", "--empty-password", "-d", &database]));
    let mut unpack = Command::new("/usr/bin/pk12util");
    unpack.args(["-d", &database, "-W", "", "-K", "", "-i"]);
    run(unpack.arg(&both));
    let mut command = Command::new(program);
    command.env("DATABASE", database);
    Ok(command)
}

/// The program reads and writes by itself, and passes the bytes on in memory.
#[test]
fn python_s_asyncio() {
    is_told("openssl", "python3", |folder, port| {
        const SERVER: &str = "import asyncio, ssl, sys\n\
            async def serve(reader, writer): await reader.read(); writer.close()\n\
            async def main():\n \
             context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n \
             context.load_cert_chain(sys.argv[1], sys.argv[2])\n \
             server = await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[3]), ssl=context)\n \
             await server.serve_forever()\n\
            asyncio.run(main())\n";
        let mut command = Command::new(python()?);
        command.args(["-c", SERVER]).args(files(folder)).arg(port.to_string());
        Ok(listening(&mut command, port))
    });
}

/// Each handshake is the first thing that a new process does.
#[test]
fn a_server_that_forks_for_each_connection() {
    const SERVER: &str = "import socketserver, ssl, sys\n\
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
        context.load_cert_chain(sys.argv[1], sys.argv[2])\n\
        class Handler(socketserver.BaseRequestHandler):\n \
         def handle(self):\n  \
          secured = context.wrap_socket(self.request, server_side=True)\n  \
          while secured.recv(64): pass\n  \
          secured.close()\n\
        socketserver.ForkingTCPServer(('127.0.0.1', int(sys.argv[3])), Handler).serve_forever()\n";
    let _alone = alone();
    let python = match python() {
        Ok(python) => python,
        Err(why) => return println!("SKIP: {why}"),
    };
    let Some(folder) = certified(&["/usr/bin/openssl"], &[]) else {
        return;
    };
    let port = free_port();
    let mut command = Command::new(python);
    command.args(["-c", SERVER]).args(files(folder.path()));
    let _server = listening(command.arg(port.to_string()), port);
    let mut tracer = match Tracer::start(&["handshakes", "--json", "--comm", "python3"]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    let client = Client::to(port);
    // What the server does must be seen first, and its libraries be looked through.
    let (mut number, mut told) = (0, 0);
    while told < 3 {
        number += 1;
        assert!(number < 400, "no three handshakes in sequence are printed");
        let name = format!("first-{number}.example");
        client.run(&["-servername", &name]);
        thread::sleep(Duration::from_millis(100));
        let is_told = tracer.has_told(|line| line["server_name"] == name);
        told = if is_told { told + 1 } else { 0 };
    }
    for _ in 0..20 {
        client.run(&["-servername", "later.example", "-groups", "X25519"]);
    }
    let (lines, complaints) = tracer.finish();
    let later = lines.iter().filter(|line| line["server_name"] == "later.example");
    let later: Vec<_> = later.collect();
    assert_eq!(later.len(), 20, "{later:#?} {complaints}");
    let mut pids: Vec<_> = later.iter().map(|line| line["pid"].as_u64()).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 20);
    for line in later {
        assert_eq!(
            (&line["result"], &line["group"], &line["server_name"]),
            (&"ok".into(), &"x25519".into(), &"later.example".into()),
            "{line}"
        );
        let functions = line["functions"].as_array().unwrap();
        let signs = |one: &&Value| one["name"] == "rsa-2048 sign" && one["count"] == 1;
        assert_eq!(functions.iter().filter(signs).count(), 1, "{line}");
    }
}

fn python() -> Result<&'static str, &'static str> {
    let python = ["/usr/bin/python3", "/usr/local/bin/python3"];
    let found = python.into_iter().find(|path| Path::new(path).exists());
    found.ok_or("python3 is not installed")
}

#[test]
fn node() {
    is_told("openssl", "node", |folder, port| {
        const SERVER: &str = "const [certificate, key, port] = process.argv.slice(1);\n\
            const read = require('fs').readFileSync;\n\
            const server = require('tls').createServer(\n\
              { cert: read(certificate), key: read(key) }, (socket) => socket.end());\n\
            server.on('tlsClientError', () => {});\n\
            server.listen(Number(port), '127.0.0.1');\n";
        installed(&["/usr/bin/node"])?;
        let mut command = Command::new("/usr/bin/node");
        command.args(["-e", SERVER]).args(files(folder)).arg(port.to_string());
        Ok(listening(&mut command, port))
    });
}

/// A program that has OpenSSL inside, and measures its handshakes itself.
#[test]
fn a_static_program_whose_times_fit_its_own_clock() {
    times_fit("openssl", "server", |folder| {
        let libraries = ["-static", "-lssl", "-lcrypto", "-ldl", "-lpthread"];
        let program = compile(STATIC_SERVER, folder, &libraries)?;
        Ok(Command::new(program))
    });
}

#[test]
fn a_go_server_whose_times_fit_its_own_clock() {
    times_fit("go", "server", go_program);
}

#[test]
fn a_go_client_whose_times_fit_its_own_clock() {
    times_fit("go", "client", go_program);
}

fn go_program(folder: &Path) -> Result<Command, String> {
    let (source, program) = (folder.join("handshakes.go"), folder.join("handshakes"));
    fs::write(&source, GO_PROGRAM).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o"]).args([&program, &source]);
    // All tests share what Go has compiled of its own library.
    go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
    let built = go.current_dir(folder).output();
    let built = built.map_err(|error| format!("go: {error}"))?;
    assert!(built.status.success(), "{built:?}");
    Ok(Command::new(program))
}

#[test]
fn gnutls_as_a_client() {
    let _alone = alone();
    let Some(folder) = certified(&["/usr/bin/gnutls-cli", "/usr/bin/openssl"], &[]) else {
        return;
    };
    let (_server, port) = openssl_server(Path::new("/usr/bin/openssl"), folder.path());
    // With --starttls it waits for SIGALRM before its handshake, and for the end of its input after it.
    let client = Command::new("/usr/bin/gnutls-cli")
        .args(["--starttls", "--insecure", "--sni-hostname", "a.example"])
        .args(["--priority", "NORMAL:-GROUP-ALL:+GROUP-X25519"])
        .args(["--port", &port.to_string(), "127.0.0.1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let client = Running(client.unwrap());
    eventually("the client waits for a signal", || catches_alarms(&client));
    let mut tracer = match Tracer::start(&["handshakes", "--json", "--pid", &client.pid()]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    eventually("the client's handshake is printed", || {
        send(Signal::ALARM, client.id());
        tracer.has_told(|_| true)
    });
    let lines = tracer.objects();
    let [line] = &lines[..] else {
        panic!("{lines:#?}");
    };
    for (key, value) in [
        ("comm", "gnutls-cli"),
        ("library", "gnutls"),
        ("side", "client"),
        ("result", "ok"),
        ("version", "TLSv1.3"),
        ("group", "x25519"),
        ("server_name", "a.example"),
    ] {
        assert_eq!(line[key], value, "{line}");
    }
    let functions = line["functions"].as_array().unwrap();
    let has = |name: &str| functions.iter().any(|one| one["name"] == name);
    assert!(has("x25519 derive") && has("rsa-pss verify"), "{line}");
}

/// Returns whether a process has a handler for SIGALRM: another would end by it.
fn catches_alarms(process: &Running) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught & 1 << (Signal::ALARM.as_raw() - 1) != 0
}

/// AWS-LC inside of a Rust program, where its functions have a prefix. `widelane load` uses it if it does
/// not batch.
#[test]
fn aws_lc_with_rustls() {
    let _alone = alone();
    let Some(folder) = certified(&["/usr/bin/openssl"], &[]) else {
        return;
    };
    let (_server, port) = openssl_server(Path::new("/usr/bin/openssl"), folder.path());
    let [certificate, key] = files(folder.path());
    let mut command = crate::under_test::widelane();
    command.args(["load", &format!("127.0.0.1:{port}"), "--insecure"]);
    command.args(["--batching", "off", "--rate", "20", "--duration", "120"]);
    command.arg("--certificate").arg(certificate);
    let client = Running::start(command.arg("--key").arg(key));
    let mut tracer = match Tracer::start(&["snoop", "--json", "--pid", &client.pid()]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    for function in ["*_X25519", "*_EVP_PKEY_sign"] {
        eventually(function, || tracer.has_told(|line| line["function"] == function));
    }
    let lines = tracer.objects();
    for line in &lines {
        assert_eq!(line["library"], "boringssl", "{line}");
    }
    let sign = lines.iter().find(|line| line["function"] == "*_EVP_PKEY_sign");
    let sign = sign.unwrap();
    // A signature of RSA-2048.
    assert_eq!((&sign["size"], &sign["result"]), (&256.into(), &1.into()));
}

/// A folder with a certificate and its key, made with further arguments of `openssl req`. `None`, after a line that
/// says so, if something that is needed is not installed.
fn certified(needed: &[&str], more: &[&str]) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let made = installed(needed).and_then(|()| make_certificate_with(folder.path(), more));
    match made {
        Ok(()) => Some(folder),
        Err(why) => {
            println!("SKIP: {why}");
            None
        }
    }
}

/// Checks that the tracer shows what a server and `openssl s_client` agree on: in TLS 1.3, in TLS 1.2, and in
/// a session that is resumed.
fn is_told(library: &str, comm: &str, start: impl FnOnce(&Path, u16) -> Result<Running, String>) {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let started = kernels()
        .and_then(|()| make_certificate(folder.path()))
        .and_then(|()| start(folder.path(), port));
    let traced = started.and_then(|server| {
        let tracer = Tracer::start(&["handshakes", "--json", "--pid", &server.pid()])?;
        Ok((server, tracer))
    });
    let (_server, tracer) = match traced {
        Ok(both) => both,
        Err(why) => return println!("SKIP: {why}"),
    };
    let session = folder.path().join("session");
    let session = session.to_str().unwrap();
    let client = Client::to(port);
    client.run(&["-tls1_3", "-groups", "X25519"]);
    client.run(&["-tls1_2", "-groups", "P-256", "-sess_out", session]);
    client.run(&["-tls1_2", "-sess_in", session]);
    let (lines, complaints) = tracer.finish();
    let [first, second, resumed] = &lines[..] else {
        panic!("{lines:#?} {complaints}");
    };
    for line in &lines {
        assert_eq!(
            (&line["library"], &line["comm"]),
            (&library.into(), &comm.into()),
            "{line}"
        );
        assert_eq!(
            (&line["side"], &line["result"]),
            (&"server".into(), &"ok".into()),
            "{line}"
        );
        let calls = line["cpu_us"].as_f64().unwrap_or(0.0) + line["waiting_us"].as_f64().unwrap();
        assert!(calls <= line["wall_us"].as_f64().unwrap() * 1.001, "{line}");
    }
    assert_eq!(
        (&first["version"], &first["group"]),
        (&"TLSv1.3".into(), &"x25519".into()),
        "{first}"
    );
    assert_eq!(
        (&second["version"], &second["group"]),
        (&"TLSv1.2".into(), &"secp256r1".into()),
        "{second}"
    );
    for (line, is_resumed) in [(first, false), (second, false), (resumed, true)] {
        assert_eq!(line["resumed"], is_resumed, "{line}");
        assert!(!line["cipher"].is_null(), "{line}");
        let functions = line["functions"].as_array().unwrap();
        let mut names = functions.iter().map(|one| one["name"].as_str().unwrap());
        // NSS does not tell the algorithm.
        assert_eq!(
            names.any(|name| name == "sign" || name.ends_with(" sign")),
            !is_resumed,
            "{line}"
        );
    }
}

/// Checks that the time of a handshake is what a program itself has measured. It gets its side, certificate, key
/// and port, and says "ready". A client makes a handshake for each line that it reads. For each handshake it
/// prints the nanoseconds.
fn times_fit(library: &str, side: &str, program: impl FnOnce(&Path) -> Result<Command, String>) {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let command = kernels()
        .and_then(|()| make_certificate(folder.path()))
        .and_then(|()| program(folder.path()));
    let mut command = match command {
        Ok(command) => command,
        Err(why) => return println!("SKIP: {why}"),
    };
    let (_peer, port) = match side {
        "client" => {
            let (peer, port) = openssl_server(Path::new("/usr/bin/openssl"), folder.path());
            (Some(peer), port)
        }
        _ => (None, free_port()),
    };
    let command = command.arg(side).args(files(folder.path()));
    let command = command.arg(port.to_string());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = child.stdin.take().unwrap();
    let running = Running(child);
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    let mut tracer = match Tracer::start(&["handshakes", "--json", "--pid", &running.pid()]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    // Between the two clocks the program may be interrupted.
    let mut all = Vec::new();
    eventually("a time fits", || {
        match side {
            "client" => ask.write_all(b"\n").unwrap(),
            _ => Client::to(port).run(&["-tls1_3", "-groups", "X25519"]),
        }
        let own: f64 = said.next().unwrap().unwrap().parse().unwrap();
        all.push(own / 1000.0);
        let told = |line: &Value| {
            let wall = line["wall_us"].as_f64().unwrap();
            all.iter().any(|own| (wall / own - 1.0).abs() < 0.05)
        };
        tracer.has_told(told)
    });
    let lines = tracer.objects();
    for line in &lines {
        for (key, value) in [
            ("library", library),
            ("side", side),
            ("version", "TLSv1.3"),
            ("group", "x25519"),
            ("result", "ok"),
        ] {
            assert_eq!(line[key], value, "{line}");
        }
        assert_eq!(line["resumed"], false, "{line}");
    }
    assert_eq!(lines.len(), all.len(), "{lines:#?} {all:?}");
}

fn files(folder: &Path) -> [std::path::PathBuf; 2] {
    ["certificate", "key"].map(|name| folder.join(name))
}

const STATIC_SERVER: &str = r#"
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}
int main(int count, char **arguments)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate_file(context, arguments[2], SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context, arguments[3], SSL_FILETYPE_PEM);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(arguments[4])) };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (void *)&at, sizeof(at)) || listen(listener, 16))
        return 1;
    puts("ready");
    fflush(stdout);
    for (;;) {
        SSL *ssl = SSL_new(context);
        int peer = accept(listener, 0, 0);
        SSL_set_fd(ssl, peer);
        long long start = now();
        SSL_accept(ssl);
        printf("%lld\n", now() - start);
        fflush(stdout);
        SSL_shutdown(ssl);
        SSL_free(ssl);
        close(peer);
    }
}
"#;

const NSS_PROGRAM: &str = r#"
#include <nspr.h>
#include <nss.h>
#include <pk11pub.h>
#include <ssl.h>
#include <sslproto.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}
static SECStatus trust(void *context, PRFileDesc *fd, PRBool check, PRBool server)
{
    return SECSuccess;
}
/* A handshake on a connection, and what the peer sends after it. */
static void handshake(PRFileDesc *model, PRFileDesc *peer, PRBool server)
{
    char data[64];
    PRFileDesc *tls = SSL_ImportFD(model, peer);
    SSL_ResetHandshake(tls, server);
    if (!server) {
        SSL_AuthCertificateHook(tls, trust, 0);
        SSL_SetURL(tls, "localhost");
    }
    long long start = now();
    SSL_ForceHandshake(tls);
    printf("%lld\n", now() - start);
    fflush(stdout);
    if (server)
        while (PR_Read(tls, data, sizeof(data)) > 0)
            ;
    PR_Close(tls);
}
int main(int count, char **arguments)
{
    PRNetAddr at;
    PR_InitializeNetAddr(PR_IpAddrLoopback, atoi(arguments[4]), &at);
    if (NSS_Init(getenv("DATABASE")) || NSS_SetDomesticPolicy())
        return 1;
    PRFileDesc *model = SSL_ImportFD(0, PR_NewTCPSocket());
    SSLVersionRange versions = { SSL_LIBRARY_VERSION_TLS_1_2, SSL_LIBRARY_VERSION_TLS_1_3 };
    SSL_VersionRangeSet(model, &versions);
    if (arguments[1][0] == 'c') {
        SSL_OptionSet(model, SSL_NO_CACHE, PR_TRUE);
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF) {
            PRFileDesc *peer = PR_NewTCPSocket();
            if (PR_Connect(peer, &at, PR_INTERVAL_NO_TIMEOUT))
                return 1;
            handshake(model, peer, PR_FALSE);
        }
        return 0;
    }
    CERTCertificate *certificate = PK11_FindCertFromNickname("server", 0);
    SECKEYPrivateKey *key = PK11_FindKeyByAnyCert(certificate, 0);
    SSL_ConfigServerSessionIDCache(0, 0, 0, 0);
    PRFileDesc *listener = PR_NewTCPSocket();
    PRSocketOptionData reuse = { .option = PR_SockOpt_Reuseaddr, .value.reuse_addr = PR_TRUE };
    PR_SetSocketOption(listener, &reuse);
    if (SSL_ConfigServerCert(model, certificate, key, 0, 0) || PR_Bind(listener, &at)
        || PR_Listen(listener, 16))
        return 1;
    puts("ready");
    fflush(stdout);
    for (;;)
        handshake(model, PR_Accept(listener, 0, PR_INTERVAL_NO_TIMEOUT), PR_TRUE);
}
"#;

const GO_PROGRAM: &str = r#"
package main

import (
    "bufio"
    "crypto/tls"
    "fmt"
    "net"
    "os"
    "time"
)

func need[T any](value T, err error) T {
    if err != nil {
        panic(err)
    }
    return value
}

func main() {
    address := "127.0.0.1:" + os.Args[4]
    configuration := &tls.Config{
        CurvePreferences: []tls.CurveID{tls.X25519},
        InsecureSkipVerify: true,
    }
    var next func() *tls.Conn
    if os.Args[1] == "client" {
        lines := bufio.NewReader(os.Stdin)
        next = func() *tls.Conn {
            need(lines.ReadString('\n'))
            return tls.Client(need(net.Dial("tcp", address)), configuration)
        }
    } else {
        certificate := need(tls.LoadX509KeyPair(os.Args[2], os.Args[3]))
        configuration.Certificates = []tls.Certificate{certificate}
        listener := need(net.Listen("tcp", address))
        next = func() *tls.Conn {
            return tls.Server(need(listener.Accept()), configuration)
        }
    }
    fmt.Println("ready")
    for {
        connection := next()
        start := time.Now()
        connection.Handshake()
        fmt.Println(time.Since(start).Nanoseconds())
        connection.Close()
    }
}
"#;
