//! Published test vectors for ML-KEM and ML-DSA, from `tests/vectors`.
//!
//! The compiler puts the files into the test program, so the tests read nothing at run time. If a
//! file is missing, the build of the tests fails and names it. `tests/vectors/README.md` says where
//! the files come from.

use serde_json::Value;
use std::collections::HashMap;

/// Every test of a mode, like `ML-KEM-keyGen-FIPS203`, behind its group.
pub(crate) fn vectors(mode: &str) -> Vec<(Value, Value)> {
    let mut all: Value = serde_json::from_str(find(MODES, mode)).expect("the file is JSON");
    let mut vectors = Vec::new();
    for group in all["testGroups"].as_array_mut().unwrap() {
        let tests = group["tests"].take();
        for test in tests.as_array().unwrap() {
            vectors.push((group.clone(), test.clone()));
        }
    }
    vectors
}

/// The values of one vector of CCTV, by name. `name` is like `strcmp-ML-KEM-512`.
pub(crate) fn cctv(name: &str) -> HashMap<String, Vec<u8>> {
    let lines = find(CCTV, name).lines();
    lines
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, hex)| (name.to_owned(), bytes(&Value::from(hex))))
        .collect()
}

/// Bytes of a string of hexadecimal digits.
pub(crate) fn bytes(hex: &Value) -> Vec<u8> {
    let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    let pairs = hex.as_str().unwrap().as_bytes().as_chunks().0;
    pairs.iter().map(|&[high, low]| digit(high) << 4 | digit(low)).collect()
}

fn find(files: &[(&str, &'static str)], name: &str) -> &'static str {
    let file = files.iter().find(|(file, _)| *file == name);
    let names: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
    file.unwrap_or_else(|| panic!("no file of vectors is called {name}; there are {names:?}"))
        .1
}

macro_rules! files {
    ($folder:literal, $extension:literal: $($name:literal),+) => {
        &[$((
            $name,
            include_str!(concat!("../tests/vectors/", $folder, "/", $name, ".", $extension)),
        )),+]
    };
}

const MODES: &[(&str, &str)] = files!("acvp", "json":
    "ML-DSA-keyGen-FIPS204",
    "ML-DSA-sigGen-FIPS204",
    "ML-DSA-sigVer-FIPS204",
    "ML-KEM-encapDecap-FIPS203",
    "ML-KEM-keyGen-FIPS203"
);

const CCTV: &[(&str, &str)] = files!("cctv", "txt":
    "strcmp-ML-KEM-512",
    "strcmp-ML-KEM-768",
    "strcmp-ML-KEM-1024",
    "unluckysample-ML-KEM-512",
    "unluckysample-ML-KEM-768",
    "unluckysample-ML-KEM-1024"
);
