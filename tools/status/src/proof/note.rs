//! Proofs that a process knows of, in words.

use std::time::Duration;

use widelane_status::{Found, Report};

/// Says that a proof is at work, or the result of the last one; `None` if there was none.
pub fn noted(report: &Report, now: Duration) -> Option<String> {
    if report.in_proof.at(now).is_some() {
        return Some("a proof is at work".to_owned());
    }
    let proved = report.proved;
    let age = proved.age(now)?.as_secs();
    let age = match age {
        0..120 => format!("{age} s"),
        120..7200 => format!("{} min", age / 60),
        _ => format!("{} h", age / 3600),
    };
    let [with, without] = [proved.with, proved.without].map(|cpu| cpu.as_micros());
    let found = match proved.found {
        Found::Nothing => "it could not be told".to_owned(),
        Found::Same => format!("no difference was seen, {with} µs of CPU a handshake"),
        Found::Differ => format!("{with} µs of CPU a handshake with lanes, {without} µs without"),
    };
    Some(format!("proved {age} ago: {found}"))
}

#[cfg(test)]
mod tests {
    use widelane_status::{Asked, InProof, Proved};

    use super::*;

    #[test]
    fn what_is_noted_is_said() {
        let now = Duration::from_secs(100_000);
        let said = |ago: u64, found| {
            let proved = Proved {
                ended: now - Duration::from_secs(ago),
                found,
                with: Duration::from_micros(171),
                without: Duration::from_micros(379),
            };
            let report = Report {
                proved,
                ..Report::default()
            };
            noted(&report, now).unwrap()
        };
        assert_eq!(
            said(7, Found::Differ),
            "proved 7 s ago: 171 µs of CPU a handshake with lanes, 379 µs without"
        );
        assert!(said(180, Found::Same).starts_with("proved 3 min ago: no difference was seen"));
        assert_eq!(said(7200, Found::Nothing), "proved 2 h ago: it could not be told");
        assert_eq!(noted(&Report::default(), now), None);
        for asked in [Asked::On, Asked::Off] {
            let until = now + Duration::from_secs(3);
            let report = Report {
                in_proof: InProof { asked, until },
                ..Report::default()
            };
            assert_eq!(noted(&report, now).unwrap(), "a proof is at work");
            assert_eq!(noted(&report, until), None, "it was killed");
        }
    }
}
