//! `widelane trace handshakes`: a line for each handshake.

use std::time::Duration;

use widelane_trace::{Clock, Handshake, Handshakes, Want};

use super::Common;
use super::session::Session;
use widelane_cli::failure::Failure;
use widelane_cli::output;

/// Show each TLS handshake: what was negotiated, how long it took and what it consisted of
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    /// Only handshakes that take so long or longer, from their first call to their last: 5ms, 800us, 1s
    #[arg(long, value_name = "TIME", value_parser = time)]
    slow: Option<Duration>,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut session = Session::open(&args.common, Want::handshakes(), false)?;
    let clock = Clock::now();
    let mut handshakes = Handshakes::new(clock);
    if !args.common.json {
        output::print(&Handshake::header())?;
    }
    loop {
        // A handshake whose last call may still be inside another is printed a moment later.
        let at_most = handshakes.settles_after().unwrap_or(Duration::MAX);
        let Some(events) = session.events(at_most)? else {
            break;
        };
        let mut ended = Vec::new();
        for event in &events {
            ended.extend(handshakes.take(event));
        }
        ended.extend(handshakes.settle(Clock::monotonic()));
        print(args, &ended)?;
    }
    print(args, &handshakes.finish())?;
    let lost = handshakes.lost();
    if lost.connections + lost.children > 0 {
        output::complain(&format!(
            "widelane: {} connections and {} calls were left out, for too many were under way; trace \
             fewer processes\n",
            lost.connections, lost.children
        ));
    }
    Ok(())
}

fn print(args: &Args, ended: &[Handshake]) -> Result<(), Failure> {
    let is_slow = |handshake: &&Handshake| {
        args.slow
            .is_none_or(|slow| u128::from(handshake.wall) >= slow.as_nanos())
    };
    let line = |handshake: &Handshake| match args.common.json {
        true => handshake.json(),
        false => handshake.text(),
    };
    let lines: String = ended.iter().filter(is_slow).map(line).collect();
    if lines.is_empty() {
        return Ok(());
    }
    output::print(&lines)
}

/// Reads a time with its unit.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "`{}` is no time with its unit, such as 5ms, 800us or 1s",
            text.escape_debug()
        )
    };
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(digits.ok_or_else(wrong)?);
    let seconds = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

const EXAMPLES: &str = "\
Examples:
  widelane trace handshakes
  widelane trace handshakes --comm nginx,haproxy --slow 5ms
  widelane trace handshakes --comm nginx --duration 6 --json
  widelane trace handshakes --comm widelane
  widelane trace handshakes --cgroup nginx.service

A handshake is told when it ends. WALL is from the first call of the library to the last; CPU is
what the thread has spent in these calls; WAITING is between them: for the peer, or for others.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(time("0.8us"), Ok(Duration::from_nanos(800)));
        assert_eq!(time("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["5", "ms", "-5ms", "5m", "1.2.3s", "", "1e99s"] {
            assert!(time(wrong).unwrap_err().contains("5ms"), "{wrong}");
        }
    }
}
