//! `widelane usage --overhead`: what looking at every switch costs here.

use crate::object::object;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_text::json_line;
use widelane_usage::{Overhead, Spread, overhead};

/// Measures and prints it.
pub(crate) fn run(json: bool) -> Result<(), Failure> {
    output::complain("widelane: measures for some seconds\n");
    let overhead = overhead(ROUNDS)?;
    if json {
        // Lower quartile, median and upper quartile of each.
        let object = object! {
            rounds: overhead.rounds,
            without_ns: quartiles(overhead.without),
            with_ns: quartiles(overhead.with),
            cost_ns: quartiles(overhead.cost),
            share_at_100000_a_second: overhead.share(100_000.0),
        };
        return output::print(&json_line(&object));
    }
    output::print(&words(&overhead))
}

fn words(overhead: &Overhead) -> String {
    let us = |spread: Spread| {
        let [low, median, high] = quartiles(spread).map(|ns| ns / 1e3);
        format!("{median:>6.3} µs   half of them {low:.3} to {high:.3}")
    };
    let percent = |switches| 100.0 * overhead.share(switches);
    format!(
        "A switch between two threads on one CPU, medians of {} alternating runs each:\n\
         \x20 without the programs  {}\n\
         \x20 with them             {}\n\
         \x20 difference            {}\n\
         A process that switches 100,000 times a second pays {:.1} % of a CPU; one that switches 1000 \
         times, {:.2} %.\n",
        overhead.rounds,
        us(overhead.without),
        us(overhead.with),
        us(overhead.cost),
        percent(100_000.0),
        percent(1000.0),
    )
}

fn quartiles(spread: Spread) -> [f64; 3] {
    [spread.low, spread.median, spread.high]
}

const ROUNDS: usize = 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_give_the_share_of_a_cpu() {
        let always = |median| Spread {
            low: median - 10.0,
            median,
            high: median + 10.0,
        };
        let text = words(&Overhead {
            rounds: 21,
            without: always(1000.0),
            with: always(1450.0),
            cost: always(450.0),
        });
        assert!(
            text.contains("difference             0.450 µs   half of them 0.440 to 0.460"),
            "{text}"
        );
        assert!(
            text.contains("pays 4.5 % of a CPU; one that switches 1000 times, 0.04 %"),
            "{text}"
        );
    }
}
