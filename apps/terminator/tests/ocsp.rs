//! OCSP responses that `openssl ocsp` has made, and what `openssl s_client -status` sees of them.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use common::*;
use rcgen::{CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose};
use widelane_terminator::{Backend, Certificate, Config, OcspSource, Server};
use widelane_testkit::certificates::parameters;
use widelane_testkit::openssl;

/// An authority with the files that `openssl ocsp` needs to answer for it.
struct Issuer {
    files: Files,
    authority: Authority,
}

/// Entry of the authority's register about its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Good,
    Revoked,
    Unknown,
}

impl Entry {
    /// Line of the register in the form of `openssl ca`.
    fn line(self) -> String {
        let serial = SERIAL.map(|byte| format!("{byte:02X}")).concat();
        match self {
            Self::Good => format!("V\t491231235959Z\t\t{serial}\tunknown\t/CN=a\n"),
            Self::Revoked => {
                format!("R\t491231235959Z\t240101000000Z\t{serial}\tunknown\t/CN=a\n")
            }
            Self::Unknown => "V\t491231235959Z\t\t01\tunknown\t/CN=b\n".to_owned(),
        }
    }
}

impl Issuer {
    /// With a certificate for `a.example`, whose chain is in `leaf.pem`.
    fn new(extensions: Vec<CustomExtension>) -> Self {
        let (files, authority) = (Files::new(), Authority::new("test authority"));
        files.write("ca.pem", authority.pem());
        files.write("ca.key", authority.key_pem());
        let mut params = parameters(&["a.example"]);
        params.serial_number = Some(SERIAL.to_vec().into());
        params.custom_extensions = extensions;
        let mut leaf = authority.sign(Kind::Ecdsa, params);
        leaf.pem += &authority.pem();
        leaf.write(&*files, "leaf");
        Self { files, authority }
    }

    fn certificate(&self, ocsp: Option<OcspSource>) -> Certificate {
        let [leaf, key] = ["leaf.pem", "leaf.key"].map(|name| self.files.path(name));
        let mut certificate = Certificate::new(leaf, key);
        certificate.ocsp = ocsp;
        certificate
    }

    /// A certificate of the authority for a responder that answers for it, in `signer.pem` and `signer.key`.
    fn signer(&self, usage: ExtendedKeyUsagePurpose) {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![usage];
        params.distinguished_name.push(DnType::CommonName, "signer");
        let signer = self.authority.sign(Kind::Ecdsa, params);
        signer.write(&*self.files, "signer");
    }

    /// Answer of `openssl ocsp`, signed with the key of this name.
    fn response(&self, entry: Entry, signer: &str) -> Vec<u8> {
        let folder = self.files.path("");
        openssl::ocsp_response(&folder, "leaf", &entry.line(), signer)
    }
}

/// View of a client: the status of the certificate, or that there is no response.
fn seen(address: SocketAddr, arguments: &[&str]) -> String {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-status", "-servername", "a.example", "-connect"]);
    client.arg(address.to_string()).args(arguments).stdin(Stdio::null());
    let output = client.output().expect("openssl");
    let text = String::from_utf8_lossy(&output.stdout);
    let status = text.lines().find_map(|line| line.trim().strip_prefix("Cert Status: "));
    match status {
        Some(status) => status.to_owned(),
        None if text.contains("OCSP response: no response sent") => "none".to_owned(),
        None => format!("nothing: {text}"),
    }
}

fn server(certificate: Certificate) -> (Config, Server) {
    let config = config(vec![listener(echo(), vec![certificate])]);
    let server = start(&config);
    (config, server)
}

fn gauge(server: &Server, name: &str, certificate: &Certificate) -> u64 {
    let file = certificate.cert.display();
    metric(server, &format!("widelane_ocsp_{name}{{file=\"{file}\"}}"))
}

#[test]
fn what_a_file_says_is_stapled_unless_it_is_unknown_or_not_about_the_certificate() {
    if installed("openssl").is_none() {
        return;
    }
    let authority = Issuer::new(Vec::new());
    let other = Issuer::new(Vec::new());
    authority.signer(ExtendedKeyUsagePurpose::OcspSigning);
    let path = authority.files.path("leaf.ocsp");
    let certificate = authority.certificate(Some(OcspSource::File(path.clone())));
    let good = authority.response(Entry::Good, "ca");
    let delegated = authority.response(Entry::Good, "signer");
    let revoked = authority.response(Entry::Revoked, "ca");
    let unknown = authority.response(Entry::Unknown, "ca");
    authority.signer(ExtendedKeyUsagePurpose::ServerAuth);
    let unauthorised = authority.response(Entry::Good, "signer");
    let foreign = other.response(Entry::Good, "ca");

    // There is no file yet. The server starts all the same.
    let (config, server) = server(certificate.clone());
    let address = server.addresses()[0];
    let tls13 = || seen(address, &["-tls1_3"]);
    assert_eq!(tls13(), "none");
    assert_eq!(gauge(&server, "source_ok", &certificate), 0);
    let reload = || server.reload(&document(&config)).expect("a reload");
    let take = |bytes: &[u8]| {
        let new = authority.files.path("new");
        std::fs::write(&new, bytes).expect("written");
        std::fs::rename(&new, &path).expect("renamed");
        reload();
    };
    for (bytes, expected) in [(&good, "good"), (&revoked, "revoked"), (&delegated, "good")] {
        take(bytes);
        assert_eq!([tls13(), seen(address, &["-tls1_2"])], [expected; 2]);
        assert_eq!(gauge(&server, "source_ok", &certificate), 1);
        let is_revoked = u64::from(expected == "revoked");
        assert_eq!(gauge(&server, "revoked", &certificate), is_revoked);
    }
    let until = gauge(&server, "next_update_timestamp_seconds", &certificate);
    let from = gauge(&server, "this_update_timestamp_seconds", &certificate);
    assert_eq!(until - from, 86_400);
    // The one from before stays, whatever is in the file.
    let half = &revoked[..revoked.len() / 2];
    for bad in [&unknown[..], &unauthorised, &foreign, half, b"", b"garbage"] {
        take(bad);
        assert_eq!(tls13(), "good");
        assert_eq!(gauge(&server, "source_ok", &certificate), 0);
        assert_eq!(gauge(&server, "stapled", &certificate), 1);
    }
    // Nor does a file that cannot be read keep back a reload.
    std::fs::remove_file(&path).expect("removed");
    reload();
    assert_eq!(tls13(), "good");
    std::fs::create_dir(&path).expect("made");
    reload();
    assert_eq!(tls13(), "good");
    assert_eq!(gauge(&server, "source_ok", &certificate), 0);
    // Clients that do not ask get none, and nothing is stapled where nothing is configured.
    let mut without = config.clone();
    without.listeners[0].certificates[0].ocsp = None;
    server.reload(&document(&without)).expect("a reload");
    assert_eq!(tls13(), "none");
    assert!(!metrics(&server).contains("widelane_ocsp_stapled{"));
}

#[test]
fn a_new_response_takes_no_session_away() {
    if installed("openssl").is_none() {
        return;
    }
    let authority = Issuer::new(Vec::new());
    let path = authority.files.path("leaf.ocsp");
    let certificate = authority.certificate(Some(OcspSource::File(path.clone())));
    std::fs::write(&path, authority.response(Entry::Good, "ca")).expect("written");
    let (config, server) = server(certificate);
    let client = Wish::default().config();
    let connect = || {
        let mut stream = connect(server.addresses()[0], "a.example", &client).expect("TLS");
        ping(&mut stream).expect("an answer");
        stream
    };
    let mut old = connect();
    std::fs::write(&path, authority.response(Entry::Revoked, "ca")).expect("written");
    server.reload(&document(&config)).expect("a reload");
    ping(&mut old).expect("an answer");
    let resumed = connect().conn.handshake_kind();
    assert_eq!(resumed, Some(rustls::HandshakeKind::Resumed));
}

#[test]
fn a_renewed_certificate_is_never_served_without_the_response_of_its_file() {
    if installed("openssl").is_none() {
        return;
    }
    let renewals = [1, 2].map(|_| {
        let authority = Issuer::new(Vec::new());
        let response = authority.response(Entry::Good, "ca");
        std::fs::write(authority.files.path("leaf.ocsp"), response).expect("written");
        authority
    });
    let place = Files::new();
    let renew = |to: &Issuer| {
        for name in ["leaf.pem", "leaf.key", "leaf.ocsp"] {
            std::fs::copy(to.files.path(name), place.path(name)).expect("copied");
        }
    };
    let certificate = |files: &Files| {
        let mut certificate = Certificate::new(files.path("leaf.pem"), files.path("leaf.key"));
        certificate.ocsp = Some(OcspSource::File(files.path("leaf.ocsp")));
        listener(echo(), vec![certificate])
    };
    // Responses of many others, which a reload checks before the one that matters.
    let mut listeners = vec![certificate(&renewals[0].files); 15];
    listeners.push(certificate(&place));
    let config = config(listeners);
    renew(&renewals[0]);
    let server = start(&config);
    let address = server.addresses()[15];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut handshakes = 0;
            while !done.load(Relaxed) {
                // Another configuration each time, so that no session is resumed.
                let (client, stapled) = Wish::default().config_and_stapled();
                connect(address, "a.example", &Arc::new(client))?;
                let stapled = stapled.lock().expect("no panic");
                assert!(!stapled.is_empty(), "no response");
                handshakes += 1;
            }
            std::io::Result::Ok(handshakes)
        });
        for to in renewals.iter().rev().cycle().take(40) {
            renew(to);
            server.reload(&document(&config)).expect("a reload");
        }
        done.store(true, Relaxed);
        let handshakes = client.join().expect("no panic");
        assert!(handshakes.expect("a response each time") > 0);
    });
}

#[test]
fn a_certificate_that_demands_a_response_is_served_without_one_and_shown() {
    if installed("openssl").is_none() {
        return;
    }
    let feature = CustomExtension::from_oid_content(TLS_FEATURE, b"\x30\x03\x02\x01\x05".to_vec());
    let authority = Issuer::new(vec![feature]);
    let certificate = authority.certificate(None);
    let (mut config, server) = server(certificate.clone());
    assert_eq!(seen(server.addresses()[0], &[]), "none");
    let demanded = || ["must_staple", "stapled"].map(|name| gauge(&server, name, &certificate));
    assert_eq!(demanded(), [1, 0]);
    let path = authority.files.path("leaf.ocsp");
    std::fs::write(&path, authority.response(Entry::Good, "ca")).expect("written");
    config.listeners[0].certificates[0].ocsp = Some(OcspSource::File(path));
    server.reload(&document(&config)).expect("a reload");
    assert_eq!(demanded(), [1, 1]);
}

/// `openssl ocsp` as a responder, until it is dropped.
struct Responder {
    _running: Running,
    address: String,
}

impl Responder {
    fn start(issuer: &Issuer, entry: Entry) -> Self {
        issuer.files.write("index", entry.line());
        let line = "ocsp -port 0 -ndays 1 -index index -CA ca.pem -rsigner ca.pem -rkey ca.key";
        let child = Command::new("openssl")
            .args(line.split(' '))
            .current_dir(issuer.files.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut running = Running(child.expect("openssl"));
        let mut line = String::new();
        let stdout = running.0.stdout.take().expect("stdout");
        // ACCEPT [::]:12345 PID=123
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.split(' ').nth(1).expect("an address");
        let (_, port) = address.trim().rsplit_once(':').expect("a port");
        let address = format!("http://127.0.0.1:{port}");
        Self {
            _running: running,
            address,
        }
    }
}

/// A responder of our own, which answers each question as `answer` wants. Returns its address.
fn responder(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> String {
    let Backend::Tcp(address) = tcp_backend(move |mut client| {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap_or(0) == 1 {
            request.push(byte[0]);
        }
        answer(&mut client);
    }) else {
        panic!("TCP");
    };
    format!("http://{address}")
}

fn answer(client: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n");
    // A client that refuses it may have gone.
    let _ = client.write_all(&[head.as_bytes(), body].concat());
}

/// The extension in which a certificate names its responder.
fn names(responder: &str) -> CustomExtension {
    let mut access = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x01\x86".to_vec();
    access.push(responder.len() as u8);
    access.extend(responder.as_bytes());
    let sequence = |contents: Vec<u8>| [&[0x30, contents.len() as u8], &contents[..]].concat();
    CustomExtension::from_oid_content(AUTHORITY_INFO_ACCESS, sequence(sequence(access)))
}

/// Number of fetched responses, and of failed fetches.
fn fetches(server: &Server, certificate: &Certificate) -> [u64; 2] {
    let file = certificate.cert.display();
    ["ok", "failed"].map(|result| {
        let labels = format!("{{file=\"{file}\",result=\"{result}\"}}");
        metric(server, &format!("widelane_ocsp_fetches_total{labels}"))
    })
}

#[test]
fn responses_are_fetched_from_the_responder_of_the_configuration() {
    if installed("openssl").is_none() {
        return;
    }
    for (entry, expected) in [
        (Entry::Good, "good"),
        (Entry::Revoked, "revoked"),
        (Entry::Unknown, "none"),
    ] {
        let authority = Issuer::new(Vec::new());
        let responder = Responder::start(&authority, entry);
        // The first question is in the address, the others are sent behind it.
        let address = match entry {
            Entry::Good => responder.address.clone(),
            _ => format!("{}/?a=b", responder.address),
        };
        let source = OcspSource::Responder(address);
        let certificate = authority.certificate(Some(source));
        let (_, server) = server(certificate.clone());
        eventually("the responder was asked", || fetches(&server, &certificate) != [0, 0]);
        assert_eq!(seen(server.addresses()[0], &[]), expected, "{entry:?}");
        let is_good = u64::from(expected != "none");
        assert_eq!(fetches(&server, &certificate), [is_good, 1 - is_good]);
    }
}

#[test]
fn responses_are_fetched_from_the_responder_that_the_certificate_names_and_kept() {
    if installed("openssl").is_none() {
        return;
    }
    // The certificate has to name the responder, which has to know the certificate.
    let response = Arc::new(Mutex::new(None));
    let known = response.clone();
    let address = responder(move |client| {
        let response: Option<Vec<u8>> = known.lock().expect("no panic").take();
        match response {
            Some(response) => answer(client, "200 OK", "", &response),
            None => answer(client, "503 Service Unavailable", "", b""),
        }
    });
    let authority = Issuer::new(vec![names(&address)]);
    *response.lock().expect("no panic") = Some(authority.response(Entry::Good, "ca"));
    let certificate = authority.certificate(Some(OcspSource::Fetch));
    // One certificate of two listeners is asked for once.
    let listeners = [1, 2].map(|_| listener(echo(), vec![certificate.clone()]));
    let mut document = document(&config(listeners.into()));
    document.keep_responses_in(authority.files.path("state/ocsp"));
    let first = Server::start(&document).expect("a server");
    eventually("a response is fetched", || fetches(&first, &certificate) == [1, 0]);
    assert_eq!(seen(first.addresses()[0], &[]), "good");
    // A reload changes nothing, and the next start has it at once, from the disk.
    first.reload(&document).expect("a reload");
    assert_eq!(seen(first.addresses()[0], &[]), "good");
    assert_eq!(fetches(&first, &certificate), [1, 0]);
    drop(first);
    let second = Server::start(&document).expect("a server");
    assert_eq!(seen(second.addresses()[0], &[]), "good");
    assert_eq!(fetches(&second, &certificate), [0, 0]);
}

#[test]
fn bad_responders_neither_harm_nor_delay_the_server() {
    if installed("openssl").is_none() {
        return;
    }
    let authority = Issuer::new(Vec::new());
    let good = authority.response(Entry::Good, "ca");
    let mut damaged = good.clone();
    *damaged.last_mut().expect("bytes") ^= 1;
    let foreign = Issuer::new(Vec::new()).response(Entry::Good, "ca");
    authority.signer(ExtendedKeyUsagePurpose::ServerAuth);
    let unauthorised = authority.response(Entry::Good, "signer");
    let says = |body: Vec<u8>| responder(move |client| answer(client, "200 OK", "", &body));
    let endless = responder(|client| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let chunk = [&b"2000\r\n"[..], &[0x30; 0x2000], b"\r\n"].concat();
        let chunks = std::iter::once(head).chain(std::iter::repeat(chunk));
        chunks
            .map(|bytes| client.write_all(&bytes))
            .take_while(Result::is_ok)
            .for_each(drop);
    });
    // The answer itself would be good, and so would be the one to which it leads.
    let elsewhere = says(good.clone());
    let redirecting = responder(move |client| {
        let location = format!("Location: {elsewhere}/\r\n");
        answer(client, "302 Found", &location, &good);
    });
    let absent = free_address();
    for (what, address) in [
        ("of a bad signature", says(damaged)),
        ("about another certificate", says(foreign)),
        ("of an unauthorised signer", says(unauthorised)),
        ("garbage", says(b"<html>Log in, please</html>".to_vec())),
        ("nothing", says(Vec::new())),
        ("too long", says(vec![0x30; 100_000])),
        ("endless", endless),
        ("redirected", redirecting),
        ("an error", responder(|client| answer(client, "500 No", "", b""))),
        ("not HTTP", responder(|client| drop(client.write_all(b"hello\r\n")))),
        ("absent", format!("http://{absent}")),
        ("of no host", "http://no-such-host.invalid".to_owned()),
    ] {
        let certificate = authority.certificate(Some(OcspSource::Responder(address)));
        let (_, server) = server(certificate.clone());
        eventually(what, || fetches(&server, &certificate) == [0, 1]);
        assert_eq!(gauge(&server, "stapled", &certificate), 0, "{what}");
        ping(&mut hello(server.addresses()[0]).expect("TLS")).expect("an answer");
    }
    // One that says nothing for as long as the test runs.
    let (asked, is_asked) = std::sync::mpsc::channel();
    let silent = responder(move |client| {
        let _ = asked.send(());
        let _ = client.read(&mut [0]);
    });
    let certificate = authority.certificate(Some(OcspSource::Responder(silent)));
    let (config, server) = server(certificate.clone());
    is_asked.recv_timeout(PATIENCE).expect("a question");
    assert_eq!(seen(server.addresses()[0], &[]), "none");
    server.reload(&document(&config)).expect("a reload");
    assert_eq!(fetches(&server, &certificate), [0, 0], "it still waits");
    server.stop(PATIENCE);
}

#[test]
fn certificates_without_a_responder_or_an_issuer_are_served_without_a_response() {
    let authority = Issuer::new(vec![names("ldap://a.example/")]);
    let certificate = authority.certificate(Some(OcspSource::Fetch));
    let (config, server) = server(certificate.clone());
    assert_eq!(gauge(&server, "stapled", &certificate), 0);
    ping(&mut hello(server.addresses()[0]).expect("TLS")).expect("an answer");
    let chain = std::fs::read_to_string(&certificate.cert).expect("PEM");
    let (leaf, _) = chain.split_once("\n-----BEGIN").expect("two certificates");
    std::fs::write(&certificate.cert, format!("{leaf}\n")).expect("written");
    server.reload(&document(&config)).expect("a reload");
    assert_eq!(gauge(&server, "stapled", &certificate), 0);
    ping(&mut hello(server.addresses()[0]).expect("TLS")).expect("an answer");
}

const SERIAL: [u8; 4] = [0x4a, 1, 2, 3];
/// id-pe-tlsfeature.
const TLS_FEATURE: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 24];
const AUTHORITY_INFO_ACCESS: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 1];
