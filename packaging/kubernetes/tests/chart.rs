//! What the chart renders, and what it says of mistakes. Takes helm.

mod checks;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

use checks::Manifest;

/// The manifests that are written here are those that the chart renders.
#[test]
fn plain_manifests_are_the_charts() {
    let Some(_) = helm(&["version"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let rendering = Command::new(checks::folder().join("render"))
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(rendering.status.success(), "{rendering:?}");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let name = entry.unwrap().file_name();
        let rendered = std::fs::read_to_string(folder.path().join(&name)).unwrap();
        let written = std::fs::read_to_string(checks::folder().join(&name)).unwrap();
        assert!(
            rendered == written,
            "{name:?} is not what the chart renders; call packaging/kubernetes/render"
        );
        names.push(name);
    }
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn what_the_chart_renders_is_as_good_as_plain_manifests() {
    let files = tempfile::tempdir().unwrap();
    let mut rendered = Vec::new();
    for values in values() {
        let name = values.file_name().unwrap().to_string_lossy().into_owned();
        let values = format!("--values={}", values.display());
        let Some(output) = template(&["--namespace=edge", &values]) else {
            return;
        };
        assert!(output.status.success(), "{name}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let manifest = Manifest::new(&name, &text);
        assert!(manifest.terminator().is_some(), "{name}");
        for check in [
            checks::fits_together,
            checks::allows_no_more_than_needed,
            checks::drains_in_time,
            checks::calls_the_program_right,
            checks::configures_the_program_right,
        ] {
            check(&manifest);
        }
        // One of the files turns the policy off.
        if text.contains("kind: NetworkPolicy") || name != "fixed-values.yaml" {
            checks::keeps_metrics_from_strangers(&manifest);
        }
        let file = files.path().join(&name);
        std::fs::write(&file, text).unwrap();
        rendered.push(file);
    }
    for version in checks::VERSIONS {
        match checks::validated(version, &rendered) {
            Some(Ok(())) => {}
            Some(Err(said)) => panic!("Kubernetes {version}: {said}"),
            None => {
                println!("{}", checks::NO_VALIDATOR);
                return;
            }
        }
    }
}

#[test]
fn helm_finds_nothing_to_say() {
    let chart = checks::folder().join("chart");
    let chart = chart.to_str().unwrap();
    let own = std::iter::once(None).chain(values().into_iter().map(Some));
    for values in own {
        let values = values.map(|values| format!("--values={}", values.display()));
        let mut arguments = vec!["lint", "--strict", chart];
        arguments.extend(values.as_deref());
        let Some(output) = helm(&arguments) else {
            return;
        };
        assert!(output.status.success(), "{values:?}: {output:?}");
    }
}

/// Each message names the value and says what to do.
#[test]
fn mistakes_are_named() {
    for (wrong, value, remedy) in [
        (&["image.repository="][..], "image.repository is empty", "make image"),
        (
            &["certificates=null"],
            "certificates is empty",
            "kubectl create secret tls",
        ),
        (&["backend="], "backend is empty", "--set backend=application:80"),
        (
            &["backend=http://application/"],
            "backend is \"http://application/\"",
            "without a scheme",
        ),
        (&["backend=application"], "backend is \"application\"", "give HOST:PORT"),
        (
            &["terminationGracePeriodSeconds=60"],
            "preStopSeconds (35) and drainSeconds (30)",
            "Set it to 80",
        ),
        (
            &["drainSeconds=300", "terminationGracePeriodSeconds=320"],
            "terminationGracePeriodSeconds is 320",
            "Set it to 350",
        ),
        (&["connections=5000"], "connections is 5000", "give more memory"),
        (
            &["resources.limits.memory=null"],
            "resources.limits.memory",
            "in Mi or Gi",
        ),
        (
            &["resources.limits.cpu=null"],
            "neither resources.limits.cpu nor workers",
            "set one of them",
        ),
        (&["port=443"], "port is 443", "from 1024 on"),
        (
            &["tickets=t", "etcd.endpoints={https://e:1}"],
            "both tickets and etcd.endpoints",
            "remove one",
        ),
        (
            &["tickets=", "etcd.endpoints={https://e:1}"],
            "etcd.secret is empty",
            "widelane tickets etcd-key",
        ),
        (
            &["kind=daemonset", "podMonitor.enabled=true"],
            "podMonitor.enabled is true",
            "set it to false",
        ),
        (
            &["autoscaling.minReplicas=31"],
            "autoscaling.minReplicas (31)",
            "exchange them",
        ),
        (
            &["autoscaling.cpu=null"],
            "neither autoscaling.cpu nor autoscaling.handshakes",
            "autoscaling.enabled=false",
        ),
        (
            &["resources.requests.cpu=null", "resources.limits.cpu=null", "workers=2"],
            "resources.requests.cpu, which is not set",
            "autoscaling.cpu=null",
        ),
        // By the schema of the values.
        (&["certificate=example-tls"], "'certificate' not allowed", ""),
        (&["kind=statefulset"], "/kind", "'deployment', 'daemonset'"),
        (&["ifma=always"], "/ifma", "'prefer', 'require', 'ignore'"),
        (&["drainSeconds=soon"], "/drainSeconds", "want integer"),
        (&["drainSeconds=0"], "/drainSeconds", "want 1"),
    ] {
        let values = checks::folder().join("chart/ci/deployment-values.yaml");
        let values = format!("--values={}", values.display());
        let mut arguments = vec![values];
        arguments.extend(wrong.iter().map(|one| format!("--set={one}")));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let Some(output) = template(&arguments) else {
            return;
        };
        assert!(!output.status.success(), "{wrong:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(value), "{wrong:?}: {said}");
        assert!(said.contains(remedy), "{wrong:?}: {said}");
    }
}

/// The chart's version is the program's, so that its image is the one that belongs to it.
#[test]
fn the_charts_versions_are_the_programs() {
    let chart = std::fs::read_to_string(checks::folder().join("chart/Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(chart.contains(&format!("\nversion: {version}\n")), "{chart}");
    assert!(chart.contains(&format!("\nappVersion: \"{version}\"\n")), "{chart}");
}

/// Files of values for which the chart is tested.
fn values() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(checks::folder().join("chart/ci")).unwrap();
    let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 5, "{files:?}");
    files
}

fn template(arguments: &[&str]) -> Option<Output> {
    let chart = checks::folder().join("chart");
    let mut all = vec!["template", "edge", chart.to_str().unwrap(), "--kube-version=1.33.0"];
    all.extend(arguments);
    helm(&all)
}

/// What helm says. `None`: it is not installed.
fn helm(arguments: &[&str]) -> Option<Output> {
    match Command::new("helm").args(arguments).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIP: no helm; https://helm.sh/docs/intro/install says how to install it");
            None
        }
        output => Some(output.expect("it runs")),
    }
}
