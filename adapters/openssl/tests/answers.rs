//! OpenSSL's answers with the provider and without it are the same, as a small program in C prints them.

#![forbid(unsafe_code)]

mod common;

use common::{Configuration, Scratch, With, succeeds};

/// TLS makes an alert of the refusal: `illegal_parameter`, and not `internal_error`.
#[test]
fn shares_that_are_no_points_are_refused() {
    same("shares");
}

/// ECDH fills a place that is too small.
#[test]
fn agreements_have_the_same_lengths_and_errors() {
    same("agreements");
}

/// An agreement reads a key's share, which does not tell all of it.
#[test]
fn copies_of_keys_are_whole_after_an_agreement() {
    same("copies");
}

#[test]
fn keys_are_made_with_the_encoding_that_was_asked_for() {
    same("generation");
}

#[test]
fn salts_stay_as_long_as_was_said() {
    same("salts");
}

#[test]
fn places_that_are_small_for_a_signature_are_refused() {
    same("places");
}

/// OpenSSL goes on with a message after it was signed or verified, where a context can take streams.
#[test]
fn calls_on_one_context_follow_each_other_in_any_order() {
    same("orders");
}

#[test]
fn public_keys_are_imported_as_pairs() {
    same("imports");
}

#[test]
fn values_are_refused_where_openssl_refuses_them() {
    same("values");
}

fn same(what: &str) {
    let Some(scratch) = Scratch::system(Configuration::default()) else {
        return;
    };
    let Some(program) = scratch.build("answers") else {
        return;
    };
    let [ours, theirs] = [With::Widelane, With::Default].map(|with| {
        let text = succeeds(&mut scratch.command(with, &program, what));
        // On a CPU without lanes the provider says so.
        let answers = text.lines().filter(|line| !line.starts_with("widelane: "));
        answers.map(str::to_owned).collect::<Vec<_>>()
    });
    let lines = ours.iter().zip(&theirs);
    let other = lines.enumerate().find(|(_, (ours, theirs))| ours != theirs);
    assert_eq!(other, None, "ours is the first\n{}", ours.join("\n"));
    assert_eq!(ours.len(), theirs.len());
}
