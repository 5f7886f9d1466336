//! Notes of proofs in words.

use std::time::Duration;

use widelane_status::{Found, Proved};

/// Says that a proof is at work, or the result of the last one; `None` if there was none.
pub fn noted(proved: &Proved, now: Duration) -> Option<String> {
    if proved.is_at_work(now) {
        return Some("a proof is at work".to_owned());
    }
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
                ..Proved::default()
            };
            noted(&proved, now).unwrap()
        };
        assert_eq!(
            said(7, Found::Differ),
            "proved 7 s ago: 171 µs of CPU a handshake with lanes, 379 µs without"
        );
        assert!(said(180, Found::Same).starts_with("proved 3 min ago: no difference was seen"));
        assert_eq!(said(7200, Found::Nothing), "proved 2 h ago: it could not be told");
        assert_eq!(noted(&Proved::default(), now), None);
        let proved = Proved {
            until: now + Duration::from_secs(3),
            ..Proved::default()
        };
        assert_eq!(noted(&proved, now).unwrap(), "a proof is at work");
    }
}
