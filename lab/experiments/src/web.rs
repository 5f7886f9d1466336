//! The web server of Cloudflare's experiment: a page from which Lua strips white space and which
//! brotli compresses, for each request anew. Terminators are in front of it.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use widelane_handshakes::{Server, Stage, TrialError};
use widelane_sim::Random;

use crate::error::ExperimentError;
use crate::programs::Programs;

/// Starts nginx without TLS.
pub(crate) fn backend(stage: &Stage, needs: &Programs) -> Result<Server, ExperimentError> {
    let folder = stage.folder();
    let mut command = nginx(needs, folder, &Listener::Backend)?;
    let cpu = stage.options().server_cpu;
    Ok(Server::start("nginx", &mut command, cpu, folder)?)
}

/// The command that starts nginx with the page. Writes the page and the configuration.
pub(crate) fn nginx(needs: &Programs, folder: &Path, listener: &Listener) -> Result<Command, ExperimentError> {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).map_err(TrialError::Folder);
    write("index.html", &page())?;
    write("nginx.conf", &configuration(needs, folder, listener))?;
    let mut command = Command::new(&needs.nginx);
    command
        .arg("-c")
        .arg(folder.join("nginx.conf"))
        .arg("-p")
        .arg(folder)
        .env("GLIBC_TUNABLES", KEEP_MEMORY);
    Ok(command)
}

/// A medium page of words that compress to about 16 KiB, the same each time.
pub(crate) fn page() -> String {
    page_of(PAGE)
}

/// Text of at least `bytes` bytes.
pub(crate) fn page_of(bytes: usize) -> String {
    let mut random = Random::new(1);
    let mut random = |below: u32| (random.share() * f64::from(below)) as u32;
    let words: Vec<String> = (0..3000)
        .map(|_| {
            let letters = 3 + random(7);
            (0..letters).map(|_| char::from(b'a' + random(26) as u8)).collect()
        })
        .collect();
    let mut page = "<html><body>\n".to_owned();
    while page.len() < bytes {
        let class = random(10);
        let _ = write!(page, "      <p class=\"c{class}\">  ");
        for _ in 0..12 {
            let _ = write!(page, "  {}", words[random(3000) as usize]);
        }
        page.push_str("  </p>   \n");
    }
    page.push_str("</body></html>\n");
    page
}

/// Page as nginx strips it: does the same as the Lua below.
pub(crate) fn stripped(page: &str) -> String {
    let mut stripped = String::new();
    let mut in_space = false;
    for letter in page.chars() {
        let space = letter.is_ascii_whitespace();
        match (space, in_space) {
            (false, _) => stripped.push(letter),
            (true, false) => stripped.push(' '),
            (true, true) => {}
        }
        in_space = space;
    }
    stripped
}

/// Address at which nginx takes connections.
pub(crate) enum Listener {
    /// Connections from a terminator, without TLS.
    Backend,
    /// Connections from clients, with these certificates and keys.
    Tls(SocketAddr, [(PathBuf, PathBuf); 2]),
}

impl Listener {
    /// Text for nginx's configuration.
    fn text(&self, folder: &Path) -> String {
        let (address, certificates) = match self {
            Self::Backend => return format!("listen unix:{}/{SOCKET};", folder.display()),
            Self::Tls(address, certificates) => (address, certificates),
        };
        let mut text =
            format!("listen {address} ssl;\n        ssl_protocols TLSv1.3;\n        ssl_session_tickets off;");
        for (certificate, key) in certificates {
            let (certificate, key) = (certificate.display(), key.display());
            let _ = write!(
                text,
                "\n        ssl_certificate {certificate};\n        ssl_certificate_key {key};"
            );
        }
        text
    }
}

fn configuration(needs: &Programs, folder: &Path, listener: &Listener) -> String {
    let listen = listener.text(folder);
    let folder = folder.display();
    let mut text = String::new();
    for module in &needs.modules {
        let _ = writeln!(text, "load_module {};", module.display());
    }
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {folder}/{name};\n"))
        .concat();
    let _ = write!(
        text,
        "worker_processes 1;\ndaemon off;\npid {folder}/nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n    access_log off;\n{temporary}    keepalive_requests 1000000000;\n\
         \x20   types {{ text/html html; }}\n    brotli on;\n    brotli_comp_level 1;\n\
         \x20   output_buffers 2 128k;\n    server {{\n        {listen}\n\
         \x20       root {folder};\n        location / {{\n\
         \x20           rewrite_by_lua_block {{\n\
         \x20               if ngx.var.arg_br then\n\
         \x20                   ngx.req.set_header(\"accept-encoding\", \"br\")\n\
         \x20               end\n\
         \x20           }}\n\
         \x20           header_filter_by_lua_block {{ ngx.header.content_length = nil }}\n\
         \x20           body_filter_by_lua_block {{\n\
         \x20               ngx.arg[1] = ngx.re.gsub(ngx.arg[1], \"\\\\s+\", \" \", \"jo\")\n\
         \x20           }}\n        }}\n    }}\n}}\n"
    );
    text
}

/// Brotli allocates a megabyte or more for each page. Whether the C library gives it back to the kernel after
/// each one depends on what lies behind it by chance, and costs a third of the rate: it keeps it.
const KEEP_MEMORY: &str = "glibc.malloc.trim_threshold=268435456:glibc.malloc.mmap_threshold=33554432";
/// Socket of the backend, in the folder of the stage.
pub(crate) const SOCKET: &str = "backend.sock";
/// Bytes of the page before Lua and brotli.
const PAGE: usize = 48 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_the_same_each_time_and_has_white_space_to_strip() {
        let page = page();
        assert_eq!(page, super::page());
        assert!(stripped(&page).len() < page.len() * 9 / 10);
        assert_eq!(stripped("a  b\n\tc "), "a b c ");
    }
}
