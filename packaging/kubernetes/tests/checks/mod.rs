//! What must hold of manifests, whether they are written here or rendered by the chart.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use widelane_kubernetes::{Object, objects};
use widelane_terminator::{Config, Document};

/// The objects that are applied together, and what they are called in messages.
#[derive(Debug)]
pub struct Manifest {
    pub name: String,
    pub objects: Vec<Object>,
}

impl Manifest {
    pub fn new(name: &str, text: &str) -> Self {
        let objects = objects(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        Self {
            name: name.to_owned(),
            objects,
        }
    }

    /// Its pods and the terminator in them, if it has pods.
    pub fn terminator(&self) -> Option<(&PodSpec, &Container)> {
        let mut all = self.objects.iter().filter_map(Object::pods);
        let pods = all.next()?;
        assert!(all.next().is_none(), "{}: two kinds of pods", self.name);
        let before = pods.init_containers.iter().flatten();
        let found: Vec<_> = before
            .chain(&pods.containers)
            .filter(|container| container.name == "widelane")
            .collect();
        let [terminator] = found[..] else {
            panic!("{}: {found:?}", self.name);
        };
        Some((pods, terminator))
    }

    /// The container beside it that follows ticket keys in etcd, if there is one.
    fn agent(&self) -> Option<&Container> {
        let (pods, _) = self.terminator()?;
        let mut before = pods.init_containers.iter().flatten();
        before.find(|container| container.name == "tickets")
    }

    fn others(&self) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter_map(|object| match object {
            Object::Other(value) => Some(value),
            _ => None,
        })
    }

    fn config_map(&self) -> &ConfigMap {
        let maps: Vec<_> = (self.objects.iter())
            .filter_map(|object| match object {
                Object::ConfigMap(map) => Some(map),
                _ => None,
            })
            .collect();
        let [map] = maps[..] else {
            panic!("{}: {maps:?}", self.name);
        };
        map
    }

    fn config(&self) -> Config {
        let text = &self.config_map().data.as_ref().unwrap()["widelane.toml"];
        let document = Document::parse(Path::new("widelane.toml"), text.clone());
        let document = document.unwrap_or_else(|error| panic!("{}: {error}\n{text}", self.name));
        document.config().clone()
    }
}

/// The folder of the manifests.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Paths of the manifests that are written here.
pub fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut files: Vec<_> = (entries.map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    files
}

/// Mounts, probes and selectors name what there is.
pub fn fits_together(manifest: &Manifest) {
    let name = &manifest.name;
    let Some((pods, terminator)) = manifest.terminator() else {
        return;
    };
    let volumes: BTreeSet<_> = pods.volumes.iter().flatten().map(|one| &one.name).collect();
    let both = std::iter::once(terminator).chain(manifest.agent());
    let mounts = both.flat_map(|container| container.volume_mounts.iter().flatten());
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
    assert!(!probes.is_empty(), "{name}");
    for probe in probes {
        match port_of(probe) {
            IntOrString::String(port) => assert!(ports.contains(port), "{name}: {port}"),
            IntOrString::Int(port) => assert_eq!(*port, 9464, "{name}"),
        }
    }

    let labels = (manifest.objects.iter()).find_map(Object::labels_of_pods).unwrap();
    for object in manifest.others() {
        let kind = object["kind"].as_str().unwrap();
        let selector = match kind {
            "Service" => &object["spec"]["selector"],
            "PodDisruptionBudget" | "PodMonitor" => &object["spec"]["selector"]["matchLabels"],
            "NetworkPolicy" => &object["spec"]["podSelector"]["matchLabels"],
            "HorizontalPodAutoscaler" => {
                let scaled = &object["spec"]["scaleTargetRef"]["name"];
                assert_eq!(scaled, &object["metadata"]["name"], "{name}");
                continue;
            }
            _ => continue,
        };
        let selector = selector.as_object().unwrap();
        assert!(!selector.is_empty(), "{name}: {kind}");
        for (key, value) in selector {
            let has = labels.get(key).map(String::as_str);
            assert_eq!(has, value.as_str(), "{name}: {kind} by {key}");
        }
    }
}

/// Root, capabilities, a writable root, the API server: a terminator needs none of them.
pub fn allows_no_more_than_needed(manifest: &Manifest) {
    let name = &manifest.name;
    let Some((pods, terminator)) = manifest.terminator() else {
        return;
    };
    let own = terminator.security_context.as_ref().unwrap();
    assert_eq!(own.read_only_root_filesystem, Some(true), "{name}");
    assert_eq!(own.allow_privilege_escalation, Some(false), "{name}");
    let capabilities = own.capabilities.as_ref().unwrap();
    assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]), "{name}");
    assert_eq!(capabilities.add, None, "{name}");
    let of_pods = pods.security_context.as_ref().unwrap();
    assert_eq!(own.run_as_non_root.or(of_pods.run_as_non_root), Some(true), "{name}");
    let user = own.run_as_user.or(of_pods.run_as_user);
    assert_eq!((user, of_pods.fs_group), (Some(65532), Some(65532)), "{name}");
    let profile = of_pods.seccomp_profile.as_ref().unwrap();
    assert_eq!(profile.type_, "RuntimeDefault", "{name}");
    assert_eq!(pods.automount_service_account_token, Some(false), "{name}");
    // The server refuses ticket keys that others may read, and the group reads them.
    let volumes = pods.volumes.iter().flatten();
    for secret in volumes.filter_map(|volume| volume.secret.as_ref()) {
        assert_eq!(secret.default_mode, Some(0o440), "{name}");
    }
}

/// Metrics have no access control: they are on a loopback address, or a policy says who may ask.
pub fn keeps_metrics_from_strangers(manifest: &Manifest) {
    let name = &manifest.name;
    let Some((_, terminator)) = manifest.terminator() else {
        return;
    };
    let listen = manifest.config().metrics.listen;
    if listen.is_none_or(|address| address.ip().is_loopback()) {
        return;
    }
    let ports = terminator.ports.iter().flatten();
    let metrics: Vec<_> = ports.filter(|port| port.name.as_deref() == Some("metrics")).collect();
    assert_eq!(metrics.len(), 1, "{name}");
    let policies: Vec<_> = (manifest.others())
        .filter(|object| object["kind"] == "NetworkPolicy")
        .collect();
    assert_eq!(policies.len(), 1, "{name}: who may read the metrics?");
    let rules = policies[0]["spec"]["ingress"].as_array().unwrap();
    let opens_metrics = |rule: &&Value| {
        let ports = rule["ports"].as_array();
        ports.is_none_or(|ports| ports.iter().any(|port| port["port"] == "metrics"))
    };
    let opening: Vec<_> = rules.iter().filter(opens_metrics).collect();
    assert!(!opening.is_empty(), "{name}: no pod may");
    for rule in opening {
        let from = rule["from"].as_array();
        assert!(from.is_some_and(|from| !from.is_empty()), "{name}: all may");
    }
}

/// Connections have the time that the server gives them.
pub fn drains_in_time(manifest: &Manifest) {
    let name = &manifest.name;
    let Some((pods, terminator)) = manifest.terminator() else {
        return;
    };
    let all = pods.termination_grace_period_seconds.unwrap();
    let before = slept(terminator);
    let drain = manifest.config().drain.timeout.as_secs() as i64;
    assert!(all > before + drain, "{name}: {all} s");
    // Hooks of all containers run at once, and a container that has none ends at once.
    for other in pods.containers.iter().filter(|one| one.name != "widelane") {
        assert!(slept(other) >= before, "{name}: {}", other.name);
    }
}

/// Seconds for which a container goes on before it gets the signal to end.
fn slept(container: &Container) -> i64 {
    let hooks = container.lifecycle.as_ref();
    let hook = hooks.and_then(|hooks| hooks.pre_stop.as_ref());
    hook.and_then(|hook| hook.sleep.as_ref())
        .map_or(0, |sleep| sleep.seconds)
}

/// The program takes the arguments.
pub fn calls_the_program_right(manifest: &Manifest) {
    let name = &manifest.name;
    let Some((_, terminator)) = manifest.terminator() else {
        return;
    };
    let called = |container: &Container| {
        let arguments = container.args.iter().flatten().cloned();
        let all = std::iter::once("widelane".to_owned()).chain(arguments);
        let read = widelane_program::command().try_get_matches_from(all);
        let read = read.unwrap_or_else(|error| panic!("{name}: {error}"));
        read.subcommand_name().map(str::to_owned)
    };
    assert_eq!(called(terminator).as_deref(), Some("serve"), "{name}");
    if let Some(agent) = manifest.agent() {
        assert_eq!(called(agent).as_deref(), Some("tickets"), "{name}");
        assert_eq!(agent.restart_policy.as_deref(), Some("Always"), "{name}");
    }
}

/// The program takes the configuration. It names files that are mounted and ports that are open, and what it says of
/// memory and workers fits the container's limits.
pub fn configures_the_program_right(manifest: &Manifest) {
    let name = &manifest.name;
    let Some((pods, terminator)) = manifest.terminator() else {
        let has_map = (manifest.objects.iter()).any(|one| matches!(one, Object::ConfigMap(_)));
        assert!(!has_map, "{name}");
        return;
    };
    let config = manifest.config();

    let volumes = pods.volumes.iter().flatten();
    let mounted = volumes.filter_map(|volume| volume.config_map.as_ref());
    let mounted: Vec<_> = mounted.map(|map| map.name.clone()).collect();
    let of_map = &manifest.config_map().metadata.name;
    assert_eq!(&Some(mounted.join(" ")), of_map, "{name}");

    let folders: Vec<_> = (terminator.volume_mounts.iter().flatten())
        .map(|mount| Path::new(&mount.mount_path))
        .collect();
    let ports: Vec<_> = (terminator.ports.iter().flatten())
        .map(|port| port.container_port)
        .collect();
    for listener in &config.listeners {
        for certificate in &listener.certificates {
            let folder = certificate.cert.parent().unwrap();
            assert!(folders.contains(&folder), "{name}: {certificate:?}");
            assert_eq!(certificate.key.parent(), Some(folder), "{name}");
        }
        for address in &listener.listen {
            assert!(ports.contains(&address.port().into()), "{name}: {address}");
        }
    }

    // 256 KiB wait each way, and some records.
    let limits = terminator.resources.as_ref().unwrap();
    let limits = limits.limits.as_ref().unwrap();
    let megabytes = match limits["memory"].0.split_at(limits["memory"].0.len() - 2) {
        (number, "Gi") => 1024 * number.parse::<u64>().unwrap(),
        (number, "Mi") => number.parse().unwrap(),
        other => panic!("{name}: {other:?}"),
    };
    let connections = config.limits.connections.unwrap() as u64;
    assert!(
        connections * 6 / 10 <= megabytes,
        "{name}: {connections} in {megabytes} MiB"
    );
    // Without a limit of CPUs there would be a worker for each CPU of the node.
    assert!(limits.contains_key("cpu") != config.workers.is_some(), "{name}");
}

fn port_of(probe: &Probe) -> &IntOrString {
    let by_request = probe.http_get.as_ref().map(|request| &request.port);
    let by_connection = probe.tcp_socket.as_ref().map(|connection| &connection.port);
    by_request.or(by_connection).expect("it connects")
}

/// The oldest version that the manifests are for, the one whose types this crate reads, and a late one.
pub const VERSIONS: [&str; 3] = ["1.30", "1.33", "1.37"];

/// What a test prints that cannot ask a validator.
pub const NO_VALIDATOR: &str = "SKIP: no kubernetes-validate; pip install kubernetes-validate==1.37.0";

/// Compares files with the schemas of an API server, by `kubernetes-validate`. `None`: it is not installed.
pub fn validated(version: &str, files: &[PathBuf]) -> Option<Result<(), String>> {
    let mut program = Command::new("kubernetes-validate");
    let program = program.args(["--strict", "--kubernetes-version", version]);
    let output = match program.args(files).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        output => output.expect("it runs"),
    };
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said += &String::from_utf8_lossy(&output.stderr);
    // Kubernetes has no schema for the operator's type, and each other kind must have one.
    let unknown = (said.lines()).any(|line| line.contains("WARN") && !line.contains("PodMonitor"));
    let passed = said.matches("passed for resource").count();
    let good = output.status.success() && !unknown && passed > 0;
    Some(if good { Ok(()) } else { Err(said) })
}
