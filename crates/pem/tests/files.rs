//! Tests that everything in a file is found, or that an error names the line.

use base64ct::{Base64, Encoding};
use proptest::prelude::*;
use rustls_pki_types::PrivateKeyDer;
use widelane_pem::{Contents, Fault};

fn sequence(inside: &[u8]) -> Vec<u8> {
    let length = u16::try_from(inside.len()).unwrap().to_be_bytes();
    [&[0x30, 0x82], &length[..], inside].concat()
}

/// The outside of a certificate: what is signed, an algorithm, a signature.
fn certificate(filling: u8) -> Vec<u8> {
    let signed = [&[0x30, 60][..], &[filling; 60]].concat();
    sequence(&[&signed[..], &[0x30, 0], &[0x03, 1, 0]].concat())
}

fn pkcs8(filling: u8) -> Vec<u8> {
    sequence(&[0x02, 1, 0, 0x30, 0, 0x04, 2, filling, 7])
}

fn integers(count: usize) -> Vec<u8> {
    sequence(&[0x02, 1, 9].repeat(count))
}

fn sec1() -> Vec<u8> {
    sequence(&[0x02, 1, 1, 0x04, 2, 5, 5])
}

fn pem(label: &str, der: &[u8]) -> String {
    let digits = Base64::encode_string(der);
    let lines: Vec<_> = digits.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn cert(filling: u8) -> String {
    pem("CERTIFICATE", &certificate(filling))
}

fn key() -> String {
    pem("PRIVATE KEY", &pkcs8(1))
}

fn lengths(text: impl AsRef<[u8]>) -> Result<Vec<usize>, Fault> {
    let chain = widelane_pem::chain(text.as_ref())?;
    let authorities = widelane_pem::authorities(text.as_ref())?;
    assert_eq!(chain.len(), authorities.len());
    Ok(chain.iter().map(|one| one.line).collect())
}

#[track_caller]
fn refused(result: Result<impl Sized, Fault>, line: impl Into<Option<usize>>, words: &str) {
    let fault = result.err().expect("it is refused");
    assert_eq!(fault.line, line.into(), "{fault}");
    assert!(fault.to_string().contains(words), "{fault}");
}

#[test]
fn every_spelling_that_peers_take_is_read() {
    let (one, two) = (cert(1), cert(2));
    let second = one.lines().count() + 1;
    let both = format!("{one}{two}");
    let found = |text: &str| assert_eq!(lengths(text), Ok(vec![1, second]), "{text}");
    found(&both);
    found(&both.replace('\n', "\r\n"));
    found(&both.replace('\n', "\r"));
    found(&both.replace('\n', "  \t\n"));
    found(&both.replace('\n', "\n    "));
    found(both.trim_end());
    found(&format!("\u{feff}{both}"));
    found(&format!("\u{feff}{one}\u{feff}{two}"));
    found(&both.replace("CERTIFICATE", "X509 CERTIFICATE"));
    let text = format!("subject=CN = a\n----\n{one}\n# begin of another\n{two}the end");
    assert_eq!(lengths(text), Ok(vec![3, second + 4]));
    let blank = one.replace("-----END", "\n-----END");
    assert_eq!(lengths(blank), Ok(vec![1]));
    let digits = Base64::encode_string(&certificate(1));
    let long = format!("-----BEGIN CERTIFICATE-----\n{digits}\n-----END CERTIFICATE-----");
    assert_eq!(lengths(long), Ok(vec![1]));
}

#[test]
fn sections_that_meet_on_a_line_are_refused_everywhere() {
    let joined = format!("{}{}", cert(1).trim_end(), cert(2));
    let line = cert(1).lines().count();
    let words = "put a line break before `-----BEGIN`";
    refused(widelane_pem::chain(joined.as_bytes()), line, words);
    refused(widelane_pem::authorities(joined.as_bytes()), line, words);
    refused(widelane_pem::private_key(joined.as_bytes()), line, words);
    refused(widelane_pem::revocation_lists(joined.as_bytes()), line, words);
    refused(widelane_pem::contents(joined.as_bytes()), line, words);
}

#[test]
fn what_is_not_a_boundary_and_looks_like_one_is_refused() {
    let first = cert(1);
    let next = first.lines().count() + 1;
    for begin in [
        "----BEGIN CERTIFICATE-----",
        "-----begin certificate-----",
        "x-----BEGIN CERTIFICATE-----",
    ] {
        let second = cert(2).replace("-----BEGIN CERTIFICATE-----", begin);
        refused(lengths(format!("{first}{second}")), next, "is meant as");
    }
    let lost = cert(2).replace("-----BEGIN CERTIFICATE-----\n", "");
    refused(lengths(format!("{first}{lost}")), next, "whose first line is missing");
    let end = "-----END X509 CRL-----\n";
    refused(lengths(format!("{first}{end}")), next, "has not begun");
    // A certificate begins as these do, but for its length.
    let both = cert(2).replace("\n-----END CERTIFICATE-----", "");
    let both = both.replace("-----BEGIN CERTIFICATE-----\nMII", "MII");
    assert!(both.starts_with("MI") && !both.contains('-'), "{both}");
    refused(lengths(format!("{first}{both}")), next, "whose first line is missing");
    let other = cert(2).replace("-----END CERTIFICATE", "-----END X509 CRL");
    refused(lengths(format!("{first}{other}")), next + 3, "ends as `X509 CRL`");
    let open = first.replace("-----END CERTIFICATE-----\n", "");
    refused(lengths(format!("{open}{first}")), 4, "of line 1 has not ended");
    refused(lengths(&open), 1, "the file is cut off");
}

#[test]
fn what_is_in_a_section_is_whole_and_alone() {
    let text = |der: &[u8]| pem("CERTIFICATE", der);
    let whole = certificate(1);
    refused(lengths(text(&whole[..60])), 1, "is cut off: it has 60 of 71 bytes");
    refused(lengths(text(&whole.repeat(2))), 1, "has 71 bytes behind the end");
    refused(lengths(text(&[])), 1, "is empty");
    refused(lengths(text(b"some other bytes")), 1, "does not hold DER");
    refused(lengths(text(&pkcs8(1))), 1, "holds no certificate");
    refused(lengths(cert(1).replacen("AQEB", "A!EB", 1)), 2, "is not base64");
    refused(
        lengths(cert(1).replace("-----\nM", "-----\n")),
        1,
        "base64 is not complete",
    );
    let header = cert(1).replacen('\n', "\nComment: x\n\n", 1);
    refused(lengths(header), 1, "a header that is not understood");
}

#[test]
fn trust_settings_count_for_authorities_alone() {
    let text = pem("TRUSTED CERTIFICATE", &certificate(1));
    assert_eq!(lengths(text), Ok(vec![1]));
    let with = [certificate(1), sequence(&[])].concat();
    let text = pem("TRUSTED CERTIFICATE", &with);
    let chain = widelane_pem::chain(text.as_bytes()).unwrap();
    assert_eq!(*chain[0].value, certificate(1));
    refused(widelane_pem::authorities(text.as_bytes()), 1, "-clrtrust");
}

#[test]
fn the_form_of_a_key_is_what_it_holds() {
    for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] {
        let read = |der: &[u8]| widelane_pem::private_key(pem(label, der).as_bytes());
        assert!(matches!(*read(&pkcs8(1)).unwrap(), PrivateKeyDer::Pkcs8(_)));
        assert!(matches!(*read(&integers(9)).unwrap(), PrivateKeyDer::Pkcs1(_)));
        assert!(matches!(*read(&sec1()).unwrap(), PrivateKeyDer::Sec1(_)));
        refused(read(&integers(6)), 1, "DSA");
        refused(read(&certificate(1)), 1, "holds no private key");
        refused(read(&sequence(&[0x30, 0, 0x04, 0])), 1, "is encrypted");
    }
}

#[test]
fn a_file_has_one_key() {
    let parameters = pem("EC PARAMETERS", &[6, 1, 1]);
    let text = format!("{}{parameters}{}", cert(1), key());
    assert_eq!(
        widelane_pem::private_key(text.as_bytes()).unwrap().secret_der(),
        pkcs8(1)
    );
    assert_eq!(lengths(&text), Ok(vec![1]));
    let read = |text: String| widelane_pem::private_key(text.as_bytes());
    assert!(read(format!("{}{}", key(), key())).is_ok(), "the same twice");
    let other = pem("PRIVATE KEY", &pkcs8(2));
    refused(read(format!("{}{other}", key())), 4, "the first is at line 1");
    refused(read(cert(1)), None, "the file has no private key");
    for (label, header) in [
        ("ENCRYPTED PRIVATE KEY", ""),
        (
            "RSA PRIVATE KEY",
            "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n",
        ),
    ] {
        let text = pem(label, &pkcs8(1)).replacen('\n', &format!("\n{header}"), 1);
        refused(read(format!("\n{text}")), 2, "openssl pkey");
        assert_eq!(lengths(format!("{text}{}", cert(1))).map(|found| found.len()), Ok(1));
    }
}

#[test]
fn lists_are_for_files_of_lists() {
    let list = pem("X509 CRL", &certificate(3));
    let lists = widelane_pem::revocation_lists(format!("{list}{list}").as_bytes()).unwrap();
    assert_eq!(lists.len(), 2);
    let both = format!("{}{list}", cert(1));
    refused(lengths(&both), 5, "`crl`");
    refused(widelane_pem::private_key(both.as_bytes()), 5, "`crl`");
    refused(widelane_pem::revocation_lists(both.as_bytes()), 1, "does not belong");
    refused(widelane_pem::revocation_lists(b"text"), None, "no revocation list");
    let found = widelane_pem::contents(format!("{both}{}", key()).as_bytes());
    let all = Contents {
        certificates: 1,
        keys: 1,
        lists: 1,
    };
    assert_eq!(found, Ok(all));
}

#[test]
fn what_is_no_pem_is_named() {
    let utf16: Vec<u8> = cert(1).encode_utf16().flat_map(u16::to_le_bytes).collect();
    refused(lengths(&utf16), None, "UTF-16");
    refused(lengths([&[0xff, 0xfe], &utf16[..]].concat()), None, "UTF-16");
    refused(lengths(certificate(1)), None, "openssl x509 -inform der");
    refused(widelane_pem::private_key(&pkcs8(1)), None, "openssl pkey -inform der");
    let store = sequence(&[0x02, 1, 3, 0x30, 0, 0x30, 0]);
    refused(widelane_pem::private_key(&store), None, "openssl pkcs12");
    refused(lengths([0xfe, 0xed, 0xfe, 0xed, 1]), None, "keytool");
    refused(lengths(""), None, "is empty");
    refused(lengths("\u{feff} \n"), None, "is empty");
    refused(
        lengths(Base64::encode_string(&certificate(1))),
        1,
        "whose first line is missing",
    );
    refused(lengths("certificate: none"), None, "has no certificate");
    for (label, words) in [
        ("PKCS7", "openssl pkcs7"),
        ("OPENSSH PRIVATE KEY", "ssh-keygen"),
        ("DSA PRIVATE KEY", "DSA"),
        ("CERTIFICAT", "`CERTIFICAT` is not known"),
    ] {
        let text = format!("{}{}", cert(1), pem(label, &certificate(1)));
        refused(lengths(&text), 5, words);
        refused(widelane_pem::private_key(text.as_bytes()), 5, words);
    }
    refused(
        lengths(pem("CERTIFICATE REQUEST", &certificate(1))),
        None,
        "no certificate",
    );
}

proptest! {
    /// After any change to one byte of a file of two certificates, both are found, or a fault is reported.
    #[test]
    fn no_damage_makes_a_certificate_vanish(at in 0_usize..1000, byte: u8, insert: bool) {
        let mut text = format!("{}{}", cert(1), cert(2)).into_bytes();
        let at = at % text.len();
        match insert {
            true => text.insert(at, byte),
            false => text[at] = byte,
        }
        if let Ok(found) = lengths(&text) {
            prop_assert_eq!(found.len(), 2);
        }
    }

    #[test]
    fn anything_is_read_or_refused(text: Vec<u8>) {
        let _ = lengths(&text);
        let _ = widelane_pem::private_key(&text);
        let _ = widelane_pem::revocation_lists(&text);
    }
}
