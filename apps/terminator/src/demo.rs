//! A demonstration that needs no files: it makes certificates and serves one embedded page.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::config::{Backend, Certificate, Listener};

/// The files of the certificates, and the server of the page. Dropping it removes both.
#[derive(Debug)]
pub struct Demo {
    directory: PathBuf,
    backend: Backend,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// Reason why the demonstration could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A certificate.
    #[error("cannot make a self-signed certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// Files, sockets or threads.
    #[error("cannot set up the demonstration: {0}; check that $TMPDIR (else /tmp) is writable")]
    Machine(#[from] io::Error),
}

impl Demo {
    /// Makes a certificate of each kind for `localhost` and starts serving the page.
    pub fn start() -> Result<Self, DemoError> {
        let name = format!("widelane-demo-{}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        private_directory(&directory)?;
        for (kind, algorithm) in KINDS {
            // RSA keys are of 2048 bits.
            let key = KeyPair::generate_for(algorithm)?;
            let names = ["localhost".into(), "127.0.0.1".into(), "::1".into()];
            let mut params = CertificateParams::new(names)?;
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, "Widelane demonstration");
            let certificate = params.self_signed(&key)?;
            std::fs::write(directory.join(format!("{kind}.pem")), certificate.pem())?;
            std::fs::write(directory.join(format!("{kind}.key")), key.serialize_pem())?;
        }
        let running = Some(serve_page(&name)?);
        Ok(Self {
            directory,
            backend: Backend::Abstract(name),
            running,
        })
    }

    /// A listener with the demonstration's certificates and page.
    pub fn listener(&self, listen: Vec<SocketAddr>) -> Listener {
        let mut listener = Listener::new(listen, self.backend.clone());
        listener.alpn = vec!["http/1.1".into()];
        listener.certificates = self.certificates();
        listener
    }

    /// The demonstration's certificates, for a listener with another backend.
    pub fn certificates(&self) -> Vec<Certificate> {
        let file = |kind, ending| self.directory.join(format!("{kind}.{ending}"));
        let pair = |(kind, _)| Certificate::new(file(kind, "pem"), file(kind, "key"));
        KINDS.map(pair).into()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Makes a directory that only this user can read, since keys will be in it. An existing one is
/// removed first, because another user may have prepared it.
fn private_directory(directory: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if directory.symlink_metadata().is_ok() {
        // Also left over by a killed process with the same number.
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::DirBuilder::new().mode(0o700).create(directory)
}

fn serve_page(name: &str) -> io::Result<(oneshot::Sender<()>, JoinHandle<()>)> {
    use std::os::linux::net::SocketAddrExt;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let socket = std::os::unix::net::UnixListener::bind_addr(&address)?;
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("widelane-demo".into())
        .spawn(move || {
            runtime.block_on(async {
                let Ok(socket) = tokio::net::UnixListener::from_std(socket) else {
                    return;
                };
                let accepting = async {
                    loop {
                        match socket.accept().await {
                            Ok((client, _)) => drop(tokio::spawn(answer(client))),
                            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                        }
                    }
                };
                tokio::select! { _ = stopped => {}, () = accepting => {} }
            });
        })?;
    Ok((stop, thread))
}

/// Answers every request of a connection with the page, until the client closes.
async fn answer(mut client: tokio::net::UnixStream) -> io::Result<()> {
    let mut request = Vec::with_capacity(1024);
    loop {
        let end = request.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = request.starts_with(b"HEAD ");
            request.drain(..end + 4);
            let mut response = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\
                 Content-Length: {}\r\n\r\n",
                PAGE.len()
            );
            if !head {
                response.push_str(PAGE);
            }
            client.write_all(response.as_bytes()).await?;
        } else if request.len() > LONGEST_REQUEST || client.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
}

/// The names of the files, and the algorithm of the key in each.
const KINDS: [(&str, &rcgen::SignatureAlgorithm); 5] = [
    ("ecdsa-p256", &rcgen::PKCS_ECDSA_P256_SHA256),
    ("ecdsa-p384", &rcgen::PKCS_ECDSA_P384_SHA384),
    ("ed25519", &rcgen::PKCS_ED25519),
    ("rsa", &rcgen::PKCS_RSA_SHA256),
    ("ml-dsa-65", &rcgen::PKCS_ML_DSA_65),
];
const PAGE: &str = include_str!("demo.html");
const LONGEST_REQUEST: usize = 16 * 1024;
