//! The web server of Cloudflare's experiment: a page from which Lua strips white space and which
//! brotli compresses, for each request anew; in front of it terminators that differ in the form of
//! their record cipher only.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use widelane_handshakes::{Server, Stage, TrialError, output};
use widelane_sim::Random;

use crate::error::ExperimentError;
use crate::needs::Needs;

/// nginx without TLS.
pub(crate) struct Backend {
    _server: Server,
}

/// `widelane serve` in front of it.
pub(crate) struct Terminator {
    server: Server,
    pub(crate) address: SocketAddr,
}

impl Backend {
    pub(crate) fn start(stage: &Stage, needs: &Needs) -> Result<Self, ExperimentError> {
        let folder = stage.folder();
        let write =
            |name: &str, text: &str| fs::write(folder.join(name), text).map_err(TrialError::Folder);
        write("index.html", &page())?;
        write("nginx.conf", &configuration(needs, folder))?;
        let mut command = Command::new(&needs.nginx);
        command.arg("-c").arg(folder.join("nginx.conf"));
        command.arg("-p").arg(folder);
        let cpu = stage.options().server_cpu;
        let server = Server::start("nginx", &mut command, cpu, folder)?;
        Ok(Self { _server: server })
    }
}

impl Terminator {
    /// Starts one with a form of ChaCha20-Poly1305; `brake` is what `widelane emulate` is to make of
    /// the CPU.
    pub(crate) fn start(
        stage: &Stage,
        form: &'static str,
        brake: Option<&str>,
    ) -> Result<Self, ExperimentError> {
        let options = stage.options();
        let address = free_address()?;
        let folder = stage.folder();
        let file = folder.join(format!("{form}.toml"));
        // The client offers ECDSA's signatures too, and the handshakes are not what is measured.
        let (certificate, key) = &stage.certificates()[1];
        let text = format!(
            "workers = 1\ncpus = \"{}\"\nchacha20poly1305 = \"{form}\"\n\
             [[listener]]\nlisten = [\"{address}\"]\nbackend = \"unix:{}\"\n\
             [[listener.certificate]]\ncert = \"{}\"\nkey = \"{}\"\n",
            options.server_cpu,
            folder.join(SOCKET).display(),
            certificate.display(),
            key.display(),
        );
        fs::write(&file, text).map_err(TrialError::Folder)?;
        let mut command = Command::new(&options.widelane);
        if let Some(model) = brake {
            // Both CPUs count as active; nothing wide runs on the load's.
            command.args(["emulate", "--as", model, "--cpus"]);
            command.arg(format!("{},{}", options.server_cpu, options.load_cpu));
            command.arg("--").arg(&options.widelane);
        }
        command.arg("serve").arg("--config").arg(&file);
        // It keeps what passes cost on this machine: not beyond the experiment.
        command.env("STATE_DIRECTORY", folder);
        // The brake takes both CPUs; the server's workers are bound by its configuration.
        let cpu = brake.is_none().then_some(options.server_cpu);
        let mut server = Server::start(form, &mut command, cpu, folder)?;
        server.ready(address, stage.interrupt())?;
        Ok(Self { server, address })
    }

    /// An error with what it said, if it has ended.
    pub(crate) fn alive(&mut self) -> Result<(), ExperimentError> {
        Ok(self.server.alive()?)
    }

    /// Asks for the page and checks it. Gives its compressed length in bytes.
    pub(crate) fn check(&self, stage: &Stage, needs: &Needs) -> Result<usize, ExperimentError> {
        let url = format!("https://{}/", self.address);
        let get = |compressed: bool| {
            let mut command = Command::new(&needs.curl);
            command.args(["--silent", "--show-error", "--insecure", "--noproxy", "*"]);
            if compressed {
                command.args(["--header", "accept-encoding: br"]);
            }
            command.arg(&url);
            output(&mut command, stage.options().load_cpu, stage.interrupt())
        };
        let plain = get(false)?;
        let wrong = |what: String| ExperimentError::Answer {
            server: url.clone(),
            what,
        };
        if plain != stripped(&page()).as_bytes() {
            return Err(wrong(format!(
                "{} bytes that are not the page",
                plain.len()
            )));
        }
        let compressed = get(true)?.len();
        match (1..plain.len()).contains(&compressed) {
            true => Ok(compressed),
            false => Err(wrong(format!(
                "{compressed} bytes, which are not compressed"
            ))),
        }
    }
}

/// A medium page of words that compress to about 16 KiB, the same each time.
fn page() -> String {
    page_of(PAGE)
}

/// Text of at least so many bytes.
pub(crate) fn page_of(bytes: usize) -> String {
    let mut random = Random::new(1);
    let mut random = |below: u32| (random.share() * f64::from(below)) as u32;
    let words: Vec<String> = (0..3000)
        .map(|_| {
            let letters = 3 + random(7);
            (0..letters)
                .map(|_| char::from(b'a' + random(26) as u8))
                .collect()
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

/// What nginx makes of the page: the Lua below.
fn stripped(page: &str) -> String {
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

fn configuration(needs: &Needs, folder: &Path) -> String {
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
         \x20   output_buffers 2 128k;\n    server {{\n        listen unix:{folder}/{SOCKET};\n\
         \x20       root {folder};\n        location / {{\n\
         \x20           header_filter_by_lua_block {{ ngx.header.content_length = nil }}\n\
         \x20           body_filter_by_lua_block {{\n\
         \x20               ngx.arg[1] = ngx.re.gsub(ngx.arg[1], \"\\\\s+\", \" \", \"jo\")\n\
         \x20           }}\n        }}\n    }}\n}}\n"
    );
    text
}

fn free_address() -> Result<SocketAddr, ExperimentError> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    free.map_err(|source| {
        let what = "cannot find a free port";
        TrialError::Machine { what, source }.into()
    })
}

const SOCKET: &str = "backend.sock";
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
