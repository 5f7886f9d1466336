//! Queues whose answers are known, conservation, determinism, what each placement does, and mistakes.

use proptest::prelude::*;

use crate::{BUILTIN, Figure, Outcome, Pace, Placement, Plan, Scenario, Settings, simulate, timeline};

fn plan(text: &str, run: &str) -> Plan {
    let scenario = Scenario::parse(text).expect("a scenario");
    let run = scenario.run(run).expect("the run");
    let plan = scenario.plan(run, &Settings::default());
    plan.expect("a plan")
}

fn outcome(text: &str, run: &str) -> Outcome {
    simulate(&plan(text, run))
}

fn figure(outcome: &Outcome, figure: Figure) -> f64 {
    outcome.figure(figure).expect("there is such a figure")
}

/// One core of exactly 1 GHz, 1,000 cycles a request: a microsecond of service.
fn queue(rate: f64, random: bool, seconds: f64) -> String {
    format!(
        "title = 'a queue'\nsource = 'a textbook'\n\
         [machine]\nmodel = '9950X3D'\ncores = 1\nlevel0-ghz = 1\nlevel1-ghz = 1\nlevel2-ghz = 1\n\
         [load]\nrate = {rate}\nseconds = {seconds}\n\
         [[kind]]\nname = 'request'\nsteps = [{{ cycles = 1000, random = {random} }}]\n\
         [[run]]\nname = 'run'\n"
    )
}

/// Kleinrock, Queueing Systems (1975), volume 1: the mean time in M/M/1 is 1 / (mu - lambda).
#[test]
fn an_mm1_queue_has_the_known_mean_time() {
    for rate in [300_000.0, 600_000.0] {
        let outcome = outcome(&queue(rate, true, 4.0), "run");
        let known = 1e6 / (1e6 - rate);
        let found = figure(&outcome, Figure::Mean);
        assert!((found / known - 1.0).abs() < 0.01, "{found} is not {known} at {rate}");
        let found = figure(&outcome, Figure::Throughput);
        assert!((found / rate - 1.0).abs() < 0.01, "{found} is not {rate}");
    }
}

/// Source as above, chapter 5: in M/D/1 the wait is rho / (2 mu (1 - rho)).
#[test]
fn an_md1_queue_has_the_known_mean_time() {
    for rho in [0.3, 0.6] {
        let outcome = outcome(&queue(rho * 1e6, false, 4.0), "run");
        let known = 1.0 + rho / (2.0 * (1.0 - rho));
        let found = figure(&outcome, Figure::Mean);
        assert!((found / known - 1.0).abs() < 0.01, "{found} is not {known} at {rho}");
    }
}

/// A server with everything in it: two kinds of requests, an operation, a wide step in all forms.
fn everything(model: &str, load: &str, placement: &str, cores: u32, threads: u32) -> String {
    format!(
        "title = 'everything'\nsource = 'a test'\n\
         [machine]\nmodel = '{model}'\ncores = {cores}\nthreads = {threads}\nlevel1-ghz = 2\n\
         [load]\n{load}\nseconds = 0.05\nwarm-up = 0\n\
         [transfer]\nvector-cores = 1\n\
         [[operation]]\nname = 'sign'\nclass = '512-heavy'\nlanes = 4\nfirst-cycles = 400000\n\
         further-cycles = 5000\nscalar-cycles = 500000\n\
         [[kind]]\nname = 'page'\nshare = 3\nrounds = 2\nsteps = [\n\
         {{ cycles = 300000, random = true }},\n\
         {{ class = '512-heavy', cycles = 9000, light-cycles = 20000, scalar-cycles = 30000 }},\n\
         {{ cycles = 50000 }},\n]\n\
         [[kind]]\nname = 'handshake'\nsteps = [{{ cycles = 200000, random = true }},\n\
         {{ operation = 'sign' }}, {{ cycles = 20000, timed = true }}]\n\
         [[run]]\nname = 'run'\nplacement = '{placement}'\n"
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No request and no cycle is lost or counted twice, and no time either.
    #[test]
    fn what_goes_in_comes_out(
        model in prop::sample::select(vec!["Gold 6130", "Silver 4116", "Gold 6330", "9950X3D"]),
        placement in prop::sample::select(Placement::ALL.to_vec()),
        cores in 2_u32..6,
        threads in 1_u32..3,
        closed in any::<bool>(),
        much in 1_u32..80,
        seed in 0_u32..1000,
    ) {
        let load = match closed {
            true => format!("connections = {much}\nthink-seconds = 0.0005"),
            false => format!("rate = {}\nburst = 3", much * 400),
        };
        let text = everything(model, &load, placement.name(), cores, threads);
        let scenario = Scenario::parse(&text).expect("a scenario");
        let settings = Settings { set: [("seed".to_owned(), f64::from(seed))].into(), ..Settings::default() };
        let plan = scenario.plan(&scenario.runs[0], &settings).expect("a plan");
        let outcome = simulate(&plan);
        prop_assert_eq!(outcome.arrived, outcome.answered + outcome.waiting);
        let (begun, out) = (outcome.cycles_begun, outcome.cycles_done + outcome.cycles_left);
        prop_assert!((begun - out).abs() <= begun * 1e-12 + 1.0, "{} {}", begun, out);
        for core in &outcome.cores {
            prop_assert!(core.busy() <= outcome.seconds + 1e-9);
            prop_assert!(core.halted + core.throttled <= core.busy() + 1e-9);
        }
        if closed {
            prop_assert!(outcome.waiting <= u64::from(much));
        }
    }

    /// Two runs with the same seed are the same in every figure.
    #[test]
    fn the_same_seed_gives_the_same_run(placement in prop::sample::select(Placement::ALL.to_vec())) {
        let text = everything("Gold 6130", "connections = 40", placement.name(), 4, 2);
        let figures = || {
            let plan = plan(&text, "run");
            let figures = plan.figures();
            (figures.events, figures.figures)
        };
        prop_assert_eq!(figures(), figures());
    }
}

#[test]
fn another_seed_gives_another_run() {
    let text = everything("Gold 6130", "connections = 40", "as-is", 4, 1);
    let with = |seed: f64| {
        let scenario = Scenario::parse(&text).expect("a scenario");
        let set = [("seed".to_owned(), seed)].into();
        let settings = Settings {
            set,
            ..Settings::default()
        };
        let plan = scenario.plan(&scenario.runs[0], &settings).expect("a plan");
        simulate(&plan).figure(Figure::Mean)
    };
    assert_ne!(with(1.0), with(2.0));
}

/// With the penalty of a Gold 6130, ours keeps the clock of scalar cores; on a processor without
/// one, the policy uses no vector core at all.
#[test]
fn the_policy_of_the_engine_decides() {
    let clock = |model, placement| {
        let text = everything(model, "connections = 40", placement, 4, 1);
        let outcome = outcome(&text, "run");
        (figure(&outcome, Figure::Clock), outcome.passes, outcome.cores)
    };
    let (as_is, ..) = clock("Gold 6130", "as-is");
    let (ours, passes, cores) = clock("Gold 6130", "widelane");
    assert!(ours > as_is * 1.05, "{ours} {as_is}");
    let (scalar, vector) = cores.split_at(3);
    assert!(scalar.iter().all(|core| core.busy[1] + core.busy[2] == 0.0));
    assert!(vector[0].busy[2] > 0.0);
    assert!(passes.1 > passes.0, "requests share passes: {passes:?}");
    let (_, passes, cores) = clock("9950X3D", "widelane");
    assert!(passes.0 > 0);
    assert!(cores.iter().all(|core| core.busy() > 0.04));
}

/// A thread that trapped takes scalar work along until its next system call, a fixed time, or not.
#[test]
fn threads_that_trapped_go_back_as_the_placement_says() {
    let wide = |placement| {
        let text = everything("Gold 6130", "connections = 12", placement, 4, 1);
        let outcome = outcome(&text, "run");
        outcome.cores[3].busy()
    };
    let [oracle, call, fixed] = ["fault-oracle", "fault-system-call", "fault-fixed-time"].map(wide);
    // A lent core is busy with scalar work all the same.
    assert!(oracle > 0.0 && call > 0.0 && fixed > 0.0);
}

/// Both hyperthreads do more than one and less than two.
#[test]
fn hyperthreads_share_their_core() {
    let rate = |threads| {
        let text = everything("9950X3D", "connections = 64", "avx-off", 2, threads);
        figure(&outcome(&text, "run"), Figure::Throughput)
    };
    let gain = rate(2) / rate(1);
    assert!((1.15..1.35).contains(&gain), "{gain}");
}

/// The tests of the program simulate all of them, and compare.
#[test]
fn every_parameter_of_a_builtin_scenario_has_a_source() {
    for (builtin, text) in BUILTIN {
        let scenario = Scenario::parse(text).unwrap_or_else(|error| panic!("{builtin}: {error}"));
        for (name, parameter) in &scenario.parameters {
            assert!(!parameter.source.is_empty(), "{builtin}: {name} has no source");
        }
    }
}

/// Settings that suit a model, enough machines for the rate, and no more than are needed.
#[test]
fn a_fleet_serves_its_rate_with_few_machines() {
    let mut all = BUILTIN.iter();
    let (_, text) = all.find(|(name, _)| *name == "fleet").expect("it is builtin");
    let mut scenario = Scenario::parse(text).expect("the fleet");
    let few = scenario.fleet.as_mut().expect("machines");
    few.machines.truncate(2);
    few.machines.iter_mut().for_each(|one| (one.cores, one.count) = (4, 20));
    // Two settings, because each takes seconds.
    let kept = ["avx-off", "Widelane, inline"];
    scenario.runs.retain(|run| kept.contains(&run.name.as_str()));
    let fleet = |rate| scenario.fleet(Some(rate), &Settings::default()).expect("an answer");
    let small = fleet(10_000.0);
    let machines = |fleet: &crate::Fleet| fleet.chosen.iter().map(|one| one.machines.0).sum::<u32>();
    assert!((small.served / 10_000.0 - 1.0).abs() < 0.1, "{small:?}");
    assert!(small.slowest_p99_us <= small.p99_us, "{small:?}");
    assert_eq!(small.tried.iter().filter(|one| one.best).count(), 2);
    let best = small.tried.iter().find(|one| one.best).expect("one is best");
    assert!(best.setting.starts_with("Widelane"), "{best:?}");
    let large = fleet(20_000.0);
    assert!(machines(&large) > machines(&small));
    assert!(machines(&small) > 0);
    let far = fleet(1e9);
    assert_eq!(machines(&far), 40);
    assert!(far.most < 1e9);
}

/// The spans cover the time without a gap, and show the clock of each level.
#[test]
fn a_core_can_be_watched() {
    let text = everything("Gold 6130", "connections = 40", "as-is", 2, 1);
    let spans = timeline(&plan(&text, "run"), 1, 5_000);
    assert!(spans.len() > 10, "{spans:?}");
    assert!(spans.windows(2).all(|w| w[0].until_us == w[1].from_us && w[0] != w[1]));
    assert_eq!((spans[0].from_us, spans[spans.len() - 1].until_us), (0.0, 5_000.0));
    for (level, ghz) in [2.8, 2.0, 1.9].into_iter().enumerate() {
        let of = spans.iter().filter(|span| span.level == level);
        assert!(
            of.clone().count() > 0 && of.clone().all(|span| span.ghz == ghz),
            "{level}"
        );
    }
    assert!(spans.iter().any(|span| span.wide));
    let halted = spans.iter().filter(|span| span.pace == Pace::Halted);
    assert!(halted.clone().count() > 0 && halted.clone().all(|span| span.until_us - span.from_us <= 11.0));
}

/// Each mistake is named, with what would be right.
#[test]
fn mistakes_are_named() {
    let right = everything("Gold 6130", "connections = 40", "marked-pool", 4, 1);
    let tried = |text: &str, settings: &Settings| {
        let scenario = match Scenario::parse(text) {
            Ok(scenario) => scenario,
            Err(error) => return error.to_string(),
        };
        match scenario.plan(&scenario.runs[0], settings) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    let none = Settings::default();
    assert_eq!(tried(&right, &none), "");
    let hasty = queue(1.0, false, 1.0).replace("cycles = 1000", "cycles = 10");
    let message = tried(&hasty, &none);
    assert!(
        message.contains("\"request\" takes 10 cycles; give its steps 100 or more"),
        "{message}"
    );
    for (from, to, says) in [
        ("title", "titel", "titel"),
        ("cores = 4", "cores = 4.5", "cores is 4.5; it must be a whole number"),
        ("cores = 4", "cores = 1", "none is left for other work"),
        (
            "lanes = ",
            "measured = 'Zen 5'\nlanes = ",
            "`measured` beside lanes or cycles of its own",
        ),
        ("lanes = ", "# ", "lanes is missing"),
        (
            "connections = 40",
            "connections = 0",
            "connections is 0; it must be at least 1",
        ),
        ("lanes = 4", "lanes = 0", "sign.lanes is 0; it must be at least 1"),
        ("lanes = 4", "lanes = 1e300", "is 1e300; it must be from 0"),
        (
            "[machine]",
            "[parameter.idle]\nvalue = 1\nsource = 'assumed'\n[machine]",
            "the parameter \"idle\" is used nowhere",
        ),
        ("cores = 4", "cores = 'many'", "names the parameter \"many\""),
        ("Gold 6130", "Gold 61", "may be Xeon Gold 6130, Xeon Gold 6140"),
        (
            "Gold 6130",
            "Pentium",
            "nothing is known of the processor \"Pentium\"; known are",
        ),
        ("Gold 6130", "Gold 5512U", "no source gives the scalar clock"),
        (
            "'512-heavy', cycles",
            "'1024-heavy', cycles",
            "is no class; the classes are scalar",
        ),
        ("marked-pool", "marked", "is no placement; choose from as-is"),
        ("operation = 'sign'", "operation = 'resign'", "the operation \"resign\""),
        (
            "connections = 40",
            "connections = 40\nrate = 5",
            "either connections or rate",
        ),
        ("cycles = 300000", "cycles = -1", "cycles is -1; it must be from 0"),
        ("cycles = 300000", "cycles = 1e300", "it must be from 0 to 1e12"),
        ("share = 3", "share = 'x'", "share names the parameter \"x\""),
        ("vector-cores = 1", "vector-cores = 0", "needs vector-cores above 0"),
        ("seconds = 0.05", "seconds = 0", "seconds is 0"),
    ] {
        assert!(right.contains(from), "{from}");
        let message = tried(&right.replacen(from, to, 1), &none);
        assert!(message.contains(says), "{to}: {message:?} does not say {says:?}");
    }
    let light = right
        .replace("marked-pool", "light-256")
        .replace("light-cycles = 20000, ", "");
    let message = tried(&light, &none);
    assert!(
        message.contains("needs light-cycles for each step of class 512-heavy"),
        "{message}"
    );
    let set = Settings {
        set: [("page".to_owned(), 1.0)].into(),
        ..Settings::default()
    };
    let message = tried(&right, &set);
    assert!(message.contains("there is no parameter \"page\""), "{message}");
}

#[test]
fn a_workload_is_advised_with_fewer_cores_than_its_vector_cores() {
    let mut all = BUILTIN.iter();
    let text = all.find(|(name, _)| *name == "kit-2019-6130").expect("it");
    let scenario = Scenario::parse(text.1).expect("a scenario");
    let settings = Settings {
        cores: Some(2),
        ..Settings::default()
    };
    let marked = scenario.run("marked").expect("the run");
    let error = scenario.plan(marked, &settings).expect_err("4 of 2 cores");
    assert!(error.to_string().contains("4 of 2 cores"), "{error}");
    let advice = scenario.advise(&settings).expect("it is as it is");
    let counts = advice.options.iter().filter_map(|one| one.vector_cores);
    assert_eq!(counts.max(), Some(1));
}

/// The processors of the published experiments: a Gold 6130 gains most by 512-bit registers, a Silver 4116, which
/// has one unit for them, by those of 256 bits. Both gain less than passes do, whose clock the rest shares.
#[test]
fn lanes_are_predicted_net_of_the_clock_on_the_machines_of_the_experiments() {
    let of = |name: &str| {
        let mut all = BUILTIN.iter();
        let text = all.find(|(known, _)| *known == name).expect("it is builtin");
        let mut scenario = Scenario::parse(text.1).expect("a scenario");
        scenario.runs.retain(|run| run.lanes.is_some());
        let figures = scenario.figures(&Settings::default()).expect("figures");
        for run in &figures {
            let figure = |figure| run.figures[&figure];
            let (rate, p99) = (figure(Figure::Throughput), figure(Figure::P99));
            println!(
                "{name} {}: {rate:.0}, p99 {p99:.0}, clock {:.2}",
                run.run,
                figure(Figure::Clock)
            );
        }
        let gains = scenario.gains(&figures);
        println!("{gains:#?}");
        gains
    };
    for (name, model, target) in [
        ("skylake-2026", "Xeon Gold 6130", "avx512f"),
        ("skylake-2026", "Xeon Silver 4116", "avx2"),
        ("kit-2018", "Xeon Gold 6130", "avx2"),
        ("cloudflare-2017", "Xeon Silver 4116", "avx2"),
        ("xu-2022", "Xeon Gold 6130", "avx512f"),
        ("xu-2022", "Xeon Silver 4116", "avx2"),
    ] {
        let gains = of(name);
        let gain = gains.iter().find(|gain| gain.model == model);
        let gain = gain.expect("runs of this processor");
        assert!(gain.best.contains(target), "{name}: {gain:?}");
        assert!((5.0..120.0).contains(&gain.gain_percent), "{name}: {gain:?}");
    }
}

/// Runs in lanes that a processor lacks are no mistake where the operator names the processor.
#[test]
fn runs_in_lanes_are_left_out_where_the_processor_lacks_them() {
    let mut all = BUILTIN.iter();
    let text = all.find(|(name, _)| *name == "xu-2022").expect("it");
    let scenario = Scenario::parse(text.1).expect("a scenario");
    let runs = |model: &str| {
        let settings = Settings {
            model: Some(model.to_owned()),
            ..Settings::default()
        };
        let figures = scenario.figures(&settings).expect("figures");
        figures.iter().map(|run| run.run.clone()).collect::<Vec<_>>()
    };
    assert!(runs("Gold 6130").iter().all(|name| !name.contains("ifma")));
    assert!(runs("Gold 6130").iter().any(|name| name.contains("avx512f")));
    assert!(runs("9950X3D").iter().any(|name| name.contains("avx512ifma")));
    assert!(runs("9950X3D").iter().all(|name| !name.contains("avx512f,")));
}
