//! `widelane trace` on Widelane's own static probes, beside the metrics of the terminator.

use std::path::Path;

use serde_json::Value;
use widelane_trace::{Image, Place, Table, Tells};

use crate::support::{Client, Running, Tracer, alone, free_port, listening, load, scrape, shown_by_top};

/// `widelane serve` with one worker.
struct Terminator {
    port: u16,
    metrics: u16,
    running: Running,
}

impl Terminator {
    fn start(options: &[&str]) -> Self {
        let (port, metrics) = (free_port(), free_port());
        let mut command = crate::under_test::widelane();
        let command = command
            .args(["serve", "--demo", "--workers", "1"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--metrics", &format!("127.0.0.1:{metrics}")])
            .args(options);
        Self {
            port,
            metrics,
            running: listening(command, metrics),
        }
    }

    fn pid(&self) -> String {
        self.running.pid()
    }

    /// The sum of a metric over its labels; some of these may follow its name.
    fn count(&self, metric: &str) -> u64 {
        let text = scrape(self.metrics);
        let lines = text.lines().filter_map(|line| line.strip_prefix(metric));
        let values = lines.filter(|rest| rest.starts_with(['{', ' ', ',']));
        let values = values.filter_map(|rest| rest.rsplit(' ').next());
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    }
}

fn sum(lines: &[Value], kind: &str, key: &str) -> u64 {
    let rows = lines.iter().filter(|line| line["kind"] == kind);
    rows.map(|line| line[key].as_u64().unwrap()).sum()
}

#[test]
fn the_terminator_s_handshakes_are_as_many_as_it_counts() {
    let _alone = alone();
    let server = Terminator::start(&[]);
    let tracer = match Tracer::start(&["handshakes", "--json", "--pid", &server.pid()]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session");
    let session = session.to_str().unwrap();
    let client = Client::to(server.port);
    client.run(&["-groups", "X25519", "-ciphersuites", "TLS_AES_128_GCM_SHA256"]);
    client.run(&["-tls1_2", "-curves", "P-256", "-sess_out", session]);
    client.run(&["-tls1_2", "-sess_in", session]);
    // Keys that no peer and we have in common: an alert.
    client.fail(&["-tls1_2", "-cipher", "AES128-SHA"]);
    load(server.port, 200);
    let done = server.count("widelane_handshakes_total{result=\"ok\"");
    let all = server.count("widelane_handshakes_total");
    let lines = tracer.objects();
    let all_done = lines.iter().filter(|line| line["result"] == "ok");
    assert_eq!((all_done.count() as u64, done), (203, 203));
    assert_eq!((lines.len() as u64, all), (204, 204), "{lines:#?}");
    for line in &lines {
        assert_eq!(
            (&line["library"], &line["side"]),
            (&"widelane".into(), &"server".into())
        );
        assert!(line["wall_us"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["cpu_us"].is_null() && line["waiting_us"].is_null(), "{line}");
    }
    let [first, second, resumed, refused, loaded @ ..] = &lines[..] else {
        panic!("{lines:#?}");
    };
    let agreed = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        (text("version"), text("cipher"), text("group"))
    };
    let (version, cipher, group) = agreed(first);
    assert_eq!(version, "TLSv1.3");
    assert_eq!((&*cipher, &*group), ("TLS_AES_128_GCM_SHA256", "x25519"));
    assert_eq!(first["resumed"], false);
    let (version, _, group) = agreed(second);
    assert_eq!((&*version, &*group), ("TLSv1.2", "secp256r1"));
    assert_eq!((&second["resumed"], &resumed["resumed"]), (&false.into(), &true.into()));
    assert_eq!(refused["result"], "alert");
    // One handshake alone, and many at the same time: each has a signature and a key exchange.
    for line in std::iter::once(first).chain(loaded) {
        let functions = line["functions"].as_array().unwrap();
        let name = |function: &Value| function["name"].as_str().unwrap().to_owned();
        let signs: Vec<_> = functions.iter().filter(|one| name(one).ends_with(" sign")).collect();
        let [sign] = signs[..] else { panic!("{line}") };
        assert_eq!(sign["count"], 1, "{line}");
        assert!(sign["us"].as_f64().unwrap() > 0.0, "{line}");
        assert!(functions.iter().any(|one| name(one) == "x25519 derive"), "{line}");
    }
}

#[test]
fn handshakes_without_batches_are_told_too() {
    let _alone = alone();
    let server = Terminator::start(&["--batching", "off"]);
    let tracer = match Tracer::start(&["handshakes", "--json", "--pid", &server.pid()]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    load(server.port, 20);
    let lines = tracer.objects();
    let done = lines
        .iter()
        .filter(|line| line["result"] == "ok" && line["version"] == "TLSv1.3");
    assert_eq!((done.count(), lines.len()), (20, 20));
}

#[test]
fn top_shows_the_terminator_s_handshakes() {
    let _alone = alone();
    let server = Terminator::start(&[]);
    match shown_by_top(server.running.id(), || load(server.port, 50)) {
        Ok(shown) => assert_eq!(shown["library"], "widelane", "{shown}"),
        Err(why) => println!("SKIP: {why}"),
    }
}

#[test]
fn passes_are_as_many_as_the_engine_counts() {
    let _alone = alone();
    let server = Terminator::start(&[]);
    let tracer = match Tracer::start(&["batches", "--json", "--pid", &server.pid()]) {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIP: {why}"),
    };
    load(server.port, 200);
    let count = |name: &str| server.count(&format!("widelane_engine_{name}_total"));
    let (jobs, passes, filled) = (count("jobs"), count("passes"), count("lanes_filled"));
    let (alone, queued) = (count("alone"), count("queued_nanoseconds"));
    let lines = tracer.objects();
    assert!(lines.iter().all(|line| line["library"] == "widelane"), "{lines:#?}");
    assert_eq!(sum(&lines, "pass", "calls"), passes);
    assert_eq!(sum(&lines, "pass", "operations"), filled);
    assert_eq!(sum(&lines, "alone", "calls"), alone);
    assert_eq!(filled + alone, jobs);
    let waited = lines.iter().map(|line| line["queued_us"].as_f64().unwrap());
    let difference = waited.sum::<f64>() - queued as f64 / 1_000.0;
    assert!(difference.abs() < 1.0, "{difference} µs");
    for line in lines.iter().filter(|line| line["kind"] == "pass") {
        let lanes = line["lanes_filled"].as_f64().unwrap();
        assert!(lanes > 0.0 && lanes <= 1.0, "{line}");
    }
}

/// A linker could leave the notes out.
#[test]
fn the_program_has_every_probe_with_all_its_arguments() {
    let path = Path::new(crate::under_test::PROGRAM);
    let image = Image::of(&std::fs::read(path).unwrap(), &Table::builtin()).unwrap();
    for tells in Tells::HANDSHAKES.into_iter().chain(Tells::PASSES) {
        let places: Vec<_> = (image.marks.iter()).filter(|one| one.mark.tells == tells).collect();
        assert!(!places.is_empty(), "{tells:?}");
        for one in places {
            assert_eq!(one.places.len(), one.mark.arguments.len(), "{tells:?}");
            let known = one.places.iter().all(|place| *place != Place::Unknown);
            assert!(known, "{tells:?}: {:?}", one.places);
        }
    }
}
