//! The profile of this machine: its clock by class of instructions, and how long a burst is felt.

use crate::block::Block;
use crate::chart::{Bar, Colour, bars};
use std::rc::Rc;
use widelane_frequency::{Distribution, Estimate, Profile};
use widelane_samples::{Figure, Interval, Origin, Piece, Source, Table, Unit, cell, figure_or, number, text};

/// The section; without a profile it says how to make one, and why there is none.
pub(crate) fn blocks(profile: Result<(&Profile, &Rc<Source>), &str>) -> Vec<Block> {
    match profile {
        Ok((profile, source)) => vec![
            Block::Heading("The clock by class of instructions".to_owned()),
            Block::Text(cell(
                "Each class runs on this number of cores at once. Of scalar: the clock as a share of that \
                 of scalar code in the same round. Vanished: the share of the time in which the \
                 cores were taken away.",
            )),
            chart(profile, source),
            clocks(profile, source),
            Block::Heading("After a burst of wide code".to_owned()),
            Block::Text(cell(
                "Work lost: in the first 200 µs after the first wide instruction, beside what is \
                 lost there in as much scalar code. Clock after: that of scalar code right after \
                 the burst, as a share of its clock otherwise. Tail: until that is back.",
            )),
            edges(profile, source),
        ],
        Err(why) => vec![
            Block::Text(vec![
                "There is no profile of this machine. Measure it for some twenty seconds, while it \
                 has nothing else to do: "
                    .into(),
                Piece::Code("widelane probe".to_owned()),
                ". Then make this report again.".into(),
            ]),
            Block::Text(cell(format!("What was looked for: {why}."))),
        ],
    }
}

/// The clock of a profile's class at `index`, as a share of that of scalar code.
pub(crate) fn of_scalar(profile: &Profile, index: usize, source: &Rc<Source>) -> Option<Figure> {
    let clock = profile.clocks.get(index)?;
    let what = format!("clock of {} on {}, of scalar", clock.class, cores(clock.cores));
    let field = format!("/clocks/{index}/of_scalar");
    estimate(&what, Unit::Share, &clock.of_scalar, field, source)
}

/// Time that scalar code is slow after a burst of a class.
pub(crate) fn tail(profile: &Profile, class: &str, source: &Rc<Source>) -> Option<Figure> {
    let edges = &profile.transitions;
    let index = edges.iter().position(|edge| edge.class == class)?;
    let tail = edges[index].tail_us.as_ref()?;
    let what = format!("tail of {class}");
    let field = format!("/transitions/{index}/tail_us");
    middle_of(&what, tail, field, source)
}

/// A picture of the clocks of a profile, as a file of SVG.
///
/// Of a profile without clocks, it is empty.
pub fn picture(profile: &Profile) -> String {
    let source = Rc::new(Source::default());
    let title = format!("Clock by class of code: {}", profile.machine.name);
    let empty = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"/>\n";
    svg_of(profile, &source, Some(&title)).unwrap_or_else(|| empty.to_owned())
}

fn chart(profile: &Profile, source: &Rc<Source>) -> Block {
    let caption = "The clock in GHz, with its interval of 95 %.";
    let picture = svg_of(profile, source, None);
    Block::chart(picture.into_iter().collect(), caption)
        .unwrap_or_else(|| Block::Text(cell("The profile has no clocks.")))
}

fn svg_of(profile: &Profile, source: &Rc<Source>, title: Option<&str>) -> Option<String> {
    let figures: Vec<_> = (0..profile.clocks.len()).map(|at| ghz(profile, at, source)).collect();
    let rows = figures.iter().zip(&profile.clocks).filter_map(|(figure, clock)| {
        Some(Bar {
            label: format!("{} on {}", clock.class, cores(clock.cores)),
            figure: figure.as_ref()?,
            colour: match clock.class.as_str() {
                "scalar" | "128" => Colour::Peer,
                "256-light" | "256-heavy" => Colour::Middle,
                _ => Colour::Wide,
            },
        })
    });
    // A machine with many cores has many numbers of active ones; the table has them all.
    let rows: Vec<_> = rows.take(MOST_BARS).collect();
    bars(&rows, None, title)
}

fn clocks(profile: &Profile, source: &Rc<Source>) -> Block {
    let rows = profile.clocks.iter().enumerate().map(|(at, clock)| {
        let what = format!("time that vanished with {} on {}", clock.class, cores(clock.cores));
        let field = format!("/clocks/{at}/vanished");
        let vanished = estimate(&what, Unit::Share, &clock.vanished, field, source);
        vec![
            cell(&clock.class[..]),
            cell(clock.cores.to_string()),
            figure_or(ghz(profile, at, source), NOT_THERE),
            figure_or(of_scalar(profile, at, source), NOT_THERE),
            figure_or(vanished, NOT_THERE),
        ]
    });
    let table = Table::new(
        [
            text("class"),
            number("cores"),
            number("clock"),
            number("of scalar"),
            number("vanished"),
        ],
        Some(source),
    );
    Block::Table(table.with(rows))
}

fn edges(profile: &Profile, source: &Rc<Source>) -> Block {
    if profile.transitions.is_empty() {
        return Block::Text(cell("n/a: no wide class runs on this CPU."));
    }
    let rows = profile.transitions.iter().enumerate().map(|(at, edge)| {
        let class = &edge.class;
        let middle = |name: &str, field: &str, distribution| {
            let what = format!("{name} {class}");
            let field = format!("/transitions/{at}/{field}");
            middle_of(&what, distribution, field, source)
        };
        let after = Figure::new(
            &format!("clock after {class}"),
            edge.after,
            Unit::Share,
            Interval::None("no interval kept"),
            Origin::of_profile(&format!("/transitions/{at}/after")),
            source,
        );
        vec![
            cell(&class[..]),
            figure_or(middle("work lost with", "stall_us", &edge.stall_us), NOT_THERE),
            figure_or(middle("work lost beside", "control_us", &edge.control_us), NOT_THERE),
            figure_or(after, NOT_THERE),
            figure_or(tail(profile, class, source), "none: the clock is not lower"),
        ]
    });
    let table = Table::new(
        [
            text("class"),
            number("work lost"),
            number("of scalar code"),
            number("clock after"),
            number("tail"),
        ],
        Some(source),
    );
    Block::Table(table.with(rows))
}

fn ghz(profile: &Profile, at: usize, source: &Rc<Source>) -> Option<Figure> {
    let clock = profile.clocks.get(at)?;
    let what = format!("clock of {} on {}", clock.class, cores(clock.cores));
    let field = format!("/clocks/{at}/ghz");
    estimate(&what, Unit::Gigahertz, &clock.ghz, field, source)
}

/// An estimate of a profile, at `field` of it.
fn estimate(what: &str, unit: Unit, estimate: &Estimate, field: String, source: &Rc<Source>) -> Option<Figure> {
    let interval = Interval::Confidence(estimate.low, estimate.high);
    let origin = Origin::of_profile(&format!("{field}/value"));
    Figure::new(what, estimate.value, unit, interval, origin, source)
}

/// The middle of a distribution of a profile, at `field` of it, in microseconds.
fn middle_of(what: &str, distribution: &Distribution, field: String, source: &Rc<Source>) -> Option<Figure> {
    let interval = Interval::Spread(distribution.p5, distribution.p95);
    let origin = Origin::of_profile(&format!("{field}/p50"));
    Figure::new(what, distribution.p50, Unit::Microseconds, interval, origin, source)
}

fn cores(count: usize) -> String {
    match count {
        1 => "1 core".to_owned(),
        count => format!("{count} cores"),
    }
}

const NOT_THERE: &str = "n/a: not in the profile";
const MOST_BARS: usize = 36;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clock_has_a_bar_and_names_cannot_break_the_picture() {
        let text = include_str!("../../../tools/frequency/tests/data/profile.json");
        let mut drawn = Profile::from_json(text).expect("the sample is a profile");
        drawn.machine.name = "A <b> & co".to_owned();
        let svg = picture(&drawn);
        let (red, green, blue) = Colour::Wide.colours()[0];
        let wide = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
        let clocks = drawn.clocks.iter();
        let expected = clocks.filter(|clock| clock.class.starts_with("512")).count();
        assert_eq!((svg.matches(&wide).count(), expected), (expected, 3));
        assert!(
            svg.contains("A &lt;b&gt; &amp; co") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        drawn.clocks.clear();
        assert!(picture(&drawn).ends_with("/>\n"));
    }
}
