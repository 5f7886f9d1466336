//! Jobs of OpenSSL's own in an application that wants callbacks, as a small program in C.

#![forbid(unsafe_code)]

mod common;

use common::{Configuration, Scratch, With, has_lanes, succeeds};

#[test]
fn callbacks_tell_of_every_job() {
    expect_paused("all", 16);
}

/// The applications of dropped jobs are not woken any more, and the others go on.
#[test]
fn wait_contexts_may_go_away_while_their_jobs_wait() {
    expect_paused("drop", 16);
}

#[test]
fn threads_that_end_leave_nothing_to_others() {
    expect_paused("threads", 3 * 16);
}

#[test]
fn wait_contexts_may_go_away_on_another_thread() {
    expect_paused("elsewhere", 16);
}

/// The program ends well, and of so many jobs at least half were paused if there are lanes: where a pass has two
/// lanes, every other job fills one and need not wait.
fn expect_paused(what: &str, jobs: usize) {
    let Some(scratch) = Scratch::system(Configuration::default()) else {
        return;
    };
    let Some(program) = scratch.build("jobs") else {
        return;
    };
    for algorithm in [
        "RSA -pkeyopt rsa_keygen_bits:2048",
        "EC -pkeyopt ec_paramgen_curve:P-256",
    ] {
        scratch.succeeds(With::Widelane, &format!("genpkey -algorithm {algorithm} -out key.pem"));
        for of in ["messages", "values"] {
            let line = format!("key.pem {what} {of}");
            let said = succeeds(&mut scratch.command(With::Widelane, &program, &line));
            let paused = said.split_whitespace().nth(1);
            let paused: usize = paused.and_then(|count| count.parse().ok()).expect("a count");
            match has_lanes() {
                true => assert!(paused >= jobs / 2, "{what}, {algorithm}, {of}: {said}"),
                false => assert_eq!(paused, 0, "without lanes nothing waits"),
            }
        }
    }
}
