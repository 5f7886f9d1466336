//! Experiments, as short as they can be: that they run to their end, and what they say when they cannot.
//! No rate is asserted.

mod under_test;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

fn experiment(args: &[&str]) -> Output {
    experiment_of(Path::new(under_test::PROGRAM), args)
}

fn experiment_of(program: &Path, args: &[&str]) -> Output {
    // One at a time: on few CPUs two of them would starve each other.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = under_test::apart(Command::new(program));
    command.arg("experiment").args(args);
    command.output().expect("it starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A run that ends well, in lines; `None` if this machine lacks what it takes. Also what it said meanwhile.
fn ran(args: &[&str]) -> Option<(Vec<Value>, String)> {
    judged(&experiment(args))
}

fn judged(output: &Output) -> Option<(Vec<Value>, String)> {
    under_test::product()?;
    let said = said(output);
    let lacks = [
        "not installed",
        "takes two CPUs",
        "does not run here",
        "real-time threads are not allowed",
        "has no lanes",
    ];
    if let Some(what) = said.lines().find(|line| lacks.iter().any(|one| line.contains(one))) {
        println!("SKIP: {what}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    Some((lines.collect(), said))
}

fn lines(args: &[&str]) -> Option<Vec<Value>> {
    ran(args).map(|(lines, _)| lines)
}

/// Arguments for one round with turns of `seconds` seconds, in lines of JSON.
fn brief<'a>(seconds: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    let short = ["--rounds", "1", "--seconds", seconds, "--json"];
    [args, &short].concat()
}

/// An interval is median, least, most.
fn is_interval(value: &Value) -> bool {
    let number = |index: usize| value[index].as_f64().unwrap_or(f64::NAN);
    number(1) <= number(0) && number(0) <= number(2)
}

/// Checks the fields that every line of a run without a brake has.
fn is_native_line(line: &Value) {
    assert_eq!(line["as"], Value::Null, "{line}");
    for figure in ["requests_per_s", "change_percent"] {
        assert!(is_interval(&line[figure]), "{figure}: {line}");
    }
    assert!(line["requests_per_s"][1].as_f64() > Some(0.0), "{line}");
    if line["against"].is_null() {
        assert_eq!(line["change_percent"][0], 0.0, "{line}");
    }
    assert!(line["level_share"].is_null(), "no brake tells it: {line}");
}

fn with_condition<'a>(lines: &'a [Value], condition: &str) -> &'a Value {
    let found = lines.iter().find(|line| line["condition"] == condition);
    found.unwrap_or_else(|| panic!("no {condition} in {lines:?}"))
}

#[test]
fn kit_compares_each_way_with_light_code_at_several_shares_of_wide_work() {
    let args = brief("1.2", &["kit", "--native"]);
    let Some(lines) = lines(&args) else { return };
    lines.iter().for_each(is_native_line);
    let mut share = 0.0;
    for records in [1, 4, 16] {
        let of = |way: &str| with_condition(&lines, &format!("{records} records, {way}"));
        let base = of("256-light in place");
        assert!(base["against"].is_null());
        for way in ["512-ifma in place", "512-ifma, thread pool", "512-ifma, migration"] {
            assert_eq!(of(way)["against"], base["condition"]);
            // On a busy machine there are fewer slices than it takes.
            let variation = &of(way)["variation_percent"];
            assert!(variation.is_null() || is_interval(variation), "{}", of(way));
        }
        let wide = base["wide_percent"].as_f64().expect("a share");
        assert!(wide > share, "more records are more wide work: {lines:?}");
        share = wide;
    }
    assert_eq!(
        with_condition(&lines, "4 records, 512-ifma in place")["published_percent"],
        -11.2
    );
    if lines.len() == 12 {
        return println!("SKIP: the programs of the web server are not installed");
    }
    let steered = with_condition(&lines, "pages, 512-ifma steered");
    assert_eq!(steered["against"], "pages, 256-light steered");
    let shipped = with_condition(&lines, "connections, passes shipped");
    assert_eq!(shipped["against"], "connections, software");
    assert!(shipped["p50_us"][0].as_f64() > Some(0.0), "{shipped}");
}

#[test]
fn cloudflare_takes_each_form_at_each_share() {
    let args = brief("0.5", &["cloudflare", "--native"]);
    let Some(lines) = lines(&args) else { return };
    lines.iter().for_each(is_native_line);
    assert_eq!(lines.len(), 7, "{lines:?}");
    assert_eq!(with_condition(&lines, "512-ifma at 10 %")["published_percent"], -5.5);
}

/// Both programs beside the provider and its shim, which cargo puts elsewhere when it builds tests only.
fn with_the_provider() -> Option<TempDir> {
    let built = Path::new(under_test::PROGRAM).parent()?;
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(under_test::PROGRAM, folder.path().join("widelane-lab")).expect("copied");
    fs::copy(under_test::product()?, folder.path().join("widelane")).expect("copied");
    for name in ["libwidelane_openssl.so", "libwidelane_openssl_shim.so"] {
        let places = [built.join("deps").join(name), built.join(name)];
        let found = places.iter().find(|place| place.is_file())?;
        fs::copy(found, folder.path().join(name)).expect("copied");
    }
    Some(folder)
}

/// nginx itself encrypts: no `widelane serve` is there, and nginx that goes without the form would be refused.
#[test]
fn cloudflare_also_runs_inside_nginx() {
    let args = brief("0.5", &["cloudflare", "--inside-nginx", "--as", "Silver 4116"]);
    let Some(folder) = with_the_provider() else {
        return println!("SKIP: it is not all built; cargo build -p widelane -p widelane-openssl{{,-shim}}");
    };
    let output = experiment_of(&folder.path().join("widelane-lab"), &args);
    let Some((lines, _)) = judged(&output) else {
        return;
    };
    let braked: Vec<Value> = lines.into_iter().filter(|line| !line["as"].is_null()).collect();
    assert_eq!(braked.len(), 7, "{braked:?}");
    // The brake sees the marks that the provider makes in nginx's worker, which has no rights.
    let at_level_1 = |form: &str| {
        let line = with_condition(&braked, &format!("{form} at 100 %, in nginx"));
        line["level_share"][1].as_f64().expect("a share")
    };
    let (wide, light) = (at_level_1("512-ifma"), at_level_1("256-light"));
    assert!(wide > light, "{wide} and {light}: {braked:?}");
}

#[test]
fn xu_and_intel_compare_servers_by_their_handshakes() {
    for (name, ours, base) in [
        (
            "xu",
            "widelane, RSA-2048, 64 in flight",
            "nginx, RSA-2048, 64 in flight",
        ),
        ("intel", "handshakes, vector code", "handshakes, software"),
    ] {
        let args = brief("1", &[name, "--native"]);
        let Some(lines) = lines(&args) else { continue };
        lines.iter().for_each(is_native_line);
        let ours = with_condition(&lines, ours);
        assert_eq!((lines.len(), &ours["against"]), (6, &Value::from(base)));
        assert!(ours["published_percent"].as_f64() > Some(200.0), "{ours}");
        assert!(is_interval(&ours["p50_us"]), "{ours}");
        if std::env::var_os("WIDELANE_CPU_DISABLE").is_none() && !ours["lanes_per_pass"].is_null() {
            assert!(ours["lanes_per_pass"][0].as_f64() > Some(1.0), "{ours}");
        }
    }
}

/// The prediction is there before the run, and beside it in the end.
#[test]
fn under_a_brake_predictions_come_before_the_turns() {
    let args = brief("0.5", &["cloudflare", "--as", "Silver 4116"]);
    let Some((lines, said)) = ran(&args) else {
        return;
    };
    let predicted = said.find("the simulator predicts for 512-ifma at 100 %");
    let began = said.find("starts as a Silver 4116");
    assert!(predicted.is_some() && predicted < began, "{said}");
    let braked = lines.into_iter().filter(|line| !line["as"].is_null());
    let braked: Vec<Value> = braked.collect();
    let all = with_condition(&braked, "512-ifma at 100 %");
    // The value comes from costs measured on this machine, whatever else that does.
    assert!(all["predicted_percent"].is_f64(), "{all}");
    assert!(all["level_share"][1].as_f64() > Some(0.0), "{all}");
}

/// One round has no interval, and the output states that.
#[test]
fn a_remedy_is_not_proved_by_one_round() {
    let args = brief("0.3", &["remedy"]);
    let Some((lines, said)) = ran(&args) else {
        return;
    };
    assert!(said.contains("fewer than six rounds"), "{said}");
    let line = &lines[0];
    assert_eq!(
        (&line["as"], &line["verdict"]),
        (&Value::from("Silver 4116"), &Value::from("open"))
    );
    for form in ["512", "256-light"] {
        assert!(line["loss_percent"][form][0].is_f64(), "{line}");
    }
    assert_eq!(
        (&line["given_back"][1], &line["given_back"][2]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn what_is_missing_is_named() {
    let mut command = under_test::laboratory();
    command.args(["experiment", "cloudflare", "--native"]);
    let nowhere = tempfile::tempdir().expect("a folder");
    let output = command.env("PATH", nowhere.path()).output().expect("it starts");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    // Some servers are looked for where they usually are, whatever the path says.
    assert!(said.contains("h2load") && said.contains("apt-get install"), "{said}");
    assert!(said.contains("nghttp2-client"), "{said}");
}

#[test]
fn mistakes_are_named() {
    for (args, says) in [
        (
            &["xu", "--as", "Pentium", "--quick"][..],
            "--as: no model \"Pentium\" is known; known are Xeon Silver 4116",
        ),
        (&["cloudflare", "--as", "EPYC 9654"], "there is nothing to emulate"),
        (&["kit", "--as", "Silver 4116", "--native"], "cannot be used with"),
        (&["xu", "--quick", "--rounds", "3"], "cannot be used with"),
        (&["lemire"], "cloudflare, kit, xu, intel, remedy"),
        (&["remedy", "--native"], "leave out --native"),
        (&["kit", "--inside-nginx"], "--inside-nginx is for `cloudflare`"),
    ] {
        let output = experiment(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
}

#[test]
fn what_is_not_installed_is_named_with_its_packages() {
    let nothing = tempfile::tempdir().expect("a folder");
    let output = under_test::laboratory()
        .args(["experiment", "cloudflare", "--native", "--quick"])
        .env("PATH", nothing.path())
        .output()
        .expect("it starts");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not installed"), "{said}");
    assert!(said.contains("apt-get install --no-install-recommends"), "{said}");
}
