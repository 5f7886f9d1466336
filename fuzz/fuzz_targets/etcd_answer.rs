//! Who answers for etcd can say anything. Reading it never panics; an error says on one line what is wrong; an answer
//! with another status than that of success has no keys.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_ticket_etcd::fuzzing::answer;

fuzz_target!(|input: (bool, &[u8])| {
    let (is_good, body) = input;
    for read in answer(if is_good { 200 } else { 500 }, body) {
        match read {
            Err(problem) => assert!(
                !problem.is_empty() && !problem.contains('\n') && problem.chars().count() <= 500,
                "{problem:?}"
            ),
            Ok(values) => {
                assert!(is_good);
                assert!(values.into_iter().flatten().all(|length| length <= body.len()));
            }
        }
    }
});
