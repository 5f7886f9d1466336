//! Prints observations and estimates as sentences for people.

use std::fmt::Write as _;

use super::estimate::{Estimate, Gain, Unestimated};
use super::program::{Tls, WayIn};
use super::tally::Kind;
use super::watch::Observed;
use crate::text::{duration, escaped, thousands};

/// A paragraph about a server: a heading, and a sentence in each line.
pub fn sentences(observed: &Observed, estimate: &Result<Estimate, Unestimated>) -> String {
    let mut all = handshakes(observed);
    match estimate {
        Ok(estimate) => {
            all.push(costs(estimate));
            all.push(simultaneous(observed));
            all.extend(gains(estimate));
            all.extend(parts(estimate));
        }
        Err(why) => all.extend(unestimated(observed, *why)),
    }
    if may_gain(estimate) {
        all.extend(way_in(observed));
    }
    all.extend(unknown(observed, estimate));
    let mut text = heading(observed);
    for sentence in all {
        let _ = writeln!(text, "  {sentence}");
    }
    text
}

fn heading(observed: &Observed) -> String {
    let pids: Vec<String> = observed.processes.iter().map(u32::to_string).collect();
    let shown = pids.get(..MOST_PIDS.min(pids.len())).unwrap_or_default();
    let more = if pids.len() > shown.len() { " …" } else { "" };
    format!(
        "{} (PID {}{more}), TLS by {}\n",
        escaped(&observed.program.running.name),
        shown.join(", "),
        observed.program.tls.name()
    )
}

fn handshakes(observed: &Observed) -> Vec<String> {
    let rate = observed.done as f64 / observed.seconds.max(1e-9);
    let mut first = format!(
        "It completed {} handshakes a second for {:.1} s",
        number(rate),
        observed.seconds
    );
    if observed.failed > 0 {
        let _ = write!(first, "; {} failed", number(observed.failed as f64));
    }
    if observed.as_client > 0 {
        let count = number(observed.as_client as f64);
        let _ = write!(first, "; {count} as a client are left out");
    }
    first.push('.');
    if observed.done == 0 {
        return vec![first];
    }
    let mut kinds: Vec<(&Kind, &u64)> = observed.kinds.iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let share = |count: u64| percent(count as f64 / observed.done as f64);
    let mut kinds_shown: Vec<String> = kinds
        .iter()
        .take(MOST_KINDS)
        .map(|(kind, count)| format!("{} {}", share(**count), described(kind)))
        .collect();
    let rest: u64 = kinds.iter().skip(MOST_KINDS).map(|(_, count)| **count).sum();
    if rest > 0 {
        kinds_shown.push(format!("{} others", share(rest)));
    }
    vec![first, format!("Kinds: {}.", kinds_shown.join("; "))]
}

fn described(kind: &Kind) -> String {
    let known = |text: &Option<String>| text.as_deref().map(escaped);
    let signature = match kind.resumed {
        true => Some("resumed".to_owned()),
        false => known(&kind.signature),
    };
    let words = [known(&kind.version), known(&kind.group), signature];
    let words: Vec<String> = words.into_iter().flatten().collect();
    match words.is_empty() {
        true => "of which nothing is known".to_owned(),
        false => words.join(" "),
    }
}

fn costs(estimate: &Estimate) -> String {
    let tracing = match estimate.tracing > 0.0 {
        true => format!(" (tracing adds {})", time(estimate.tracing)),
        false => String::new(),
    };
    format!(
        "A handshake takes {} of CPU time{tracing}: {} of it are operations with the private key, {} \
         the key exchange.",
        time(estimate.own),
        percent(estimate.private_share()),
        percent(estimate.exchange_share()),
    )
}

fn simultaneous(observed: &Observed) -> String {
    let ready = &observed.ready;
    if ready.computed > 0 && ready.counts.is_empty() {
        return format!(
            "It computed handshakes {} of the time, but it was never asked then what waits: watch it for \
             longer (`--duration`).",
            percent(ready.busy())
        );
    }
    if ready.counts.is_empty() {
        return "Handshakes are so rare here that none was met at a look: they hardly ever meet each \
                other."
            .to_owned();
    }
    let limit = match ready.is_at_limit() {
        true => " Another one waited nearly always: the server is at its limit.",
        false => "",
    };
    format!(
        "While it computed one ({} of the time), {} were ready on average in the same place, that one \
         included.{limit}",
        percent(ready.busy()),
        number(ready.mean()),
    )
}

/// Returns whether Widelane may be worth it. A server that has Widelane is always named.
fn may_gain(estimate: &Result<Estimate, Unestimated>) -> bool {
    match estimate {
        Ok(estimate) => saves(estimate),
        Err(Unestimated::NoLanes(_) | Unestimated::NoOperations) => false,
        Err(_) => true,
    }
}

/// Returns whether Widelane saves anything, now or when more clients come.
fn saves(estimate: &Estimate) -> bool {
    estimate.now.saved > 0.0 || estimate.full.saved > 0.0
}

fn gains(estimate: &Estimate) -> Vec<String> {
    let Estimate { own, now, full, .. } = estimate;
    let ratio = |gain: &Gain| format!("{:.2}", gain.with / own);
    if !saves(estimate) {
        return vec!["Widelane would save nothing here: passes cost this machine as much.".to_owned()];
    }
    if estimate.at_limit {
        return vec![format!(
            "With Widelane each would take {}, which is {} of now, and save {}: the same CPU time is \
             enough for {:.2} times as many.",
            time(now.with),
            ratio(now),
            time(now.saved),
            now.quotient(),
        )];
    }
    let first = match now.saved >= LEAST_SAVED * own {
        true => format!(
            "With Widelane and as many handshakes as now, {} would be ready at a time; each would take \
             {}, which is {} of now, and save {}.",
            number(now.ready),
            time(now.with),
            ratio(now),
            time(now.saved),
        ),
        false => "With Widelane and as many handshakes as now, next to nothing would be saved: too few \
                  are ready at the same time."
            .to_owned(),
    };
    let second = format!(
        "With full passes, each would take {}, which is {} of now: the same CPU \
         time is enough for {:.2} times as many.",
        time(full.with),
        ratio(full),
        full.quotient(),
    );
    vec![first, second]
}

fn parts(estimate: &Estimate) -> Vec<String> {
    let one = |part: &super::Part| {
        let name = escaped(&part.name);
        let own = time(part.own);
        match part.shared {
            Some(shared) => format!("{name} {own}, in passes {}", time(shared)),
            None => format!("{name} {own}, which Widelane leaves as it is"),
        }
    };
    let parts: Vec<String> = estimate.parts.iter().map(one).collect();
    match parts.is_empty() {
        true => Vec::new(),
        false => vec![format!("One by one: {}.", parts.join("; "))],
    }
}

fn unestimated(observed: &Observed, why: Unestimated) -> Option<String> {
    let resumed = || {
        let full = observed.kinds.keys().any(|kind| !kind.resumed);
        !full && observed.done > 0
    };
    Some(match why {
        Unestimated::NoHandshakes if observed.program.tls == Tls::Rustls => {
            "rustls is inside the program: its signatures are seen, its handshakes are not.".to_owned()
        }
        Unestimated::NoHandshakes => {
            "Without handshakes there is nothing to estimate: watch it while clients connect.".to_owned()
        }
        Unestimated::NoTime => format!(
            "It used {} of CPU time, too little for an estimate: watch it for longer with --duration.",
            time(observed.cpu as f64)
        ),
        Unestimated::NoLanes(lanes) => format!(
            "{} OpenSSL and AWS-LC would compute as before, and Widelane would save nothing.",
            lanes.sentence()
        ),
        Unestimated::NoCosts => "What passes cost on this machine is not known: no operation could be \
                                 measured, so that there is no estimate."
            .to_owned(),
        Unestimated::Loaded | Unestimated::Alone => return None,
        Unestimated::NoOperations if resumed() => "All handshakes resume sessions by means that need no \
                                                   public-key operation: Widelane would save nothing."
            .to_owned(),
        Unestimated::NoOperations => "No operation was seen that Widelane does: it would save nothing, \
                                      as far as can be seen."
            .to_owned(),
    })
}

fn way_in(observed: &Observed) -> Vec<String> {
    let running = &observed.program.running;
    let way = match observed.program.way_in() {
        WayIn::Loaded => {
            "It has loaded Widelane's provider already: `widelane status` tells how full its passes are.".to_owned()
        }
        WayIn::Setup => {
            // Whether it has an event loop is for a look at the process to say.
            let way = format!("The way in: {}.", running.way_in(false));
            let said = [way].into_iter().chain(running.expectations());
            return said.map(|one| escaped(&one)).collect();
        }
        WayIn::Rustls => "The way in: the crate widelane-rustls, whose provider takes the place of \
                          AWS-LC's in one line of the program."
            .to_owned(),
        WayIn::Terminator => format!(
            "The way in: `widelane serve` in front of it, as {} {}.",
            match observed.program.tls {
                Tls::OldOpenSsl => "only OpenSSL 3 or later loads providers, not the one of",
                Tls::StaticOpenSsl => "OpenSSL loads no provider from inside of",
                _ => "no provider can be loaded by the TLS library of",
            },
            escaped(&running.name)
        ),
    };
    vec![way]
}

/// Facts that cannot be seen from outside, as far as they matter here.
fn unknown(observed: &Observed, estimate: &Result<Estimate, Unestimated>) -> Vec<String> {
    let Ok(estimate) = estimate else {
        return Vec::new();
    };
    let mut all = vec![
        "Not known: what suspending handshakes costs in this server, what wide code does to the clock \
         (see widelane probe), and whether clients would come faster to a faster server."
            .to_owned(),
    ];
    if observed.untraced.is_none() {
        all.push(
            "Not known: what a handshake costs while nothing is traced, as too few were seen before. Its \
             CPU time is reckoned by what a call takes that does nearly nothing."
                .to_owned(),
        );
    }
    if observed.program.way_in() == WayIn::Terminator {
        all.push(
            "Not known: what the terminator in front costs itself. It relays each connection, and does \
             the rest of each handshake with other code than the server."
                .to_owned(),
        );
    }
    if observed.program.has_waiting_threads() {
        all.push(
            "Not known: what it costs that many threads of this server wake up when a pass ends. Apache \
             saved between a third and nine tenths of what is said here with ECDSA keys, and 0.8 to 1.0 of \
             it with RSA keys."
                .to_owned(),
        );
    }
    let undone = estimate.parts.iter().any(|part| part.shared.is_none());
    if undone {
        all.push("Operations without a time in passes count as they are.".to_owned());
    }
    all
}

/// A number for people: whole from a hundred on, in groups of three digits.
fn number(value: f64) -> String {
    if value < 99.95 {
        let text = format!("{value:.1}");
        return text.strip_suffix(".0").map_or(text.clone(), str::to_owned);
    }
    thousands(&format!("{value:.0}"))
}

fn percent(share: f64) -> String {
    let value = 100.0 * share;
    match value {
        // Something, but less than a half of a hundredth.
        0.000_001..0.5 => "less than 1 %".to_owned(),
        99.5..99.999_999 => "more than 99 %".to_owned(),
        _ => format!("{value:.0} %"),
    }
}

fn time(ns: f64) -> String {
    duration(ns.max(0.0).round() as u64)
}

/// Numbers of processes in a heading.
const MOST_PIDS: usize = 8;
/// Most kinds of handshakes that are printed one by one.
const MOST_KINDS: usize = 4;
/// Saving less than this share of a handshake is next to nothing.
const LEAST_SAVED: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.04, "1"),
            (59.34, "59.3"),
            (99.96, "100"),
            (2030.6, "2,031"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
        for (share, text) in [
            (0.0, "0 %"),
            (0.004, "less than 1 %"),
            (0.5, "50 %"),
            (0.996, "more than 99 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(share), text);
        }
    }
}
