//! A profile as a picture (SVG), drawn by hand: bars of clock by class, one group a number of
//! cores.

use crate::clocks::Clock;
use crate::profile::Profile;
use std::fmt::Write as _;

/// Draws the clocks of a profile with their intervals.
pub fn picture(profile: &Profile) -> String {
    let most = profile
        .clocks
        .iter()
        .map(|clock| clock.ghz.high)
        .fold(1.0, f64::max);
    let top = (most * 1.05).ceil();
    let x = |place: usize| LEFT + 12.0 + place as f64 * (BAR + 4.0);
    let y = |ghz: f64| TOP + HEIGHT * (1.0 - ghz / top);
    let width = x(profile.clocks.len() + groups(profile)) + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\" font-size=\"14\">Clock by class of code: {}</text>\n",
        TOP + HEIGHT + 110.0,
        escaped(&profile.machine.name)
    );
    let mut line = 0.0;
    while line <= top {
        let at = y(line);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{line} GHz</text>",
            width - 10.0,
            LEFT - 4.0,
            at + 4.0
        );
        line += 1.0;
    }
    let (mut place, mut cores) = (0, 0);
    for clock in &profile.clocks {
        if clock.cores != cores {
            place += usize::from(cores != 0);
            cores = clock.cores;
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\">{cores} active</text>",
                x(place),
                TOP - 6.0
            );
        }
        bar(&mut svg, clock, x(place), &y);
        place += 1;
    }
    svg.push_str("</svg>\n");
    svg
}

fn bar(svg: &mut String, clock: &Clock, x: f64, y: &impl Fn(f64) -> f64) {
    let colour = match clock.class.as_str() {
        "scalar" | "128" => "#7a9cc6",
        "256-light" | "256-heavy" => "#8bbf7a",
        _ => "#d98b5f",
    };
    let (at, foot, middle) = (y(clock.ghz.value), y(0.0), x + BAR / 2.0);
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{at:.1}\" width=\"{BAR}\" height=\"{:.1}\" fill=\"{colour}\">\
         <title>{} on {}: {:.3} GHz ({:.3} to {:.3})</title></rect>\
         <path d=\"M{middle:.1} {:.1}V{:.1}\" stroke=\"#222\"/>\
         <text transform=\"translate({:.1} {:.1}) rotate(60)\">{}</text>",
        foot - at,
        escaped(&clock.class),
        clock.cores,
        clock.ghz.value,
        clock.ghz.low,
        clock.ghz.high,
        y(clock.ghz.low),
        y(clock.ghz.high),
        x + 4.0,
        foot + 12.0,
        escaped(&clock.class),
    );
}

/// Numbers of cores that were measured.
fn groups(profile: &Profile) -> usize {
    let mut cores: Vec<_> = profile.clocks.iter().map(|clock| clock.cores).collect();
    cores.dedup();
    cores.len()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

const LEFT: f64 = 60.0;
const TOP: f64 = 50.0;
const HEIGHT: f64 = 260.0;
const BAR: f64 = 26.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profile;

    #[test]
    fn every_clock_has_a_bar_and_names_cannot_break_the_picture() {
        let mut drawn = profile(2.8, 1.9);
        drawn.machine.name = "A <b> & co".to_owned();
        let svg = picture(&drawn);
        assert_eq!(svg.matches("<title>").count(), drawn.clocks.len());
        assert!(svg.contains("A &lt;b&gt; &amp; co") && svg.ends_with("</svg>\n"));
    }
}
