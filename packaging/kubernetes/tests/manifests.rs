//! The manifests, against Kubernetes' types and against what the program takes.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use widelane_kubernetes::{Object, objects};
use widelane_terminator::Document;

/// `drain.seconds`, unless the configuration says otherwise.
const DRAIN_SECONDS: i64 = 30;

/// File and objects of each manifest.
fn manifests() -> Vec<(String, Vec<Object>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let objects = objects(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
            all.push((name, objects));
        }
    }
    assert!(all.len() >= 4, "{all:?}");
    all
}

/// The pods with a terminator, and the terminator in them.
fn terminators() -> Vec<(String, PodSpec, Container)> {
    let mut all = Vec::new();
    for (name, objects) in manifests() {
        for pods in objects.iter().filter_map(Object::pods) {
            let before = pods.init_containers.iter().flatten();
            let found: Vec<_> = before
                .chain(&pods.containers)
                .filter(|container| container.name == "widelane")
                .collect();
            let [terminator] = found[..] else {
                panic!("{name}: {found:?}");
            };
            all.push((name.clone(), pods.clone(), terminator.clone()));
        }
    }
    assert_eq!(all.len(), 3);
    all
}

#[test]
fn each_object_is_one_of_kubernetes_and_fits_to_the_others() {
    for (name, pods, terminator) in terminators() {
        let volumes: BTreeSet<_> = pods.volumes.iter().flatten().map(|one| &one.name).collect();
        let mounts = terminator.volume_mounts.iter().flatten();
        let mounted: BTreeSet<_> = mounts.map(|mount| &mount.name).collect();
        assert_eq!(volumes, mounted, "{name}");

        let ports: BTreeSet<_> = (terminator.ports.iter().flatten())
            .filter_map(|port| port.name.clone())
            .collect();
        let probes = [
            &terminator.startup_probe,
            &terminator.readiness_probe,
            &terminator.liveness_probe,
        ];
        let probes: Vec<_> = probes.into_iter().flatten().collect();
        assert!(probes.len() >= 2, "{name}");
        for probe in probes {
            match port_of(probe) {
                IntOrString::String(port) => assert!(ports.contains(port), "{name}: {port}"),
                IntOrString::Int(port) => assert_eq!(*port, 9464, "{name}"),
            }
        }
    }
}

#[test]
fn nothing_more_is_allowed_than_needed() {
    for (name, pods, terminator) in terminators() {
        let own = terminator.security_context.unwrap();
        assert_eq!(own.read_only_root_filesystem, Some(true), "{name}");
        assert_eq!(own.allow_privilege_escalation, Some(false), "{name}");
        let capabilities = own.capabilities.unwrap();
        assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]), "{name}");
        assert_eq!(capabilities.add, None, "{name}");
        let of_pods = pods.security_context.unwrap();
        assert_eq!(
            own.run_as_non_root.or(of_pods.run_as_non_root),
            Some(true),
            "{name}"
        );
        let user = own.run_as_user.or(of_pods.run_as_user);
        assert_eq!(
            (user, of_pods.fs_group),
            (Some(65532), Some(65532)),
            "{name}"
        );
        assert_eq!(
            of_pods.seccomp_profile.unwrap().type_,
            "RuntimeDefault",
            "{name}"
        );
        assert_eq!(pods.automount_service_account_token, Some(false), "{name}");
        // The server refuses ticket keys that others may read, and the group reads them.
        for secret in pods
            .volumes
            .iter()
            .flatten()
            .filter_map(|volume| volume.secret.as_ref())
        {
            assert_eq!(secret.default_mode, Some(0o440), "{name}");
        }
    }
}

#[test]
fn connections_have_the_time_that_the_server_gives_them() {
    for (name, pods, terminator) in terminators() {
        let before = terminator
            .lifecycle
            .unwrap()
            .pre_stop
            .unwrap()
            .sleep
            .unwrap()
            .seconds;
        let all = pods.termination_grace_period_seconds.unwrap();
        assert!(all > before + DRAIN_SECONDS, "{name}: {all} s");
    }
}

#[test]
fn the_program_takes_the_arguments() {
    for (name, _, terminator) in terminators() {
        let arguments = terminator.args.unwrap();
        let all = std::iter::once("widelane".to_owned()).chain(arguments);
        let read = widelane_program::command().try_get_matches_from(all);
        let read = read.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.subcommand_name(), Some("serve"), "{name}");
    }
}

#[test]
fn the_configuration_is_one() {
    let mut found = 0;
    for (name, objects) in manifests() {
        for object in &objects {
            let Object::ConfigMap(map) = object else {
                continue;
            };
            for (file, text) in map.data.iter().flatten() {
                let document = Document::parse(Path::new(file), text.clone());
                document.unwrap_or_else(|error| panic!("{name}: {error}"));
                found += 1;
            }
        }
    }
    assert_eq!(found, 1);
}

fn port_of(probe: &Probe) -> &IntOrString {
    let by_request = probe.http_get.as_ref().map(|request| &request.port);
    let by_connection = probe.tcp_socket.as_ref().map(|connection| &connection.port);
    by_request.or(by_connection).expect("it connects")
}
