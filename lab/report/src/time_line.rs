//! Time line of a simulated core: its clock over time, and when wide code runs.

use crate::chart::{Colour, letters};
use plotters::prelude::*;
use widelane_sim::{Pace, Span};

/// The picture, as SVG; `None` if there are no spans. `title` stands above.
///
/// It is wider than a phone: it stands alone, and microseconds are what it shows.
pub fn time_line(spans: &[Span], title: &str) -> Option<String> {
    let mut svg = String::new();
    let drawn = draw(&mut svg, spans, title);
    (!spans.is_empty() && drawn.is_ok()).then_some(svg)
}

fn draw(svg: &mut String, spans: &[Span], title: &str) -> Result<(), Box<dyn std::error::Error>> {
    let end = spans.last().map_or(1.0, |span| span.until_us);
    let top = spans.iter().map(|span| span.ghz).fold(0.1, f64::max) * 1.05;
    // Wide code has a strip of its own below the clock.
    let strip = top * 0.06;
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&Colour::Paper.rgb())?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, letters())
        .margin(8)
        .margin_right(36)
        .margin_bottom(LEGEND)
        .x_label_area_size(28)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..end, -2.0 * strip..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(6)
        .x_label_formatter(&|us| format!("{us:.0} us"))
        .y_label_formatter(&|ghz| format!("{ghz:.1} GHz"))
        .light_line_style(TRANSPARENT)
        .bold_line_style(Colour::Grid.rgb())
        .axis_style(Colour::Grid.rgb())
        .label_style(letters())
        .draw()?;
    let clock = |span: &Span| {
        let corners = [(span.from_us, 0.0), (span.until_us, span.ghz)];
        Rectangle::new(corners, colour(span).rgb().filled())
    };
    chart.draw_series(spans.iter().map(clock))?;
    let wide = spans.iter().filter(|span| span.wide).map(|span| {
        let corners = [(span.from_us, -2.0 * strip), (span.until_us, -strip)];
        Rectangle::new(corners, Colour::Ours.rgb().filled())
    });
    chart.draw_series(wide)?;
    for (index, (colour, name)) in KEYS.into_iter().enumerate() {
        let (x, y) = (56 + index as i32 * 130, SIZE.1 as i32 - 20);
        root.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], colour.rgb().filled()))?;
        root.draw(&Text::new(name, (x + 18, y), letters()))?;
    }
    drop(chart);
    root.present()?;
    Ok(())
}

fn colour(span: &Span) -> Colour {
    match (span.pace, span.level) {
        (Pace::Throttled, _) => Colour::Grid,
        (Pace::Halted, _) => Colour::Ink,
        (Pace::Full, 0) => Colour::Peer,
        (Pace::Full, 1) => Colour::Middle,
        (Pace::Full, _) => Colour::Wide,
    }
}

const KEYS: [(Colour, &str); 6] = [
    (Colour::Peer, "level 0"),
    (Colour::Middle, "level 1"),
    (Colour::Wide, "level 2"),
    (Colour::Grid, "throttled"),
    (Colour::Ink, "halted"),
    (Colour::Ours, "wide code (below)"),
];
/// Pixels.
const SIZE: (u32, u32) = (860, 320);
const LEGEND: u32 = 36;

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_sim::{BUILTIN, Scenario, Settings, timeline};

    #[test]
    fn levels_have_their_colours_and_names_cannot_break_the_picture() {
        let (_, text) = BUILTIN.iter().find(|(name, _)| *name == "downs-2020").unwrap();
        let scenario = Scenario::parse(text).unwrap();
        let plan = scenario.plan(&scenario.runs[0], &Settings::default()).unwrap();
        let svg = time_line(&timeline(&plan, 0, 5_000), "a & <b>").unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("a &amp; &lt;b&gt;"), "{svg}");
        // Bursts take the core to level 1 and back, with a halt on each way. The legend has each
        // colour once.
        for colour in [Colour::Peer, Colour::Middle, Colour::Ink, Colour::Ours] {
            let (red, green, blue) = colour.colours()[0];
            let colour = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
            assert!(svg.matches(&colour).count() > 3, "{colour:?}");
        }
    }
}
