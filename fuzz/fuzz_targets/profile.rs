//! Reading a machine profile from hostile text never panics; what is accepted leads to no absurd
//! decision, can be drawn, and is read again as it is written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_cpu::Lanes;
use widelane_frequency::{Penalty, Profile, Subject, advise};
use widelane_report::picture;

fuzz_target!(|text: &str| {
    let Ok(profile) = Profile::from_json(text) else {
        return;
    };
    match profile.penalty() {
        Penalty::None { at_most } => assert!((0.0..=1.0).contains(&at_most)),
        Penalty::Some(depths) => {
            for depth in depths {
                let depth = depth.depth;
                assert!(0.0 < depth.low && depth.low <= depth.value);
                assert!(depth.value <= depth.high && depth.high <= 1.0);
            }
        }
        Penalty::Unknown => {}
    }
    let advice = advise(Subject::Measured(&profile), Lanes::ALL);
    assert!(advice.share.is_none_or(|share| (0.0..=1.0).contains(&share)));
    for us in advice.burst_us.into_iter().flatten() {
        assert!(us.is_finite() && us >= 0.0);
    }
    let picture = picture(&profile);
    assert!(picture.starts_with("<svg ") && picture.matches("<svg").count() == 1);
    let written = serde_json::to_string(&profile).unwrap();
    assert_eq!(Profile::from_json(&written), Ok(profile));
});
