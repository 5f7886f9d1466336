//! The peers that stand before a backend, as the terminator does: nginx's stream module, HAProxy and
//! hitch, each as Debian packages it, with a configuration of its own in a temporary folder.
//!
//! What the files do not say is as the program has it by default: sizes of buffers, order of suites,
//! options of sockets.

use crate::error::TrialError;
use crate::machine;
use crate::options::Options;
use crate::servers::write;
use crate::setup::Setup;
use crate::stage::Stage;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// nginx as a relay of streams.
pub(crate) fn nginx_stream(
    stage: &Stage,
    setup: Setup,
    folder: &Path,
    address: SocketAddr,
) -> Result<Command, TrialError> {
    let options = &stage.options;
    let program = options.nginx.as_ref();
    let (program, module) = program
        .zip(stream_module(options))
        .ok_or(TrialError::NoServer("nginx with its stream module"))?;
    let load = match module {
        Module::BuiltIn => String::new(),
        Module::File(file) => format!("load_module {};\n", file.display()),
    };
    let configuration = format!(
        r#"{load}daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections {MOST_CONNECTIONS}; }}
stream {{
    server {{
        {tls}
        proxy_pass {backend};
    }}
}}
"#,
        folder = folder.display(),
        tls = nginx_tls(stage, setup, address),
        backend = backend(setup, "nginx-stream")?,
    );
    nginx_with(program, folder, &configuration)
}

/// nginx with a configuration, which is written into `folder`.
pub(crate) fn nginx_with(program: &Path, folder: &Path, configuration: &str) -> Result<Command, TrialError> {
    let file = write(folder, "nginx.conf", configuration)?;
    let mut command = Command::new(program);
    command.arg("-e").arg("stderr").arg("-p").arg(folder);
    command.arg("-c").arg(file);
    Ok(command)
}

/// The lines of nginx for an address with TLS.
pub(crate) fn nginx_tls(stage: &Stage, setup: Setup, address: SocketAddr) -> String {
    let setting = setup.setting;
    let certificates = stage.certificates().map(|(certificate, key)| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("ssl_certificate {certificate}; ssl_certificate_key {key};\n")
    });
    let (protocols, tickets) = match setting.has_tickets() {
        true => ("TLSv1.2 TLSv1.3", "on"),
        false => ("TLSv1.3", "off"),
    };
    let clients = match setting.asks_for_certificates() {
        true => format!(
            "ssl_verify_client on; ssl_client_certificate {};",
            stage.client_authority().display()
        ),
        false => String::new(),
    };
    format!(
        "listen {address} ssl backlog=4096;\n{}ssl_protocols {protocols};\nssl_session_cache off;\n\
         ssl_session_tickets {tickets};\n{clients}",
        certificates.concat()
    )
}

/// Form in which nginx has its stream module.
enum Module {
    BuiltIn,
    File(PathBuf),
}

/// nginx's stream module, if it has one: built in, or as Debian packages it, also where the
/// packages were unpacked into a folder.
fn stream_module(options: &Options) -> Option<Module> {
    let program = options.nginx.as_ref()?;
    let said = machine::said(program, &["-V"]);
    if said.split_whitespace().any(|word| word == "--with-stream") {
        return Some(Module::BuiltIn);
    }
    let program = fs::canonicalize(program).ok()?;
    // usr/sbin/nginx and usr/lib/nginx/modules stand in the same folder.
    let files = program.ancestors().skip(2).map(|root| root.join(STREAM));
    let mut found = files.filter(|file| file.is_file());
    found.next().map(Module::File)
}

/// Returns whether this nginx can relay streams.
pub(crate) fn has_stream(options: &Options) -> bool {
    stream_module(options).is_some()
}

/// HAProxy in mode tcp, with one thread.
pub(crate) fn haproxy(stage: &Stage, setup: Setup, folder: &Path, address: SocketAddr) -> Result<Command, TrialError> {
    let program = stage.options.haproxy.as_ref();
    let program = program.ok_or(TrialError::NoServer("haproxy"))?;
    let setting = setup.setting;
    let options = match setting.has_tickets() {
        true => "ssl-min-ver TLSv1.2",
        false => "ssl-min-ver TLSv1.3 no-tls-tickets",
    };
    let clients = match setting.asks_for_certificates() {
        true => format!(" verify required ca-file {}", stage.client_authority().display()),
        false => String::new(),
    };
    let certificates = both_in_one(stage, folder)?;
    let certificates = certificates.map(|file| format!("crt {}", file.display()));
    let bind = format!("{address} ssl {}{clients} backlog 4096", certificates.join(" "));
    let backend = backend(setup, "haproxy")?;
    let rest = format!("default_backend plain\nbackend plain\n    server one {backend}");
    haproxy_with(program, folder, &haproxy_text(options, "tcp", &bind, &rest))
}

/// HAProxy's configuration with one thread, and the options, mode and address of its one frontend.
pub(crate) fn haproxy_text(options: &str, mode: &str, bind: &str, rest: &str) -> String {
    format!(
        "\
global
    nbthread 1
    maxconn {MOST_PROXIED}
    tune.ssl.cachesize 0
    ssl-default-bind-options {options}
defaults
    mode {mode}
    timeout client 60s
    timeout server 60s
    timeout connect 60s
frontend tls
    bind {bind}
    {rest}
"
    )
}

/// HAProxy with a configuration, which is written into `folder`.
pub(crate) fn haproxy_with(program: &Path, folder: &Path, configuration: &str) -> Result<Command, TrialError> {
    let file = write(folder, "haproxy.cfg", configuration)?;
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(file);
    Ok(command)
}

/// hitch with one worker. It chooses between its certificates by the host name alone.
pub(crate) fn hitch(stage: &Stage, setup: Setup, folder: &Path, address: SocketAddr) -> Result<Command, TrialError> {
    let program = stage.options.hitch.as_ref();
    let program = program.ok_or(TrialError::NoServer("hitch"))?;
    let backend = backend(setup, "hitch")?;
    let certificates = both_in_one(stage, folder)?;
    // The last one answers clients that name no host.
    let certificates = certificates.map(|file| format!("pem-file = \"{}\"", file.display()));
    let protocols = match setup.setting.has_tickets() {
        true => "TLSv1.2 TLSv1.3",
        false => "TLSv1.3",
    };
    let configuration = format!(
        "\
frontend = \"[{}]:{}\"
backend = \"[{}]:{}\"
{}
workers = 1
backlog = 4096
tls-protos = {protocols}
daemon = off
quiet = on
{user}",
        address.ip(),
        address.port(),
        backend.ip(),
        backend.port(),
        certificates.join("\n"),
        // The server refuses to run as root.
        user = match rustix::process::geteuid().is_root() {
            true => "user = \"nobody\"\ngroup = \"nogroup\"\n",
            false => "",
        },
    );
    let file = write(folder, "hitch.conf", &configuration)?;
    let mut command = Command::new(program);
    command.arg(format!("--config={}", file.display()));
    Ok(command)
}

fn backend(setup: Setup, server: &str) -> Result<SocketAddr, TrialError> {
    setup.backend.ok_or_else(|| TrialError::Start {
        name: server.to_owned(),
        reason: "this comparison has no backend for it".into(),
    })
}

/// Files with a certificate and its key, as some servers want them.
fn both_in_one(stage: &Stage, folder: &Path) -> Result<[PathBuf; 2], TrialError> {
    let [rsa, ecdsa] = stage.certificates();
    Ok([
        in_one(folder, "rsa.both.pem", &rsa)?,
        in_one(folder, "ecdsa.both.pem", &ecdsa)?,
    ])
}

/// A file with a certificate and its key.
pub(crate) fn in_one(
    folder: &Path,
    name: &str,
    (certificate, key): &(PathBuf, PathBuf),
) -> Result<PathBuf, TrialError> {
    let read = |file| fs::read_to_string(file).map_err(TrialError::Folder);
    write(folder, name, &(read(certificate)? + &read(key)?))
}

const STREAM: &str = "lib/nginx/modules/ngx_stream_module.so";
const MOST_CONNECTIONS: usize = 12_000;
/// HAProxy ends where the limit of descriptors, often 1024, is below twice this.
const MOST_PROXIED: usize = 400;
