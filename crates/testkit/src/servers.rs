//! Free addresses, and configurations of web servers.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// An address on which nothing else listens. Each test process has a loopback address of its own, so that neither
/// other servers nor other clients take the port meanwhile.
pub fn free_address() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let own = IpAddr::V4(Ipv4Addr::new(127, 64 + high, middle, low.max(1)));
    let listener = TcpListener::bind((own, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

/// A port of 127.0.0.1 that is free now, unless another program is quicker.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Writes a configuration of nginx into `folder`, where all its files are, and returns its path. nginx stays in the
/// foreground and has one worker unless `main`, the lines before all others, says otherwise.
pub fn nginx(folder: &Path, main: &str, http: &str) -> PathBuf {
    let at = folder.display();
    let workers = match main.contains("worker_processes") {
        true => "",
        false => "worker_processes 1;",
    };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|kind| format!("{kind}_temp_path {at}/{kind};"));
    let text = format!(
        "{main} daemon off; {workers} pid {at}/nginx.pid; error_log {at}/error.log info;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; {}\n{http} }}\n",
        temporary.join(" ")
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text).expect("a file of our own folder");
    file
}
