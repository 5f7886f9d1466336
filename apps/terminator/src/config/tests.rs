//! Values that are read from files and flags, and names of faults.

use std::path::Path;
use std::time::Duration;

use widelane_access_log::{LogFormat, LogTarget};
use widelane_crypto::chacha20poly1305::{Choice, Form};

use super::listener::both_versions;
use super::*;

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
    assert_eq!(listener.backend, [Backend::Unix("/run/app.sock".into())]);
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
    assert!(message.starts_with("w.toml:4: listener[0].backedn: "), "{message}");
    assert!(message.contains("unknown field `backedn`"), "{message}");
}

#[test]
fn a_bad_value_is_named_with_line_key_and_remedy() {
    let message = error(&GOOD.replace("unix:/run/app.sock", "localhost"));
    assert!(message.starts_with("w.toml:4: listener[0].backend: "), "{message}");
    assert!(message.contains("127.0.0.1:8080"), "{message}");
}

#[test]
fn a_mistyped_address_is_shown_with_an_example() {
    for address in ["localhost:443", "*:443"] {
        let message = error(&GOOD.replace("127.0.0.1:8443", address));
        let expected = format!(
            "w.toml:3: listener[0].listen[0]: `{address}` is no address with a port; write for example \
             0.0.0.0:443 for all of IPv4, [::]:443 for all of IPv6"
        );
        assert!(message.starts_with(&expected), "{message}");
    }
    let message = error(&format!("[metrics]\nlisten = \"localhost:9090\"\n{GOOD}"));
    let expected = "w.toml:2: metrics.listen: `localhost:9090` is no address with a port; write for example \
                    127.0.0.1:9090";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn faults_between_keys_name_their_line() {
    let message = error(&GOOD.replace("[[listener.", "versions = []\n[[listener."));
    assert!(message.starts_with("w.toml:5: listener[0].versions: "), "{message}");

    let message = error(&format!("[limits]\nconnections = 0\n{GOOD}"));
    assert!(message.starts_with("w.toml:2: limits.connections: "), "{message}");

    let twice = GOOD.replace("\"127.0.0.1:8443\"", "\"127.0.0.1:1\",\n\"127.0.0.1:1\"");
    let message = error(&twice);
    assert!(message.starts_with("w.toml:4: listener[0].listen[1]: "), "{message}");
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
        (r#"{ ca = "ca.pem", mode = "maybe" }"#, "unknown variant `maybe`"),
    ] {
        let message = error(&with(wrong));
        assert!(message.starts_with("w.toml:5: listener[0].client_auth"), "{message}");
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
    assert!(message.starts_with("w.toml:1: chacha20poly1305"), "{message}");
    assert!(message.contains("512-ifma, 512, 256, 256-light"), "{message}");
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
fn the_age_of_a_session_is_limited_to_what_a_ticket_may_live() {
    let with = |seconds: &str| {
        let table = format!("[listener.tickets]\nsession_seconds = {seconds}\n[[listener.");
        GOOD.replace("[[listener.", &table)
    };
    let day = Document::parse(Path::new("w.toml"), GOOD.into()).unwrap();
    let day = day.config().listeners[0].tickets.session;
    assert_eq!(day, Duration::from_secs(86_400));
    let hour = Document::parse(Path::new("w.toml"), with("3600")).unwrap();
    let hour = hour.config().listeners[0].tickets.session;
    assert_eq!(hour, Duration::from_secs(3600));
    for wrong in ["0.5", "604801"] {
        let message = error(&with(wrong));
        assert!(
            message.starts_with("w.toml:6: listener[0].tickets.session_seconds: out of range"),
            "{message}"
        );
    }
}

#[test]
fn a_text_in_another_encoding_is_read_or_named() {
    let marked = Document::parse(Path::new("w.toml"), format!("\u{feff}{GOOD}oops = 1\n"));
    let message = marked.unwrap_err().to_string();
    assert!(
        message.starts_with("w.toml:8: listener[0].certificate[0].oops: "),
        "{message}"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.toml");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Document::read(&path).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(read(GOOD.as_bytes()), Ok(()));
    assert_eq!(read(format!("\u{feff}{GOOD}").as_bytes()), Ok(()));
    let utf16: Vec<u8> = GOOD.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for text in [utf16.clone(), [&[0xff, 0xfe], &utf16[..]].concat()] {
        let message = read(&text).unwrap_err();
        assert!(message.contains("w.toml: it is text in UTF-16"), "{message}");
    }
    let latin1 = [GOOD.as_bytes(), b"# caf\xe9\n"].concat();
    let message = read(&latin1).unwrap_err();
    assert!(message.contains("w.toml:8: a character is not UTF-8"), "{message}");
}

#[test]
fn an_empty_key_leaves_the_place_at_its_line() {
    let message = error(&format!("\"\" = 1\n{GOOD}"));
    assert!(message.starts_with("w.toml:1: unknown field"), "{message}");
}

#[test]
fn one_pair_of_brackets_too_few_is_named() {
    for (right, wrong, name) in [
        ("[[listener]]", "[listener]", "listener"),
        (
            "[[listener.certificate]]",
            "[ listener.certificate ]",
            "listener.certificate",
        ),
    ] {
        let message = error(&GOOD.replace(right, wrong));
        let expected = format!("there may be several of these sections, and `[{name}]` is for one; write [[{name}]]");
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[test]
fn directories_of_certificates_are_one_path_or_several() {
    let (listener, _) = GOOD.split_once("[[listener.certificate]]").unwrap();
    for (value, paths) in [("\"a\"", &["a"][..]), ("[\"a\", \"b\"]", &["a", "b"])] {
        let text = format!("{listener}certificates = {value}\n");
        let document = Document::parse(Path::new("w.toml"), text).unwrap();
        let listener = &document.config().listeners[0];
        assert_eq!(
            listener.certificate_directories,
            paths.iter().map(std::path::PathBuf::from).collect::<Vec<_>>()
        );
    }
    let message = error(&format!("{listener}certificates = []\n"));
    assert!(message.contains("or a directory (`certificates`)"), "{message}");
}

#[test]
fn damaged_texts_get_one_line_that_names_the_file() {
    let example = include_str!("../../../../packaging/widelane.toml");
    // Every key set, so that more than comments is damaged.
    let is_code = |code: &&str| code.contains(" = ") || code.starts_with('[');
    let text: String = example
        .lines()
        .map(|line| line.strip_prefix("# ").filter(is_code).unwrap_or(line))
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .flat_map(|line| [line, "\n"])
        .collect();
    // The listener offers another one.
    let text = text.replace("alpn = \"h2\"", "alpn = \"http/1.1\"");
    // Each half with what it needs of the other, as the time of a parse is that of its text.
    let (process, listener) = text.split_at(text.find("[[listener]]").unwrap());
    let mut refused = 0;
    for (half, rest) in [(process, GOOD), (listener, "")] {
        let text = format!("{half}{rest}");
        Document::parse(Path::new("w.toml"), text.clone()).expect("nothing is damaged");
        for place in 0..half.len() {
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
    }
    assert!(refused > text.len(), "{refused} of {} places", text.len());
}

#[test]
fn backends_that_no_connection_could_reach_are_refused() {
    let backend = |text: &str| text.parse::<Backend>();
    for address in ["127.0.0.1:0", "[::1]:0", "localhost:0"] {
        let error = backend(address).unwrap_err();
        assert!(error.starts_with(&format!("`{address}`")), "{error}");
    }
    let name = "n".repeat(106);
    assert!(backend(&format!("unix:/{name}")).is_ok());
    assert!(backend(&format!("unix:@n{name}")).is_ok());
    for text in [format!("unix:/n{name}"), format!("unix:@nn{name}")] {
        let error = backend(&text).unwrap_err();
        assert!(error.contains("108 bytes, and may have 107"), "{error}");
    }
    assert!(backend("unix:/a\0b").is_err());
    // In an abstract name it is a byte like others.
    assert!(backend("unix:@a\0b").is_ok());
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
    assert!(message.starts_with("command line: --cert: no certificate"), "{message}");
}

#[test]
fn networks_are_read_and_their_mistakes_are_named() {
    let network = |text: &str| text.parse::<crate::config::Network>();
    for (text, inside, outside) in [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
        ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ("0.0.0.0/0", "192.0.2.1", "2001:db8::1"),
        ("fd00::/8", "fd12::1", "fe80::1"),
        ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
    ] {
        let network = network(text).expect(text);
        assert!(network.contains(inside.parse().unwrap()), "{text} {inside}");
        assert!(!network.contains(outside.parse().unwrap()), "{text} {outside}");
    }
    for (text, problem) in [
        ("10.0.0.1/8", "write `10.0.0.0/8`"),
        ("10.0.0.0/33", "is no network"),
        ("::ffff:10.0.0.0/104", "write `10.0.0.0/8`"),
        ("::ffff:10.0.0.1/104", "write `10.0.0.0/8`"),
        ("::ffff:10.0.0.1", "write `10.0.0.1/32`"),
        ("::ffff:0:0/96", "write `0.0.0.0/0`"),
        ("balancer.example", "is no network"),
        ("", "is no network"),
    ] {
        let error = network(text).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    assert!("v3".parse::<crate::config::ProxyVersion>().is_err());
}

#[test]
fn the_proxy_header_to_the_backend_has_a_version() {
    let named = |line: &str| {
        let text = GOOD.replace("backend =", &format!("{line}\nbackend ="));
        let document = Document::parse(Path::new("w.toml"), text).unwrap();
        document.config().listeners[0].proxy_protocol_to
    };
    assert_eq!(named(""), None);
    assert_eq!(named("proxy_protocol_to = \"v1\""), Some(ProxyVersion::V1));
    assert_eq!(named("proxy_protocol_to = \"v2\""), Some(ProxyVersion::V2));
    let message = error(&GOOD.replace("backend =", "proxy_protocol_to = \"v3\"\nbackend ="));
    assert!(message.contains("write v1, v2 or v2-records"), "{message}");
}

#[test]
fn the_access_log_has_a_place_and_a_format() {
    let config = |text: &str| {
        let document = Document::parse(Path::new("w.toml"), format!("{text}\n{GOOD}")).unwrap();
        let config = document.config();
        (config.access_log.clone(), config.access_log_format)
    };
    assert_eq!(config(""), (LogTarget::Off, LogFormat::Json));
    for (text, target) in [
        ("off", LogTarget::Off),
        ("stderr", LogTarget::Stderr),
        ("-", LogTarget::Stdout),
        ("a.log", LogTarget::File("a.log".into())),
    ] {
        let text = format!("access_log = \"{text}\"\naccess_log_format = \"text\"");
        assert_eq!(config(&text), (target, LogFormat::Text));
    }
    for (text, expected) in [
        ("access_log = \"\"", "w.toml:1: access_log: no file is named"),
        (
            "access_log_format = \"xml\"",
            "w.toml:1: access_log_format: `xml` is no format",
        ),
    ] {
        let message = error(&format!("{text}\n{GOOD}"));
        assert!(message.starts_with(expected), "{message}");
    }
}

/// [`GOOD`] with other lines in the place of its backend.
fn with_backend(lines: &str) -> String {
    let alpn = "alpn = [\"h2\", \"http/1.1\"]";
    let good = GOOD.replace("backend = \"unix:/run/app.sock\"", alpn);
    // They begin in line 8.
    format!("{good}{lines}\n")
        .replace("[[listener.certificate]]", "#")
        .replace("cert = ", "certificate = [{ cert = ")
        .replace("\nkey = \"a.key\"", ", key = \"a.key\" }]\n")
}

#[test]
fn a_backend_has_one_address_or_several_and_routes_have_their_own() {
    let text = with_backend(
        r#"backend = ["127.0.0.1:1", "unix:/run/a.sock"]
        [[listener.route]]
        server_name = "a.example"
        backend = "127.0.0.1:2"
        [[listener.route]]
        server_name = ["b.example", "*.b.example"]
        alpn = "h2"
        backend = ["127.0.0.1:3"]"#,
    );
    let document = Document::parse(Path::new("w.toml"), text).unwrap();
    let listener = &document.config().listeners[0];
    let names = |backend: &[Backend]| -> Vec<String> { backend.iter().map(ToString::to_string).collect() };
    assert_eq!(names(&listener.backend), ["127.0.0.1:1", "unix:/run/a.sock"]);
    let [first, second] = &listener.routes[..] else {
        panic!("{:?}", listener.routes)
    };
    assert_eq!(first.server_name, ["a.example"]);
    assert_eq!(names(&first.backend), ["127.0.0.1:2"]);
    assert!(first.alpn.is_empty());
    assert_eq!(second.server_name, ["b.example", "*.b.example"]);
    assert_eq!(second.alpn, ["h2"]);
    assert_eq!(names(&second.backend), ["127.0.0.1:3"]);
}

#[test]
fn protocols_are_written_one_by_one() {
    let offering = |list: &str| GOOD.replace("backend =", &format!("alpn = {list}\nbackend ="));
    Document::parse(Path::new("w.toml"), offering("[\"h2\", \"http/1.1\"]")).unwrap();
    let message = error(&offering("[\"h2,http/1.1\"]"));
    let expected = "w.toml:4: listener[0].alpn[0]: `h2,http/1.1` is no protocol name; write one name";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn names_of_a_certificate_are_host_names() {
    let named = |name: &str| format!("{GOOD}names = [\"*.a.example\",\n\"{name}\"]");
    Document::parse(Path::new("w.toml"), named("b_1.example")).unwrap();
    for wrong in ["a.example.", "*", "a b", "https://a.example", "", "b\u{fc}cher.example"] {
        let message = error(&named(wrong));
        let expected = format!(":9: listener[0].certificate[0].names[1]: `{wrong}` is no host name");
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn faults_of_backends_and_routes_are_named_with_their_line() {
    let route = |lines: &str| format!("[[listener.route]]\n{lines}\nbackend = \"127.0.0.1:1\"");
    for (lines, expected) in [
        (String::new(), "listener[0].backend: no backend"),
        ("backend = []".into(), ":8: listener[0].backend: no backend"),
        (
            "backend = [\"127.0.0.1:1\",\n\"127.0.0.1:1\"]".into(),
            ":9: listener[0].backend[1]: 127.0.0.1:1 is listed twice",
        ),
        (
            "backend = [\"127.0.0.1:1\",\n\"example:http\"]".into(),
            ":8: listener[0].backend: `example:http` is no backend",
        ),
        (
            "[[listener.route]]\nserver_name = \"a.example\"".into(),
            "listener[0].route[0]: missing field `backend`",
        ),
        (
            "[[listener.route]]\nserver_name = \"a.example\"\nbackend = []".into(),
            ":10: listener[0].route[0].backend: no backend",
        ),
        (
            route(""),
            ":10: listener[0].route[0].backend: this route is for all connections",
        ),
        (
            route("server_name = [\"a.example\", \"*.*.example\"]"),
            ":9: listener[0].route[0].server_name[1]: `*.*.example` is no host name",
        ),
        (
            route("server_name = \"192.0.2.1\""),
            ":9: listener[0].route[0].server_name[0]: `192.0.2.1` is no host name",
        ),
        (
            route("alpn = [\"h2\", \"h3\"]"),
            ":9: listener[0].route[0].alpn[1]: no client agrees on `h3`",
        ),
        (
            format!(
                "{}\n{}",
                route("server_name = [\"b.example\", \"a.example\"]\nalpn = \"h2\""),
                route("server_name = \"A.example\"\nalpn = [\"http/1.1\", \"h2\"]"),
            ),
            ":13: listener[0].route[1].server_name[0]: `a.example` has a route already",
        ),
        (
            format!("{}\n{}", route("alpn = \"h2\""), route("alpn = [\"h2\"]")),
            ":12: listener[0].route[1].alpn: this protocol has a route already",
        ),
        (
            route("servername = \"a.example\""),
            ":9: listener[0].route[0].servername: unknown field `servername`",
        ),
    ] {
        let message = error(&with_backend(&lines));
        assert!(message.contains(expected), "{message} for {lines}");
    }
    // The same name with another protocol.
    let both = format!(
        "{}\n{}",
        route("server_name = \"a.example\"\nalpn = \"h2\""),
        route("server_name = \"a.example\""),
    );
    Document::parse(Path::new("w.toml"), with_backend(&both)).unwrap();
    let many: Vec<_> = (1..=65).map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let message = error(&with_backend(&format!("backend = [{}]", many.join(","))));
    assert!(message.contains("more than 64 addresses"), "{message}");
}

#[test]
fn a_path_is_for_checks_over_http_only() {
    let check = |lines: &str| with_backend(&format!("backend = \"127.0.0.1:1\"\n[listener.health_check]\n{lines}"));
    for lines in ["path = \"/healthz\"", "path = \"/\"\nkind = \"tcp\""] {
        let message = error(&check(lines));
        let expected = ":10: listener[0].health_check.path: `path` needs kind = \"http\"; ";
        assert!(message.contains(expected), "{message}");
    }
    for lines in ["kind = \"http\"\npath = \"/healthz\"", "kind = \"http\"", "rise = 1"] {
        Document::parse(Path::new("w.toml"), check(lines)).unwrap();
    }
}

#[test]
fn responses_come_from_a_file_or_a_responder() {
    let source = |value: &str| {
        let text = GOOD.replace("key = ", &format!("ocsp = {value:?}\nkey = "));
        Document::parse(Path::new("w.toml"), text)
            .map(|document| document.config().listeners[0].certificates[0].ocsp.clone())
    };
    let responder = "http://ocsp.example.com/a";
    for (value, expected) in [
        ("a.ocsp", OcspSource::File("a.ocsp".into())),
        ("./fetch", OcspSource::File("./fetch".into())),
        ("fetch", OcspSource::Fetch),
        (responder, OcspSource::Responder(responder.into())),
        ("http://[::1]:80", OcspSource::Responder("http://[::1]:80".into())),
    ] {
        assert_eq!(source(value), Ok(Some(expected)));
    }
    for wrong in ["", "https://ocsp.example.com", "http://", "http://a b", "ldap://a/"] {
        let message = source(wrong).unwrap_err().to_string();
        let place = "w.toml:7: listener[0].certificate[0].ocsp: ";
        assert!(message.starts_with(place), "{message}");
    }
}

#[test]
fn tls_to_a_backend_needs_a_name_that_can_be_checked() {
    let with = |tls: &str| format!("{GOOD}[listener.backend_tls]\n{tls}\n");
    let message = error(&with(""));
    assert!(message.starts_with("w.toml:8: listener[0].backend_tls: "), "{message}");
    assert!(message.contains("set `server_name`"), "{message}");
    let named = "server_name = \"app.example\"";
    Document::parse(Path::new("w.toml"), with(named)).unwrap();
    let tcp = with("").replace("unix:/run/app.sock", "app.example:8443");
    Document::parse(Path::new("w.toml"), tcp).unwrap();
    for (wrong, expected) in [
        ("server_name = \"a b\"", "server_name: `a b` is no host name"),
        ("cert = \"a.pem\"\nserver_name = \"a\"", "set `key` as well"),
        ("key = \"a.key\"\nserver_name = \"a\"", "set `cert` as well"),
        ("versions = []\nserver_name = \"a\"", "no protocol version left"),
        ("verify = false", "unknown field `verify`"),
    ] {
        let message = error(&with(wrong));
        assert!(message.contains(expected), "{message}");
    }
}
