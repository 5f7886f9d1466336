use super::ready::Looks;
use super::tally::Tally;
use super::*;
use crate::clock::Clock;
use crate::event::Direction;
use crate::event::Event;
use crate::functions::{Role, Side};
use crate::handshakes::{Ending, Handshake, Operations};
use crate::specimens::{bytes, call, client_hello, function, record, server_hello, tls13};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use widelane_batching::Costs;
use widelane_setup::Running;
use widelane_threads::Proc;

const US: f64 = 1_000.0;

fn named(file: &str) -> Running {
    Running::named(Some(file.to_owned()), String::new())
}

fn kind(signature: &str, resumed: bool) -> Kind {
    Kind {
        version: Some("TLSv1.3".to_owned()),
        group: Some("x25519".to_owned()),
        signature: (!resumed).then(|| signature.to_owned()),
        resumed,
    }
}

fn operation(name: &str, role: Role, count: u64, us: f64) -> Operation {
    Operation {
        name: name.to_owned(),
        role,
        group: Some("x25519".to_owned()),
        count,
        typical: us * US,
    }
}

/// nginx for ten seconds: 20,000 full handshakes with this signature, of 500 µs each, and at each of 500
/// looks `ready` of them at the same time. What tracing adds is not known.
fn nginx(signature: &str, us: f64, ready: f64) -> Observed {
    Observed {
        program: Program {
            running: named("nginx"),
            tls: Tls::OpenSsl,
            loaded: false,
        },
        processes: vec![4711],
        seconds: 10.0,
        cpu: 10_000_000_000,
        done: 20_000,
        failed: 0,
        as_client: 0,
        kinds: BTreeMap::from([(kind(signature, false), 20_000)]),
        operations: vec![
            operation(&format!("{signature} sign"), Role::Sign, 20_000, us),
            operation("generate", Role::Generate, 20_000, 30.0),
            operation("x25519 derive", Role::Derive, 20_000, 40.0),
        ],
        calls: 0,
        trivial: None,
        untraced: Some(500.0 * US),
        ready: Ready {
            counts: vec![ready; 500],
            looks: 500,
            computed: 500,
            asked: 500,
            waited: if ready >= 2.0 { 500 } else { 0 },
        },
    }
}

/// Passes that cost the same however full they are: 400 µs for four signatures with RSA, 40 µs for eight
/// of the others.
fn lanes() -> Lanes {
    let costs = |lanes, us: u64, alone: u64| Costs {
        lanes,
        first: us * 1_000,
        further: 0,
        alone: alone * 1_000,
    };
    let passes = BTreeMap::from([
        ("rsa2048-sign".to_owned(), costs(4, 400, 350)),
        ("p256-ecdsa-sign".to_owned(), costs(8, 80, 30)),
        ("x25519-keygen".to_owned(), costs(8, 40, 30)),
        ("x25519-derive".to_owned(), costs(8, 40, 35)),
        ("mlkem768-encaps".to_owned(), costs(8, 40, 10)),
    ]);
    let hand_over = 4.0 * US;
    Lanes::Costs { passes, hand_over }
}

fn text(observed: &Observed) -> String {
    sentences(observed, &Estimate::of(observed, &lanes()))
}

fn near(value: f64, expected: f64) {
    assert!(
        (value - expected).abs() < 1e-6 * expected.abs().max(1.0),
        "{value} {expected}"
    );
}

#[test]
fn full_passes_at_the_limit() {
    let observed = nginx("rsa-2048", 350.0, 64.0);
    let estimate = Estimate::of(&observed, &lanes()).unwrap();
    assert!(estimate.at_limit);
    near(estimate.own, 500.0 * US);
    near(estimate.private_share(), 0.7);
    near(estimate.exchange_share(), 0.14);
    // 350 - 400 / 4, 30 - 40 / 8, 40 - 40 / 8.
    near(estimate.now.saved, 310.0 * US);
    near(estimate.now.with, 190.0 * US);
    near(estimate.now.quotient(), 500.0 / 190.0);
    assert_eq!(estimate.now, estimate.full);
    let text = text(&observed);
    for sentence in [
        "nginx (PID 4711), TLS by OpenSSL 3 or later, as a shared library\n",
        "It completed 2,000 handshakes a second for 10.0 s.\n",
        "Kinds: 100 % TLSv1.3 x25519 rsa-2048.\n",
        "A handshake takes 500µs of CPU time: 70 % of it are operations with the private key, 14 % the key \
         exchange.\n",
        "While it computed one (100 % of the time), 64 were ready on average in the same place, that one \
         included. Another one waited nearly always: the server is at its limit.\n",
        "With Widelane each would take 190µs, which is 0.38 of now, and save 310µs: the same CPU time is \
         enough for 2.63 times as many.\n",
        "One by one: rsa-2048 sign 350µs, in passes 100µs; generate 30.0µs, in passes 5.00µs; \
         x25519 derive 40.0µs, in passes 5.00µs.\n",
        "The way in: `sudo widelane setup nginx`, then restart it.\n",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
}

/// Of nine operations, eight fill passes and one is computed as before: its pass would cost more.
#[test]
fn what_is_too_few_for_a_pass_costs_what_it_costs_now() {
    let observed = nginx("rsa-2048", 350.0, 9.0);
    let estimate = Estimate::of(&observed, &lanes()).unwrap();
    let shared = estimate.parts.iter().map(|part| part.shared.unwrap());
    let expected = [(800.0 + 350.0) / 9.0, (40.0 + 30.0) / 9.0, (40.0 + 40.0) / 9.0];
    for (shared, expected) in shared.zip(expected) {
        near(shared, expected * US);
    }
}

#[test]
fn between_two_whole_numbers_costs_are_between() {
    let saved = |ready| {
        let estimate = Estimate::of(&nginx("rsa-2048", 350.0, ready), &lanes()).unwrap();
        estimate.now.saved
    };
    near(saved(2.5), (saved(2.0) + saved(3.0)) / 2.0);
    assert!(saved(2.0) < saved(3.0) && saved(3.0) < saved(4.0));
}

#[test]
fn what_tracing_adds_does_not_count() {
    let mut observed = nginx("rsa-2048", 350.0, 64.0);
    let plain = Estimate::of(&observed, &lanes()).unwrap();
    observed.cpu += 110_000 * observed.done;
    let traced = Estimate::of(&observed, &lanes()).unwrap();
    assert_eq!((traced.own, traced.now), (plain.own, plain.now));
    near(traced.tracing, 110.0 * US);
    assert!(text(&observed).contains("500µs of CPU time (tracing adds 110µs)"));
    // Without a time before, calls that do nearly nothing tell what tracing adds.
    (observed.untraced, observed.trivial) = (None, Some(10.0 * US));
    observed.calls = 11 * observed.done;
    let reckoned = Estimate::of(&observed, &lanes()).unwrap();
    near(reckoned.own, 500.0 * US);
    let text = text(&observed);
    assert!(
        text.contains("Not known: what a handshake costs while nothing is traced"),
        "{text}"
    );
}

#[test]
fn handshakes_that_never_meet_save_nothing_now() {
    for ready in [vec![], vec![1.0; 30]] {
        let mut observed = nginx("rsa-2048", 350.0, 1.0);
        observed.ready.computed = ready.len();
        observed.ready.counts = ready;
        assert!(!observed.ready.is_at_limit());
        let estimate = Estimate::of(&observed, &lanes()).unwrap();
        assert!(!estimate.at_limit);
        near(estimate.now.saved, 0.0);
        near(estimate.full.saved, 310.0 * US);
        let text = text(&observed);
        assert!(text.contains("next to nothing would be saved"), "{text}");
        assert!(text.contains("With full passes, each would take 190µs"), "{text}");
        assert_eq!(
            text.contains("none was met at a look"),
            observed.ready.counts.is_empty()
        );
    }
    let mut observed = nginx("rsa-2048", 350.0, 1.0);
    observed.ready.counts.clear();
    let text = text(&observed);
    assert!(
        text.contains("it was never asked then what waits: watch it for longer"),
        "{text}"
    );
}

/// A server that needs less time for the same handshakes has fewer of them at a time.
#[test]
fn below_the_limit_queues_get_shorter() {
    let mut observed = nginx("rsa-2048", 350.0, 6.0);
    (observed.ready.looks, observed.ready.asked) = (1_000, 1_000);
    let estimate = Estimate::of(&observed, &lanes()).unwrap();
    assert!(!estimate.at_limit);
    let (now, full) = (estimate.now, estimate.full);
    assert!(1.0 < now.ready && now.ready < 6.0, "{now:?}");
    assert!(0.0 < now.saved && now.saved < full.saved, "{now:?}");
    // With b of the time busy, b / (1 - b) wait in proportion.
    let busy = 0.5 * now.with / estimate.own;
    near(now.ready, 1.0 + 5.0 * busy / (1.0 - busy));
    assert!(text(&observed).contains("and as many handshakes as now"));
}

#[test]
fn ecdsa_is_estimated_by_its_own_passes() {
    let observed = nginx("ecdsa-p256", 50.0, 64.0);
    let estimate = Estimate::of(&observed, &lanes()).unwrap();
    near(estimate.now.saved, (50.0 - 10.0 + 25.0 + 35.0) * US);
    let text = text(&observed);
    assert!(text.contains("TLSv1.3 x25519 ecdsa-p256"), "{text}");
    assert!(text.contains("ecdsa-p256 sign 50.0µs, in passes 10.0µs"), "{text}");
}

#[test]
fn what_widelane_does_not_do_stays_as_it_is() {
    let observed = nginx("ed448", 900.0, 64.0);
    let estimate = Estimate::of(&observed, &lanes()).unwrap();
    near(estimate.now.saved, (25.0 + 35.0) * US);
    // Less CPU time was counted than the operations took, which cannot be.
    near(estimate.own, 970.0 * US);
    let text = text(&observed);
    assert!(
        text.contains("ed448 sign 900µs, which Widelane leaves as it is"),
        "{text}"
    );
    assert!(text.contains("count as they are"), "{text}");
}

#[test]
fn a_hybrid_group_is_three_operations() {
    let mut observed = nginx("rsa-2048", 350.0, 64.0);
    let mut hybrid = operation("ml-kem-768 encapsulate", Role::Encapsulate, 20_000, 80.0);
    hybrid.group = Some("X25519MLKEM768".to_owned());
    observed.operations[1..].clone_from_slice(&[hybrid.clone(), hybrid]);
    observed.operations.pop();
    let estimate = Estimate::of(&observed, &lanes()).unwrap();
    near(estimate.parts[1].shared.unwrap(), 15.0 * US);
}

#[test]
fn passes_that_cost_more_save_nothing() {
    let observed = nginx("rsa-2048", 2.0, 64.0);
    let mut lanes = lanes();
    if let Lanes::Costs { passes, .. } = &mut lanes {
        passes.retain(|name, _| name == "rsa2048-sign");
    }
    let estimate = Estimate::of(&observed, &lanes);
    let text = sentences(&observed, &estimate);
    assert!(text.contains("Widelane would save nothing here"), "{text}");
}

#[test]
fn without_an_estimate_the_reason_is_said() {
    let why = |observed: &Observed, lanes: &Lanes, sentence: &str| {
        let estimate = Estimate::of(observed, lanes);
        let text = sentences(observed, &estimate);
        assert!(text.contains(sentence), "{sentence}\n{text}");
        assert!(!text.contains("With Widelane"), "{text}");
        estimate.unwrap_err()
    };
    let usual = nginx("rsa-2048", 350.0, 64.0);
    let mut silent = usual.clone();
    (silent.done, silent.kinds) = (0, BTreeMap::new());
    let of = |observed: &Observed, sentence| why(observed, &lanes(), sentence);
    assert_eq!(of(&silent, "nothing to estimate"), Unestimated::NoHandshakes);
    silent.program.tls = Tls::Rustls;
    assert_eq!(of(&silent, "rustls is inside"), Unestimated::NoHandshakes);
    let mut brief = usual.clone();
    brief.cpu = 30_000_000;
    assert_eq!(of(&brief, "used 30.0ms of CPU time"), Unestimated::NoTime);
    let mut loaded = usual.clone();
    loaded.program.loaded = true;
    assert_eq!(of(&loaded, "`widelane status` tells"), Unestimated::Loaded);
    let mut resumed = usual.clone();
    resumed.kinds = BTreeMap::from([(kind("", true), 20_000)]);
    resumed.operations.clear();
    assert_eq!(of(&resumed, "All handshakes resume"), Unestimated::NoOperations);
    let mut others = usual.clone();
    others.operations.truncate(1);
    others.operations[0].name = "ffdh derive".to_owned();
    assert_eq!(of(&others, "No operation was seen"), Unestimated::NoOperations);
    let none = Lanes::None(widelane_cpu::Lanes::NONE);
    assert_eq!(
        why(&usual, &none, "This CPU has no lanes that Widelane uses: it lacks"),
        Unestimated::NoLanes(widelane_cpu::Lanes::NONE)
    );
    // A server that saves nothing needs no instructions for setup.
    let useless = sentences(&usual, &Estimate::of(&usual, &none));
    assert!(!useless.contains("The way in"), "{useless}");
    let unknown = Lanes::Costs {
        passes: BTreeMap::new(),
        hand_over: 0.0,
    };
    assert_eq!(why(&usual, &unknown, "is not known"), Unestimated::NoCosts);
}

/// Apache: of four threads whose signatures share a pass, three sleep.
#[test]
fn threads_that_wait_for_a_pass_have_to_sleep() {
    let nginx = nginx("rsa-2048", 350.0, 64.0);
    let mut apache = nginx.clone();
    apache.program.running = named("apache2");
    let estimate = |observed: &Observed| Estimate::of(observed, &lanes()).unwrap();
    let (loops, threads) = (estimate(&nginx), estimate(&apache));
    let shared = |estimate: &Estimate, at: usize| estimate.parts[at].shared.unwrap();
    near(shared(&loops, 0), 100.0 * US);
    near(shared(&threads, 0), (100.0 + 0.75 * 4.0) * US);
    near(shared(&threads, 1) - shared(&loops, 1), 0.875 * 4.0 * US);
    assert!(threads.now.saved < loops.now.saved);
    let warned = |observed: &Observed| text(observed).contains("many threads of this server wake up");
    assert!(warned(&apache) && !warned(&nginx));
}

/// TLS 1.3 resumes with a new key exchange.
#[test]
fn resumed_handshakes_still_exchange_keys() {
    let mut observed = nginx("rsa-2048", 350.0, 64.0);
    observed.kinds = BTreeMap::from([(kind("", true), 15_000), (kind("rsa-2048", false), 5_000)]);
    observed.operations[0].count = 5_000;
    let estimate = Estimate::of(&observed, &lanes()).unwrap();
    near(estimate.now.saved, (250.0 / 4.0 + 60.0) * US);
    let text = text(&observed);
    let kinds = "75 % TLSv1.3 x25519 resumed; 25 % TLSv1.3 x25519 rsa-2048.";
    assert!(text.contains(kinds), "{text}");
}

#[test]
fn the_way_in_is_said_for_each_kind_of_server() {
    let said = |name: &str, tls| {
        let mut observed = nginx("rsa-2048", 350.0, 64.0);
        observed.program.running = named(name);
        observed.program.tls = tls;
        text(&observed)
    };
    for (name, tls, sentence) in [
        (
            "haproxy",
            Tls::OpenSsl,
            "setup haproxy`, then restart it.\n  To expect of HAProxy: with `ssl-mode-async` it suspends",
        ),
        ("httpd", Tls::OpenSsl, "sudo widelane setup apache2`, then"),
        (
            "lighttpd",
            Tls::OpenSsl,
            "sudo widelane setup lighttpd`, then restart it.",
        ),
        (
            "redis-server",
            Tls::OpenSsl,
            "sudo widelane setup redis`, then restart it.\n  To expect of Redis: single event loop, epoll",
        ),
        (
            "smtpd",
            Tls::OpenSsl,
            "sudo widelane setup postfix`, then restart it.\n  To expect of Postfix: a process for each connection: \
             provider only.",
        ),
        (
            "own",
            Tls::OpenSsl,
            "`env $(widelane setup --unit NAME --env) own`, with a name of yours.\n  This program was not tried",
        ),
        ("nginx", Tls::OldOpenSsl, "only OpenSSL 3 or later loads providers"),
        ("nginx", Tls::StaticOpenSsl, "loads no provider from inside of nginx."),
        ("envoy", Tls::BoringSsl, "`widelane serve` in front of it"),
        ("caddy", Tls::Go, "`widelane serve` in front of it"),
        (
            "exim4",
            Tls::GnuTls,
            "no provider can be loaded by the TLS library of exim4.",
        ),
        ("proxy", Tls::Rustls, "the crate widelane-rustls"),
    ] {
        let text = said(name, tls);
        assert!(text.contains(sentence), "{sentence}\n{text}");
        let terminator = text.contains("what the terminator in front costs");
        assert_eq!(terminator, text.contains("widelane serve"), "{text}");
    }
    let hostile = said("a\x1b[2J\nb", Tls::Go);
    assert!(
        !hostile.contains('\x1b') && hostile.contains("a\\u{1b}[2J\\nb"),
        "{hostile}"
    );
}

#[test]
fn programs_get_the_same_figures() {
    let observed = nginx("rsa-2048", 350.0, 64.0);
    let line = json(&observed, &Estimate::of(&observed, &lanes()));
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["handshakes_per_s"], 2_000.0);
    assert_eq!((&line["way_in"], &line["setup"]), (&"setup".into(), &"nginx".into()));
    assert_eq!(line["at_limit"], true);
    assert_eq!(line["operations"][0]["in_passes_us"], 100.0);
    near(line["now"]["saved_us"].as_f64().unwrap(), 310.0);
    assert_eq!(line["kinds"][0]["signature"], "rsa-2048");
    assert!(line["why"].is_null());
    let none = Lanes::None(widelane_cpu::Lanes::NONE);
    let line = json(&observed, &Estimate::of(&observed, &none));
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(line["now"].is_null());
    assert_eq!(line["why"], "no lanes");
}

#[test]
fn what_waits_is_divided_among_those_who_serve() {
    let port = (1, 443);
    let mut looks = Looks::default();
    for time in [100, 200, 300] {
        let look = looks.add(time);
        looks.waited_at(look, BTreeMap::from([(port, 30), ((1, 80), 99)]));
    }
    // At these it is not asked what waits.
    for time in [400, 500] {
        looks.add(time);
    }
    looks.take(7, 0x3000, 390, 410);
    // The look at 300 is after the call; the same connection counts once.
    looks.take(7, 0x1000, 50, 300);
    looks.take(7, 0x1000, 60, 110);
    looks.take(8, 0x2000, 190, 210);
    let ports = |pids: &[u32]| -> BTreeMap<u32, BTreeSet<_>> {
        pids.iter().map(|&pid| (pid, BTreeSet::from([port]))).collect()
    };
    let one = looks.ready(&BTreeMap::from([(7, 1)]), &ports(&[7]));
    assert_eq!(one.counts, [31.0, 31.0]);
    assert_eq!((one.looks, one.computed, one.asked, one.waited), (5, 3, 3, 3));
    near(one.busy(), 0.6);
    let both = BTreeMap::from([(7, 1), (8, 1)]);
    let two = looks.ready(&both, &ports(&[7, 8]));
    assert_eq!((two.counts, two.looks), (vec![16.0, 16.0, 16.0], 10));
    let threads = looks.ready(&BTreeMap::from([(7, 4)]), &ports(&[7]));
    assert_eq!(threads.counts, [31.0 / 4.0, 31.0 / 4.0]);
    let unknown = looks.ready(&BTreeMap::from([(7, 1)]), &BTreeMap::new());
    assert_eq!(unknown.counts, [1.0, 1.0]);
    assert!(!unknown.is_at_limit());
}

#[test]
fn handshakes_and_functions_are_counted() {
    let mut tally = Tally::default();
    let sign = function("EVP_DigestSign", Role::Sign);
    let inner = function("EVP_DigestSignFinal", Role::Sign);
    let error = function("SSL_get_error", Role::Error);
    for wall in [4, 5, 6, 900] {
        tally.take_call(&call(&error, 0, 0, wall));
    }
    let mut handshake = Handshake {
        time: 0,
        time_s: 0.0,
        pid: 7,
        tid: 7,
        comm: "nginx".to_owned(),
        library: "openssl".to_owned(),
        side: Some(Side::Server),
        version: None,
        cipher: None,
        group: None,
        resumed: None,
        server_name: None,
        result: Ending::Ok,
        alert: None,
        calls: 1,
        again: 0,
        wall: 1,
        cpu: None,
        waiting: Some(0),
        functions: vec![Operations {
            name: "rsa-2048 sign".to_owned(),
            role: Role::Sign,
            count: 1,
            ns: 0,
            innermost_ns: 400,
        }],
    };
    for ns in [400, 410, 420, 9_000] {
        tally.take_call(&call(&sign, 0, 0, ns));
        tally.take_call(&call(&inner, 0, 0, ns));
        handshake.functions[0].innermost_ns = ns;
        tally.take_handshake(&handshake);
    }
    handshake.result = Ending::Alert;
    tally.take_handshake(&handshake);
    handshake.side = Some(Side::Client);
    tally.take_handshake(&handshake);
    assert_eq!((tally.done, tally.failed, tally.as_client), (4, 1, 1));
    let operations = tally.operations();
    assert_eq!((operations.len(), operations[0].count), (1, 5));
    // The middle of 400, 410, 420, 9000, 9000, and of 4, 5, 6, 900.
    near(operations[0].typical, (410.0 + 420.0 + 9_000.0) / 3.0);
    near(tally.trivial().unwrap(), 5.5);
    assert_eq!(tally.calls, 12);
}

/// From events to an estimate, without a kernel. The process is not there: its CPU time is not known.
#[test]
fn events_become_what_a_server_did() {
    let folder = tempfile::tempdir().unwrap();
    let proc = Proc::at(folder.path());
    let mut watch = Watch::new(proc.clone(), Clock::at(0, 0), Pace::new(proc));
    let handshake = Arc::clone(&function("SSL_do_handshake", Role::Handshake));
    let sign = function("EVP_DigestSign", Role::Sign);
    let top = 0x7fff_0000_0000;
    let hello = record(22, &server_hello(&[1; 32], &[], 0x1301, &tls13(29, 32, false)));
    for number in 0..3 {
        let start = Clock::monotonic() + 1_000_000_000 + number * 10_000_000;
        let mut signed = call(&sign, top - 0x100, start + 2_000, 400_000);
        signed.size = Some(256);
        let mut whole = call(&handshake, top, start, 900_000);
        whole.object = 0x1000 + number;
        watch.take(&[
            bytes(
                Direction::Read,
                &client_hello(&[], b"a.example"),
                top - 0x80,
                start + 1_000,
            )
            .into(),
            Event::from(signed),
            bytes(Direction::Written, &hello, top - 0x80, start + 500_000).into(),
            Event::from(whole),
        ]);
    }
    let all = watch.finish(|_| false);
    let [one] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!((one.done, one.failed, one.calls), (3, 0, 6));
    assert_eq!(one.kinds, BTreeMap::from([(kind("rsa-2048", false), 3)]));
    assert_eq!((one.operations.len(), one.operations[0].count), (1, 3));
    // Half of the call's time was on a CPU.
    near(one.operations[0].typical, 200_000.0);
    assert_eq!(one.processes, [7]);
    assert_eq!(Estimate::of(one, &lanes()), Err(Unestimated::NoTime));
}
