//! lighttpd with the provider and the preloaded library.

#![forbid(unsafe_code)]

mod common;

use std::path::Path;

use common::client::{VERSIONS, Wish};
use common::{Files, Kind, Server, With};

#[test]
fn handshakes_and_answers() {
    let Some(program) = common::installed("lighttpd") else {
        return;
    };
    if !Path::new("/usr/lib/lighttpd/mod_openssl.so").exists() {
        return println!("SKIP: lighttpd's mod_openssl is not installed");
    }
    let files = Files::new();
    let address = common::free_address();
    let names = [(Kind::Rsa, "rsa.test"), (Kind::Ecdsa, "ecdsa.test")];
    let body = "lighttpd".repeat(40_000);
    files.write("body", &body);
    let hosts = names.map(|(kind, name)| {
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
         mimetype.assign = (\"\" => \"text/plain\")\n\
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
    let server = Server::start(files, address, &program, &arguments, With::Shim);
    common::load(64, 400, |i| {
        let wish = Wish {
            version: VERSIONS[i % 2],
            ..Wish::default()
        };
        let (_, name) = names[i / 2 % 2];
        wish.client(&server.files)
            .expect(address, name, "/body", &body)?;
        Ok(())
    });
    assert!(server.process().runs(), "{}", server.log());
}
