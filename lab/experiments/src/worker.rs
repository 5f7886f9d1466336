//! The work of a web server without its network: pages are compressed, records encrypted.

use std::str::FromStr;
use std::time::{Duration, Instant};

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use widelane::{Class, Config, Wide};
use widelane_crypto::chacha20poly1305::{Choice, Cipher, NONCE_LEN, SealError};
use widelane_sim::Random;

use crate::error::ExperimentError;
use crate::web::page_of;

/// Order for a worker; as its argument, in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The form of ChaCha20-Poly1305.
    pub form: String,
    /// Form in which the worker's calls run: `inline`, `pool:CPU`, `migrate:CPU`.
    pub wide: String,
    /// The CPU of the worker.
    pub cpu: usize,
    /// Records of 16 KiB that it encrypts after each page, one after the other.
    pub records: usize,
    /// Time for which it works.
    pub seconds: f64,
}

impl FromStr for Order {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// Does the work on the calling thread. Gives requests a second, how they vary, and the mean times of
/// both parts of a request, in microseconds.
///
/// # Errors
///
/// When the CPU lacks the registers, a core cannot be had, or a result is wrong.
pub fn work(order: &Order) -> Result<Value, ExperimentError> {
    let failed = |what: String| ExperimentError::Worker(what);
    let form = order.form.parse().map(Choice::Exactly);
    let form = form.map_err(|error| failed(format!("{error}")))?;
    let cipher = Cipher::new(form).map_err(|error| failed(error.to_string()))?;
    let wide: widelane::Form = order.wide.parse().map_err(|error| failed(format!("{error}")))?;
    let mut config = Config::from(wide);
    // A vector core does nothing else, and the next record comes within a millisecond.
    config.vector_spin = Duration::MAX;
    config.caller_spin = Duration::MAX;
    let wide = Wide::new(config).map_err(|error| failed(error.to_string()))?;
    widelane_affinity::pin(order.cpu).map_err(|error| failed(format!("CPU {}: {error}", order.cpu)))?;
    let key = cipher.key(&[7; 32]);
    let page = page_of(PAGE).into_bytes();
    check(&cipher, &page).map_err(failed)?;
    let mut record = vec![0; RECORD];
    let mut nonce = [0_u8; NONCE_LEN];
    let mut random = Random::new(1);
    let (mut in_pages, mut in_wide) = (Duration::ZERO, Duration::ZERO);
    let mut slices = Vec::new();
    let (mut requests, mut sealed) = (0_u64, 0_u64);
    let began = Instant::now();
    let end = Duration::try_from_secs_f64(order.seconds).map_err(|error| failed(error.to_string()))?;
    let mut in_slice = 0_u64;
    loop {
        let now = began.elapsed();
        if now >= SLICE * (slices.len() as u32 + 1) {
            slices.push(in_slice);
            in_slice = 0;
        }
        if now >= end {
            break;
        }
        let compressed = compress_to_vec(&page[..length(&mut random)], LEVEL);
        let after = began.elapsed();
        in_pages += after - now;
        let filled = compressed.len().min(RECORD);
        record[..filled].copy_from_slice(&compressed[..filled]);
        let mut seal = || {
            for _ in 0..order.records {
                sealed += 1;
                nonce[..8].copy_from_slice(&sealed.to_le_bytes());
                key.seal_in_place(&nonce, &[], &mut record)?;
            }
            Ok::<_, SealError>(())
        };
        // The cipher marks by itself what it asks for.
        let done = wide.run_as(Class::Scalar, &mut seal);
        done.map_err(|error| failed(error.to_string()))?;
        in_wide += began.elapsed() - after;
        requests += 1;
        in_slice += 1;
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / requests.max(1) as f64;
    Ok(json!({
        "requests": requests,
        "requests_per_s": requests as f64 / began.elapsed().as_secs_f64(),
        "page_us": each(in_pages),
        "wide_us": each(in_wide),
        "variation_percent": variation(&slices),
        "slices": slices,
    }))
}

/// Checks that compression and encryption can be undone.
fn check(cipher: &Cipher, page: &[u8]) -> Result<(), String> {
    let compressed = compress_to_vec(page, LEVEL);
    if decompress_to_vec(&compressed).ok().as_deref() != Some(page) {
        return Err("the compressed page is not the page".to_owned());
    }
    let key = cipher.key(&[7; 32]);
    let mut sealed = page[..RECORD].to_vec();
    let tag = key
        .seal_in_place(&[1; NONCE_LEN], &[], &mut sealed)
        .map_err(|error| error.to_string())?;
    sealed.extend_from_slice(&tag);
    match key.open_in_place(&[1; NONCE_LEN], &[], &mut sealed) {
        Ok(opened) if *opened == page[..RECORD] => Ok(()),
        _ => Err("the decrypted record is not the record".to_owned()),
    }
}

/// Width from the 5th to the 95th percentile, in per cent of the median. `None` of fewer than 20.
fn variation(slices: &[u64]) -> Option<f64> {
    let mut sorted = slices.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| sorted[(sorted.len() as f64 * share) as usize] as f64;
    (sorted.len() >= 20).then(|| (at(0.95) - at(0.05)) / at(0.5).max(1.0) * 100.0)
}

/// Bytes of a page, exponentially distributed like the pauses between records that a server has.
fn length(random: &mut Random) -> usize {
    (random.exponential(MEAN) as usize).clamp(1, PAGE)
}

/// Bytes of the longest page.
const PAGE: usize = 256 * 1024;
/// Bytes of a usual page: about half a millisecond of compression.
const MEAN: f64 = 48.0 * 1024.0;
const LEVEL: u8 = 1;
/// Bytes of a TLS record.
const RECORD: usize = 16384;
const SLICE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_are_written() {
        let order = Order {
            form: "aws-lc".to_owned(),
            wide: "pool:1".to_owned(),
            cpu: 0,
            records: 4,
            seconds: 0.5,
        };
        let written = json!(order).to_string();
        assert_eq!(written.parse::<Order>().expect("an order"), order);
        assert!("{}".parse::<Order>().is_err());
        assert!(written.replace("cpu", "core").parse::<Order>().is_err());
        assert!(work(&Order { seconds: -1.0, ..order }).is_err());
    }

    #[test]
    fn the_work_is_counted() {
        let order = Order {
            form: "aws-lc".to_owned(),
            wide: "inline".to_owned(),
            cpu: widelane_affinity::allowed(None)
                .ok()
                .and_then(|cpus| cpus.iter().next())
                .expect("a CPU"),
            records: 1,
            seconds: 0.1,
        };
        let line = work(&order).expect("it works");
        assert!(line["requests"].as_u64() > Some(0), "{line}");
        assert!(line["page_us"].as_f64() > line["wide_us"].as_f64(), "{line}");
        let wrong = Order {
            form: "513".to_owned(),
            ..order
        };
        assert!(work(&wrong).is_err());
    }

    #[test]
    fn lengths_have_their_mean() {
        let mut random = Random::new(1);
        let sum: usize = (0..100_000).map(|_| length(&mut random)).sum();
        let mean = sum as f64 / 1e5;
        assert!((mean / MEAN - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn variation_is_the_range_of_most_slices() {
        let even: Vec<u64> = (0..100).map(|_| 50).collect();
        assert_eq!(variation(&even), Some(0.0));
        let rising: Vec<u64> = (1..=100).collect();
        let found = variation(&rising).expect("enough slices");
        assert!((found - 90.0 / 51.0 * 100.0).abs() < 0.1, "{found}");
        assert_eq!(variation(&[1]), None);
    }
}
