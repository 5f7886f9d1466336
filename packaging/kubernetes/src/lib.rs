//! Reads manifests as Kubernetes' own types.
//!
//! An API server ignores a key that it does not know unless it is asked to be strict, so that a misspelt key
//! does nothing and says nothing. Here it is a fault.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An object of a manifest.
#[derive(Clone, Debug)]
pub enum Object {
    /// Pods on chosen nodes, one each.
    DaemonSet(Box<DaemonSet>),
    /// Pods in some number.
    Deployment(Box<Deployment>),
    /// Files and settings.
    ConfigMap(Box<ConfigMap>),
    /// Read and correct, and nothing more is asked of it.
    Other(Value),
}

impl Object {
    /// What its pods consist of, if it has pods.
    pub fn pods(&self) -> Option<&PodSpec> {
        match self {
            Self::DaemonSet(set) => set.spec.as_ref()?.template.spec.as_ref(),
            Self::Deployment(deployment) => deployment.spec.as_ref()?.template.spec.as_ref(),
            Self::ConfigMap(_) | Self::Other(_) => None,
        }
    }

    /// The labels of its pods, if it has pods.
    pub fn labels_of_pods(&self) -> Option<&BTreeMap<String, String>> {
        let template = match self {
            Self::DaemonSet(set) => &set.spec.as_ref()?.template,
            Self::Deployment(deployment) => &deployment.spec.as_ref()?.template,
            Self::ConfigMap(_) | Self::Other(_) => return None,
        };
        template.metadata.as_ref()?.labels.as_ref()
    }
}

/// The objects of a manifest, in its order.
///
/// # Errors
///
/// The text is no YAML, an object is of a kind that is not known here, or it has a key or a value that its
/// kind does not have.
pub fn objects(manifest: &str) -> Result<Vec<Object>, String> {
    // Kubernetes reads YAML 1.1, in which a number with a leading zero is octal: the modes of files.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(manifest, options).map_err(|error| error.to_string())?;
    documents.into_iter().map(object).collect()
}

fn object(document: Value) -> Result<Object, String> {
    let of = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (of("apiVersion"), of("kind"));
    let read = match (version.as_str(), kind.as_str()) {
        ("apps/v1", "DaemonSet") => strict(&document).map(|set| Object::DaemonSet(Box::new(set))),
        ("apps/v1", "Deployment") => strict(&document).map(|one| Object::Deployment(Box::new(one))),
        ("v1", "ConfigMap") => strict(&document).map(|map| Object::ConfigMap(Box::new(map))),
        ("v1", "Service") => other::<Service>(&document),
        ("v1", "ServiceAccount") => other::<ServiceAccount>(&document),
        ("policy/v1", "PodDisruptionBudget") => other::<PodDisruptionBudget>(&document),
        ("networking.k8s.io/v1", "NetworkPolicy") => other::<NetworkPolicy>(&document),
        ("autoscaling/v2", "HorizontalPodAutoscaler") => other::<HorizontalPodAutoscaler>(&document),
        ("monitoring.coreos.com/v1", "PodMonitor") => other::<PodMonitor>(&document),
        _ => Err("this kind is not known here".to_owned()),
    };
    read.map_err(|why| format!("{kind} of {version}: {why}"))
}

/// A type of the Prometheus operator, by its API reference: what manifests here use of it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodMonitor {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: PodMonitorSpec,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodMonitorSpec {
    selector: LabelSelector,
    #[serde(default)]
    pod_metrics_endpoints: Vec<PodMetricsEndpoint>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodMetricsEndpoint {
    /// The name of a port of the container. If there is none of that name, nothing is scraped.
    port: String,
    interval: String,
}

fn other<T: DeserializeOwned + Serialize>(document: &Value) -> Result<Object, String> {
    strict::<T>(document).map(|_| Object::Other(document.clone()))
}

/// Reads an object, of which every key must be one of its type.
fn strict<T: DeserializeOwned + Serialize>(document: &Value) -> Result<T, String> {
    let object: T = serde_json::from_value(document.clone()).map_err(|error| error.to_string())?;
    let kept = serde_json::to_value(&object).map_err(|error| error.to_string())?;
    match lost(document, &kept, String::new()) {
        None => Ok(object),
        Some(place) => Err(format!("{place} is not known")),
    }
}

/// Where `written` has something that `kept` has not. Types leave out what they do not know.
fn lost(written: &Value, kept: &Value, place: String) -> Option<String> {
    match (written, kept) {
        (Value::Object(written), Value::Object(kept)) => written.iter().find_map(|(key, value)| {
            let place = format!("{place}.{key}");
            match kept.get(key) {
                Some(kept) => lost(value, kept, place),
                None => Some(place),
            }
        }),
        (Value::Array(written), Value::Array(kept)) => (written.iter().zip(kept).enumerate())
            .find_map(|(at, (written, kept))| lost(written, kept, format!("{place}[{at}]"))),
        _ => (written != kept).then_some(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str = "apiVersion: v1\nkind: Service\nspec:\n  ports: [{ port: 443, targetPort: https }]\n";

    const MONITOR: &str = "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: { name: a }\nspec:\n  \
                           selector: { matchLabels: { a: b } }\n  podMetricsEndpoints: [{ port: a, interval: 1s }]\n";

    #[test]
    fn what_a_type_does_not_have_is_refused() {
        assert_eq!(objects(SERVICE).unwrap().len(), 1);
        assert_eq!(objects(MONITOR).unwrap().len(), 1);
        for (wrong, why) in [
            (
                SERVICE.replace("targetPort", "targetport"),
                ".spec.ports[0].targetport is not known",
            ),
            (SERVICE.replace("443", "https"), "invalid type"),
            (SERVICE.replace("Service", "Servise"), "this kind is not known here"),
            (SERVICE.replace("v1", "v2"), "Service of v2"),
            (format!("{SERVICE}---\n}}"), "line 6"),
            (MONITOR.replace("port:", "prot:"), "unknown field `prot`"),
            (
                MONITOR.replace("matchLabels", "matchLabel"),
                ".spec.selector.matchLabel is not known",
            ),
        ] {
            let said = objects(&wrong).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn modes_are_octal() {
        let map = "apiVersion: v1\nkind: ConfigMap\ndata: { mode: \"0440\" }\n";
        assert!(matches!(&objects(map).unwrap()[..], [Object::ConfigMap(_)]));
        let pods = "apiVersion: apps/v1\nkind: DaemonSet\nspec:\n  selector: {}\n  template:\n    spec:\n      \
                    containers: []\n      volumes: [{ name: a, secret: { defaultMode: 0440 } }]\n";
        let read = objects(pods).unwrap();
        let volumes = read[0].pods().unwrap().volumes.as_ref().unwrap();
        assert_eq!(volumes[0].secret.as_ref().unwrap().default_mode, Some(0o440));
    }
}
