//! Data stores, brokers, poolers, mail servers and stunnel as Debian packages them, each with a configuration of its own
//! in a temporary folder.
//!
//! What the files do not say is as the program has it by default. Servers that give up root's rights, or give their
//! processes few variables, get the settings that they need to work from there, with OpenSSL alone and with Widelane.

use crate::error::TrialError;
use crate::servers::write;
use crate::stage::Stage;
use crate::unmodified::Software;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use widelane_cpu::DISABLE_VARIABLE;

/// Arguments of `widelane load`: what clients of the program say before and after the handshake.
pub(crate) fn exchange(software: Software) -> &'static [&'static str] {
    match software {
        Software::Nginx | Software::Haproxy | Software::Apache2 | Software::Lighttpd | Software::Stunnel => &[],
        Software::Redis | Software::RedisThreads | Software::Valkey | Software::ValkeyThreads => {
            &["--send", r"PING\r\n", "--expect", r"+PONG\r\n"]
        }
        // The console of PgBouncer, which lets every user in.
        Software::Pgbouncer => &[
            "--starttls",
            "postgres",
            "--send",
            r"\x00\x00\x00\x23\x00\x03\x00\x00user\x00x\x00database\x00pgbouncer\x00\x00",
            "--expect",
            r"R\x00\x00\x00\x08\x00\x00\x00\x00",
        ],
        // CONNECT of MQTT 3.1.1 by a client without a name, and its acknowledgement.
        Software::Mosquitto => &[
            "--send",
            r"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
            "--expect",
            r"\x20\x02\x00\x00",
        ],
        Software::Dovecot => &["--send", LOGIN, "--expect", "a OK"],
        Software::DovecotStarttls => &["--starttls", "imap", "--send", LOGIN, "--expect", "a OK"],
        Software::Postfix => &["--starttls", "smtp", "--send", r"EHLO load\r\n", "--expect", "250 "],
    }
}

/// The command that starts `software`, which is none of the web servers. `backend` is there for stunnel.
pub(crate) fn command(
    stage: &Stage,
    software: Software,
    program: &Path,
    folder: &Path,
    address: SocketAddr,
    backend: SocketAddr,
) -> Result<Command, TrialError> {
    // The servers' own users read here.
    fs::set_permissions(stage.folder(), Permissions::from_mode(0o755)).map_err(TrialError::Folder)?;
    let owned = |user: &str, name: &str| -> Result<(), TrialError> {
        let mut install = Command::new("install");
        install.args(["-d", "-o", user]).arg(folder.join(name));
        stage.printed(&mut install).map(drop)
    };
    let [(certificate, key), _] = stage.certificates();
    let (certificate, key) = (certificate.display(), key.display());
    let (ip, port) = (address.ip(), address.port());
    let mut command = Command::new(program);
    let variables = variables();
    let configured = |text: String| write(folder, "config", &text);
    match software {
        Software::Nginx | Software::Haproxy | Software::Apache2 | Software::Lighttpd => {
            return Err(TrialError::NoServer(software.name()));
        }
        Software::Redis | Software::RedisThreads | Software::Valkey | Software::ValkeyThreads => {
            let threads = match software {
                Software::RedisThreads | Software::ValkeyThreads => 4,
                _ => 1,
            };
            command.arg(configured(format!(
                "port 0\ntls-port {port}\nbind {ip}\ntls-cert-file {certificate}\ntls-key-file {key}\n\
                 tls-auth-clients no\ntls-session-caching no\nio-threads {threads}\nsave \"\"\n\
                 protected-mode no\nloglevel warning\n"
            ))?);
        }
        Software::Pgbouncer => {
            // It does not run as root.
            if is_root() {
                command.args(["-u", "nobody"]);
            }
            command.arg(configured(format!(
                "[databases]\n[pgbouncer]\nlisten_addr = {ip}\nlisten_port = {port}\nunix_socket_dir =\n\
                 auth_type = any\nmax_client_conn = 1000\nlog_connections = 0\nlog_disconnections = 0\n\
                 client_tls_sslmode = require\nclient_tls_cert_file = {certificate}\nclient_tls_key_file = {key}\n"
            ))?);
        }
        Software::Mosquitto => {
            command.arg("-c").arg(configured(format!(
                "user root\nallow_anonymous true\nset_tcp_nodelay true\nlog_type error\nlistener {port} {ip}\n\
                 certfile {certificate}\nkeyfile {key}\n"
            ))?);
        }
        Software::Stunnel => {
            command.arg(configured(format!(
                "foreground = yes\npid =\ndebug = warning\n[tls]\naccept = {address}\nconnect = {backend}\n\
                 cert = {certificate}\nkey = {key}\n"
            ))?);
        }
        Software::Dovecot | Software::DovecotStarttls => {
            owned("nobody", "mail")?;
            let text = dovecot(folder, address, software == Software::DovecotStarttls, &variables);
            let text = format!("{text}ssl_cert = <{certificate}\nssl_key = <{key}\n");
            command.args(["-F", "-c"]).arg(configured(text)?);
        }
        Software::Postfix => {
            let display = folder.display();
            for (user, name) in [
                ("root", "queue/pid"),
                ("postfix", "queue/private"),
                ("postfix", "queue/public"),
                ("postfix", "data"),
            ] {
                owned(user, name)?;
            }
            let main = format!(
                "compatibility_level = 3.6\nqueue_directory = {display}/queue\ndata_directory = {display}/data\n\
                 myhostname = localhost.localdomain\ninet_protocols = ipv4\nmaillog_file = /dev/stdout\n\
                 import_environment = MAIL_CONFIG MAIL_LOGTAG {variables}\nmax_use = 1000000\nmax_idle = 1h\n\
                 smtpd_client_connection_count_limit = 0\nsmtpd_peername_lookup = no\nlocal_recipient_maps =\n\
                 alias_maps =\nsmtpd_tls_security_level = may\nsmtpd_tls_cert_file = {certificate}\n\
                 smtpd_tls_key_file = {key}\n"
            );
            write(folder, "main.cf", &main)?;
            // A process for each connection in flight.
            let master = format!(
                "{address} inet n - n - 64 smtpd\ntlsmgr unix - - n 1000? 1 tlsmgr\n\
                 postlog unix-dgram n - n - 1 postlogd\n"
            );
            write(folder, "master.cf", &master)?;
            // At its end it signals its process group.
            command.args(["-d", "-c"]).arg(folder).process_group(0);
        }
    }
    Ok(command)
}

/// Dovecot with one login process that serves all connections.
fn dovecot(folder: &Path, address: SocketAddr, starttls: bool, variables: &str) -> String {
    let (plain, tls) = match starttls {
        true => (address.port(), 0),
        false => (0, address.port()),
    };
    format!(
        r#"base_dir = {folder}/run
state_dir = {folder}/state
protocols = imap
listen = {ip}
log_path = /dev/stderr
info_log_path = /dev/null
import_environment = TZ {variables}
ssl = required
mail_location = maildir:{folder}/mail
mail_max_userip_connections = 0
first_valid_uid = 1
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid=65534 gid=65534 home={folder}/mail
}}
service imap-login {{
  service_count = 0
  process_min_avail = 1
  process_limit = 1
  client_limit = 1000
  inet_listener imap {{
    port = {plain}
  }}
  inet_listener imaps {{
    port = {tls}
    ssl = yes
  }}
}}
service imap {{
  service_count = 0
}}
service auth {{
  client_limit = 2000
}}
"#,
        folder = folder.display(),
        ip = address.ip(),
    )
}

/// Variables that the servers' processes need from the environment.
fn variables() -> String {
    format!("OPENSSL_CONF LD_PRELOAD {DISABLE_VARIABLE}")
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says who logs in, to Dovecot.
const LOGIN: &str = r"a LOGIN user secret\r\n";
