//! Test vectors in the sources of published packages: those of NIST's validation server (ACVP).

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every test of a mode, like `ML-KEM-keyGen-FIPS203`, behind its group.
pub(crate) fn vectors(package: &str, mode: &str) -> Vec<(Value, Value)> {
    let file = format!("tests/nist_vectors/{mode}/internalProjection.json");
    let text = std::fs::read_to_string(source(package).join(file));
    let mut all: Value = serde_json::from_str(&text.expect("the package has the vectors")).unwrap();
    let mut vectors = Vec::new();
    for group in all["testGroups"].as_array_mut().unwrap() {
        let tests = group["tests"].take();
        for test in tests.as_array().unwrap() {
            vectors.push((group.clone(), test.clone()));
        }
    }
    vectors
}

/// Where cargo keeps the source of a package.
pub(crate) fn source(package: &str) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1"])
        .args([
            "--manifest-path",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ])
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo knows its packages");
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|found| found["name"] == package);
    let manifest = package.unwrap()["manifest_path"].as_str().unwrap();
    Path::new(manifest).parent().unwrap().to_owned()
}

/// What a string has in hexadecimal digits.
pub(crate) fn bytes(hex: &Value) -> Vec<u8> {
    let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    let pairs = hex.as_str().unwrap().as_bytes().as_chunks().0;
    pairs
        .iter()
        .map(|&[high, low]| digit(high) << 4 | digit(low))
        .collect()
}
