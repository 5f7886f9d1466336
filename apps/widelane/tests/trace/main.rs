//! `widelane trace` as its users see it, on Debian's nginx and OpenSSL's own programs. Tests SKIP where
//! tracing is not allowed, or the programs are missing.

mod hostile;
mod inside;
mod marks;
mod probes;
mod programs;
mod stacks;
mod support;
#[path = "../under_test/mod.rs"]
mod under_test;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::{
    Client, Nginx, Running, Tracer, alone, eventually, free_port, load, passes, probed_bytes, scrape, shown_by_top,
};

/// A tracer of some processes, or what is missing here.
macro_rules! tracer {
    ($($argument:expr),* $(,)?) => {
        match Tracer::start(&[$($argument.as_ref()),*]) {
            Ok(tracer) => tracer,
            Err(why) => return println!("SKIP: {why}"),
        }
    };
}

macro_rules! nginx {
    () => {
        match Nginx::start() {
            Ok(nginx) => nginx,
            Err(why) => return println!("SKIP: {why}"),
        }
    };
}

#[test]
fn handshakes_of_nginx_are_told_with_what_was_negotiated() {
    let _alone = alone();
    let nginx = nginx!();
    let tracer = tracer!("handshakes", "--json", "--pid", nginx.pids());
    Client::to(nginx.port).run(&["-groups", "X25519"]);
    Client::to(nginx.port).run(&["-tls1_2", "-curves", "P-256"]);
    let session = nginx.folder.path().join("session");
    let session = session.to_str().unwrap();
    Client::to(nginx.port).run(&["-tls1_2", "-sess_out", session]);
    Client::to(nginx.port).run(&["-tls1_2", "-sess_in", session]);
    // No common cipher suite: the server sends an alert.
    Client::to(nginx.port).fail(&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"]);
    let lines = tracer.objects();
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    for line in &lines {
        assert_eq!(line["comm"], "nginx", "{line}");
        assert_eq!(line["library"], "openssl", "{line}");
        assert_eq!(line["side"], "server", "{line}");
        assert!(line["wall_us"].as_f64().unwrap() > 0.0, "{line}");
        assert!(
            line["cpu_us"].as_f64().unwrap() <= line["wall_us"].as_f64().unwrap(),
            "{line}"
        );
    }
    let [first, second, third, resumed, refused] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert_eq!(text(first, "version"), "TLSv1.3");
    assert_eq!(text(first, "group"), "x25519");
    assert_eq!(text(first, "cipher"), "TLS_AES_256_GCM_SHA384");
    assert_eq!(first["resumed"], false);
    assert_eq!(first["result"], "ok");
    let functions = first["functions"].as_array().unwrap();
    let of = |name: &str| functions.iter().find(|function| function["name"] == name);
    let sign = of("rsa-2048 sign").unwrap_or_else(|| panic!("{first}"));
    assert_eq!(sign["count"], 1, "{first}");
    assert!(sign["us"].as_f64().unwrap() > 10.0, "{first}");
    assert!(of("x25519 derive").is_some(), "{first}");
    assert!(first["calls"].as_u64() > first["again"].as_u64(), "{first}");

    assert_eq!(text(second, "version"), "TLSv1.2");
    assert_eq!(text(second, "group"), "secp256r1");
    assert_eq!(
        (&third["resumed"], &resumed["resumed"]),
        (&Value::from(false), &Value::from(true))
    );
    assert_eq!(text(resumed, "version"), "TLSv1.2");
    assert_eq!(text(refused, "result"), "alert");
    assert_eq!(text(refused, "alert"), "handshake_failure");
}

/// Every handshake is printed, whatever the rate, and nothing but handshakes.
#[test]
fn as_many_handshakes_are_told_as_were_made() {
    let _alone = alone();
    let nginx = nginx!();
    let tracer = tracer!("handshakes", "--json", "--pid", nginx.pids());
    load(nginx.port, 400);
    let lines = tracer.objects();
    let done = lines.iter().filter(|line| line["result"] == "ok").count();
    assert_eq!((lines.len(), done), (400, 400));
}

/// Nothing is kept of connections that are gone: 3,000 of them with a kilobyte each would be 3 MB.
#[test]
fn short_connections_leave_no_memory_behind() {
    let _alone = alone();
    let nginx = nginx!();
    let tracer = tracer!("handshakes", "--json", "--pid", nginx.pids());
    load(nginx.port, 1000);
    let mut memory = vec![tracer.memory()];
    // Buffers grow once where other programs keep the tracer waiting. What is kept grows each time.
    let grew = |memory: &[u64]| match memory {
        [.., before, after] => *after >= before + 2048,
        _ => true,
    };
    while memory.len() < 4 && grew(&memory) {
        load(nginx.port, 3000);
        memory.push(tracer.memory());
    }
    assert!(!grew(&memory), "KiB: {memory:?}");
    let (lines, complaints) = tracer.finish();
    assert_eq!(lines.len(), 1000 + 3000 * (memory.len() - 1), "{complaints}");
}

/// From a server in use to what Widelane would change for it.
#[test]
fn a_server_in_use_is_advised() {
    let _alone = alone();
    let nginx = nginx!();
    let tracer = tracer!("advise", "--json", "--duration", "60", "--pid", nginx.pids());
    // Long enough for some dozens of looks at what waits.
    load(nginx.port, 3000);
    let lines = tracer.objects();
    let [line] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert_eq!(line["program"], "nginx");
    // Those before the first look at the process's CPU time do not count.
    let done = line["handshakes"].as_u64().unwrap();
    assert!((1500..=3000).contains(&done), "{line}");
    assert_eq!(line["failed"], 0, "{line}");
    assert_eq!((&line["way_in"], &line["setup"]), (&"setup".into(), &"nginx".into()));
    assert_eq!(line["kinds"][0]["signature"], "rsa-2048", "{line}");
    assert_eq!(line["kinds"][0]["count"], done, "{line}");
    assert!(line["looks"].as_u64().unwrap() > 0, "{line}");
    if line["why"] == "no lanes" {
        return println!("SKIP: {}", line["why"]);
    }
    assert!(line["why"].is_null(), "{line}");
    let operations = line["operations"].as_array().unwrap();
    let sign = operations.iter().find(|one| one["name"] == "rsa-2048 sign");
    let sign = sign.unwrap_or_else(|| panic!("{line}"));
    assert!(sign["in_passes_us"].as_f64().unwrap() > 0.0, "{line}");
    assert!(line["cpu_us"].as_f64() > sign["us"].as_f64(), "{line}");
    // Where passes cost less than what the server has.
    let pays = |one: &Value| {
        one["in_passes_us"]
            .as_f64()
            .is_none_or(|cost| Some(cost) <= one["us"].as_f64())
    };
    if operations.iter().all(pays) {
        assert!(
            line["full"]["cpu_us"].as_f64() <= line["now"]["cpu_us"].as_f64(),
            "{line}"
        );
    } else {
        println!("SKIP: an operation does not pay here, and full passes may cost more: {line}");
    }
    assert!(line["ready"].as_f64().unwrap() >= 1.0, "{line}");
}

/// `widelane top --handshakes`, by the same means.
#[test]
fn top_shows_handshakes_and_their_functions() {
    let _alone = alone();
    let nginx = nginx!();
    match shown_by_top(nginx.worker(), || load(nginx.port, 50)) {
        Ok(shown) => assert_eq!(shown["library"], "openssl", "{shown}"),
        Err(why) => println!("SKIP: {why}"),
    }
}

#[test]
fn a_server_that_nobody_uses_is_not_advised() {
    let _alone = alone();
    let nginx = nginx!();
    let output = under_test::widelane()
        .args(["trace", "advise", "--duration", "0.2", "--pid", &nginx.pids()])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if !said.contains("widelane: traces") {
        return println!("SKIP: {said}");
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no TLS handshake was seen"), "{said}");
}

#[test]
fn a_process_that_starts_later_is_traced_by_its_name() {
    let _alone = alone();
    let mut tracer = tracer!("handshakes", "--json", "--exe", "nginx");
    let nginx = nginx!();
    let worker = nginx.worker();
    eventually("the worker is traced", || {
        Client::to(nginx.port).run(&["-groups", "P-256"]);
        tracer.has_told(|line| line["pid"] == worker && is_whole(line))
    });
    let lines = tracer.objects();
    let mut of_worker = lines.iter().filter(|line| line["pid"] == worker);
    let line = of_worker.find(|line| is_whole(line)).unwrap();
    assert_eq!(line["group"], "secp256r1");
    assert_eq!(line["result"], "ok");
}

#[test]
fn calls_are_shown_inside_those_that_made_them() {
    let _alone = alone();
    let nginx = nginx!();
    let tracer = tracer!("snoop", "--json", "--pid", nginx.pids());
    Client::to(nginx.port).run(&["-groups", "X25519"]);
    let lines = tracer.objects();
    let depth = |function: &str| {
        let line = lines.iter().find(|line| line["function"] == function);
        line.map(|line| line["depth"].as_u64().unwrap())
    };
    // nginx shares its functions with its modules, unless it was built without any.
    let outer = depth("ngx_ssl_handshake");
    assert!(outer.is_none_or(|depth| depth == 0), "{lines:#?}");
    let of_library = u64::from(outer.is_some());
    assert_eq!(depth("SSL_do_handshake"), Some(of_library), "{lines:#?}");
    assert_eq!(depth("EVP_PKEY_derive"), Some(of_library + 1), "{lines:#?}");
    let asked = lines.iter().filter(|line| line["function"] == "SSL_get_error");
    for line in asked {
        let error = line["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("SSL_ERROR_"), "{line}");
    }
}

#[test]
fn times_are_counted_in_the_kernel() {
    let _alone = alone();
    let nginx = nginx!();
    let tracer = tracer!("latency", "--json", "--pid", nginx.pids());
    load(nginx.port, 60);
    let lines = tracer.objects();
    let row = |function: &str, outcome: &str| {
        let is_it = |row: &&Value| row["function"] == function && row["outcome"] == outcome;
        lines
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no {function}: {lines:#?}"))
    };
    // Each traced call costs, and the times of these answer no question.
    let idle = |line: &Value| line["function"] == "SSL_get_error" || line["function"] == "SSL_free";
    assert!(!lines.iter().any(idle), "{lines:#?}");
    assert_eq!(row("EVP_DigestSign", "ok")["count"], 60);
    assert_eq!(row("SSL_do_handshake", "ok")["count"], 60);
    let sign = row("EVP_DigestSign", "ok");
    let number = |key: &str| sign[key].as_f64().unwrap();
    assert!(
        number("mean_us") > 10.0 && number("p50_us") <= number("p99_us"),
        "{sign}"
    );
    assert!(number("total_us") >= 60.0 * number("mean_us") * 0.99, "{sign}");
}

#[test]
fn times_are_served_for_prometheus() {
    let _alone = alone();
    let nginx = nginx!();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let _tracer = tracer!("latency", "--pid", nginx.pids(), "--prometheus", address);
    load(nginx.port, 20);
    eventually("the sums are there", || {
        let text = scrape(port);
        let is_it = |line: &&str| line.contains("_count{") && line.contains("\"SSL_do_handshake\"");
        let done = text.lines().filter(is_it).find(|line| line.contains("\"ok\""));
        done.is_some_and(|line| line.ends_with(" 20"))
    });
    assert!(scrape(port).starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn plain_text_is_shown_only_by_name_and_without_bodies_if_asked() {
    let _alone = alone();
    let nginx = nginx!();
    let capture = nginx.folder.path().join("capture.pcapng");
    let tracer = tracer!(
        "plaintext",
        "--json",
        "--redact",
        "--pid",
        nginx.pids(),
        "--pcap",
        capture.to_str().unwrap()
    );
    nginx.get("/");
    let (lines, complaints) = tracer.finish();
    assert!(complaints.contains("in secret"), "{complaints}");
    let texts: Vec<_> = lines.iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert!(texts[0].starts_with("GET / HTTP/1.1\r\n"), "{texts:?}");
    // What stands for the cookie is as long as the cookie, which counts as not shown all the same.
    assert!(texts[0].contains("Cookie: ...\r\n"), "{texts:?}");
    assert_eq!(lines[0]["not_shown"], " id=1\r\n".len(), "{}", lines[0]);
    assert!(texts.iter().any(|text| text.starts_with("HTTP/1.1 200")), "{texts:?}");
    assert!(!texts.iter().any(|text| text.contains("secret body")), "{texts:?}");
    let file = fs::read(&capture).unwrap();
    assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    let has = |text: &[u8]| file.windows(text.len()).any(|window| window == text);
    assert!(has(b"GET / HTTP/1.1") && !has(b"secret body"));
    let mode = fs::metadata(&capture).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Such as a wrong name, or a program without TLS. A link leads to the program that runs.
#[test]
fn why_nothing_is_traced_is_said() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    symlink("/usr/bin/sleep", &link).unwrap();
    let sleeps = Running::start(Command::new("sleep").arg("60"));
    let pid = sleeps.pid();
    for (arguments, expected) in [
        (["--pid", &pid], "of 1 that are chosen, none has a TLS library"),
        (["--exe", link.to_str().unwrap()], "none has a TLS library"),
        (["--comm", "no-such-name"], "none is as --pid, --comm"),
    ] {
        let [option, value] = arguments;
        let tracer = tracer!("handshakes", "--json", option, value);
        let (_, complaints) = tracer.finish();
        assert!(complaints.contains(expected), "{arguments:?}: {complaints}");
    }
}

/// Also where tracing is not allowed at all.
#[test]
fn a_capture_from_before_is_kept_if_there_is_nothing_to_trace() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcapng");
    fs::write(&capture, "of yesterday").unwrap();
    let mut command = under_test::widelane();
    command.args(["trace", "plaintext", "--pid", "4194304", "--pcap"]);
    let output = command.arg(&capture).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(fs::read(&capture).unwrap(), b"of yesterday");
}

/// A program with a function in the form of crypto_mb's: passes of eight, three and one operation.
#[test]
fn operations_of_a_pass_are_counted() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let passes = match passes(folder.path()) {
        Ok(passes) => passes,
        Err(why) => return println!("SKIP: {why}"),
    };
    let tracer = tracer!("batches", "--json", "--pid", passes.pid());
    std::thread::sleep(Duration::from_millis(500));
    let lines = tracer.objects();
    let [line] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert_eq!(line["function"], "mbx_*_mb8");
    let sizes = line["passes_by_size"].as_array().unwrap();
    let count = |size: usize| sizes[size - 1].as_u64().unwrap();
    // The trace begins and ends in the middle of a round.
    assert!(count(8) > 3 && count(8).abs_diff(count(3)) <= 1, "{line}");
    assert!(count(8).abs_diff(count(1)) <= 1, "{line}");
    assert_eq!(count(8) + count(3) + count(1), line["calls"].as_u64().unwrap());
    let operations = 8 * count(8) + 3 * count(3) + count(1);
    assert_eq!(line["operations"].as_u64().unwrap(), operations);
}

/// Numbers are those of the namespace in which the tracer is, as `ps` shows them there.
#[test]
fn a_tracer_in_a_pid_namespace_sees_what_is_in_it() {
    let _alone = alone();
    let apart = ["--pid", "--fork", "--mount-proc"];
    let allowed = Command::new("unshare").args(apart).arg("true").output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        return println!("SKIP: a PID namespace cannot be had");
    }
    let nginx = nginx!();
    let at = |name: &str| nginx.folder.path().join(name).display().to_string();
    let port = free_port();
    let mut command = Command::new("unshare");
    command.args(apart).args(["sh", "-c", IN_NAMESPACE, "sh"]);
    command.args([
        port.to_string(),
        at("certificate"),
        at("key"),
        under_test::PROGRAM.to_owned(),
    ]);
    let mut tracer = match Tracer::run(&mut under_test::apart(command)) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    // nginx is outside of it, and not shown.
    Client::to(nginx.port).run(&[]);
    // The shell has become the tracer, and is 1.
    let inside = 2;
    eventually("the server inside listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    eventually("the server inside is traced", || {
        Client::to(port).run(&["-groups", "X25519"]);
        tracer.has_told(is_whole)
    });
    let lines = tracer.objects();
    for line in &lines {
        assert_eq!(line["pid"], inside, "{line}");
        assert_eq!(line["tid"], inside, "{line}");
        assert_eq!(line["comm"], "openssl", "{line}");
    }
    // One client has only connected.
    for line in lines.iter().filter(|line| is_whole(line)) {
        assert_eq!(line["result"], "ok", "{line}");
        assert_eq!(line["group"], "x25519", "{line}");
    }
}

/// A handshake that was under way when the probes came lacks its beginning, and with it the group.
fn is_whole(line: &Value) -> bool {
    !line["group"].is_null()
}

/// A server and its tracer: with port, certificate, key and the tracer's program. No signal reaches the
/// tracer by way of `unshare`: it ends by itself.
const IN_NAMESPACE: &str = "openssl s_server -rev -accept $1 -cert $2 -key $3 >/dev/null 2>&1 & \
    exec $4 trace handshakes --json --duration 5";

/// Not even SIGKILL leaves a probe behind, and the server goes on.
#[test]
fn no_probe_is_left_in_whatever_way_the_tracer_ends() {
    let _alone = alone();
    let nginx = nginx!();
    let worker = nginx.worker();
    assert_eq!(probed_bytes(worker), 0);
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let tracer = tracer!("handshakes", "--json", "--pid", nginx.pids());
        Client::to(nginx.port).run(&[]);
        assert!(probed_bytes(worker) > 0, "it is not traced");
        tracer.end(signal);
        // A probe is taken out when it is met again, or at once.
        Client::to(nginx.port).run(&[]);
        assert_eq!(probed_bytes(worker), 0, "after {signal:?}");
    }
}

#[test]
fn a_traced_server_may_reload_and_end() {
    let _alone = alone();
    let nginx = nginx!();
    let mut tracer = tracer!("handshakes", "--json", "--exe", "nginx");
    Client::to(nginx.port).run(&[]);
    let before = nginx.worker();
    nginx.reload();
    let worker = nginx.worker();
    assert_ne!(worker, before);
    // The worker has the breakpoints of its parent from the beginning, and its own probes soon after.
    eventually("the new worker is traced", || {
        Client::to(nginx.port).run(&[]);
        tracer.has_told(|line| line["pid"] == worker)
    });
    drop(nginx);
    let lines = tracer.objects();
    let of = |pid: u32| lines.iter().filter(|line| line["pid"] == pid).count();
    assert_eq!(of(before), 1, "{lines:#?}");
    assert!(of(worker) >= 1, "{lines:#?}");
}

#[test]
fn mistakes_are_named() {
    let wrong = |arguments: &[&str], status: i32, said: &str| {
        let mut command = under_test::widelane();
        let output = command
            .arg("trace")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {complaint}");
        assert!(complaint.contains(said), "{arguments:?}: {complaint}");
    };
    wrong(&["handshakes", "--pid", "4294967295"], 1, "no process 4294967295");
    wrong(&["handshakes", "--pid", "nginx"], 2, "--pid");
    wrong(&["handshakes", "--slow", "5"], 2, "5ms");
    wrong(&["latency", "--functions", "/missing.toml"], 1, "/missing.toml");
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("functions.toml");
    fs::write(
        &table,
        "[[function]]\nlibrary = \"x\"\nsymbol = \"f\"\nrole = \"dance\"\n",
    )
    .unwrap();
    wrong(&["latency", "--functions", table.to_str().unwrap()], 1, "dance");
}
