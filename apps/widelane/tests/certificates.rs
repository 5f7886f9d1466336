//! PEM files that `widelane serve` reads: nothing vanishes in silence, and each message names what is wrong.

mod serving;

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa};
use widelane_testkit::certificates::{Authority, Identity, Kind};

use serving::*;

/// One listener with these lines.
fn config(site: &Site, lines: &str) -> PathBuf {
    let path = site.path("w.toml");
    let text = format!("[[listener]]\nlisten = [\"127.0.0.1:0\"]\nbackend = \"127.0.0.1:9\"\n{lines}\n");
    fs::write(&path, text).expect("written");
    path
}

/// The certificate of the site.
fn usual(site: &Site) -> String {
    let (cert, key) = (site.path("a.pem"), site.path("a.key"));
    format!("[[listener.certificate]]\ncert = {cert:?}\nkey = {key:?}\n")
}

/// Returns whether a configuration can be served, and what is logged.
fn check(config: &Path) -> (bool, String) {
    let mut command = widelane();
    command.args(["serve", "--check", "--config"]).arg(config);
    let output = command.output().expect("it runs");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), log)
}

#[test]
fn sections_that_meet_on_a_line_are_refused_wherever_a_file_is_read() {
    let site = Site::new();
    let text = fs::read_to_string(site.path("a.pem")).expect("readable");
    let line = text.lines().count();
    fs::write(site.path("joined.pem"), format!("{}{text}", text.trim_end())).expect("written");
    let joined = site.path("joined.pem");
    let usual = usual(&site);
    let (cert, key) = (site.path("a.pem"), site.path("a.key"));
    for lines in [
        usual.replace("a.pem", "joined.pem"),
        usual.replace("a.key", "joined.pem"),
        format!("client_auth = {{ mode = \"optional\", ca = {joined:?} }}\n{usual}"),
        format!("client_auth = {{ mode = \"optional\", ca = {cert:?}, crl = {joined:?} }}\n{usual}"),
        format!("{usual}[listener.backend_tls]\nca = {joined:?}\n"),
        format!("{usual}[listener.backend_tls]\nca = {cert:?}\ncert = {joined:?}\nkey = {key:?}\n"),
        format!("certificates = {:?}\n", site.directory.path()),
    ] {
        let (ok, log) = check(&config(&site, &lines));
        let message = format!("joined.pem, line {line}: one section ends and another one begins on this line; put");
        assert!(!ok && log.contains(&message), "{lines}{log}");
    }
}

#[test]
fn a_byte_order_mark_hides_nothing() {
    let site = Site::new();
    let mark = |name: &str| {
        let text = fs::read(site.path(name)).expect("readable");
        fs::write(site.path(name), [&b"\xef\xbb\xbf"[..], &text].concat()).expect("written");
    };
    let pem = fs::read_to_string(site.path("a.pem")).expect("readable");
    fs::write(site.path("plain.pem"), &pem).expect("written");
    mark("a.pem");
    mark("a.key");
    let path = config(&site, &usual(&site));
    mark("w.toml");
    let mut server = serve(&path);
    connect(server.listening(), &site.path("plain.pem")).expect("TLS");
}

#[test]
fn so_many_authorities_that_their_names_fit_into_no_request_are_left_out_of_it() {
    let site = Site::new();
    let key = Kind::Ecdsa.key();
    let named = |number: usize| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, format!("{number:0100}"));
        Identity::of(&key, params).pem
    };
    let all: String = (0..600).map(named).collect();
    fs::write(site.path("many.pem"), all).expect("written");
    let ca = site.path("many.pem");
    let lines = format!("client_auth = {{ mode = \"optional\", ca = {ca:?} }}\n{}", usual(&site));
    let path = config(&site, &lines);
    let (ok, log) = check(&path);
    assert!(ok && log.contains("listener[0].client_auth.ca: "), "{log}");
    assert!(log.contains("clients are asked for one without these names"), "{log}");
    let mut server = serve(&path);
    connect(server.listening(), &site.path("a.pem")).expect("a client without a certificate");
}

#[test]
fn what_clients_may_not_like_is_told_and_served() {
    let site = Site::new();
    let own = fs::read_to_string(site.path("a.pem")).expect("readable");
    let stranger = Authority::new("stranger").pem();
    fs::write(site.path("a.pem"), format!("{own}{stranger}")).expect("written");
    let (ok, log) = check(&config(&site, &usual(&site)));
    let line = own.lines().count() + 1;
    let message = format!("certificate 2 (line {line}) is not that of the issuer of the one before it");
    assert!(ok && log.contains(&message), "{log}");
    fs::write(site.path("a.pem"), format!("{stranger}{own}")).expect("written");
    let (ok, log) = check(&config(&site, &usual(&site)));
    assert!(
        !ok && log.contains("listener[0].certificate[0].cert: the key in"),
        "{log}"
    );
    assert!(log.contains("belongs to certificate 2 of"), "{log}");
}

#[test]
fn authorities_and_lists_that_cannot_be_used_are_named_by_number_and_line() {
    let site = Site::new();
    let issuer = Authority::new("good");
    let good = issuer.pem();
    let broken = "-----BEGIN CERTIFICATE-----\nMAgwADAAAwIAAA==\n-----END CERTIFICATE-----\n";
    fs::write(site.path("ca.pem"), format!("{good}{broken}")).expect("written");
    let (ca, usual) = (site.path("ca.pem"), usual(&site));
    let line = good.lines().count() + 1;
    for lines in [
        format!("client_auth = {{ mode = \"optional\", ca = {ca:?} }}\n{usual}"),
        format!("{usual}[listener.backend_tls]\nserver_name = \"a\"\nca = {ca:?}\n"),
    ] {
        let (ok, log) = check(&config(&site, &lines));
        let message = format!("ca.pem (line {line}) cannot be used: it is damaged");
        assert!(
            !ok && log.contains("authority 2 of ") && log.contains(&message),
            "{log}"
        );
    }
    fs::write(&ca, &good).expect("written");
    let list = broken.replace("CERTIFICATE", "X509 CRL");
    fs::write(site.path("crl.pem"), list).expect("written");
    let crl = site.path("crl.pem");
    let lines = format!("client_auth = {{ mode = \"optional\", ca = {ca:?}, crl = {crl:?} }}\n{usual}");
    let (ok, log) = check(&config(&site, &lines));
    assert!(!ok && log.contains("revocation list 1 of "), "{log}");
    assert!(log.contains("crl.pem (line 1) cannot be used: it is damaged"), "{log}");
    fs::write(&crl, issuer.revoke("a client", -5)).expect("written");
    let (ok, log) = check(&config(&site, &lines));
    assert!(
        ok && log.contains("revocation list 1 (line 1) is past its next update"),
        "{log}"
    );
}

/// The first file by name is the default; files that come and go are noticed.
#[test]
fn a_directory_of_certificates_is_served_and_watched() {
    let site = Site::new();
    let folder = site.path("certificates");
    fs::create_dir(&folder).expect("made");
    let place = |name: &str| folder.join(name);
    let both = |stem: &str| {
        let read = |ending: &str| fs::read_to_string(site.path(&format!("{stem}.{ending}")));
        read("pem").expect("readable") + &read("key").expect("readable")
    };
    fs::write(place("b.pem"), both("a")).expect("written");
    fs::write(place("README"), "text").expect("written");
    let path = config(&site, &format!("certificates = {folder:?}\n"));
    let mut server = serve(&path);
    let told = server.line_with("not read: names of certificates end in");
    assert!(told.contains("README"), "{told}");
    let address = server.listening();
    connect(address, &site.path("a.pem")).expect("the only one");

    // For the same name, and before the other.
    site.certificate("new");
    fs::copy(site.path("new.key"), place("a.key")).expect("copied");
    fs::copy(site.path("new.pem"), place("a.crt")).expect("copied");
    let hidden = server.line_with("no client gets the certificate in");
    assert!(hidden.contains("b.pem"), "{hidden}");
    server.line_with("reloaded");
    connect(address, &site.path("new.pem")).expect("the first by name");

    fs::remove_file(place("a.key")).expect("removed");
    let line = server.line_with("kept the old configuration");
    assert!(line.contains("there is no key for") && line.contains("a.crt"), "{line}");
    connect(address, &site.path("new.pem")).expect("what there was");
    fs::remove_file(place("a.crt")).expect("removed");
    server.line_with("reloaded");
    connect(address, &site.path("a.pem")).expect("the other again");
}
