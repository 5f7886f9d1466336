//! Handshakes that a server does in `SSL_read`, without asking for them: lighttpd's.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Client, Nginx, Running, Tracer, alone, eventually, free_port, installed, listening, load, make_certificate,
    probed_bytes,
};

#[test]
fn handshakes_inside_reads_are_told() {
    let _alone = alone();
    let (server, tracer) = match Lighttpd::traced() {
        Ok(both) => both,
        Err(why) => return println!("SKIP: {why}"),
    };
    Client::to(server.port).run(&["-groups", "X25519"]);
    Client::to(server.port).run(&["-tls1_2", "-curves", "P-256"]);
    let session = server.folder.path().join("session");
    let session = session.to_str().unwrap();
    Client::to(server.port).run(&["-tls1_2", "-sess_out", session]);
    Client::to(server.port).run(&["-tls1_2", "-sess_in", session]);
    Client::to(server.port).fail(&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"]);
    let (lines, complaints) = tracer.finish();
    let [first, second, third, resumed, refused] = &lines[..] else {
        panic!("{lines:#?} {complaints}");
    };
    let full = (&third["resumed"], &resumed["resumed"]);
    assert_eq!(
        full,
        (&Value::from(false), &Value::from(true)),
        "{lines:#?} {complaints}"
    );
    for line in &lines {
        assert_eq!(line["comm"], "lighttpd", "{line}");
        assert_eq!(line["library"], "openssl", "{line}");
    }
    for line in [first, second, third, resumed] {
        assert_eq!(line["result"], "ok", "{line}");
        assert_eq!(line["side"], "server", "{line}");
        assert!(line["calls"].as_u64() > line["again"].as_u64(), "{line}");
    }
    assert_eq!(first["version"], "TLSv1.3", "{first}");
    assert_eq!(first["group"], "x25519", "{first}");
    let functions = first["functions"].as_array().unwrap();
    let signs = functions.iter().filter(|one| one["name"] == "rsa-2048 sign");
    assert_eq!(signs.count(), 1, "{first}");
    assert_eq!(second["version"], "TLSv1.2", "{second}");
    assert_eq!(second["group"], "secp256r1", "{second}");
    assert_eq!(refused["result"], "alert", "{refused}");
    assert_eq!(refused["alert"], "handshake_failure", "{refused}");
}

/// A read after the handshake counts as none, whether the client sends something or not.
#[test]
fn as_many_handshakes_are_told_as_were_made_inside_reads() {
    let _alone = alone();
    let (server, tracer) = match Lighttpd::traced() {
        Ok(both) => both,
        Err(why) => return println!("SKIP: {why}"),
    };
    load(server.port, 300);
    for _ in 0..3 {
        let url = format!("https://127.0.0.1:{}/certificate", server.port);
        let output = Command::new("curl").args(["-sk", &url]).output().unwrap();
        assert!(output.stdout.starts_with(b"-----BEGIN"), "{output:?}");
    }
    let lines = tracer.objects();
    let done = lines.iter().filter(|line| line["result"] == "ok").count();
    assert_eq!((lines.len(), done), (303, 303));
}

#[test]
fn a_server_with_handshakes_inside_reads_is_advised() {
    let _alone = alone();
    let (server, tracer) = match Lighttpd::traced_by(&["advise", "--json", "--duration", "60"]) {
        Ok(both) => both,
        Err(why) => return println!("SKIP: {why}"),
    };
    load(server.port, 500);
    let lines = tracer.objects();
    let [line] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert_eq!(line["program"], "lighttpd");
    assert_eq!(line["setup"], "lighttpd", "{line}");
    // Those before the first look at the process's CPU time do not count.
    let done = line["handshakes"].as_u64().unwrap();
    assert!((250..=500).contains(&done), "{line}");
    assert_eq!(line["kinds"][0]["signature"], "rsa-2048", "{line}");
}

/// A server that asks for its handshakes does not pay for probes on what it reads and writes.
#[test]
fn reads_and_writes_are_probed_only_where_handshakes_are_in_them() {
    let _alone = alone();
    let (nginx, tracer) = match Nginx::start().and_then(|nginx| {
        let tracer = Tracer::start(&["handshakes", "--json", "--pid", &nginx.pids()])?;
        Ok((nginx, tracer))
    }) {
        Ok(both) => both,
        Err(why) => return println!("SKIP: {why}"),
    };
    let before = probed_bytes(nginx.worker());
    eventually("reads and writes are free of probes", || {
        Client::to(nginx.port).run(&[]);
        // The places at which SSL_read, SSL_read_ex, SSL_write and SSL_write_ex are entered, and those at which they return.
        probed_bytes(nginx.worker()) + 4 < before
    });
    drop(tracer);
}

struct Lighttpd {
    port: u16,
    folder: TempDir,
    running: Running,
}

impl Lighttpd {
    /// Starts the server, and a tracer of its handshakes. The error is what is missing here.
    fn traced() -> Result<(Self, Tracer), String> {
        Self::traced_by(&["handshakes", "--json"])
    }

    /// The same by this view, with these options.
    fn traced_by(view: &[&str]) -> Result<(Self, Tracer), String> {
        let server = Self::start()?;
        let tracer = Tracer::start(&[view, &["--pid", &server.running.pid()]].concat())?;
        Ok((server, tracer))
    }

    fn start() -> Result<Self, String> {
        installed(&["/usr/sbin/lighttpd", "/usr/lib/lighttpd/mod_openssl.so"])?;
        let folder = tempfile::tempdir().unwrap();
        make_certificate(folder.path())?;
        let root = folder.path().display();
        let port = free_port();
        let configuration = format!(
            "server.modules = (\"mod_openssl\")\nserver.document-root = \"{root}\"\n\
             server.errorlog = \"{root}/error.log\"\nserver.bind = \"127.0.0.1\"\n\
             server.port = {port}\nmimetype.assign = (\"\" => \"text/plain\")\n\
             ssl.engine = \"enable\"\nssl.pemfile = \"{root}/certificate\"\n\
             ssl.privkey = \"{root}/key\"\n"
        );
        let path = folder.path().join("lighttpd.conf");
        fs::write(&path, configuration).unwrap();
        let mut command = Command::new("/usr/sbin/lighttpd");
        let command = command.arg("-D").arg("-f").arg(&path);
        Ok(Self {
            port,
            folder,
            running: listening(command, port),
        })
    }
}
