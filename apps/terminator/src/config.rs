//! What the operator wrote: the TOML file, its defaults and its errors.
//!
//! Everything here is text and plain values; files that the configuration names are opened
//! elsewhere (`material`). A fault is reported as *file, line, key, what is wrong, what to do*.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use toml::de::{DeTable, DeValue};
use widelane_batching::Clock;
use widelane_crypto::chacha20poly1305::Choice;

/// A whole configuration. `Config::default()` listens nowhere; every other field has a usable
/// value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Config {
    /// Event-loop threads. `None`: one for each CPU of `cpus`, or of the machine, vector cores
    /// included.
    pub workers: Option<NonZeroUsize>,
    /// CPUs to pin the workers to, round robin. Empty: not pinned; where there are vector cores,
    /// workers stay off those that are not given back.
    pub cpus: CpuList,
    /// User to become once the sockets are bound. Only root can ask for that.
    pub user: Option<String>,
    /// Group to become once the sockets are bound. `None`: the user's own group.
    pub group: Option<String>,
    /// Which registers ChaCha20-Poly1305 uses.
    #[serde(deserialize_with = "choice")]
    pub chacha20poly1305: Choice,
    /// What an orderly stop may take.
    pub drain: Drain,
    /// How public-key operations are gathered.
    pub batching: Batching,
    /// Where Prometheus may ask.
    pub metrics: Metrics,
    /// What one process accepts.
    pub limits: Limits,
    /// The addresses served.
    #[serde(rename = "listener")]
    pub listeners: Vec<Listener>,
}

/// What an orderly stop may take.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Drain {
    /// How long live connections may go on after SIGTERM.
    #[serde(rename = "seconds", deserialize_with = "seconds")]
    pub timeout: Duration,
}

/// How public-key operations are gathered across connections.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Batching {
    /// `false`: each operation is done alone, by AWS-LC, where it is asked for.
    pub enabled: bool,
    /// Where passes run.
    pub placement: Placement,
    /// CPUs of the vector cores, for [`Placement::VectorCores`].
    pub vector_cpus: CpuList,
    /// For how long a vector core has nothing to do before it is given back: workers that are not
    /// pinned may run on it until there are passes again. `None`: 50 milliseconds, or eight times as
    /// long as the clock stays low after a pass. Never less than that once.
    #[serde(rename = "rest_seconds", deserialize_with = "optional_seconds")]
    pub rest: Option<Duration>,
    /// Jobs of one operation that may wait, for each worker or for all vector cores together,
    /// before new ones are refused.
    pub queue: usize,
    /// Which code computes.
    pub backend: SigningBackend,
    /// The machine's profile, by which [`Placement::Auto`], the width of passes and the form of
    /// ChaCha20-Poly1305 are decided: a file or a processor's name, for whoever sets `clock`.
    pub profile: Option<String>,
    /// What that profile says; see [`Document::set_clock`].
    #[serde(skip)]
    pub clock: Clock,
}

/// Where batched passes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Where it is cheaper on this machine: see [`Batching::clock`].
    #[default]
    Auto,
    /// On the worker that gathered them.
    Inline,
    /// On threads of their own, pinned to `vector_cpus`.
    VectorCores,
}

/// Which code does the batched operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SigningBackend {
    /// The widest this CPU has.
    #[default]
    Auto,
    /// AVX-512 IFMA on 512-bit registers.
    Avx512ifma,
    /// AVX-512 IFMA on 256-bit registers.
    #[serde(rename = "avx512ifma-256")]
    Avx512ifma256,
    /// AWS-LC, one by one.
    AwsLc,
}

/// Where Prometheus may ask.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Metrics {
    /// Address of `/metrics` and `/healthz`, plain HTTP. `None`: not served.
    pub listen: Option<SocketAddr>,
}

/// What one process accepts, over all listeners.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Limits {
    /// Live connections. One more is accepted and closed at once. `None`: as many as the process
    /// may have descriptors for.
    pub connections: Option<usize>,
    /// Connections that have not finished their handshake. One more is accepted and closed at once.
    pub handshakes: usize,
    /// Time from accept to the end of the handshake.
    #[serde(rename = "handshake_seconds", deserialize_with = "seconds")]
    pub handshake: Duration,
    /// Time without a byte in either direction.
    #[serde(rename = "idle_seconds", deserialize_with = "seconds")]
    pub idle: Duration,
    /// Time to reach the backend.
    #[serde(rename = "backend_connect_seconds", deserialize_with = "seconds")]
    pub backend_connect: Duration,
}

/// One group of addresses with the same certificates and the same backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Listener {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Where the decrypted bytes go.
    pub backend: Backend,
    /// Send a PROXY protocol version 2 header to the backend.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Application protocols, most wanted first. Empty: ALPN is not answered.
    #[serde(default)]
    pub alpn: Vec<String>,
    /// Protocol versions.
    #[serde(default = "both_versions")]
    pub versions: Vec<TlsVersion>,
    /// Cipher suites by IANA name, most wanted first. Empty: all, AES-128-GCM first.
    #[serde(default)]
    pub cipher_suites: Vec<String>,
    /// Key exchange groups, most wanted first. Empty: all, the post-quantum hybrid first.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Whether clients are asked for a certificate, and whose are good.
    #[serde(default)]
    pub client_auth: Option<ClientAuth>,
    /// Session resumption.
    #[serde(default)]
    pub tickets: Tickets,
    /// Kinds of key, most wanted first, where several certificates are for the host that a client
    /// names. Kinds that are not listed come after those that are.
    #[serde(default = "usual_preference")]
    pub certificate_preference: Vec<KeyKind>,
    /// Certificates. Those with a name of the first one answer clients that name no host or an
    /// unknown one.
    #[serde(rename = "certificate", default)]
    pub certificates: Vec<Certificate>,
}

/// Session resumption by tickets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Tickets {
    /// TLS 1.3 tickets sent after a full handshake; 0 turns resumption off for both versions.
    pub count: usize,
    /// How long one ticket key encrypts; it decrypts for as long again. At most six hours.
    #[serde(rename = "rotation_seconds", deserialize_with = "seconds")]
    pub rotation: Duration,
}

/// A certificate chain and its key.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Certificate {
    /// PEM file with the chain, leaf first.
    pub cert: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// Host names it answers for. Empty: those in the certificate.
    #[serde(default)]
    pub names: Vec<String>,
}

/// Client certificates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ClientAuth {
    /// Whether a client may come without one.
    pub mode: ClientAuthMode,
    /// PEM file of the authorities that sign them.
    pub ca: PathBuf,
    /// PEM file of revocation lists. If there is one, every authority of a client's chain needs its
    /// list in it, and a list past its next update refuses all clients of that authority.
    #[serde(default)]
    pub crl: Option<PathBuf>,
}

/// Whether a client may come without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuthMode {
    /// It may; a certificate that it shows must be good.
    Optional,
    /// No connection without a good one.
    Required,
}

/// A kind of private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// ECDSA on P-256, P-384 or P-521.
    Ecdsa,
    /// Ed25519.
    Ed25519,
    /// RSA.
    Rsa,
    /// ML-DSA-44, -65 or -87.
    MlDsa,
}

/// A TLS protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3
    #[serde(rename = "1.3")]
    Tls13,
}

/// Where the decrypted bytes go: `ADDR:PORT`, `unix:PATH`, or `unix:@NAME` for an abstract socket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Backend {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A UNIX socket's path.
    Unix(PathBuf),
    /// A UNIX socket's name in the abstract namespace.
    Abstract(String),
}

/// CPU numbers written as `0,2,4-7`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct CpuList(pub Vec<usize>);

/// A configuration together with where it came from, so that a fault can name its place.
#[derive(Clone, Debug)]
pub struct Document {
    origin: Origin,
    config: Config,
}

/// A configuration that cannot be used: where, what is wrong, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct ConfigError {
    place: String,
    problem: String,
    remedy: String,
}

/// Something wrong at one key, not yet tied to a file. Keys are written
/// `listener[0].certificate[1].key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) key: String,
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

#[derive(Clone, Debug)]
enum Origin {
    Flags,
    File { path: PathBuf, text: String },
}

impl Document {
    /// Reads and checks a configuration file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            place: path.display().to_string(),
            problem: format!("cannot read the configuration: {error}"),
            remedy: "give --config a readable TOML file".into(),
        })?;
        Self::parse(path, text)
    }

    /// Checks the text of a configuration file; `path` is only for messages.
    pub fn parse(path: &Path, text: String) -> Result<Self, ConfigError> {
        let config = toml::from_str(&text).map_err(|error| syntax(path, &text, &error))?;
        let origin = Origin::File {
            path: path.to_owned(),
            text,
        };
        Self { origin, config }.checked()
    }

    /// Takes a configuration that was put together from command line flags or by a program.
    pub fn from_flags(config: Config) -> Result<Self, ConfigError> {
        Self {
            origin: Origin::Flags,
            config,
        }
        .checked()
    }

    /// Says what wide code does to the clock of this machine; without, it costs nothing.
    pub fn set_clock(&mut self, clock: Clock) {
        self.config.batching.clock = clock;
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Ties a fault to its file and line.
    pub(crate) fn locate(&self, fault: Fault) -> ConfigError {
        let place = match &self.origin {
            Origin::Flags => format!("command line: {}", flag(&fault.key)),
            Origin::File { path, text } => match line_of_key(text, &fault.key) {
                Some(line) => format!("{}:{line}: {}", path.display(), fault.key),
                None => format!("{}: {}", path.display(), fault.key),
            },
        };
        ConfigError {
            place,
            problem: fault.problem,
            remedy: fault.remedy,
        }
    }

    fn checked(self) -> Result<Self, ConfigError> {
        match check(&self.config) {
            Ok(()) => Ok(self),
            Err(fault) => Err(self.locate(fault)),
        }
    }
}

impl Fault {
    pub(crate) fn new(
        key: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

impl Listener {
    /// A listener with default policy and no certificate yet.
    pub fn new(listen: Vec<SocketAddr>, backend: Backend) -> Self {
        Self {
            listen,
            backend,
            proxy_protocol: false,
            alpn: Vec::new(),
            versions: both_versions(),
            cipher_suites: Vec::new(),
            groups: Vec::new(),
            client_auth: None,
            tickets: Tickets::default(),
            certificate_preference: usual_preference(),
            certificates: Vec::new(),
        }
    }
}

impl ClientAuth {
    /// Certificates signed by an authority of the file `ca`.
    pub fn new(mode: ClientAuthMode, ca: impl Into<PathBuf>) -> Self {
        Self {
            mode,
            ca: ca.into(),
            crl: None,
        }
    }
}

impl Certificate {
    /// A certificate for the names that it contains.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            cert: cert.into(),
            key: key.into(),
            names: Vec::new(),
        }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
        }
    }
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            enabled: true,
            placement: Placement::Auto,
            vector_cpus: CpuList::default(),
            rest: None,
            queue: 4096,
            backend: SigningBackend::Auto,
            profile: None,
            clock: Clock::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: None,
            handshakes: 4096,
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            backend_connect: Duration::from_secs(5),
        }
    }
}

impl Default for Tickets {
    fn default() -> Self {
        Self {
            count: 2,
            rotation: LONGEST_ROTATION,
        }
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.strip_prefix('@') {
                Some("") => Err("`unix:@` names no socket; write `unix:@NAME`".into()),
                Some(name) => Ok(Self::Abstract(name.into())),
                None if path.is_empty() => {
                    Err("`unix:` names no socket; write `unix:/run/app.sock`".into())
                }
                None => Ok(Self::Unix(path.into())),
            };
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!(
                "`{text}` is no backend; write `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/a.sock`"
            )
        })
    }
}

impl TryFrom<String> for Backend {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
        }
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| format!("`{part}` is no CPU list; write `0,2,4-7`");
        let mut cpus = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().map_err(|_| wrong(part))?;
            let last: usize = last.trim().parse().map_err(|_| wrong(part))?;
            if first > last || last >= MOST_CPUS {
                return Err(wrong(part));
            }
            cpus.extend(first..=last);
            if cpus.len() > MOST_CPUS {
                return Err(format!("more than {MOST_CPUS} CPUs listed; name each once"));
            }
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What holds between keys, which the types cannot say.
fn check(config: &Config) -> Result<(), Fault> {
    if config.listeners.is_empty() {
        return Err(Fault::new(
            "listener",
            "nothing to listen on",
            "add a [[listener]] section, or use --listen, --cert, --key and --backend",
        ));
    }
    if config.group.is_some() && config.user.is_none() {
        return Err(Fault::new(
            "group",
            "a group without a user",
            "set `user` as well",
        ));
    }
    let batching = &config.batching;
    if batching.placement == Placement::VectorCores && batching.vector_cpus.0.is_empty() {
        return Err(Fault::new(
            "batching.placement",
            "vector cores need CPUs of their own",
            "set `vector_cpus` (--vector-cpus), for example \"3\", or placement \"inline\"",
        ));
    }
    for (key, value) in [
        ("batching.queue", batching.queue),
        ("limits.connections", config.limits.connections.unwrap_or(1)),
        ("limits.handshakes", config.limits.handshakes),
    ] {
        if value == 0 {
            return Err(Fault::new(
                key,
                "0 would refuse everything",
                "set at least 1",
            ));
        }
    }
    let mut seen = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        check_listener(&format!("listener[{index}]"), listener)?;
        for (place, address) in listener.listen.iter().enumerate() {
            if address.port() != 0 && seen.contains(address) {
                return Err(Fault::new(
                    format!("listener[{index}].listen[{place}]"),
                    format!("{address} is listed twice"),
                    "keep it in one listener only",
                ));
            }
            seen.push(*address);
        }
    }
    Ok(())
}

fn check_listener(key: &str, listener: &Listener) -> Result<(), Fault> {
    let fault = |name: &str, problem: &str, remedy: &str| {
        Err(Fault::new(format!("{key}.{name}"), problem, remedy))
    };
    if listener.listen.is_empty() {
        return fault("listen", "no address", "write listen = [\"0.0.0.0:443\"]");
    }
    if listener.certificates.is_empty() {
        return fault(
            "certificate",
            "no certificate",
            "add cert and key (--cert, --key)",
        );
    }
    if listener.versions.is_empty() {
        return fault(
            "versions",
            "no protocol version left",
            "write [\"1.2\", \"1.3\"]",
        );
    }
    if listener.tickets.count > MOST_TICKETS {
        return fault(
            "tickets.count",
            "more tickets than any client keeps",
            "set 0 to 16",
        );
    }
    if !(Duration::from_secs(1)..=LONGEST_ROTATION).contains(&listener.tickets.rotation) {
        return fault(
            "tickets.rotation_seconds",
            "out of range",
            "set 1 to 21600 (six hours)",
        );
    }
    for (index, protocol) in listener.alpn.iter().enumerate() {
        if protocol.is_empty() || protocol.len() > 255 {
            return fault(
                &format!("alpn[{index}]"),
                "a protocol name has 1 to 255 bytes",
                "write for example \"h2\" or \"http/1.1\"",
            );
        }
    }
    Ok(())
}

fn both_versions() -> Vec<TlsVersion> {
    vec![TlsVersion::Tls12, TlsVersion::Tls13]
}

/// ECDSA first: every client of today verifies it, and it is the shortest and cheapest. ML-DSA
/// last: it adds ten kilobytes and more to a handshake, for which the operator should ask.
fn usual_preference() -> Vec<KeyKind> {
    vec![
        KeyKind::Ecdsa,
        KeyKind::Ed25519,
        KeyKind::Rsa,
        KeyKind::MlDsa,
    ]
}

/// Whole or fractional seconds, more than none and at most a year.
fn choice<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Choice, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn optional_seconds<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    seconds(deserializer).map(Some)
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a number of seconds, for example 30 or 0.5"
    )]
    enum Number {
        Whole(i64),
        Fraction(f64),
    }
    let value = match Number::deserialize(deserializer)? {
        Number::Whole(value) => value as f64,
        Number::Fraction(value) => value,
    };
    if !(0.001..=31_536_000.0).contains(&value) {
        return Err(serde::de::Error::custom(
            "out of range, expected seconds between 0.001 and 31536000 (a year)",
        ));
    }
    Ok(Duration::from_secs_f64(value))
}

/// An error of the TOML reader, with file, line and key.
fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let file = path.display();
    let place = match error.span() {
        Some(span) => {
            let line = line_at(text, span.start);
            match key_at(text, &span) {
                Some(key) => format!("{file}:{line}: {key}"),
                None => format!("{file}:{line}"),
            }
        }
        None => file.to_string(),
    };
    let remedy = "correct it; packaging/widelane.toml shows every key".into();
    ConfigError {
        place,
        problem: error.message().trim().replace('\n', " "),
        remedy,
    }
}

/// The command line flag that sets a key, for configurations that came from flags.
fn flag(key: &str) -> &str {
    match key.rsplit('.').next().unwrap_or(key) {
        "cert" => "--cert",
        "key" => "--key",
        "backend" => "--backend",
        "placement" | "vector_cpus" if key.starts_with("batching") => "--vector-cpus",
        "certificate" => "--cert",
        "listener" => "--listen",
        last if last.starts_with("listen[") => "--listen",
        _ => key,
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text
        .bytes()
        .take(offset)
        .filter(|&byte| byte == b'\n')
        .count()
}

/// The line of a key, or of the nearest table around it that exists.
fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut offset = None;
    let mut table = Some(document.get_ref());
    for part in key.split('.') {
        let (name, indices) = part.split_once('[').unwrap_or((part, ""));
        let Some((found, value)) = table.and_then(|table| table.get_key_value(name)) else {
            break;
        };
        offset = Some(found.span().start);
        let mut value = value;
        for index in indices
            .split('[')
            .filter_map(|index| index.trim_end_matches(']').parse().ok())
        {
            let index: usize = index;
            match value.get_ref() {
                DeValue::Array(array) => match array.get(index) {
                    Some(item) => value = item,
                    None => break,
                },
                _ => break,
            }
            offset = Some(value.span().start);
        }
        table = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        };
    }
    offset.map(|offset| line_at(text, offset))
}

/// The key whose value contains `span`.
fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
    fn walk(value: &DeValue<'_>, span: &Range<usize>, path: &mut String) {
        match value {
            DeValue::Table(table) => walk_table(table, span, path),
            DeValue::Array(array) => {
                for (index, item) in array.iter().enumerate() {
                    if covers(&item.span(), span) || holds(item.get_ref(), span) {
                        path.push_str(&format!("[{index}]"));
                        return walk(item.get_ref(), span, path);
                    }
                }
            }
            _ => {}
        }
    }
    fn walk_table(table: &DeTable<'_>, span: &Range<usize>, path: &mut String) {
        for (key, value) in table {
            if covers(&key.span(), span)
                || covers(&value.span(), span)
                || holds(value.get_ref(), span)
            {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key.get_ref());
                return walk(value.get_ref(), span, path);
            }
        }
    }
    /// A `[table]`'s own span is its header only, so its members are looked at as well.
    fn holds(value: &DeValue<'_>, span: &Range<usize>) -> bool {
        match value {
            DeValue::Table(table) => table.iter().any(|(key, value)| {
                covers(&key.span(), span)
                    || covers(&value.span(), span)
                    || holds(value.get_ref(), span)
            }),
            DeValue::Array(array) => array
                .iter()
                .any(|item| covers(&item.span(), span) || holds(item.get_ref(), span)),
            _ => false,
        }
    }
    fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
        outer.start <= inner.start && inner.end <= outer.end
    }
    let document = DeTable::parse(text).ok()?;
    let mut path = String::new();
    walk_table(document.get_ref(), span, &mut path);
    (!path.is_empty()).then_some(path)
}

/// The ticketer of rustls changes its own keys after six hours; ours can only do so earlier.
const LONGEST_ROTATION: Duration = Duration::from_secs(6 * 3600);
const MOST_TICKETS: usize = 16;
/// Linux's own limit for a CPU number (`CONFIG_NR_CPUS` at its largest).
const MOST_CPUS: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_crypto::chacha20poly1305::Form;

    fn error(text: &str) -> String {
        match Document::parse(Path::new("w.toml"), text.into()) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error.to_string(),
        }
    }

    const GOOD: &str = r#"
[[listener]]
listen = ["127.0.0.1:8443"]
backend = "unix:/run/app.sock"
[[listener.certificate]]
cert = "a.pem"
key = "a.key"
"#;

    #[test]
    fn defaults_fill_what_is_not_written() {
        let document = Document::parse(Path::new("w.toml"), GOOD.into()).unwrap();
        let listener = &document.config().listeners[0];
        assert_eq!(listener.versions, both_versions());
        assert_eq!(listener.backend, Backend::Unix("/run/app.sock".into()));
        assert!(document.config().batching.enabled);
        assert_eq!(document.config().limits, Limits::default());
    }

    #[test]
    fn the_example_in_packaging_is_accepted() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/widelane.toml");
        let document = Document::read(&path).unwrap();
        assert!(!document.config().listeners.is_empty());
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let message = error(&GOOD.replace("backend =", "backedn ="));
        assert!(
            message.starts_with("w.toml:4: listener[0].backedn: "),
            "{message}"
        );
        assert!(message.contains("unknown field `backedn`"), "{message}");
    }

    #[test]
    fn a_bad_value_is_named_with_line_key_and_remedy() {
        let message = error(&GOOD.replace("unix:/run/app.sock", "localhost:80"));
        assert!(
            message.starts_with("w.toml:4: listener[0].backend: "),
            "{message}"
        );
        assert!(message.contains("127.0.0.1:8080"), "{message}");
    }

    #[test]
    fn faults_between_keys_name_their_line() {
        let message = error(&GOOD.replace("[[listener.", "versions = []\n[[listener."));
        assert!(
            message.starts_with("w.toml:5: listener[0].versions: "),
            "{message}"
        );

        let message = error(&format!("[limits]\nconnections = 0\n{GOOD}"));
        assert!(
            message.starts_with("w.toml:2: limits.connections: "),
            "{message}"
        );

        let twice = GOOD.replace("\"127.0.0.1:8443\"", "\"127.0.0.1:1\",\n\"127.0.0.1:1\"");
        let message = error(&twice);
        assert!(
            message.starts_with("w.toml:4: listener[0].listen[1]: "),
            "{message}"
        );
    }

    #[test]
    fn client_certificates_need_an_authority_and_a_mode() {
        let with = |value: &str| {
            let key = format!("client_auth = {value}\n[[listener.");
            GOOD.replace("[[listener.", &key)
        };
        let text = with(r#"{ ca = "ca.pem", mode = "required" }"#);
        let document = Document::parse(Path::new("w.toml"), text).unwrap();
        assert_eq!(
            document.config().listeners[0].client_auth,
            Some(ClientAuth::new(ClientAuthMode::Required, "ca.pem"))
        );
        for (wrong, what) in [
            (r#"{ mode = "required" }"#, "missing field `ca`"),
            (r#"{ ca = "ca.pem" }"#, "missing field `mode`"),
            (
                r#"{ ca = "ca.pem", mode = "maybe" }"#,
                "unknown variant `maybe`",
            ),
        ] {
            let message = error(&with(wrong));
            assert!(
                message.starts_with("w.toml:5: listener[0].client_auth"),
                "{message}"
            );
            assert!(message.contains(what), "{message}");
        }
    }

    #[test]
    fn forms_of_chacha20poly1305_are_known_by_name() {
        let text = format!("chacha20poly1305 = \"256-light\"\n{GOOD}");
        let document = Document::parse(Path::new("w.toml"), text).unwrap();
        let form = document.config().chacha20poly1305;
        assert_eq!(form, Choice::Exactly(Form::Ymm256Light));
        let message = error(&format!("chacha20poly1305 = \"1024\"\n{GOOD}"));
        assert!(
            message.starts_with("w.toml:1: chacha20poly1305"),
            "{message}"
        );
        assert!(
            message.contains("512-ifma, 512, 256, 256-light"),
            "{message}"
        );
    }

    #[test]
    fn seconds_may_be_fractions_but_not_nothing() {
        let text = format!("[limits]\nidle_seconds = 0.5\n{GOOD}");
        let document = Document::parse(Path::new("w.toml"), text).unwrap();
        assert_eq!(document.config().limits.idle, Duration::from_millis(500));
        for wrong in ["0", "-1", "nan", "inf", "1e30", "\"5\""] {
            let message = error(&format!("[limits]\nidle_seconds = {wrong}\n{GOOD}"));
            assert!(message.contains("seconds"), "{message}");
            assert!(message.starts_with("w.toml:2: limits"), "{message}");
        }
    }

    #[test]
    fn damaged_texts_get_one_line_that_names_the_file() {
        let example = include_str!("../../../packaging/widelane.toml");
        // Every key set, so that more than comments is damaged.
        let text: String = example
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(code) if code.contains(" = ") => code,
                _ => line,
            })
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .flat_map(|line| [line, "\n"])
            .collect();
        let mut refused = 0;
        for place in 0..text.len() {
            for damaged in [
                text[..place].to_owned(),
                format!("{}{}", &text[..place], &text[place + 1..]),
                format!("{}\n{}", &text[..place], &text[place..]),
                format!("{}]{}", &text[..place], &text[place + 1..]),
            ] {
                if let Err(error) = Document::parse(Path::new("w.toml"), damaged) {
                    let message = error.to_string();
                    assert!(message.starts_with("w.toml"), "{message}");
                    assert!(!message.contains('\n'), "{message}");
                    refused += 1;
                }
            }
        }
        assert!(refused > text.len(), "{refused} of {} places", text.len());
    }

    #[test]
    fn cpu_lists() {
        assert_eq!("0,2, 4-6".parse(), Ok(CpuList(vec![0, 2, 4, 5, 6])));
        assert_eq!("".parse(), Ok(CpuList(vec![])));
        for wrong in ["a", "3-1", "1-", "-", "0-99999999999", "0-8191,0-8191"] {
            assert!(wrong.parse::<CpuList>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn flags_are_named_as_flags() {
        let listener = Listener::new(
            vec!["127.0.0.1:1".parse().unwrap()],
            Backend::Tcp("127.0.0.1:2".parse().unwrap()),
        );
        let config = Config {
            listeners: vec![listener],
            ..Config::default()
        };
        let message = Document::from_flags(config).unwrap_err().to_string();
        assert!(
            message.starts_with("command line: --cert: no certificate"),
            "{message}"
        );
    }
}
