//! Servers as a distribution packages them, with OpenSSL alone and with Widelane in it.
//!
//! Both sides of a server run the same program with the same configuration, except that HAProxy's
//! has `ssl-mode-async` beside Widelane, and that a server which needs Widelane for a hybrid group
//! names the group only there. What differs is the environment: `widelane setup SERVER --env` prints
//! it, as for a server that is started by hand. Alike for all servers is what `servers` lists, but
//! for the certificate: each has the one that it is compared with.

use crate::condition::Condition;
use crate::error::TrialError;
use crate::machine;
use crate::options::{Options, find_program};
use crate::peers;
use crate::process::Server;
use crate::programs;
use crate::servers::{self, Running, write};
use crate::setup::Setup;
use crate::stage::Stage;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use widelane_cpu::Lanes;
use widelane_samples::{named, names};

named! {
    /// A server.
    pub enum Software: "server" {
        /// nginx, one worker process. A preloaded library suspends its handshakes.
        Nginx = "nginx",
        /// HAProxy, one thread. It suspends handshakes by itself where its OpenSSL can.
        Haproxy = "haproxy",
        /// Apache with the event MPM, one process. Its threads share passes.
        Apache2 = "apache2",
        /// lighttpd, one process. A preloaded library suspends its handshakes.
        Lighttpd = "lighttpd",
        /// Valkey, which answers PING. A preloaded library suspends its handshakes.
        Valkey = "valkey",
        /// Valkey with four threads for input and output.
        ValkeyThreads = "valkey-io-threads",
        /// Redis, which answers PING. A preloaded library suspends its handshakes.
        Redis = "redis",
        /// Redis with four threads for input and output.
        RedisThreads = "redis-io-threads",
        /// PgBouncer, which is asked for TLS and for its console. A preloaded library suspends its handshakes.
        Pgbouncer = "pgbouncer",
        /// Mosquitto, to which clients of MQTT connect. A preloaded library suspends its handshakes.
        Mosquitto = "mosquitto",
        /// Dovecot with one login process, to which clients of IMAP log in, with TLS from the beginning.
        Dovecot = "dovecot",
        /// The same with STARTTLS.
        DovecotStarttls = "dovecot-starttls",
        /// stunnel, a thread for each connection.
        Stunnel = "stunnel4",
        /// Postfix, a process for each connection, with STARTTLS and EHLO.
        Postfix = "postfix",
    }
}

impl Software {
    /// Web servers.
    pub const WEB: [Self; 4] = [Self::Nginx, Self::Haproxy, Self::Apache2, Self::Lighttpd];

    /// Name of the program for `widelane setup`.
    fn program_name(self) -> &'static str {
        match self {
            Self::ValkeyThreads => Self::Valkey.name(),
            Self::RedisThreads => Self::Redis.name(),
            Self::DovecotStarttls => Self::Dovecot.name(),
            other => other.name(),
        }
    }

    /// The program, if it is installed.
    pub(crate) fn program(self, options: &Options) -> Option<PathBuf> {
        match self {
            Self::Nginx => options.nginx.clone(),
            Self::Redis | Self::RedisThreads => find_program("redis-server"),
            Self::Valkey | Self::ValkeyThreads => find_program("valkey-server"),
            Self::Postfix => Some(PathBuf::from(POSTFIX)).filter(|file| file.is_file()),
            other => find_program(other.program_name()),
        }
    }

    /// The version, from the program.
    pub(crate) fn version(self, program: &Path) -> Option<String> {
        let said = match self {
            Self::Pgbouncer | Self::Dovecot | Self::DovecotStarttls => machine::said(program, &["--version"]),
            Self::Mosquitto => machine::said(program, &["-h"]),
            Self::Stunnel => machine::said(program, &["-version"]),
            Self::Postfix => machine::said("postconf", &["-d", "mail_version"]),
            _ => machine::said(program, &["-v"]),
        };
        self.version_in(&said).map(str::to_owned)
    }

    /// The version in what the program says of itself.
    fn version_in(self, said: &str) -> Option<&str> {
        let mark = match self {
            Self::Nginx => "nginx/",
            Self::Haproxy => "HAProxy version ",
            Self::Apache2 => "Apache/",
            Self::Lighttpd => "lighttpd/",
            Self::Valkey | Self::ValkeyThreads | Self::Redis | Self::RedisThreads => "server v=",
            Self::Pgbouncer => "PgBouncer ",
            Self::Mosquitto => "mosquitto version ",
            Self::Dovecot | Self::DovecotStarttls => "",
            Self::Stunnel => "stunnel ",
            Self::Postfix => "mail_version = ",
        };
        names::word_after(said, mark)
    }

    /// Returns whether the software answers SET and GET.
    pub(crate) fn is_store(self) -> bool {
        matches!(
            self,
            Self::Valkey | Self::ValkeyThreads | Self::Redis | Self::RedisThreads
        )
    }

    /// Returns whether the software starts as root alone.
    pub(crate) fn needs_root(self) -> bool {
        matches!(self, Self::Dovecot | Self::DovecotStarttls | Self::Postfix)
    }

    /// Returns whether the software waits for signatures in its event loop, unless a preloaded library suspends them.
    fn preloads(self) -> bool {
        !matches!(
            self,
            Self::Haproxy | Self::Apache2 | Self::Dovecot | Self::DovecotStarttls | Self::Stunnel | Self::Postfix
        )
    }
}

impl fmt::Display for Software {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(names::software(self.name()))
    }
}

/// Starts `software` with OpenSSL alone.
pub(crate) fn plain(
    stage: &Stage,
    software: Software,
    condition: Condition,
    backend: SocketAddr,
) -> Result<Running, TrialError> {
    let name = format!("{}-{}-plain", software.name(), condition.name());
    let (folder, address) = servers::place(stage, &name)?;
    let command = command(stage, software, condition, false, (&folder, address, backend))?;
    let mut running = Running::start(stage, software.name(), command, address, &folder)?;
    running.exchange = programs::exchange(software);
    Ok(running)
}

/// Starts `software` with Widelane; also gives what the provider says of itself.
///
/// `lanes` decides whether it may use them, or must do as on a CPU that has none.
///
/// # Errors
///
/// Also when the server runs without Widelane: OpenSSL goes on alone where it cannot load it.
pub(crate) fn with_widelane(
    stage: &Stage,
    software: Software,
    condition: Condition,
    lanes: bool,
    backend: SocketAddr,
) -> Result<(Running, String), TrialError> {
    let name = format!("{}-{}-widelane", software.name(), condition.name());
    let (folder, address) = servers::place(stage, &name)?;
    let mut setup = Command::new(&stage.options.widelane);
    setup.args(["setup", software.program_name(), "--env", "--log", "info"]);
    setup.arg("--config").arg(folder.join("openssl.cnf"));
    let printed = stage.printed(&mut setup)?;
    let mut command = command(stage, software, condition, true, (&folder, address, backend))?;
    command.envs(variables(&String::from_utf8_lossy(&printed)));
    if !lanes {
        command.env(widelane_cpu::DISABLE_VARIABLE, Lanes::ALL_DISABLED);
    }
    let mut running = Running::start(
        stage,
        &format!("{} with Widelane", software.name()),
        command,
        address,
        &folder,
    )?;
    running.exchange = programs::exchange(software);
    let said = introduction(stage, &mut running.server)?;
    // Without lanes nothing waits.
    let in_lanes = !said.contains("backend aws-lc");
    if software.preloads() && in_lanes && !said.ends_with("yes") {
        let reason = format!("its handshakes are not suspended: {said}");
        return Err(running.server.failed(&reason));
    }
    Ok((running, said))
}

/// Message of the provider when OpenSSL has loaded it.
fn introduction(stage: &Stage, server: &mut Server) -> Result<String, TrialError> {
    // Apache takes connections before it loads its certificates.
    let said = stage.interrupt.wait_for(LOAD_PATIENCE, || {
        server.alive()?;
        Ok(introduction_in(&server.said()).map(str::to_owned))
    })?;
    said.ok_or_else(|| server.failed("its OpenSSL has not loaded Widelane"))
}

fn introduction_in(said: &str) -> Option<&str> {
    let mut lines = said.lines().filter_map(|line| {
        let (_, line) = line.split_once("widelane: ")?;
        line.contains(" in OpenSSL ").then(|| line.trim())
    });
    lines.next()
}

/// Lines like `NAME=VALUE`.
fn variables(printed: &str) -> Vec<(String, String)> {
    let pairs = printed.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn command(
    stage: &Stage,
    software: Software,
    condition: Condition,
    asynchronous: bool,
    (folder, address, backend): (&Path, SocketAddr, SocketAddr),
) -> Result<Command, TrialError> {
    let groups = condition.is_hybrid().then_some(HYBRIDS);
    if software == Software::Nginx {
        let curves = groups.map(|groups| format!("ssl_ecdh_curve {groups};"));
        let curves = curves.unwrap_or_default();
        return servers::nginx(stage, Setup::BARE, folder, address, &curves);
    }
    let program = software.program(&stage.options);
    let program = program.ok_or(TrialError::NoServer(software.name()))?;
    let [rsa, ecdsa] = stage.certificates();
    let (certificate, key) = if condition.is_rsa() { rsa } else { ecdsa };
    let mut command = Command::new(&program);
    match software {
        Software::Nginx | Software::Haproxy => {
            let both = peers::in_one(folder, "both.pem", &(certificate, key))?;
            let text = haproxy(&both, address, asynchronous, groups);
            return peers::haproxy_with(&program, folder, &text);
        }
        Software::Apache2 => {
            let text = apache(folder, address, (&certificate, &key), groups);
            let file = write(folder, "apache2.conf", &text)?;
            command.arg("-d").arg(folder).arg("-f").arg(file);
            command.arg("-DFOREGROUND");
        }
        Software::Lighttpd => {
            let text = lighttpd(folder, address, (&certificate, &key), groups);
            let file = write(folder, "lighttpd.conf", &text)?;
            command.arg("-D").arg("-f").arg(file);
        }
        other => return programs::command(stage, other, &program, folder, address, backend),
    }
    Ok(command)
}

fn haproxy(both: &Path, address: SocketAddr, asynchronous: bool, groups: Option<&str>) -> String {
    let mode = if asynchronous { "\n    ssl-mode-async" } else { "" };
    let curves = groups.map(|groups| format!("\n    ssl-default-bind-curves {groups}"));
    let curves = curves.unwrap_or_default();
    let options = format!("ssl-min-ver TLSv1.3 no-tls-tickets{mode}{curves}");
    let bind = format!("{address} ssl crt {}", both.display());
    peers::haproxy_text(&options, "http", &bind, "http-request return status 204")
}

/// Runs as many threads as connections are in flight at most: fewer would bound the passes.
fn apache(folder: &Path, address: SocketAddr, (certificate, key): (&Path, &Path), groups: Option<&str>) -> String {
    let groups = groups.map(|groups| format!("SSLOpenSSLConfCmd Groups {groups}"));
    let groups = groups.unwrap_or_default();
    format!(
        r#"ServerRoot "{folder}"
DefaultRuntimeDir "{folder}"
PidFile "{folder}/apache2.pid"
ErrorLog /dev/stderr
LoadModule mpm_event_module {MODULES}/mod_mpm_event.so
LoadModule authz_core_module {MODULES}/mod_authz_core.so
LoadModule ssl_module {MODULES}/mod_ssl.so
ServerName localhost
User #65534
Group #65534
Listen {address}
ListenBacklog 4096
StartServers 1
ServerLimit 1
ThreadLimit 64
ThreadsPerChild 64
MaxRequestWorkers 64
MinSpareThreads 64
MaxSpareThreads 64
DocumentRoot "{folder}"
SSLProtocol TLSv1.3
SSLSessionCache none
SSLSessionTickets off
{groups}
<VirtualHost {address}>
    SSLEngine on
    SSLCertificateFile "{certificate}"
    SSLCertificateKeyFile "{key}"
</VirtualHost>
"#,
        folder = folder.display(),
        certificate = certificate.display(),
        key = key.display(),
    )
}

fn lighttpd(folder: &Path, address: SocketAddr, (certificate, key): (&Path, &Path), groups: Option<&str>) -> String {
    let groups = groups.map(|groups| format!(r#", "Groups" => "{groups}""#));
    let groups = groups.unwrap_or_default();
    format!(
        r#"server.modules = ("mod_openssl")
server.document-root = "{folder}"
server.bind = "{ip}"
server.port = {port}
server.listen-backlog = 4096
ssl.engine = "enable"
ssl.pemfile = "{certificate}"
ssl.privkey = "{key}"
ssl.openssl.ssl-conf-cmd = ("MinProtocol" => "TLSv1.3", "Options" => "-SessionTicket"{groups})
"#,
        folder = folder.display(),
        ip = address.ip(),
        port = address.port(),
        certificate = certificate.display(),
        key = key.display(),
    )
}

/// The groups that a server offers if it is asked for a hybrid one.
const HYBRIDS: &str = "X25519MLKEM768:X25519";
/// Folder of Apache's modules on Debian.
const MODULES: &str = "/usr/lib/apache2/modules";
/// The program from which Debian's Postfix starts the others.
const POSTFIX: &str = "/usr/lib/postfix/sbin/master";
const LOAD_PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_they_are_written() {
        for software in Software::ALL {
            assert_eq!(software.name().parse(), Ok(software));
        }
        let error = "caddy".parse::<Software>().expect_err("not known");
        assert!(error.contains("nginx, haproxy, apache2"), "{error}");
    }

    #[test]
    fn versions_are_found_in_what_servers_say() {
        for (software, said, version) in [
            (Software::Nginx, "nginx version: nginx/1.22.1\n", "1.22.1"),
            (
                Software::Haproxy,
                "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/\n",
                "2.6.12-1+deb12u4",
            ),
            (
                Software::Apache2,
                "Server version: Apache/2.4.71 (Debian)\nServer built: 2026\n",
                "2.4.71",
            ),
            (
                Software::Redis,
                "Redis server v=7.0.15 sha=00000000:0 malloc=a\n",
                "7.0.15",
            ),
            (Software::Valkey, "Valkey server v=8.0.1 sha=00000000:0\n", "8.0.1"),
            (Software::Pgbouncer, "PgBouncer 1.18.0\nlibevent 2.1.12\n", "1.18.0"),
            (
                Software::Mosquitto,
                "mosquitto version 2.0.11\n\nmosquitto is\n",
                "2.0.11",
            ),
            (Software::Dovecot, "2.3.19.1 (9b53102964)\n", "2.3.19.1"),
            (Software::Stunnel, "Initializing\nstunnel 5.68 on x86_64\n", "5.68"),
            (Software::Postfix, "mail_version = 3.7.11\n", "3.7.11"),
            (
                Software::Lighttpd,
                "lighttpd/1.4.69 (ssl) - a light and fast webserver\n",
                "1.4.69",
            ),
        ] {
            assert_eq!(software.version_in(said), Some(version));
            assert!(software.version_in("not found").is_none() || software == Software::Dovecot);
        }
    }

    #[test]
    fn the_provider_is_found_among_other_lines() {
        let said = "[notice] a line\nwidelane: OpenSSL signs by itself: x\n\
                    widelane: 0.1.0 in OpenSSL 3.0.22, suspends handshakes: yes\n";
        let line = "0.1.0 in OpenSSL 3.0.22, suspends handshakes: yes";
        assert_eq!(introduction_in(said), Some(line));
        let alone = "widelane: the provider does not start: no\n";
        assert_eq!(introduction_in(alone), None);
    }

    #[test]
    fn the_environment_is_what_setup_prints() {
        let printed = "OPENSSL_CONF=/tmp/a.cnf\nLD_PRELOAD=/lib/a=b.so\n";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            variables(printed),
            [pair("OPENSSL_CONF", "/tmp/a.cnf"), pair("LD_PRELOAD", "/lib/a=b.so")]
        );
    }

    #[test]
    fn both_sides_of_a_server_have_one_configuration_and_haproxy_one_line_more() {
        let address = "127.0.0.1:4433".parse().expect("an address");
        let [plain, with] = [false, true].map(|on| haproxy(Path::new("/t/both"), address, on, None));
        let more: Vec<_> = with
            .lines()
            .filter(|line| !plain.lines().any(|other| other == *line))
            .collect();
        assert_eq!(more, ["    ssl-mode-async"]);
        assert_eq!(with.lines().count(), plain.lines().count() + 1);
        // Neither needs to know: what makes the difference for them is in the environment.
        let pair = (Path::new("/t/c.pem"), Path::new("/t/c.key"));
        for text in [
            apache(Path::new("/t"), address, pair, Some(HYBRIDS)),
            lighttpd(Path::new("/t"), address, pair, Some(HYBRIDS)),
        ] {
            assert!(text.contains("/t/c.pem") && text.contains("/t/c.key"), "{text}");
            assert!(text.contains("4433") && text.contains("TLSv1.3"), "{text}");
            assert!(text.contains(HYBRIDS), "{text}");
        }
    }
}
