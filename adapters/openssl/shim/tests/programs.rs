//! Programs other than web servers, unmodified, with the provider and the library that suspends handshakes.

#![forbid(unsafe_code)]

mod common;

use std::time::Duration;

use common::aborts::{Random, go_away};
use common::client::Wish;
use common::programs::Program;
use common::subject::{Plan, Subject};

/// Tests of each program.
macro_rules! tests {
    ($($program:ident)*) => { $(
        mod $program {
            use super::common::programs::$program as program;

            #[test]
            fn answers_are_the_same() {
                program().subject.answers_are_the_same();
            }

            #[test]
            fn handshakes_share_passes() {
                super::handshakes_share_passes(&program());
            }

            #[test]
            fn nothing_stays_of_clients_that_go_away() {
                super::nothing_stays_of_clients_that_go_away(&program().subject);
            }

            #[test]
            fn a_certificate_is_replaced_under_load() {
                program().subject.replace_certificate();
            }
        }
    )* };
}

tests! { redis redis_with_threads mosquitto pgbouncer stunnel postfix postfix_tlsproxy }

/// At a reload its old process ends connections in the middle of their handshakes; the rest is not looked at yet.
#[test]
fn dovecot_answers_the_same() {
    common::programs::dovecot_imaps().subject.answers_are_the_same();
    common::programs::dovecot_starttls().subject.answers_are_the_same();
}

/// Clients that go away from each program, and reloads meanwhile.
const PLAN: Plan = Plan {
    in_flight: 48,
    aborts: [1_000, 4_000],
    reloads: 2,
    pause: Duration::ZERO,
    compares_logs: true,
};

/// Handshakes share passes, each client that stays is answered, and nothing of them or of others is left.
fn handshakes_share_passes(Program { subject, jobs_a_pass }: &Program) {
    let Some(server) = subject.start() else { return };
    let clients = [0, 1].map(|version| Wish::of(version).client(&server.files));
    let (_, name) = subject.hosts[0];
    // Its first answer shows that it has opened all that it keeps open.
    let first = subject.protocol.ask(&clients[0], server.address, name);
    first.expect("an answer");
    let idle = subject.at_rest(&server);
    common::load(32, 300, |i| {
        let client = &clients[i % clients.len()];
        if i % 3 == 2 {
            // Errors are what the server is asked for.
            let _ = go_away(client, &subject.host(&server, name), &mut Random::new(i));
            return Ok(());
        }
        subject.protocol.ask(client, server.address, name).map(drop)
    });
    subject.settled(&server, &idle);
    if !server.shares_passes("rsa2048-sign") {
        return;
    }
    let worker = subject.worker(&server);
    let operations = worker.counts().expect("a page").operations;
    let signatures = operations.iter().find(|one| one.name == "rsa2048-sign");
    let signatures = signatures.expect("an operation of ours").totals.jobs;
    let had = worker.jobs_a_pass("rsa2048-sign");
    println!("{}: {signatures} signatures, {had:.2} jobs a pass", subject.name);
    // Where there are several processes, others have a part.
    let least = if subject.worker.is_some() { 50 } else { 200 };
    assert!(signatures > least && had >= *jobs_a_pass, "{}", subject.name);
}

/// Memory and descriptors are bounded, honest clients are answered during reloads and after them, at the first
/// attempt, and the log has nothing new.
fn nothing_stays_of_clients_that_go_away(subject: &Subject) {
    let Some(endured) = subject.endure(&PLAN) else { return };
    assert!(
        endured.again == 0 || subject.listens_anew,
        "{} honest clients failed",
        endured.again
    );
}
