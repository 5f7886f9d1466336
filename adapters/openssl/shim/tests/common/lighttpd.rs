//! lighttpd, whose event loop waits for each signature without the preloaded library.

use std::path::Path;

use super::nginx::KINDS;
use super::{Files, Server, With};

/// lighttpd with a host of each kind of key, under the name of the kind, and these lines in its
/// configuration. It answers with its file `body`. `None` if it or its `mod_openssl` is not installed.
pub fn lighttpd(files: Files, lines: &str, body: &str, with: With) -> Option<Server> {
    let program = super::installed("lighttpd")?;
    if !Path::new("/usr/lib/lighttpd/mod_openssl.so").exists() {
        println!("SKIP: lighttpd's mod_openssl is not installed");
        return None;
    }
    let address = super::free_address();
    files.write("body", body);
    let hosts = KINDS.map(|(kind, name)| {
        files.certificate(kind, name);
        format!(
            "$HTTP[\"host\"] == \"{name}\" {{ ssl.pemfile = \"{}\" }}\n",
            files.path(&format!("{name}.both")).display()
        )
    });
    let config = format!(
        "server.modules = (\"mod_openssl\")\n\
         server.document-root = \"{directory}\"\n\
         server.errorlog = \"{directory}/error.log\"\n\
         server.bind = \"{ip}\"\nserver.port = {port}\n\
         mimetype.assign = (\"\" => \"text/plain\")\n{lines}\n\
         $SERVER[\"socket\"] == \"{address}\" {{\n\
             ssl.engine = \"enable\"\nssl.pemfile = \"{directory}/rsa.test.both\"\n\
         }}\n{hosts}",
        directory = files.path("").display().to_string().trim_end_matches('/'),
        ip = address.ip(),
        port = address.port(),
        hosts = hosts.concat(),
    );
    let config = files.write("lighttpd.conf", config);
    let arguments = ["-D", "-f", config.to_str().expect("a path of text")].map(str::to_owned);
    Some(Server::start(files, address, &program, &arguments, with))
}
