//! Backends by host name, against a DNS server of the test.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use common::dns::{Dns, How, Records};
use common::named::*;
use common::*;
use widelane_terminator::{Backend, CheckKind, Config, Document, HealthCheck, Server};

/// One listener with these backends, of which the names are known to `dns`.
fn with_names(files: &Files, dns: &Dns, backends: &[String]) -> Config {
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    let backends = backends.iter().map(|one| one.parse().expect("a backend"));
    one.backend = backends.collect();
    let mut config = config(vec![one]);
    config.name_servers = vec![dns.address];
    config
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
            let named =
                addresses.map(|(_, letter)| Named::on(listeners.next().expect("as many"), letter));
            return (port, named);
        }
    }
    panic!("no port is free at all addresses");
}

fn of_name(server: &Server, what: &str, name: &str) -> u64 {
    metric(
        server,
        &format!(r#"widelane_backend_name_{what}{{name="{name}"}}"#),
    )
}

fn lookups(server: &Server, name: &str) -> u64 {
    let labels = format!(r#"{{name="{name}",result="ok"}}"#);
    metric(
        server,
        &format!("widelane_backend_name_lookups_total{labels}"),
    )
}

/// A start waits for names, but not for ever.
fn start_with_all(config: &Config, names: &[&str]) -> Server {
    let server = start(config);
    for name in names {
        eventually("the name is known", || {
            of_name(&server, "addresses", name) > 0
        });
    }
    server
}

/// Does not wait for the time of an answer, which is a second or more.
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
fn new_connections_follow_the_records_and_live_ones_stay() {
    let files = Files::new();
    let dns = Dns::start();
    let (port, named) = same_port([("127.0.0.1", b'a'), ("127.0.0.2", b'b')]);
    dns.answer("app.test", &["127.0.0.1"]);
    let config = with_names(&files, &dns, &[format!("App.test:{port}")]);
    let server = start_with_all(&config, &["app.test"]);
    let (by, mut first) = served_by(server.addresses()[0], "a.example", &[]);
    assert_eq!(by, 'a');

    dns.answer("app.test", &["127.0.0.2", "127.0.0.1"]);
    eventually("both are known", || {
        of_name(&server, "addresses", "app.test") == 2
    });
    assert_eq!(who(&server), 'b', "the other has a connection still");

    dns.answer("app.test", &["127.0.0.2"]);
    look_up_now(&server, &config);
    eventually("one is gone", || {
        of_name(&server, "addresses", "app.test") == 1
    });
    for _ in 0..4 {
        assert_eq!(who(&server), 'b');
    }
    ping(&mut first).expect("a connection from before is served");
    assert_eq!(gauge(&server, "connections", &named[0].backend()), 1);
    assert_eq!(connects(&server, &named[0].backend(), "ok"), 1);
    drop(first);
    let of_a = format!("backend=\"{}\"", named[0].backend());
    eventually("the address is forgotten", || {
        !metrics(&server).contains(&of_a)
    });
}

#[test]
fn a_name_is_asked_for_again_when_its_time_ends_and_not_before() {
    let files = Files::new();
    let dns = Dns::start();
    let (port, _named) = same_port([("127.0.0.1", b'a')]);
    for (name, ttl) in [("none.test", 0), ("short.test", 1), ("long.test", 100)] {
        let records = Records {
            addresses: vec!["127.0.0.1".parse().expect("an address")],
            ttl,
            ..Records::default()
        };
        dns.set(name, records);
    }
    let backends = ["none.test", "short.test", "long.test"].map(|name| format!("{name}:{port}"));
    let server = start(&with_names(&files, &dns, &backends));
    let lookups = |name: &str| lookups(&server, name);
    eventually("the short one ends", || lookups("short.test") >= 3);
    assert_eq!(lookups("long.test"), 1);
    assert_eq!(dns.asked("long.test"), 2, "for both families, once");
    // A time of 0 counts as a second, and its lookups stay about as many.
    assert!(lookups("none.test") <= 2 * lookups("short.test"));
    assert_eq!(who(&server), 'a');

    // A reload asks for all at once.
    let mut config = with_names(&files, &dns, &backends);
    config.name_servers = vec![dns.address];
    server.reload(&document(&config)).expect("a reload");
    eventually("it is asked for again", || lookups("long.test") == 2);
}

#[test]
fn answers_that_fail_keep_the_addresses() {
    let files = Files::new();
    let dns = Dns::start();
    let (port, _named) = same_port([("127.0.0.1", b'a')]);
    // A server that is silent fails in the same way, later: see the tests of one lookup.
    let failures = [How::NxDomain, How::ServFail, How::OtherName];
    let name = |how: &How| format!("{how:?}.test").to_lowercase();
    for how in &failures {
        dns.answer(&name(how), &["127.0.0.1"]);
    }
    // One family fails, and the other one does not. A machine without IPv6 does not have the address.
    dns.answer("half.test", &["127.0.0.1", "::1"]);
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    let mut names = failures.map(|how| name(&how)).to_vec();
    if has_ipv6 {
        names.push("half.test".into());
    } else {
        println!("SKIP: no IPv6, so no name has two families");
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let backends: Vec<_> = names.iter().map(|name| format!("{name}:{port}")).collect();
    let mut config = with_names(&files, &dns, &backends);
    // Nothing is at `::1`.
    config.limits.backend_connect = PATIENCE;
    let server = start_with_all(&config, &names);
    for name in &names {
        assert_eq!(of_name(&server, "current", name), 1, "{name}");
    }
    for how in &failures {
        dns.change(&name(how), |records| records.how = *how);
    }
    dns.change("half.test", |records| {
        records.how_aaaa = Some(How::ServFail)
    });
    let keeps = |name: &str| {
        eventually(name, || of_name(&server, "current", name) == 0);
        let kept = if name == "half.test" { 2 } else { 1 };
        assert_eq!(of_name(&server, "addresses", name), kept, "{name}");
    };
    for name in &names {
        keeps(name);
    }
    assert_eq!(who(&server), 'a');
    for name in &names {
        dns.change(name, |records| {
            records.how = How::Well;
            records.how_aaaa = None;
        });
    }
    look_up_now(&server, &config);
    for name in &names {
        eventually(name, || of_name(&server, "current", name) == 1);
    }
    if has_ipv6 {
        // That a family has no address any more is an answer.
        dns.answer("half.test", &["127.0.0.1"]);
        look_up_now(&server, &config);
        eventually("one family is left", || {
            of_name(&server, "addresses", "half.test") == 1
        });
        assert_eq!(of_name(&server, "current", "half.test"), 1);
    }
}

#[test]
fn all_addresses_of_both_families_are_used_up_to_a_bound() {
    let files = Files::new();
    let dns = Dns::start();
    if TcpListener::bind("[::1]:0").is_ok() {
        let (port, _named) = same_port([("127.0.0.1", b'4'), ("::1", b'6')]);
        dns.answer("both.test", &["::1", "127.0.0.1", "0.0.0.0", "::"]);
        let config = with_names(&files, &dns, &[format!("both.test:{port}")]);
        let server = start_with_all(&config, &["both.test"]);
        assert_eq!(of_name(&server, "addresses", "both.test"), 2);
        let address = server.addresses()[0];
        let open = [(); 2].map(|()| served_by(address, "a.example", &[]));
        let mut letters = [open[0].0, open[1].0];
        letters.sort();
        assert_eq!(letters, ['4', '6']);
    } else {
        println!("SKIP: no IPv6");
    }

    // An answer that is too long for UDP.
    let (port, _named) = same_port([("127.0.1.64", b'm')]);
    let many: Vec<String> = (1..=100).map(|last| format!("127.0.1.{last}")).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    dns.answer("many.test", &many);
    let config = with_names(&files, &dns, &[format!("many.test:{port}")]);
    let server = start_with_all(&config, &["many.test"]);
    assert_eq!(
        of_name(&server, "addresses", "many.test"),
        Backend::MOST as u64
    );
    assert_eq!(who(&server), 'm', "the last of those that are used");
    // The order of the answer changes nothing.
    many.reverse();
    dns.answer("many.test", &many);
    let before = lookups(&server, "many.test");
    // One of them may have begun before.
    for more in 1..=2 {
        look_up_now(&server, &config);
        eventually("it is looked up again", || {
            lookups(&server, "many.test") >= before + more
        });
    }
    assert_eq!(who(&server), 'm');
}

#[test]
fn a_start_goes_on_without_an_address_and_a_reload_is_refused() {
    let files = Files::new();
    let dns = Dns::start();
    let (port, named) = same_port([("127.0.0.1", b'a')]);
    let mut config = with_names(&files, &dns, &[format!("late.test:{port}")]);
    Server::check(&document(&config)).expect("only a warning");
    let server = start(&config);
    gets_nothing(&server);
    assert_eq!(of_name(&server, "addresses", "late.test"), 0);
    eventually("it has failed", || {
        of_name(&server, "current", "late.test") == 0
    });
    dns.answer("late.test", &["127.0.0.1"]);
    eventually("the name is known", || {
        of_name(&server, "addresses", "late.test") == 1
    });
    assert_eq!(who(&server), 'a');

    let good = config.clone();
    config.listeners[0].backend = vec!["wrong.test:1".parse().expect("a backend")];
    let error = server.reload(&document(&config)).expect_err("no such name");
    let error = error.to_string();
    assert!(
        error.contains("--backend: cannot look up `wrong.test`: the DNS server knows no such name"),
        "{error}"
    );
    assert_eq!(who(&server), 'a');
    assert!(!metrics(&server).contains("wrong.test"), "it is forgotten");

    // From a name to a number, and back.
    config.listeners[0].backend = vec![named[0].backend()];
    server.reload(&document(&config)).expect("a reload");
    assert_eq!(who(&server), 'a');
    assert!(!metrics(&server).contains("late.test"));
    server.reload(&document(&good)).expect("a reload");
    assert_eq!(who(&server), 'a');
}

/// The listener that needs the name listens, too, and its connections wait for the first answer.
#[test]
fn a_silent_dns_server_holds_no_listener() {
    let files = Files::new();
    let dns = Dns::start();
    let (port, named) = same_port([("127.0.0.1", b'a')]);
    let silent = Records {
        how: How::Silent,
        ..Records::default()
    };
    dns.set("slow.test", silent);
    let mut config = with_names(&files, &dns, &[format!("slow.test:{port}")]);
    config.limits.backend_connect = PATIENCE;
    let mut plain = config.listeners[0].clone();
    plain.backend = vec![named[0].backend()];
    config.listeners.push(plain);
    let server = start(&config);
    let failed = r#"widelane_backend_name_lookups_total{name="slow.test",result="failed"}"#;
    let mut waiting = hello(server.addresses()[0]).expect("TLS");
    waiting.write_all(b"ping").expect("sent");
    assert_eq!(served_by(server.addresses()[1], "a.example", &[]).0, 'a');
    assert_eq!(metric(&server, failed), 0, "the DNS server is still silent");
    dns.answer("slow.test", &["127.0.0.1"]);
    let mut answer = [0; 1];
    waiting.read_exact(&mut answer).expect("it is served");
}

#[test]
fn names_follow_new_servers_with_the_new_configuration_and_not_before() {
    let files = Files::new();
    let (dns, other) = (Dns::start(), Dns::start());
    let (port, _named) = same_port([("127.0.0.1", b'a'), ("127.0.0.2", b'b')]);
    dns.answer("app.test", &["127.0.0.1"]);
    for name in ["app.test", "new.test"] {
        other.answer(name, &["127.0.0.2"]);
    }
    let config = with_names(&files, &dns, &[format!("app.test:{port}")]);
    let server = start_with_all(&config, &["app.test"]);
    // A lookup by the servers in use would not bring the address back.
    dns.change("app.test", |records| records.how = How::ServFail);
    eventually("lookups fail", || {
        of_name(&server, "current", "app.test") == 0
    });
    let mut refused = config.clone();
    refused.name_servers = vec![other.address];
    refused.listeners[0].certificates[0].cert = "/nothing/here.pem".into();
    let asked = other.asked("app.test");
    let error = server.reload(&document(&refused)).expect_err("no file");
    assert!(error.to_string().contains("/nothing/here.pem"), "{error}");
    assert!(other.asked("app.test") > asked, "they are tried");
    for _ in 0..4 {
        assert_eq!(who(&server), 'a', "what is in use stays");
    }

    // Servers that do not know a name are refused.
    let without = Dns::start();
    let mut unknown = config.clone();
    unknown.name_servers = vec![without.address];
    let error = server.reload(&document(&unknown)).expect_err("no name");
    assert!(error.to_string().contains("app.test"), "{error}");
    assert_eq!(who(&server), 'a');

    let mut taken = with_names(&files, &other, &[format!("app.test:{port}")]);
    server.reload(&document(&taken)).expect("a reload");
    eventually("the new servers count", || who(&server) == 'b');
    // A new name has its addresses at once, also from new servers.
    let third = Dns::start();
    third.answer("new.test", &["127.0.0.1"]);
    let name = format!("new.test:{port}");
    taken.listeners[0].backend = vec![name.parse().expect("a backend")];
    taken.name_servers = vec![third.address];
    server.reload(&document(&taken)).expect("a reload");
    assert_eq!(who(&server), 'a');
}

#[test]
fn a_check_over_http_asks_for_the_host_of_the_backend() {
    let files = Files::new();
    let dns = Dns::start();
    dns.answer("app.test", &["127.0.0.1"]);
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
        let mut config = with_names(&files, &dns, &[backend]);
        let mut check = HealthCheck::new(CheckKind::Http);
        check.interval = Duration::from_millis(100);
        config.listeners[0].health_check = Some(check);
        let server = start(&config);
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
    let files = Files::new();
    let (port, _named) = same_port([("127.0.0.1", b'a')]);
    let mut config = with_names(&files, &Dns::start(), &[format!("localhost:{port}")]);
    config.name_servers.clear();
    let server = start_with_all(&config, &["localhost"]);
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
    ] {
        let error = wrong.parse::<Backend>().expect_err(wrong);
        assert!(error.contains("is no backend; write"), "{error}");
    }
    for (text, shown) in [
        ("App.Default.svc:8080", "app.default.svc:8080"),
        ("app.example.org.:1", "app.example.org.:1"),
        ("_x-1:65535", "_x-1:65535"),
    ] {
        let backend: Backend = text.parse().expect(text);
        assert!(matches!(backend, Backend::Name(_)), "{text}");
        assert_eq!(backend.to_string(), shown);
    }
    let files = Files::new();
    let good = with_names(&files, &Dns::start(), &["app.test:1".to_owned()]);
    for wrong in [
        "0.0.0.0:53",
        "[::]:53",
        "[::ffff:0.0.0.0]:53",
        "10.96.0.10:0",
    ] {
        let mut config = good.clone();
        config.name_servers.push(wrong.parse().expect("an address"));
        let error = Document::from_flags(config).expect_err(wrong).to_string();
        let ends = format!("{wrong} is no address of a server");
        assert!(
            error.contains("name_servers[1]") && error.contains(&ends),
            "{error}"
        );
    }
    let text = "name_servers = [\"10.96.0.10\"]\n";
    let error = Document::parse("w.toml".as_ref(), text.into()).expect_err("no port");
    assert!(
        error.to_string().starts_with("w.toml:1: name_servers"),
        "{error}"
    );
}
