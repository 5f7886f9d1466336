//! `widelane status --prove`: what lanes save a living server.

use crate::object::object;
use crate::screen::Screen;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{IsTerminal, stderr};
use std::thread;
use std::time::{Duration, Instant};
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_status_tool::proof::{
    self, Both, Counted, End, Estimate, Latency, Plan, PlanError, Progress, Proof, Span, Verdict,
};
use widelane_status_tool::{Living, Server, StatusError, now, only_server};
use widelane_text::{escaped, json_line, thousands};

/// Switches the lanes of a server off and on, and says what a handshake takes.
pub(crate) fn run(pid: Option<u32>, length: Duration, share: f64, json: bool) -> Result<(), Failure> {
    let plan = Plan::new(length, share).map_err(|error| Failure::Usage(error.to_string()))?;
    let pid = pid.map_or_else(only, Ok)?;
    let server = Server::of(pid)?;
    server.can_be_proved()?;
    let named = Named::of(&server);
    let screen = Screen::open(false)?;
    let mut broken = None;
    let mut living = Living {
        server,
        ended_before: |then| {
            screen.ended_before(then).unwrap_or_else(|failure| {
                broken = Some(failure);
                true
            })
        },
    };
    let is_shown = stderr().is_terminal();
    let (pairs, end) = proof::run(&mut living, &plan, drawn, |now| {
        if is_shown {
            output::progress(&at_work(&named, now));
        }
    });
    if is_shown {
        output::progress("");
    }
    let Living { server, .. } = living;
    if let Some(failure) = broken {
        return Err(failure);
    }
    let proof = concluded(&server, &pairs);
    let text = match json {
        true => json_text(&named, &proof),
        false => said(&named, &proof),
    };
    output::print(&text)?;
    match end {
        End::Failed(error) => Err(Failure::Failed(format!("the proof ended early: {error}"))),
        End::Done | End::Asked => Ok(()),
    }
}

/// Plan of a server that proves itself.
///
/// # Errors
///
/// A length that is too short.
pub(crate) fn plan_of_its_own(length: Duration) -> Result<Plan, PlanError> {
    Plan::new(length, 0.5)
}

/// Starts a thread that waits for load, proves this process once, and logs what that says.
pub(crate) fn begin_of_its_own(plan: Plan) -> Result<(), Failure> {
    let thread = thread::Builder::new().name("widelane-prove".to_owned());
    let prove = move || match of_its_own(&plan) {
        Ok(said) => said.lines().for_each(|line| tracing::info!("{line}")),
        Err(error) => tracing::warn!(%error, "this server cannot prove itself"),
    };
    thread.spawn(prove)?;
    Ok(())
}

fn of_its_own(plan: &Plan) -> Result<String, StatusError> {
    let own = || {
        let server = Server::of(std::process::id())?;
        server.can_be_proved()?;
        Ok(Living {
            server,
            ended_before: |then: Instant| {
                thread::sleep(then.saturating_duration_since(Instant::now()));
                false
            },
        })
    };
    let mut living = own()?;
    tracing::info!("a proof begins when there is load: lanes will be switched off and on");
    proof::wait_for_load(&mut living, plan)?;
    // An operator may have switched lanes off meanwhile, to which the proof returns.
    let mut living = own()?;
    tracing::info!("a proof is at work: lanes are switched off and on");
    let (pairs, end) = proof::run(&mut living, plan, drawn, |_| {});
    if let End::Failed(error) = end {
        return Err(error);
    }
    let Living { server, .. } = living;
    Ok(said(&Named::of(&server), &concluded(&server, &pairs)))
}

/// Concludes from these pairs, and notes the result where others see it.
fn concluded(server: &Server, pairs: &[proof::Pair]) -> Proof {
    let proof = proof::prove(pairs, server.tells_kinds());
    // A server that has ended has no page any more.
    let _ = server.note(proof.noted(now()));
    proof
}

/// A server, for people.
struct Named {
    name: String,
    pids: Vec<u32>,
}

impl Named {
    fn of(server: &Server) -> Self {
        let (pids, name) = server.processes();
        Self {
            name: name.to_owned(),
            pids,
        }
    }

    fn text(&self) -> String {
        let name = escaped(&self.name);
        match &*self.pids {
            [] => name,
            [pid] => format!("{name} {pid}"),
            [first, ..] => format!("{name} {first} ({} processes)", self.pids.len()),
        }
    }
}

/// The only server that there is to prove.
fn only() -> Result<u32, Failure> {
    let found = only_server().map_err(|error| Failure::Failed(format!("processes cannot be listed: {error}")))?;
    found.map_err(|several| {
        let names: Vec<_> = several
            .iter()
            .map(|(pid, name)| format!("{pid} {}", escaped(name)))
            .collect();
        Failure::Failed(match names.is_empty() {
            true => "no process that this user may look at has loaded the provider; see widelane setup".into(),
            false => format!(
                "several servers have loaded the provider; name one: {}",
                names.join(", ")
            ),
        })
    })
}

/// A random bit.
fn drawn() -> bool {
    RandomState::new().hash_one(()) & 1 == 1
}

/// The line on progress.
fn at_work(named: &Named, now: Progress) -> String {
    format!(
        "{}: pair {} of {}, lanes {}, {} handshakes so far",
        named.text(),
        now.pair,
        now.of,
        if now.on { "on" } else { "off" },
        thousands(&now.handshakes.to_string()),
    )
}

/// Result of a proof, as a sentence.
fn said(named: &Named, proof: &Proof) -> String {
    let server = named.text();
    let count = |count: u64| thousands(&count.to_string());
    let kinds = match proof.counted {
        Counted::FullHandshakes => "full handshakes",
        Counted::ResumedHandshakes => "resumed handshakes",
        Counted::Signatures => "handshakes, counted by their signatures,",
        _ => "handshakes, counted by their key exchanges,",
    };
    let counted = format!("{} {kinds} in {} blocks", count(proof.handshakes), proof.blocks);
    let cannot_tell = |why: &str| format!("{server}: cannot be told: {why}\n");
    let figures = proof.with.zip(proof.without).zip(proof.quotient);
    let ((with, without), quotient) = match (proof.verdict, figures) {
        (Verdict::NotHeeded, _) => {
            return cannot_tell(
                "jobs ran in lanes in the blocks without them, too. Has another program switched them on?",
            );
        }
        (Verdict::Unused, _) => {
            return cannot_tell(&format!(
                "no handshake used lanes in {counted}: each came alone. Prove under more load."
            ));
        }
        (Verdict::NoCpu, _) => {
            return cannot_tell(&format!(
                "{counted}, and no CPU time was seen in one of them. Where a thread ends with its connection, its time \
                 is not seen. Compare the CPU time of the whole server with --off and --on."
            ));
        }
        (_, None) => {
            return cannot_tell(&format!(
                "{counted} are too few. Prove for longer (--for), or under more load."
            ));
        }
        (_, Some(figures)) => figures,
    };
    let each = match proof.counted {
        Counted::FullHandshakes | Counted::Signatures => "a full handshake",
        Counted::ResumedHandshakes => "a resumed handshake",
        _ => "a handshake",
    };
    let saved = proof.saved.unwrap_or(0.0);
    let conclusion = match proof.verdict {
        Verdict::Differ if saved >= 0.0 => {
            format!("Batching saves {saved:.2} of a CPU at this load.")
        }
        Verdict::Differ => format!("Lanes cost {:.2} of a CPU at this load.", -saved),
        _ => format!(
            "No difference is seen: without lanes, a handshake takes {:.2} to {:.2} times as much.",
            quotient.low, quotient.high
        ),
    };
    let others = match proof.others {
        // Handshakes that begin in one block and end in the next make a few.
        few if few <= proof.handshakes / 100 => String::new(),
        others => format!(
            " Their CPU time includes {} {}.",
            count(others),
            match proof.counted {
                Counted::FullHandshakes => "resumed handshakes",
                _ => "key exchanges without a signature: of resumed handshakes, and with backends",
            }
        ),
    };
    let latencies: String = proof.latencies.iter().map(waited).collect();
    format!(
        "{server}: {} of CPU {each} with lanes, {} without; {counted}. {conclusion}{others}\n{latencies}",
        microseconds(with),
        microseconds(without),
    )
}

/// Says in a line how long handshakes waited.
fn waited(latency: &Latency) -> String {
    let who = match latency.of {
        Span::FullHandshake => "a full handshake waits for the server",
        Span::ResumedHandshake => "a resumed handshake waits for the server",
        Span::Signature => "a handshake waits for its signature",
        _ => "a handshake waits for its key exchange",
    };
    let Both { with, without } = latency.median;
    let tail = latency.p99.map(|Both { with, without }| {
        format!(
            "; 1 in 100 longer than {:.0} µs and {:.0} µs",
            with.middle, without.middle
        )
    });
    format!(
        "  {who} {} with lanes, {} without{}\n",
        microseconds(with),
        microseconds(without),
        tail.unwrap_or_default(),
    )
}

fn microseconds(Estimate { middle, low, high }: Estimate) -> String {
    format!("{middle:.0} µs ({low:.0} to {high:.0})")
}

/// Result of a proof, for programs: estimates as their middle, least and most.
fn json_text(named: &Named, proof: &Proof) -> String {
    let ends = |Estimate { middle, low, high }: Estimate| [middle, low, high];
    let latency = |latency: &Latency| {
        let Both { with, without } = latency.median;
        object! {
            of: match latency.of {
                Span::FullHandshake => "full-handshake",
                Span::ResumedHandshake => "resumed-handshake",
                Span::Signature => "signature",
                _ => "key-exchange",
            },
            median_us_with_lanes: ends(with),
            median_us_without_lanes: ends(without),
            p99_us_with_lanes: latency.p99.map(|both| ends(both.with)),
            p99_us_without_lanes: latency.p99.map(|both| ends(both.without)),
        }
    };
    json_line(&object! {
        pids: &named.pids,
        name: &named.name,
        verdict: match proof.verdict {
            Verdict::Differ => "differ",
            Verdict::Same => "same",
            Verdict::TooFew => "too-few",
            Verdict::NoCpu => "no-cpu",
            Verdict::Unused => "lanes-unused",
            Verdict::NotHeeded => "not-heeded",
            _ => "unknown",
        },
        counted: match proof.counted {
            Counted::FullHandshakes => "full-handshakes",
            Counted::ResumedHandshakes => "resumed-handshakes",
            Counted::Signatures => "signatures",
            _ => "key-exchanges",
        },
        blocks: proof.blocks,
        handshakes: proof.handshakes,
        other_key_exchanges: proof.others,
        handshakes_per_s: proof.rate,
        cpu_us_with_lanes: proof.with.map(ends),
        cpu_us_without_lanes: proof.without.map(ends),
        pairs_us: &proof.pairs,
        quotient: proof.quotient.map(ends),
        saved_cpus: proof.saved,
        latencies: proof.latencies.iter().map(latency).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pids: &[u32]) -> Named {
        Named {
            name: "nginx\x1b".to_owned(),
            pids: pids.to_vec(),
        }
    }

    fn estimate(middle: f64, low: f64, high: f64) -> Option<Estimate> {
        Some(Estimate { middle, low, high })
    }

    fn proof() -> Proof {
        Proof {
            verdict: Verdict::Differ,
            counted: Counted::Signatures,
            blocks: 12,
            handshakes: 5812,
            others: 0,
            rate: Some(4327.0),
            with: estimate(171.2, 168.0, 175.0),
            without: estimate(379.0, 371.0, 388.4),
            pairs: vec![[171.2, 379.0]],
            quotient: estimate(2.21, 2.15, 2.3),
            saved: Some(0.899),
            latencies: Vec::new(),
        }
    }

    #[test]
    fn a_proof_is_a_sentence() {
        assert_eq!(
            said(&named(&[4711]), &proof()),
            "nginx\\u{1b} 4711: 171 µs (168 to 175) of CPU a full handshake with lanes, 379 µs (371 \
             to 388) without; 5,812 handshakes, counted by their signatures, in 12 blocks. Batching saves 0.90 of a CPU at this load.\n"
        );
        let costs = Proof {
            counted: Counted::Exchanges,
            saved: Some(-0.1),
            others: 1200,
            ..proof()
        };
        let text = said(&named(&[1, 2, 3]), &costs);
        assert!(text.starts_with("nginx\\u{1b} 1 (3 processes): 171 µs (168 to 175) of CPU a handshake"));
        assert!(text.contains("Lanes cost 0.10 of a CPU"), "{text}");
        assert!(
            text.contains("includes 1,200 key exchanges without a signature"),
            "{text}"
        );
    }

    #[test]
    fn kinds_and_times_of_handshakes_are_said_where_they_are_seen() {
        let both = |with, without| Both {
            with: estimate(with, with - 10.0, with + 10.0).unwrap(),
            without: estimate(without, without - 10.0, without + 10.0).unwrap(),
        };
        let latency = |of, p99| Latency {
            of,
            median: both(900.0, 400.0),
            p99,
        };
        let serves = Proof {
            counted: Counted::FullHandshakes,
            others: 1200,
            latencies: vec![
                latency(Span::FullHandshake, Some(both(2100.0, 1300.0))),
                latency(Span::ResumedHandshake, None),
            ],
            ..proof()
        };
        let text = said(&named(&[7]), &serves);
        for words in [
            "; 5,812 full handshakes in 12 blocks. ",
            "includes 1,200 resumed handshakes.\n  a full handshake waits for the server 900 µs (890 to \
             910) with lanes, 400 µs (390 to 410) without; 1 in 100 longer than 2100 µs and 1300 µs\n",
            "  a resumed handshake waits for the server 900 µs (890 to 910) with lanes, 400 µs (390 to \
             410) without\n",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let json: serde_json::Value = serde_json::from_str(&json_text(&named(&[7]), &serves)).unwrap();
        assert_eq!(json["counted"], "full-handshakes");
        assert_eq!(json["latencies"][0]["p99_us_with_lanes"][1], 2090.0);
        assert!(json["latencies"][1]["p99_us_with_lanes"].is_null());
    }

    #[test]
    fn what_cannot_be_told_says_why() {
        let text = |verdict, with| {
            let proof = Proof {
                verdict,
                with,
                quotient: estimate(1.0, 0.98, 1.02),
                ..proof()
            };
            said(&named(&[7]), &proof)
        };
        let with = proof().with;
        let same = text(Verdict::Same, with);
        assert!(same.contains("No difference is seen") && same.contains("0.98 to 1.02 times"));
        for (verdict, with, words) in [
            (Verdict::TooFew, None, "signatures, in 12 blocks are too few"),
            (Verdict::NoCpu, None, "no CPU time was seen"),
            (Verdict::Unused, with, "no handshake used lanes"),
            (Verdict::NotHeeded, with, "in lanes in the blocks without them"),
        ] {
            let text = text(verdict, with);
            assert!(text.contains("cannot be told") && text.contains(words), "{text}");
        }
    }

    #[test]
    fn json_has_the_figures() {
        let text = json_text(&named(&[7]), &proof());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["verdict"], &json["blocks"]), (&"differ".into(), &12.into()));
        assert_eq!(json["cpu_us_without_lanes"][2], 388.4);
        assert_eq!(json["pairs_us"][0][1], 379.0);
    }

    #[test]
    fn what_is_not_known_is_null_in_json_and_no_number_in_text() {
        let pair = |cpu| {
            let block = proof::Block {
                signed: 100,
                cpu,
                lasted: Duration::from_secs(2),
                jobs: 100,
                ..proof::Block::default()
            };
            proof::Pair {
                with: proof::Block { in_lanes: 100, ..block },
                without: block,
            }
        };
        for (pairs, verdict) in [
            (vec![], "too-few"),
            (vec![proof::Pair::default(); 9], "too-few"),
            (vec![pair(Duration::ZERO); 9], "no-cpu"),
        ] {
            let proof = proof::prove(&pairs, true);
            let text = said(&named(&[7]), &proof);
            assert!(text.contains("cannot be told"), "{text}");
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            let json: serde_json::Value = serde_json::from_str(&json_text(&named(&[7]), &proof)).unwrap();
            assert_eq!(json["verdict"], verdict);
            for field in ["quotient", "saved_cpus", "cpu_us_with_lanes", "cpu_us_without_lanes"] {
                assert!(json[field].is_null(), "{field}: {json}");
            }
            assert_eq!(json["handshakes_per_s"].is_null(), verdict == "too-few");
        }
    }
}
