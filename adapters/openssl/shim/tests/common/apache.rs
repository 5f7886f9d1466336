//! Apache's event MPM.

use std::path::Path;

use super::nginx::KINDS;
use super::{Files, Server, With};

/// Apache with a host of each kind of key, under the name of the kind, and these lines in its
/// configuration. `None` if it or its `mod_ssl` is not installed.
pub fn apache(files: Files, lines: &str, with: With) -> Option<Server> {
    let program = super::installed("apache2")?;
    let modules = Path::new("/usr/lib/apache2/modules");
    if !modules.join("mod_ssl.so").exists() {
        println!("SKIP: Apache's mod_ssl is not installed");
        return None;
    }
    let address = super::free_address();
    let hosts = KINDS.map(|(kind, name)| {
        files.certificate(kind, name);
        format!(
            "<VirtualHost *:*>\n ServerName {name}\n SSLEngine on\n\
             SSLCertificateFile DIR/{name}.pem\n SSLCertificateKeyFile DIR/{name}.key\n\
             ErrorDocument 403 {name}\n <Location />\n Require all denied\n </Location>\n\
             </VirtualHost>\n"
        )
    });
    let load = ["mpm_event", "authz_core", "socache_shmcb", "ssl"];
    let load = load.map(|name| {
        let file = modules.join(format!("mod_{name}.so"));
        format!("LoadModule {name}_module {}\n", file.display())
    });
    let config = format!(
        "ServerRoot DIR/\nServerName localhost\nPidFile DIR/pid\nDefaultRuntimeDir DIR/\n\
         ErrorLog DIR/error.log\nListen {address}\n{}\
         User #65534\nGroup #65534\nThreadsPerChild 25\nStartServers 2\nServerLimit 4\n\
         MinSpareThreads 25\nMaxSpareThreads 75\nMaxRequestWorkers 75\n\
         SSLSessionCache none\n{lines}\n{}",
        load.concat(),
        hosts.concat()
    );
    let directory = files.path("");
    let config = config.replace("DIR/", &directory.display().to_string());
    let config = files.write("apache.conf", config);
    let config = config.to_str().expect("a path of text");
    let arguments = ["-DFOREGROUND", "-f", config].map(str::to_owned);
    Some(Server::start(files, address, &program, &arguments, with))
}
