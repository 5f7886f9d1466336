//! TLS clients, and configurations of servers, of rustls with its stock provider: no code of ours is on that side.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{
    CryptoProvider, SupportedKxGroup, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme, StreamOwned, SupportedCipherSuite, SupportedProtocolVersion,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::certificates::Identity;
use crate::wait::PATIENCE;

/// A client's connection.
pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// TLS 1.2 and 1.3.
pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// The provider of peers.
pub fn provider() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

/// Configuration of a server with the stock provider.
pub fn server_config(identity: &Identity, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
    ServerConfig::builder_with_provider(provider().into())
        .with_protocol_versions(versions)
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .expect("an identity")
}

/// Wishes of a client. By default it speaks TLS 1.3 and takes any certificate.
#[derive(Clone)]
pub struct Wish {
    /// Versions of TLS.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// Protocols of ALPN.
    pub alpn: Vec<Vec<u8>>,
    /// Signatures that it takes.
    pub schemes: Vec<SignatureScheme>,
    /// Certificate of the client.
    pub identity: Option<Arc<Identity>>,
    /// Groups of key exchange, the preferred one first.
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    /// Cipher suites.
    pub suites: Vec<SupportedCipherSuite>,
    /// Authorities of the certificates that it takes; without them it takes any.
    pub roots: Option<RootCertStore>,
}

impl Default for Wish {
    fn default() -> Self {
        let provider = provider();
        Self {
            versions: vec![&rustls::version::TLS13],
            alpn: Vec::new(),
            schemes: provider.signature_verification_algorithms.supported_schemes(),
            identity: None,
            groups: provider.kx_groups,
            suites: provider.cipher_suites,
            roots: None,
        }
    }
}

impl Wish {
    /// As by default, but for the version.
    pub fn of(version: &'static SupportedProtocolVersion) -> Self {
        Self {
            versions: vec![version],
            ..Self::default()
        }
    }

    /// As by default, with TLS 1.2.
    pub fn tls12() -> Self {
        Self::of(&rustls::version::TLS12)
    }

    /// The configuration.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::new(self.config_and_stapled().0)
    }

    /// The configuration, and the last OCSP response that its servers have stapled.
    pub fn config_and_stapled(&self) -> (ClientConfig, Stapled) {
        let (builder, stapled) = self.builder();
        let mut config = match &self.identity {
            Some(identity) => builder
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .expect("an identity"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn.clone();
        (config, stapled)
    }

    /// For an identity whose key need not belong to its certificate.
    pub fn config_with_any_key(&self) -> Arc<ClientConfig> {
        let identity = self.identity.as_ref().expect("an identity");
        let key = identity.key.clone_key();
        let key = provider().key_provider.load_private_key(key).expect("a key");
        let certified = CertifiedKey::new(identity.chain.clone(), key);
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        Arc::new(self.builder().0.with_client_cert_resolver(resolver))
    }

    fn builder(&self) -> (ConfigBuilder<ClientConfig, WantsClientCert>, Stapled) {
        let provider = CryptoProvider {
            kx_groups: self.groups.clone(),
            cipher_suites: self.suites.clone(),
            ..provider()
        };
        let verifier = Verifier::new(self.roots.clone(), self.schemes.clone());
        let stapled = verifier.stapled.clone();
        let builder = ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&self.versions)
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        (builder, stapled)
    }
}

/// A connection whose handshake has not begun.
pub fn connection(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> io::Result<Tls> {
    over(TcpStream::connect(address)?, name, config)
}

/// As [`connection`], over a socket.
pub fn over(socket: TcpStream, name: &str, config: &Arc<ClientConfig>) -> io::Result<Tls> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(tls, socket))
}

/// A connection after its handshake.
pub fn connect(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> io::Result<Tls> {
    let mut stream = connection(address, name, config)?;
    complete(&mut stream)?;
    Ok(stream)
}

/// Completes a handshake.
pub fn complete(stream: &mut Tls) -> io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}

/// The last OCSP response that a server has stapled; empty without one.
pub type Stapled = Arc<Mutex<Vec<u8>>>;

/// Checks signatures, and certificates if it knows authorities. Revocation is not looked at.
#[derive(Debug)]
pub struct Verifier {
    certificates: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
    schemes: Vec<SignatureScheme>,
    stapled: Stapled,
}

impl Verifier {
    /// Takes these signatures, and certificates of `roots`, or any.
    pub fn new(roots: Option<RootCertStore>, schemes: Vec<SignatureScheme>) -> Self {
        let provider = Arc::new(provider());
        let checks = |roots: RootCertStore| {
            let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
            builder.build().expect("authorities")
        };
        Self {
            certificates: roots.map(checks),
            algorithms: provider.signature_verification_algorithms,
            schemes,
            stapled: Stapled::default(),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.stapled.lock().expect("no panic") = ocsp.to_vec();
        match &self.certificates {
            Some(checks) => checks.verify_server_cert(leaf, others, name, ocsp, now),
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
