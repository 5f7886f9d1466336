//! Series of metrics, written in the format of Prometheus.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelValue, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Writes metrics without labels: name, help and value of each.
pub(crate) fn plain<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: impl IntoIterator<Item = (&'static str, &'static str, M)>,
) -> fmt::Result {
    for (name, help, metric) in metrics {
        let kind = metric.metric_type();
        metric.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
    }
    Ok(())
}

/// Writes a counter by its labels.
pub(crate) fn counters<V: EncodeLabelValue, const LABELS: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'static str, V); LABELS], u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        let mut series = family.encode_family(&labels)?;
        series.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

/// Writes a gauge by its labels.
pub(crate) fn gauges<V: EncodeLabelValue, const LABELS: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'static str, V); LABELS], i64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}
