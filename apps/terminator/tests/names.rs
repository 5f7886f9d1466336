//! Backends by host name, with a resolver of the test.

mod common;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::named::*;
use common::*;
use widelane_terminator::{Backend, CheckKind, Config, HealthCheck, Server};

/// Stands in for the system's resolver. Names that it does not have do not exist.
#[derive(Clone, Default)]
struct Zone(Arc<(Mutex<HashMap<String, How>>, Condvar)>);

/// Answer for a name.
#[derive(Clone)]
enum How {
    Has(Vec<IpAddr>),
    Fails,
    /// Until this changes.
    Hangs,
}

impl Zone {
    fn set(&self, name: &str, how: How) {
        let (names, changed) = &*self.0;
        names.lock().expect("no panic").insert(name.into(), how);
        changed.notify_all();
    }

    fn answer(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|one| one.parse().expect("an address"));
        self.set(name, How::Has(addresses.collect()));
    }

    fn forget(&self, name: &str) {
        self.0.0.lock().expect("no panic").remove(name);
    }

    fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let (names, changed) = &*self.0;
        let names = names.lock().expect("no panic");
        let hangs = |names: &mut HashMap<_, _>| matches!(names.get(name), Some(How::Hangs));
        let names = changed.wait_while(names, hangs).expect("no panic");
        match names.get(name) {
            Some(How::Has(addresses)) => Ok(addresses.clone()),
            Some(_) => Err(io::Error::other("the DNS server has failed")),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
        }
    }

    fn start(&self, config: &Config) -> Server {
        let zone = self.clone();
        Server::start_looking_up(&document(config), move |name| zone.look_up(name)).expect("a server")
    }

    /// Also waits for names, for which a start does not.
    fn start_with_all(&self, config: &Config, names: &[&str]) -> Server {
        let server = self.start(config);
        for name in names {
            eventually("the name is known", || of_name(&server, "addresses", name) > 0);
        }
        server
    }
}

/// One listener with these backends.
fn with_names(files: &Files, backends: &[String]) -> Config {
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    let backends = backends.iter().map(|one| one.parse().expect("a backend"));
    one.backend = backends.collect();
    config(vec![one])
}

/// Backends at several addresses of loopback with the same port.
fn same_port<const N: usize>(addresses: [(&str, u8); N]) -> (u16, [Named; N]) {
    for _ in 0..20 {
        let (first, rest) = addresses.split_first().expect("an address");
        let mut listeners = vec![TcpListener::bind((first.0, 0)).expect("a port")];
        let port = listeners[0].local_addr().expect("an address").port();
        let bound = rest.iter().map(|(ip, _)| TcpListener::bind((*ip, port)));
        listeners.extend(bound.map_while(Result::ok));
        if let Ok(listeners) = <[TcpListener; N]>::try_from(listeners) {
            let mut listeners = listeners.into_iter();
            let named = addresses.map(|(_, letter)| Named::on(listeners.next().expect("as many"), letter));
            return (port, named);
        }
    }
    panic!("no port is free at all addresses");
}

fn of_name(server: &Server, what: &str, name: &str) -> u64 {
    metric(server, &format!(r#"widelane_backend_name_{what}{{name="{name}"}}"#))
}

fn lookups(server: &Server, name: &str) -> u64 {
    let labels = format!(r#"{{name="{name}",result="ok"}}"#);
    metric(server, &format!("widelane_backend_name_lookups_total{labels}"))
}

/// Does not wait for the next lookup.
fn look_up_now(server: &Server, config: &Config) {
    server.reload(&document(config)).expect("a reload");
}

fn who(server: &Server) -> char {
    served_by(server.addresses()[0], "a.example", &[]).0
}

fn gets_nothing(server: &Server) {
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    let _ = stream.write_all(b"ping");
    assert_unanswered(&mut stream);
}

#[test]
fn new_connections_follow_the_answers_and_live_ones_stay() {
    let files = Files::new();
    let zone = Zone::default();
    let (port, named) = same_port([("127.0.0.1", b'a'), ("127.0.0.2", b'b')]);
    zone.answer("app.test", &["127.0.0.1"]);
    let config = with_names(&files, &[format!("App.test:{port}")]);
    let server = zone.start_with_all(&config, &["app.test"]);
    let (by, mut first) = served_by(server.addresses()[0], "a.example", &[]);
    assert_eq!(by, 'a');

    zone.answer("app.test", &["127.0.0.2", "127.0.0.1"]);
    look_up_now(&server, &config);
    eventually("both are known", || of_name(&server, "addresses", "app.test") == 2);
    assert_eq!(who(&server), 'b', "the other has a connection still");

    zone.answer("app.test", &["127.0.0.2"]);
    look_up_now(&server, &config);
    eventually("one is gone", || of_name(&server, "addresses", "app.test") == 1);
    for _ in 0..4 {
        assert_eq!(who(&server), 'b');
    }
    ping(&mut first).expect("a connection from before is served");
    assert_eq!(gauge(&server, "connections", &named[0].backend()), 1);
    assert_eq!(connects(&server, &named[0].backend(), "ok"), 1);
    drop(first);
    let of_a = format!("backend=\"{}\"", named[0].backend());
    eventually("the address is forgotten", || !metrics(&server).contains(&of_a));
}

#[test]
fn lookups_that_fail_keep_the_addresses() {
    let files = Files::new();
    let zone = Zone::default();
    let (port, _named) = same_port([("127.0.0.1", b'a')]);
    let names = ["fails.test", "gone.test"];
    for name in names {
        zone.answer(name, &["127.0.0.1"]);
    }
    let config = with_names(&files, &names.map(|name| format!("{name}:{port}")));
    let server = zone.start_with_all(&config, &names);
    let are_current = |current| {
        look_up_now(&server, &config);
        for name in names {
            eventually(name, || of_name(&server, "current", name) == current);
            assert_eq!(of_name(&server, "addresses", name), 1, "{name}");
        }
        assert_eq!(who(&server), 'a');
    };
    are_current(1);
    zone.set("fails.test", How::Fails);
    zone.forget("gone.test");
    are_current(0);
    for name in names {
        zone.answer(name, &["127.0.0.1"]);
    }
    are_current(1);
}

#[test]
fn all_addresses_of_both_families_are_used_up_to_a_bound() {
    let files = Files::new();
    let zone = Zone::default();
    if TcpListener::bind("[::1]:0").is_ok() {
        let (port, _named) = same_port([("127.0.0.1", b'4'), ("::1", b'6')]);
        zone.answer("both.test", &["::1", "127.0.0.1", "0.0.0.0", "::"]);
        let config = with_names(&files, &[format!("both.test:{port}")]);
        let server = zone.start_with_all(&config, &["both.test"]);
        assert_eq!(of_name(&server, "addresses", "both.test"), 2);
        let address = server.addresses()[0];
        let open = [(); 2].map(|()| served_by(address, "a.example", &[]));
        let mut letters = [open[0].0, open[1].0];
        letters.sort();
        assert_eq!(letters, ['4', '6']);
    } else {
        println!("SKIP: no IPv6");
    }

    let (port, _named) = same_port([("127.0.1.64", b'm')]);
    let many: Vec<String> = (1..=100).map(|last| format!("127.0.1.{last}")).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    zone.answer("many.test", &many);
    let config = with_names(&files, &[format!("many.test:{port}")]);
    let server = zone.start_with_all(&config, &["many.test"]);
    assert_eq!(of_name(&server, "addresses", "many.test"), Backend::MOST as u64);
    assert_eq!(who(&server), 'm', "the last of those that are used");
    // The order of the answer changes nothing.
    many.reverse();
    zone.answer("many.test", &many);
    let before = lookups(&server, "many.test");
    look_up_now(&server, &config);
    eventually("it is looked up again", || lookups(&server, "many.test") > before);
    assert_eq!(who(&server), 'm');
}

#[test]
fn a_start_goes_on_without_an_address_and_a_reload_is_refused() {
    let files = Files::new();
    let zone = Zone::default();
    let (port, named) = same_port([("127.0.0.1", b'a')]);
    let mut config = with_names(&files, &[format!("late.test:{port}")]);
    let server = zone.start(&config);
    gets_nothing(&server);
    assert_eq!(of_name(&server, "addresses", "late.test"), 0);
    eventually("it has failed", || of_name(&server, "current", "late.test") == 0);
    zone.answer("late.test", &["127.0.0.1"]);
    look_up_now(&server, &config);
    eventually("the name is known", || of_name(&server, "addresses", "late.test") == 1);
    assert_eq!(who(&server), 'a');

    let good = config.clone();
    config.listeners[0].backend = vec!["wrong.test:1".parse().expect("a backend")];
    let error = server.reload(&document(&config)).expect_err("no such name");
    let error = error.to_string();
    assert!(
        error.contains("--backend: cannot look up `wrong.test`: no such name"),
        "{error}"
    );
    assert_eq!(who(&server), 'a');
    assert!(!metrics(&server).contains("wrong.test"), "it is forgotten");

    // A new name has its addresses at once.
    zone.answer("new.test", &["127.0.0.1"]);
    let name = format!("new.test:{port}");
    config.listeners[0].backend = vec![name.parse().expect("a backend")];
    server.reload(&document(&config)).expect("a reload");
    assert_eq!(who(&server), 'a');

    // From a name to a number, and back.
    config.listeners[0].backend = vec![named[0].backend()];
    server.reload(&document(&config)).expect("a reload");
    assert_eq!(who(&server), 'a');
    assert!(!metrics(&server).contains("new.test"));
    server.reload(&document(&good)).expect("a reload");
    assert_eq!(who(&server), 'a');
}

/// The listener that needs the name listens, too, and its connections wait for the first answer.
#[test]
fn a_silent_dns_server_holds_no_listener() {
    let files = Files::new();
    let zone = Zone::default();
    let (port, named) = same_port([("127.0.0.1", b'a')]);
    zone.set("slow.test", How::Hangs);
    let mut config = with_names(&files, &[format!("slow.test:{port}")]);
    config.limits.backend_connect = PATIENCE;
    let mut plain = config.listeners[0].clone();
    plain.backend = vec![named[0].backend()];
    config.listeners.push(plain);
    let server = zone.start(&config);
    let failed = r#"widelane_backend_name_lookups_total{name="slow.test",result="failed"}"#;
    let mut waiting = hello(server.addresses()[0]).expect("TLS");
    waiting.write_all(b"ping").expect("sent");
    assert_eq!(served_by(server.addresses()[1], "a.example", &[]).0, 'a');
    assert_eq!(metric(&server, failed), 0, "the DNS server is still silent");
    zone.answer("slow.test", &["127.0.0.1"]);
    let mut answer = [0; 1];
    waiting.read_exact(&mut answer).expect("it is served");
}

#[test]
fn a_check_over_http_asks_for_the_host_of_the_backend() {
    let files = Files::new();
    let zone = Zone::default();
    // The resolver is asked for the name as it is written.
    zone.answer("app.test.", &["127.0.0.1"]);
    let (said, requests) = std::sync::mpsc::channel();
    let Backend::Tcp(address) = tcp_backend(move |mut client| {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && client.read_exact(&mut byte).is_ok() {
            request.extend(byte);
        }
        let _ = client.write_all(b"HTTP/1.1 200 \r\n\r\n");
        let _ = said.send(String::from_utf8(request).expect("text"));
    }) else {
        panic!("a TCP backend");
    };
    let port = address.port();
    for (backend, host) in [
        (format!("App.test.:{port}"), "app.test"),
        (format!("127.0.0.1:{port}"), "localhost"),
    ] {
        let mut config = with_names(&files, &[backend]);
        let mut check = HealthCheck::new(CheckKind::Http);
        check.interval = Duration::from_millis(100);
        config.listeners[0].health_check = Some(check);
        let server = zone.start(&config);
        let expected = format!("GET / HTTP/1.1\r\nHost: {host}\r\n");
        let request = requests.recv_timeout(Duration::from_secs(60));
        let request = request.expect("a check");
        assert!(request.starts_with(&expected), "{request}");
        drop(server);
        for _ in requests.try_iter() {}
    }
}

#[test]
fn names_of_the_hosts_file_need_no_server() {
    if ("localhost", 0).to_socket_addrs().is_err() {
        println!("SKIP: this machine does not know localhost (/etc/hosts)");
        return;
    }
    let files = Files::new();
    let (port, _named) = same_port([("127.0.0.1", b'a')]);
    let config = with_names(&files, &[format!("localhost:{port}")]);
    Server::check(&document(&config)).expect("no fault");
    let server = start(&config);
    assert_eq!(who(&server), 'a');
}

#[test]
fn mistyped_addresses_are_no_names() {
    for wrong in [
        "10.0.0.300:80",
        "app",
        "app:0",
        "app:http",
        ":80",
        "a..b:80",
        "-a:80",
        "a b:80",
        "ä.example:80",
        "[::1:80",
        "http://app:80",
        "0x7f000001:80",
    ] {
        let error = wrong.parse::<Backend>().expect_err(wrong);
        assert!(error.contains("is no backend; write"), "{error}");
    }
    for (text, shown) in [
        ("App.Default.svc:8080", "app.default.svc:8080"),
        ("app.example.org.:1", "app.example.org.:1"),
        ("_x-1:65535", "_x-1:65535"),
        ("app.0xy:1", "app.0xy:1"),
    ] {
        let backend: Backend = text.parse().expect(text);
        assert!(matches!(backend, Backend::Name(_)), "{text}");
        assert_eq!(backend.to_string(), shown);
    }
}
