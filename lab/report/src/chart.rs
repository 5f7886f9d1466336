//! Pictures: horizontal bars and points, each with its interval, as SVG.
//!
//! A picture is as wide as a phone. Its colours are those of [`Tone`], which the page's style sheet
//! replaces where the reader prefers a dark one. Texts are escaped by plotters.

use crate::figure::{Figure, Interval};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A bar.
pub(crate) struct Bar<'a> {
    pub(crate) label: String,
    pub(crate) figure: &'a Figure,
    pub(crate) tone: Tone,
}

/// A row of points on a common scale.
pub(crate) struct Points {
    pub(crate) label: String,
    pub(crate) points: Vec<Point>,
}

/// A point in its row.
pub(crate) struct Point {
    pub(crate) at: f64,
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) tone: Tone,
}

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Paper,
    Ink,
    Grid,
    /// What is compared with others, and scalar code.
    Peer,
    Ours,
    /// 256-bit code, and what a simulator says.
    Middle,
    /// 512-bit code.
    Wide,
    /// A value with which all others are compared.
    Mark,
}

impl Tone {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::Paper,
        Self::Ink,
        Self::Grid,
        Self::Peer,
        Self::Ours,
        Self::Middle,
        Self::Wide,
        Self::Mark,
    ];

    /// Red, green and blue on white paper, and on dark.
    pub(crate) fn colours(self) -> [(u8, u8, u8); 2] {
        match self {
            Self::Paper => [(0xff, 0xff, 0xff), (0x16, 0x1b, 0x22)],
            Self::Ink => [(0x1f, 0x23, 0x28), (0xe6, 0xed, 0xf3)],
            Self::Grid => [(0xd8, 0xde, 0xe4), (0x36, 0x3d, 0x47)],
            Self::Peer => [(0x9a, 0xa5, 0xb4), (0x6b, 0x78, 0x88)],
            Self::Ours => [(0x1a, 0x7f, 0x5a), (0x3f, 0xb9, 0x8a)],
            Self::Middle => [(0xd1, 0x9a, 0x2a), (0xd9, 0xa9, 0x4a)],
            Self::Wide => [(0xc8, 0x5a, 0x3c), (0xe0, 0x7a, 0x5a)],
            Self::Mark => [(0xb4, 0x23, 0x18), (0xff, 0x8a, 0x80)],
        }
    }

    pub(crate) fn rgb(self) -> RGBColor {
        let (red, green, blue) = self.colours()[0];
        RGBColor(red, green, blue)
    }
}

/// Bars from nought, one below the other, with `mark` as a line through all; `None` of no bars. A
/// picture that stands alone has a title.
pub(crate) fn bars(bars: &[Bar<'_>], mark: Option<f64>, title: Option<&str>) -> Option<String> {
    let reach = bars
        .iter()
        .map(|bar| ends(bar.figure).1.max(bar.figure.value));
    let most = reach.chain(mark).fold(0.0, f64::max);
    if bars.is_empty() || !DRAWN.contains(&most) {
        return None;
    }
    // Room for the number behind the longest bar.
    let scale = 0.0..most * 1.22;
    let mut svg = String::new();
    let drawn = draw(&mut svg, title, bars.len(), scale, |chart, row, top| {
        let bar = &bars[row];
        let (low, high) = ends(bar.figure);
        let value = bar.figure.value;
        chart.area(0.0, value, top + BAR_TOP, top + BAR_FOOT, bar.tone)?;
        let middle = top + (BAR_TOP + BAR_FOOT) / 2.0;
        if low < high {
            chart.interval(low, high, middle)?;
        }
        chart.text(0.0, top + LABEL, &bar.label, HPos::Left)?;
        let behind = value.max(high) + most * 0.015;
        chart.text(behind, middle, &bar.figure.shown(), HPos::Left)?;
        mark.map_or(Ok(()), |mark| {
            chart.line(mark, top + BAR_TOP - 0.06, top + BAR_FOOT + 0.06)
        })
    });
    drawn.is_ok().then_some(svg)
}

/// Points on a common scale, one row below the other, with `mark` as a line through all; `None` of
/// no points.
pub(crate) fn points(rows: &[Points], mark: f64) -> Option<String> {
    let all = rows.iter().flat_map(|row| &row.points);
    let reach = all.flat_map(|point| {
        let (low, high) = point.interval.unwrap_or((point.at, point.at));
        [point.at, low, high]
    });
    let (least, most) = reach.fold((mark, mark), |(least, most), at| {
        (least.min(at), most.max(at))
    });
    if rows.is_empty() || !DRAWN.contains(&(most - least)) {
        return None;
    }
    let margin = (most - least) * 0.08;
    let mut svg = String::new();
    let drawn = draw(
        &mut svg,
        None,
        rows.len(),
        least - margin..most + margin,
        |chart, row, top| {
            let middle = top + (BAR_TOP + BAR_FOOT) / 2.0;
            chart.text(least - margin, top + LABEL, &rows[row].label, HPos::Left)?;
            chart.line(mark, top + BAR_TOP - 0.06, top + BAR_FOOT + 0.06)?;
            for point in &rows[row].points {
                if let Some((low, high)) = point.interval {
                    chart.interval(low, high, middle)?;
                }
                chart.point(point.at, middle, point.tone)?;
            }
            Ok(())
        },
    );
    drawn.is_ok().then_some(svg)
}

type Area<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A picture while it is drawn: x is the scale, y counts rows from the top.
struct Chart<'a, 'b> {
    area: Area<'a, 'b>,
    rows: f64,
}

impl Chart<'_, '_> {
    fn y(&self, from_top: f64) -> f64 {
        self.rows - from_top
    }

    fn area(&mut self, from: f64, to: f64, top: f64, foot: f64, tone: Tone) -> Drawn {
        let corners = [(from, self.y(top)), (to, self.y(foot))];
        let shape = Rectangle::new(corners, tone.rgb().filled());
        self.area.draw_series([shape])?;
        Ok(())
    }

    fn interval(&mut self, low: f64, high: f64, y: f64) -> Drawn {
        let style = Tone::Ink.rgb().stroke_width(1);
        let (y, end) = (self.y(y), INTERVAL_END);
        self.area.draw_series([
            PathElement::new([(low, y), (high, y)], style),
            PathElement::new([(low, y - end), (low, y + end)], style),
            PathElement::new([(high, y - end), (high, y + end)], style),
        ])?;
        Ok(())
    }

    fn point(&mut self, at: f64, y: f64, tone: Tone) -> Drawn {
        let y = self.y(y);
        self.area
            .draw_series([Circle::new((at, y), 4, tone.rgb().filled())])?;
        Ok(())
    }

    fn line(&mut self, at: f64, top: f64, foot: f64) -> Drawn {
        let ends = [(at, self.y(top)), (at, self.y(foot))];
        let line = PathElement::new(ends, Tone::Mark.rgb().stroke_width(1));
        self.area.draw_series([line])?;
        Ok(())
    }

    fn text(&mut self, at: f64, y: f64, text: &str, side: HPos) -> Drawn {
        let style = letters().pos(Pos::new(side, VPos::Center));
        let y = self.y(y);
        let text = shortened(text);
        self.area.draw_series([Text::new(text, (at, y), style)])?;
        Ok(())
    }
}

/// A text that fits. What tells rows apart is at their beginning and at their end.
fn shortened(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= LONGEST_LABEL {
        return text.to_owned();
    }
    let (begin, end) = (LONGEST_LABEL / 2, LONGEST_LABEL - LONGEST_LABEL / 2 - 1);
    let begin = letters[..begin].iter();
    let end = letters[letters.len() - end..].iter();
    begin.chain(&['…']).chain(end).collect()
}

fn draw(
    svg: &mut String,
    title: Option<&str>,
    rows: usize,
    scale: std::ops::Range<f64>,
    mut row: impl FnMut(&mut Chart<'_, '_>, usize, f64) -> Drawn,
) -> Drawn {
    let height = rows as u32 * ROW + FOOT + title.map_or(0, |_| HEAD);
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&Tone::Paper.rgb())?;
    if let Some(title) = title {
        let title = shortened(title);
        root.draw(&Text::new(title, (2, 4), letters()))?;
    }
    let mut area = ChartBuilder::on(&root)
        .margin_top(title.map_or(0, |_| HEAD))
        .x_label_area_size(FOOT)
        .margin_left(2)
        .margin_right(8)
        .build_cartesian_2d(scale, 0.0..rows as f64)?;
    area.configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(6)
        .x_label_formatter(&|at| tick(*at))
        .light_line_style(TRANSPARENT)
        .bold_line_style(Tone::Grid.rgb())
        .axis_style(Tone::Grid.rgb())
        .label_style(letters())
        .draw()?;
    let mut chart = Chart {
        area,
        rows: rows as f64,
    };
    for index in 0..rows {
        row(&mut chart, index, index as f64)?;
    }
    drop(chart);
    root.present()?;
    Ok(())
}

pub(crate) fn letters() -> TextStyle<'static> {
    ("sans-serif", LETTERS).into_font().color(&Tone::Ink.rgb())
}

/// A number at the foot.
fn tick(at: f64) -> String {
    match at.abs() {
        size if size >= 1e6 => format!("{:.0}M", at / 1e6),
        size if size >= 10_000.0 => format!("{:.0}k", at / 1e3),
        _ => {
            let text = format!("{at:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// The interval of a figure, or its value twice.
fn ends(figure: &Figure) -> (f64, f64) {
    match figure.interval {
        Interval::Confidence(low, high) => (low, high),
        Interval::Spread(..) | Interval::None(_) | Interval::NotMeasured => {
            (figure.value, figure.value)
        }
    }
}

/// Lengths of a scale; what is beyond them has no place in a picture.
const DRAWN: std::ops::Range<f64> = 1e-9..1e15;
/// In pixels of a phone.
const WIDTH: u32 = 360;
const ROW: u32 = 34;
const FOOT: u32 = 22;
const HEAD: u32 = 24;
/// plotters makes letters smaller than asked for: these have eleven pixels.
const LETTERS: i32 = 14;
/// Characters that fit beside each other.
const LONGEST_LABEL: usize = 52;
/// Within a row, as shares of its height.
const LABEL: f64 = 0.30;
const BAR_TOP: f64 = 0.54;
const BAR_FOOT: f64 = 0.90;
const INTERVAL_END: f64 = 0.09;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_their_beginning_and_their_end() {
        assert_eq!(shortened("short"), "short");
        let long = "requests/s, 512-ifma at 100 % against aes-128-gcm, as a Silver 4116, per cent";
        let text = shortened(long);
        assert_eq!(text.chars().count(), LONGEST_LABEL);
        assert!(text.starts_with("requests/s, 512-ifma at"), "{text}");
        assert!(text.ends_with("a Silver 4116, per cent"), "{text}");
    }
}
