//! Servers other than web servers, each with one host and an RSA key.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use super::nginx::KINDS;
use super::protocol::Reply::{Bytes, Line};
use super::protocol::{Protocol, Steps};
use super::subject::{Reload, Subject};
use super::{Files, Kind, Server, With};

/// A server, and the jobs that its passes have on average at least, where there are lanes.
pub struct Program {
    pub subject: Subject,
    pub jobs_a_pass: f64,
}

/// What the programs have in common.
const SUBJECT: Subject = Subject {
    name: "",
    start: |_| None,
    with: With::Shim,
    protocol: Protocol::SITE,
    hosts: &[KINDS[0]],
    reload: Reload::Signal(Signal::HUP),
    listens_anew: false,
    worker: None,
    may_stay: (4096, 0),
    closes_idle: false,
    stopped: None,
};

/// A protocol that begins with the handshake.
const fn implicit(after: Steps) -> Protocol {
    Protocol::Steps { before: &[], after }
}

pub fn redis() -> Program {
    Program {
        subject: Subject {
            name: "redis",
            start: |with| start_redis(with, ""),
            ..REDIS
        },
        jobs_a_pass: 1.5,
    }
}

/// Its threads read and write for connections whose handshakes are over; the first thread does the handshakes.
pub fn redis_with_threads() -> Program {
    Program {
        subject: Subject {
            name: "redis, 4 threads",
            start: |with| start_redis(with, "io-threads 4\nio-threads-do-reads yes\n"),
            ..REDIS
        },
        jobs_a_pass: 1.5,
    }
}

const REDIS: Subject = Subject {
    protocol: implicit(&[
        (b"PING\r\n", Bytes(b"+PONG\r\n")),
        (b"SET key value\r\n", Bytes(b"+OK\r\n")),
        (b"GET key\r\n", Bytes(b"$5\r\nvalue\r\n")),
    ]),
    reload: Reload::Client(implicit(&[(
        b"CONFIG SET tls-cert-file rsa.test.pem tls-key-file rsa.test.key\r\n",
        Bytes(b"+OK\r\n"),
    )])),
    ..SUBJECT
};

fn start_redis(with: With, lines: &str) -> Option<Server> {
    let lines = format!(
        "{lines}dir DIR\nport 0\ntls-port PORT\nbind IP\ntls-auth-clients no\nsave \"\"\nprotected-mode no\n\
         tls-cert-file rsa.test.pem\ntls-key-file rsa.test.key\ntls-ca-cert-file ca.pem\n"
    );
    start("redis-server", with, &lines, &["CONFIG"])
}

/// CONNECT of MQTT 3.1.1 by a client without a name, and its acknowledgement.
pub fn mosquitto() -> Program {
    Program {
        subject: Subject {
            name: "mosquitto",
            start: |with| {
                let lines = "user root\nallow_anonymous true\nlistener PORT IP\n\
                             certfile DIR/rsa.test.pem\nkeyfile DIR/rsa.test.key\n";
                start("mosquitto", with, lines, &["-c", "CONFIG"])
            },
            protocol: implicit(&[
                (
                    b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
                    Bytes(b"\x20\x02\x00\x00"),
                ),
                (b"\xc0\x00", Bytes(b"\xd0\x00")),
            ]),
            ..SUBJECT
        },
        jobs_a_pass: 1.5,
    }
}

/// A client of PostgreSQL asks for TLS, and then for the console of PgBouncer, which lets it in. With our libraries or
/// without, PgBouncer misses the end of about one in sixty clients that go away, until its time limit.
pub fn pgbouncer() -> Program {
    Program {
        subject: Subject {
            name: "pgbouncer",
            start: |with| {
                let lines = "[databases]\n[pgbouncer]\nlisten_addr = IP\nlisten_port = PORT\nunix_socket_dir =\n\
                             auth_type = any\nclient_login_timeout = 15\nclient_tls_sslmode = require\n\
                             client_tls_cert_file = DIR/rsa.test.pem\nclient_tls_key_file = DIR/rsa.test.key\n";
                // It does not run as root.
                let user = if super::is_root() { &["-u", "nobody"][..] } else { &[] };
                start("pgbouncer", with, lines, &[user, &["CONFIG"]].concat())
            },
            protocol: Protocol::Steps {
                before: &[(b"\x00\x00\x00\x08\x04\xd2\x16\x2f", Bytes(b"S"))],
                after: &[(
                    b"\x00\x00\x00\x23\x00\x03\x00\x00user\x00x\x00database\x00pgbouncer\x00\x00",
                    Bytes(b"R\x00\x00\x00\x08\x00\x00\x00\x00"),
                )],
            },
            ..SUBJECT
        },
        jobs_a_pass: 1.5,
    }
}

/// Its threads have one connection each and share passes while they block, as far as they meet.
pub fn stunnel() -> Program {
    Program {
        subject: Subject {
            name: "stunnel",
            start: |with| {
                super::installed("stunnel4")?;
                let echo = TcpListener::bind("127.0.0.1:0").expect("a port");
                let behind = echo.local_addr().expect("an address");
                std::thread::spawn(move || {
                    for client in echo.incoming() {
                        std::thread::spawn(|| {
                            let client = client.expect("a connection");
                            // It ends when stunnel does.
                            let _ = io::copy(&mut &client, &mut &client);
                        });
                    }
                });
                let lines = format!(
                    "foreground = yes\npid =\n[echo]\naccept = IP:PORT\nconnect = {behind}\ncert = DIR/rsa.test.both\n"
                );
                start("stunnel4", with, &lines, &["CONFIG"])
            },
            listens_anew: true,
            protocol: implicit(&[(b"echo", Bytes(b"echo")), (b"again", Bytes(b"again"))]),
            ..SUBJECT
        },
        jobs_a_pass: 1.0,
    }
}

/// Dovecot with one process for all logins, which gives OpenSSL memory in place of sockets: no handshake is suspended.
pub fn dovecot_imaps() -> Program {
    Program {
        subject: Subject {
            name: "dovecot, imaps",
            start: |with| start_dovecot(with, "imaps"),
            protocol: implicit(&[(b"", Line(b"* OK")), LOGIN, LOGOUT]),
            ..DOVECOT
        },
        jobs_a_pass: 1.0,
    }
}

/// The same, but clients ask for TLS.
pub fn dovecot_starttls() -> Program {
    Program {
        subject: Subject {
            name: "dovecot, starttls",
            start: |with| start_dovecot(with, "imap"),
            protocol: Protocol::Steps {
                before: &[(b"", Line(b"* OK")), (b"a STARTTLS\r\n", Line(b"a OK"))],
                after: &[LOGIN, LOGOUT],
            },
            ..DOVECOT
        },
        jobs_a_pass: 1.0,
    }
}

const LOGIN: (&[u8], super::protocol::Reply) = (b"b LOGIN user secret\r\n", Line(b"b OK"));
const LOGOUT: (&[u8], super::protocol::Reply) = (b"c LOGOUT\r\n", Line(b"c OK"));

const DOVECOT: Subject = Subject {
    worker: Some("imap-login"),
    ..SUBJECT
};

fn start_dovecot(with: With, listener: &str) -> Option<Server> {
    if !super::is_root() {
        println!("SKIP: Dovecot takes root");
        return None;
    }
    let other = if listener == "imap" { "imaps" } else { "imap" };
    let lines = format!(
        "base_dir = DIR/run\nstate_dir = DIR/state\nlog_path = /dev/stderr\nprotocols = imap\nlisten = IP\n\
         ssl = yes\nssl_cert = <DIR/rsa.test.pem\nssl_key = <DIR/rsa.test.key\n\
         import_environment = OPENSSL_CONF LD_PRELOAD WIDELANE_CPU_DISABLE\n\
         default_internal_user = nobody\ndefault_internal_group = nogroup\ndefault_login_user = nobody\n\
         first_valid_uid = 0\nmail_location = maildir:~/mail\n\
         passdb {{\n driver = static\n args = password=secret\n}}\n\
         userdb {{\n driver = static\n args = uid=65534 gid=65534 home=DIR/home\n}}\n\
         service imap-login {{\n chroot =\n service_count = 0\n process_min_avail = 1\n process_limit = 1\n\
         client_limit = 1000\n inet_listener {listener} {{\n port = PORT\n}}\n inet_listener {other} {{\n port = 0\n}}\n}}\n"
    );
    let program = super::installed("dovecot")?;
    let files = files();
    folder(&files, "home", "nobody");
    Some(start_with(files, program, with, &lines, &["-F", "-c", "CONFIG"]))
}

/// Postfix with one process for all clients, which serves one after the other.
pub fn postfix() -> Program {
    Program {
        subject: Subject {
            name: "postfix",
            start: |with| start_postfix(with, "", "IP:PORT inet n - n - 1 smtpd\n"),
            worker: Some("smtpd"),
            ..POSTFIX
        },
        jobs_a_pass: 0.0,
    }
}

/// Postfix with postscreen, which tests each client by itself: its TLS is that of one process with an event loop.
pub fn postfix_tlsproxy() -> Program {
    Program {
        subject: Subject {
            name: "postfix, tlsproxy",
            start: |with| {
                // It hands no client on to smtpd, and does not wait for those that speak too early.
                let lines = "postscreen_access_list = static:reject\npostscreen_denylist_action = enforce\n\
                             postscreen_greet_banner =\npostscreen_cache_map =\npostscreen_pre_queue_limit = 1000\n\
                             postscreen_post_queue_limit = 1000\n";
                let services = "IP:PORT inet n - n - 1 postscreen\nsmtpd pass - - n - - smtpd\n\
                                tlsproxy unix - - n - 0 tlsproxy\ndnsblog unix - - n - 0 dnsblog\n";
                start_postfix(with, lines, services)
            },
            worker: Some("tlsproxy"),
            ..POSTFIX
        },
        jobs_a_pass: 1.5,
    }
}

/// A client asks for TLS and names a recipient, which is refused.
const POSTFIX: Subject = Subject {
    protocol: Protocol::Steps {
        before: &[
            (b"", Line(b"220")),
            (b"EHLO client\r\n", Line(b"250 ")),
            (b"STARTTLS\r\n", Line(b"220")),
        ],
        after: &[
            (b"EHLO client\r\n", Line(b"250 ")),
            (b"MAIL FROM:<a@b.test>\r\n", Line(b"250")),
            (b"RCPT TO:<c@d.test>\r\n", Line(b"55")),
            (b"QUIT\r\n", Line(b"221")),
        ],
    },
    ..SUBJECT
};

/// Starts it with these lines of `main.cf`, and these services, of which one listens at the address.
fn start_postfix(with: With, lines: &str, services: &str) -> Option<Server> {
    if !super::is_root() {
        println!("SKIP: Postfix takes root");
        return None;
    }
    super::installed("postfix")?;
    let asked = Command::new("postconf").args(["-dh", "daemon_directory"]).output();
    let programs = String::from_utf8(asked.expect("Postfix has it").stdout).expect("a path of text");
    let programs = PathBuf::from(programs.trim());
    let files = files();
    for name in ["data", "queue/private", "queue/public"] {
        folder(&files, name, "postfix");
    }
    folder(&files, "queue/pid", "root");
    let main = format!(
        "compatibility_level = 3.6\nqueue_directory = DIR/queue\ndata_directory = DIR/data\n\
         daemon_directory = {}\nmail_owner = postfix\nsetgid_group = postdrop\ninet_interfaces = all\n\
         inet_protocols = ipv4\nmyhostname = rsa.test\nmydestination =\nalias_maps =\nlocal_recipient_maps =\n\
         smtpd_peername_lookup = no\nsmtpd_tls_security_level = may\nsmtpd_tls_cert_file = DIR/rsa.test.pem\n\
         smtpd_tls_key_file = DIR/rsa.test.key\nsmtpd_client_connection_count_limit = 0\n\
         smtpd_recipient_restrictions = reject\nsmtpd_error_sleep_time = 0\nmax_use = 1000000\n\
         import_environment = MAIL_CONFIG POSTLOG_SERVICE POSTLOG_HOSTNAME OPENSSL_CONF LD_PRELOAD WIDELANE_CPU_DISABLE\n\
         maillog_file = DIR/error.log\nmaillog_file_prefixes = DIR\n{lines}",
        programs.display()
    );
    let master = "rewrite unix - - n - - trivial-rewrite\nanvil unix - - n - 1 anvil\n\
                  proxymap unix - - n - - proxymap\ntlsmgr unix - - n 1000? 1 tlsmgr\ncleanup unix n - n - 0 cleanup\n\
                  postlog unix-dgram n - n - 1 postlogd\n";
    let master = format!("{services}{master}");
    let address = super::free_address();
    for (name, text) in [("main.cf", &main), ("master.cf", &master)] {
        files.write(name, with_places(&files, address, text));
    }
    // The process that does TLS starts when a client wants it, and only then says what it does.
    std::thread::spawn(move || {
        super::eventually("a client may begin with TLS", || {
            let client = TcpStream::connect(address);
            client.is_ok_and(|mut client| POSTFIX.protocol.before(&mut client).is_ok())
        });
    });
    let arguments = ["-d".into(), "-c".into(), files.path("").display().to_string()];
    let program = programs.join("master");
    Some(Server::start(files, address, &program, &arguments, with))
}

/// gunicorn, whose process of Python loads OpenSSL before it forks.
pub fn gunicorn() -> Program {
    Program {
        subject: Subject {
            name: "gunicorn",
            start: |with| {
                let app = "def app(environ, start):\n    start('200 OK', [('Content-Length', '6')])\n    return [b'hello\\n']\n";
                let arguments = "--chdir DIR --bind IP:PORT --certfile DIR/rsa.test.pem --keyfile DIR/rsa.test.key \
                                 --workers 2 --threads 4 app:app";
                start_app("gunicorn", with, "app.py", app, arguments)
            },
            ..HELLO
        },
        jobs_a_pass: 0.0,
    }
}

/// puma, which gives OpenSSL memory in place of sockets.
pub fn puma() -> Program {
    Program {
        subject: Subject {
            name: "puma",
            start: |with| {
                let app = "run ->(_) { [200, { 'content-length' => '6' }, [\"hello\\n\"]] }\n";
                let arguments = "--bind ssl://IP:PORT?key=DIR/rsa.test.key&cert=DIR/rsa.test.pem&verify_mode=none \
                                 --dir DIR DIR/config.ru";
                start_app("puma", with, "config.ru", app, arguments)
            },
            ..HELLO
        },
        jobs_a_pass: 0.0,
    }
}

const HELLO: Subject = Subject {
    protocol: implicit(&[
        (b"GET / HTTP/1.1\r\nHost: rsa.test\r\n\r\n", Line(b"HTTP/1.1 200")),
        (b"", Line(b"hello")),
    ]),
    ..SUBJECT
};

/// Starts a program that runs an application in a file.
fn start_app(program: &str, with: With, file: &str, app: &str, arguments: &str) -> Option<Server> {
    let program = super::installed(program)?;
    let (files, address) = (files(), super::free_address());
    files.write(file, app);
    let arguments = with_places(&files, address, arguments);
    let arguments: Vec<_> = arguments.split(' ').map(str::to_owned).collect();
    Some(Server::start(files, address, &program, &arguments, with))
}

/// Files with a certificate.
fn files() -> Files {
    let files = Files::new();
    let (kind, name) = SUBJECT.hosts[0];
    files.certificate(kind, name);
    files
}

/// A folder of a user.
fn folder(files: &Files, name: &str, owner: &str) {
    let mut install = Command::new("install");
    let made = install.args(["-d", "-o", owner]).arg(files.path(name)).status();
    assert!(made.expect("coreutils").success(), "{name} of {owner}");
}

/// Starts a program with a configuration. `None` if it is not installed.
fn start(program: &str, with: With, lines: &str, arguments: &[&str]) -> Option<Server> {
    let program = super::installed(program)?;
    Some(start_with(files(), program, with, lines, arguments))
}

fn start_with(files: Files, program: PathBuf, with: With, lines: &str, arguments: &[&str]) -> Server {
    let address = super::free_address();
    let config = files.write("config", with_places(&files, address, lines));
    let config = config.to_str().expect("a path of text");
    let argument = |argument: &&str| argument.replace("CONFIG", config);
    let arguments: Vec<_> = arguments.iter().map(argument).collect();
    Server::start(files, address, &program, &arguments, with)
}

/// A configuration with its folder and address.
fn with_places(files: &Files, address: std::net::SocketAddr, lines: &str) -> String {
    let directory = files.path("").display().to_string();
    lines
        .replace("DIR", directory.trim_end_matches('/'))
        .replace("PORT", &address.port().to_string())
        .replace("IP", &address.ip().to_string())
}
