//! HAProxy with two threads and its own `ssl-mode-async`.

use super::nginx::KINDS;
use super::{Files, Server, With};

/// HAProxy with a certificate of each kind, under the name of the kind. `options` are those of the
/// program, `global` and `defaults` lines of these sections. `None` if it is not installed.
pub fn haproxy(files: Files, options: &[&str], global: &str, defaults: &str, with: With) -> Option<Server> {
    let program = super::installed("haproxy")?;
    let address = super::free_address();
    let certificates = KINDS.map(|(kind, name)| {
        files.certificate(kind, name);
        format!("crt {} ", files.path(&format!("{name}.both")).display())
    });
    let config = files.write(
        "haproxy.cfg",
        format!(
            "global\n nbthread 2\n ssl-mode-async\n {global}\n\
             defaults\n mode http\n timeout server 30s\n timeout connect 5s\n {defaults}\n\
             frontend tls\n bind {address} ssl {certificates}\n\
             http-request return status 200 content-type text/plain lf-string %[ssl_fc_sni]\n",
            certificates = certificates.concat(),
        )
        .replace("DIR/", &files.path("").display().to_string()),
    );
    let config = config.to_str().expect("a path of text");
    let arguments = [options, &["-f", config]].concat();
    let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
    Some(Server::start(files, address, &program, &arguments, with))
}
