//! Series of Prometheus.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use widelane_cli::failure::Failure;
use widelane_text::label;

/// Labels of a series.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Labels with one more.
pub(crate) fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, label(value)));
    labels
}

/// Counters with these names.
pub(crate) fn counters(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, Counter> {
    let family = Family::default();
    registry.register(name, help, Family::clone(&family));
    family
}

/// Gauges with these names.
pub(crate) fn gauges(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, Gauge> {
    let family = Family::default();
    registry.register(name, help, Family::clone(&family));
    family
}

/// Text of all series.
pub(crate) fn text(registry: &Registry) -> Result<String, Failure> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}
