//! nginx with the provider and the preloaded library: everything that its TLS does must work as
//! without them.

#![forbid(unsafe_code)]

mod common;

use common::client::{GROUPS, VERSIONS, Wish};
use common::{Files, Kind, Server, With};

/// nginx with one worker and these lines in its `http` block.
fn nginx(files: Files, http: &str) -> Server {
    let address = common::free_address();
    let directory = files.path("");
    let directory = directory.display();
    let http = http
        .replace("LISTEN", &format!("listen {address}"))
        .replace("DIR/", &format!("{directory}"));
    let config = files.write(
        "nginx.conf",
        format!(
            "daemon off; worker_processes 1; pid {directory}nginx.pid;
             {USER}
             error_log {directory}error.log info;
             env LD_PRELOAD; env OPENSSL_CONF; env WIDELANE_CPU_DISABLE;
             events {{ worker_connections 4096; }}
             http {{
                 access_log off; client_body_temp_path {directory}body;
                 proxy_temp_path {directory}proxy; fastcgi_temp_path {directory}fastcgi;
                 uwsgi_temp_path {directory}uwsgi; scgi_temp_path {directory}scgi;
                 ssl_protocols TLSv1.2 TLSv1.3;
                 {http}
             }}"
        ),
    );
    let config = config.to_str().expect("a path of text");
    let error_log = files.path("error.log");
    let error_log = error_log.to_str().expect("a path of text");
    let command = ["nginx", "-c", config, "-e", error_log];
    Server::start(files, address, &command, With::Shim)
}

/// A server block for each kind of key, under the name of the kind.
const KINDS: [(Kind, &str); 4] = [
    (Kind::Rsa, "rsa.test"),
    (Kind::Ecdsa, "ecdsa.test"),
    (Kind::EcdsaP384, "p384.test"),
    (Kind::Ed25519, "ed25519.test"),
];

fn servers_of_each_kind(files: &Files) -> String {
    let block = |(kind, name): &(Kind, &str)| {
        files.certificate(*kind, name);
        format!(
            "server {{
                 LISTEN ssl; server_name {name};
                 ssl_certificate DIR/{name}.pem; ssl_certificate_key DIR/{name}.key;
                 location / {{ return 200 {name}; }}
             }}"
        )
    };
    KINDS.iter().map(block).collect()
}

#[test]
fn full_handshakes_of_every_kind() {
    if !common::installed("nginx") {
        return;
    }
    let files = Files::new();
    let blocks = servers_of_each_kind(&files);
    let http = format!("ssl_session_cache off; ssl_session_tickets off; {blocks}");
    let server = nginx(files, &http);
    let client = |version, group| {
        let wish = Wish {
            version,
            group,
            ..Wish::default()
        };
        (group, wish.client(&server.files))
    };
    let clients: Vec<_> = VERSIONS
        .iter()
        .flat_map(|version| GROUPS.map(|group| client(version, group)))
        .collect();
    common::load(64, 500, |i| {
        let (_, name) = KINDS[i % KINDS.len()];
        let (group, client) = &clients[i / KINDS.len() % clients.len()];
        let answer = client.expect(server.address, name, "/", name)?;
        match answer.group == Some(group.name()) {
            true => Ok(()),
            false => Err(format!("agreed on {:?}", answer.group)),
        }
    });
    server.assert_log_without(BAD);
}

/// Levels of nginx's log that no test here may reach.
const BAD: &[&str] = &["[emerg]", "[alert]", "[crit]"];

const USER: &str = "user root root;";
