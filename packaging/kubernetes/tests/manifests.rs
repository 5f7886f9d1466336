//! The manifests, against Kubernetes' types and against what the program takes.

mod checks;

use checks::{Manifest, files};
use serde_json::Value;
use widelane_kubernetes::Object;

#[test]
fn each_object_is_one_of_kubernetes_and_fits_to_the_others() {
    each(checks::fits_together);
}

#[test]
fn nothing_more_is_allowed_than_needed() {
    each(checks::allows_no_more_than_needed);
}

#[test]
fn metrics_are_kept_from_strangers() {
    each(checks::keeps_metrics_from_strangers);
}

#[test]
fn connections_have_the_time_that_the_server_gives_them() {
    each(checks::drains_in_time);
}

#[test]
fn the_program_takes_the_arguments() {
    each(checks::calls_the_program_right);
}

#[test]
fn the_configuration_is_one_and_fits_the_container() {
    each(checks::configures_the_program_right);
}

fn each(check: fn(&Manifest)) {
    let mut terminators = 0;
    for file in files() {
        let name = file.file_name().unwrap().to_string_lossy();
        let manifest = Manifest::new(&name, &std::fs::read_to_string(&file).unwrap());
        check(&manifest);
        terminators += usize::from(manifest.terminator().is_some());
    }
    assert_eq!(terminators, 3);
}

/// The autoscaler asks for the metric that prometheus-adapter makes by the rule.
#[test]
fn the_autoscaler_asks_for_a_metric_that_there_is() {
    let read = |file: &str| std::fs::read_to_string(checks::folder().join(file)).unwrap();
    let values: Value = serde_saphyr::from_str(&read("../monitoring/prometheus-adapter.yaml")).unwrap();
    let [rule] = values["rules"]["custom"].as_array().unwrap().as_slice() else {
        panic!("{values}");
    };
    let autoscaler: Value = serde_saphyr::from_str(&read("hpa-handshakes.yaml")).unwrap();
    let metrics = autoscaler["spec"]["metrics"].as_array().unwrap();
    let pods = metrics.iter().find(|metric| metric["type"] == "Pods");
    assert_eq!(pods.unwrap()["pods"]["metric"]["name"], rule["name"]["as"]);

    // In place of the one in deployment.yaml.
    let other = Manifest::new("deployment.yaml", &read("deployment.yaml"));
    let replaced = (other.objects.iter()).any(|object| match object {
        Object::Other(other) => {
            other["kind"] == autoscaler["kind"] && other["metadata"]["name"] == autoscaler["metadata"]["name"]
        }
        _ => false,
    });
    assert!(replaced);
}

/// By the schemas of the API servers.
#[test]
fn servers_of_several_versions_take_the_manifests() {
    for version in checks::VERSIONS {
        match checks::validated(version, &files()) {
            Some(Ok(())) => {}
            Some(Err(said)) => panic!("Kubernetes {version}: {said}"),
            None => {
                println!("{}", checks::NO_VALIDATOR);
                return;
            }
        }
    }
    // A key that no version has must not pass.
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.yaml");
    let text = std::fs::read_to_string(checks::folder().join("deployment.yaml")).unwrap();
    std::fs::write(&wrong, text.replace("targetPort", "targetport")).unwrap();
    let said = checks::validated(checks::VERSIONS[0], &[wrong]);
    let said = said.expect("it is installed").unwrap_err();
    assert!(said.contains("targetport"), "{said}");
}
