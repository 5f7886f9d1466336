//! Pictures: horizontal bars and points, each with its interval, as SVG.
//!
//! A picture is as wide as a phone. Its colours are those of [`Colour`], which the page's style sheet
//! replaces where the reader prefers a dark one. Texts are escaped by plotters.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use widelane_samples::Figure;

/// A bar.
pub(crate) struct Bar<'a> {
    pub(crate) label: String,
    pub(crate) figure: &'a Figure,
    pub(crate) colour: Colour,
}

/// Bars that belong together.
pub(crate) struct Group<'a> {
    pub(crate) title: Option<String>,
    pub(crate) bars: Vec<Bar<'a>>,
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
    pub(crate) colour: Colour,
}

/// A line with its points, and a thin one beside it.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) colour: Colour,
    pub(crate) thick: Vec<(f64, f64)>,
    pub(crate) thin: Vec<(f64, f64)>,
}

/// A scale of a picture.
pub(crate) struct Axis<'a, T> {
    pub(crate) scale: T,
    /// The text of a number at it.
    pub(crate) text: &'a dyn Fn(&f64) -> String,
}

/// Meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Paper,
    Ink,
    Grid,
    /// Compared values of others, and scalar code.
    Peer,
    Ours,
    /// 256-bit code, and what a simulator says.
    Middle,
    /// 512-bit code.
    Wide,
    /// A value with which all others are compared.
    Mark,
}

impl Colour {
    /// All colours.
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
    let most = most(bars.iter(), mark)?;
    panel(bars, mark, title, most)
}

/// A picture for each group of bars, on one scale, so that their lengths can be compared.
pub(crate) fn panels(groups: &[Group<'_>], mark: Option<f64>) -> Vec<String> {
    let all = groups.iter().flat_map(|group| &group.bars);
    let Some(most) = most(all, mark) else {
        return Vec::new();
    };
    let panels = groups
        .iter()
        .filter_map(|group| panel(&group.bars, mark, group.title.as_deref(), most));
    panels.collect()
}

/// Bars without groups, as pictures that stand beside each other where there is room.
pub(crate) fn columns(mut bars: Vec<Bar<'_>>, mark: Option<f64>) -> Vec<String> {
    let each = share(bars.len());
    let mut groups = Vec::new();
    while !bars.is_empty() {
        let rest = bars.split_off(each.min(bars.len()));
        groups.push(Group { title: None, bars });
        bars = rest;
    }
    panels(&groups, mark)
}

/// Number of rows in each picture: about the same in all, and not too many.
fn share(rows: usize) -> usize {
    rows.div_ceil(rows.div_ceil(MOST_ROWS).max(1)).max(1)
}

/// The end of the longest bar; `None` of bars that cannot be drawn.
fn most<'a>(bars: impl Iterator<Item = &'a Bar<'a>>, mark: Option<f64>) -> Option<f64> {
    let reach = bars.map(|bar| ends(bar.figure).1.max(bar.figure.value));
    let most = reach.chain(mark).fold(0.0, f64::max);
    DRAWN.contains(&most).then_some(most)
}

fn panel(bars: &[Bar<'_>], mark: Option<f64>, title: Option<&str>, most: f64) -> Option<String> {
    // Room for the number behind the longest bar.
    let scale = 0.0..most * 1.22;
    let labels: Vec<&str> = bars.iter().map(|bar| &bar.label[..]).collect();
    let mut svg = String::new();
    let drawn = draw(&mut svg, title, &labels, scale, |chart, row| {
        let bar = &bars[row.index];
        let (low, high) = ends(bar.figure);
        let value = bar.figure.value;
        chart.area(0.0, value, row, bar.colour)?;
        if low < high {
            chart.interval(low, high, row)?;
        }
        let behind = value.max(high) + most * 0.015;
        chart.text(behind, row.middle, &bar.figure.shown())?;
        mark.map_or(Ok(()), |mark| chart.line(mark, row))
    });
    (!bars.is_empty() && drawn.is_ok()).then_some(svg)
}

/// Points on a common scale, one row below the other, with `mark` as a line through all; nothing of
/// no points. Many rows become several pictures.
pub(crate) fn points(rows: &[Points], mark: f64) -> Vec<String> {
    let all = rows.iter().flat_map(|row| &row.points);
    let reach = all.flat_map(|point| {
        let (low, high) = point.interval.unwrap_or((point.at, point.at));
        [point.at, low, high]
    });
    // A scale that is as short as what differs would make much of nothing.
    let nearest = (mark - mark.abs() * NEAR, mark + mark.abs() * NEAR);
    let (least, most) = reach.fold(nearest, |(least, most), at| (least.min(at), most.max(at)));
    if !DRAWN.contains(&(most - least)) {
        return Vec::new();
    }
    let margin = (most - least) * 0.08;
    let scale = least - margin..most + margin;
    let pictures = rows.chunks(share(rows.len())).filter_map(|rows| {
        let labels: Vec<&str> = rows.iter().map(|row| &row.label[..]).collect();
        let mut svg = String::new();
        let drawn = draw(&mut svg, None, &labels, scale.clone(), |chart, row| {
            chart.line(mark, row)?;
            for point in &rows[row.index].points {
                if let Some((low, high)) = point.interval {
                    chart.interval(low, high, row)?;
                }
                chart.point(point.at, row.middle, point.colour)?;
            }
            Ok(())
        });
        drawn.is_ok().then_some(svg)
    });
    pictures.collect()
}

type Area<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A picture while it is drawn: x is the scale, y counts pixels of the rows from the foot.
struct Chart<'a, 'b> {
    area: Area<'a, 'b>,
    height: f64,
}

/// Positions of a row's parts, in pixels from the top of all rows.
#[derive(Clone, Copy)]
struct Row {
    index: usize,
    top: f64,
    middle: f64,
    foot: f64,
}

impl Chart<'_, '_> {
    fn y(&self, from_top: f64) -> f64 {
        self.height - from_top
    }

    fn area(&mut self, from: f64, to: f64, row: Row, colour: Colour) -> Drawn {
        let corners = [(from, self.y(row.top)), (to, self.y(row.foot))];
        let shape = Rectangle::new(corners, colour.rgb().filled());
        self.area.draw_series([shape])?;
        Ok(())
    }

    fn interval(&mut self, low: f64, high: f64, row: Row) -> Drawn {
        let style = Colour::Ink.rgb().stroke_width(1);
        let (y, end) = (self.y(row.middle), INTERVAL_END);
        self.area.draw_series([
            PathElement::new([(low, y), (high, y)], style),
            PathElement::new([(low, y - end), (low, y + end)], style),
            PathElement::new([(high, y - end), (high, y + end)], style),
        ])?;
        Ok(())
    }

    fn point(&mut self, at: f64, y: f64, colour: Colour) -> Drawn {
        let y = self.y(y);
        self.area
            .draw_series([Circle::new((at, y), 4, colour.rgb().filled())])?;
        Ok(())
    }

    fn line(&mut self, at: f64, row: Row) -> Drawn {
        let ends = [row.top - BEYOND, row.foot + BEYOND].map(|y| (at, self.y(y)));
        // On a bar it needs an edge to be seen.
        let line = |colour: Colour, width| PathElement::new(ends, colour.rgb().stroke_width(width));
        self.area.draw_series([line(Colour::Paper, 4), line(Colour::Mark, 2)])?;
        Ok(())
    }

    fn text(&mut self, at: f64, y: f64, text: &str) -> Drawn {
        let style = letters().pos(Pos::new(HPos::Left, VPos::Center));
        let text = Text::new(text.to_owned(), (at, self.y(y)), style);
        self.area.draw_series([text])?;
        Ok(())
    }
}

/// A text as lines that fit, two at most.
fn wrapped(text: &str) -> Vec<String> {
    if text.chars().count() <= LONGEST_LABEL {
        return vec![text.to_owned()];
    }
    let fitting = text.char_indices().take(LONGEST_LABEL + 1);
    let space = fitting.filter(|(_, letter)| *letter == ' ').last();
    match space {
        Some((at, _)) => vec![text[..at].to_owned(), shortened(&text[at + 1..])],
        None => vec![shortened(text)],
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
    labels: &[&str],
    scale: std::ops::Range<f64>,
    mut row: impl FnMut(&mut Chart<'_, '_>, Row) -> Drawn,
) -> Drawn {
    let labels: Vec<_> = labels.iter().map(|label| wrapped(label)).collect();
    let beyond = |label: &Vec<String>| label.len().saturating_sub(1) as f64 * LINE;
    let rows: f64 = labels.iter().map(|label| ROW + beyond(label)).sum();
    let head = title.map_or(0, |_| HEAD);
    let root = SVGBackend::with_string(svg, (WIDTH, rows as u32 + FOOT + head)).into_drawing_area();
    root.fill(&Colour::Paper.rgb())?;
    // The number at an end of the scale stands half beside it.
    let side = if scale.start == 0.0 { 6 } else { 14 };
    if let Some(title) = title {
        let bold = letters().font.style(FontStyle::Bold);
        let bold = bold.color(&Colour::Ink.rgb());
        root.draw(&Text::new(shortened(title), (6, 4), bold))?;
    }
    let mut area = ChartBuilder::on(&root)
        .margin_top(head)
        .x_label_area_size(FOOT)
        .margin_left(side)
        .margin_right(side.max(8))
        .build_cartesian_2d(scale.clone(), 0.0..rows)?;
    let step = (scale.end - scale.start) / f64::from(TICKS as u32);
    area.configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(TICKS)
        .x_label_formatter(&|at| tick(*at, step))
        .light_line_style(TRANSPARENT)
        .bold_line_style(Colour::Grid.rgb())
        .axis_style(Colour::Grid.rgb())
        .label_style(letters())
        .draw()?;
    let mut chart = Chart { area, height: rows };
    let mut top = 0.0;
    for (index, label) in labels.iter().enumerate() {
        let bar = top + beyond(label);
        for (line, text) in label.iter().rev().enumerate() {
            chart.text(scale.start, bar + LABEL - line as f64 * LINE, text)?;
        }
        let place = Row {
            index,
            top: bar + BAR_TOP,
            middle: bar + (BAR_TOP + BAR_FOOT) / 2.0,
            foot: bar + BAR_FOOT,
        };
        row(&mut chart, place)?;
        top = bar + ROW;
    }
    drop(chart);
    root.present()?;
    Ok(())
}

/// Curves below a title and above a key for each of them; `None` of no curves. `right` is the room for the last number
/// at the foot.
pub(crate) fn lines<X, Y>(
    title: Option<&str>,
    curves: &[Curve],
    right: i32,
    x: Axis<'_, X>,
    y: Axis<'_, Y>,
) -> Option<String>
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let mut svg = String::new();
    let drawn = draw_lines(&mut svg, title, curves, right, x, y);
    (!curves.is_empty() && drawn.is_ok()).then_some(svg)
}

fn draw_lines<X, Y>(
    svg: &mut String,
    title: Option<&str>,
    curves: &[Curve],
    right: i32,
    x: Axis<'_, X>,
    y: Axis<'_, Y>,
) -> Drawn
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let head = title.map_or(0, |_| HEAD);
    let legend = (curves.len() as u32 + 1) * KEY;
    let size = (WIDTH, head + LINES + legend);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&Colour::Paper.rgb())?;
    if let Some(title) = title {
        root.draw(&Text::new(title.to_owned(), (2, 4), letters()))?;
    }
    for (index, curve) in curves.iter().enumerate() {
        let y = (head + LINES + KEY / 2 + index as u32 * KEY) as i32;
        let corners = [(56, y), (68, y + 12)];
        root.draw(&Rectangle::new(corners, curve.colour.rgb().filled()))?;
        root.draw(&Text::new(curve.name.clone(), (74, y), letters()))?;
    }
    let area = root.shrink((0, head), (WIDTH, LINES));
    let mut chart = ChartBuilder::on(&area)
        .margin_top(6)
        .margin_right(right)
        .x_label_area_size(22)
        .y_label_area_size(52)
        .build_cartesian_2d(x.scale, y.scale)?;
    chart
        .configure_mesh()
        .x_labels(6)
        .x_label_formatter(x.text)
        .y_labels(6)
        .y_label_formatter(y.text)
        .light_line_style(TRANSPARENT)
        .bold_line_style(Colour::Grid.rgb())
        .axis_style(Colour::Grid.rgb())
        .label_style(letters())
        .draw()?;
    for curve in curves {
        let colour = curve.colour.rgb();
        for (points, width) in [(&curve.thin, 1), (&curve.thick, 3)] {
            let line = PathElement::new(points.clone(), colour.stroke_width(width));
            chart.draw_series((!points.is_empty()).then_some(line))?;
        }
        let dot = |&at: &(f64, f64)| Circle::new(at, 3, colour.filled());
        chart.draw_series(curve.thick.iter().map(dot))?;
    }
    drop(chart);
    area.present()?;
    Ok(())
}

pub(crate) fn letters() -> TextStyle<'static> {
    ("sans-serif", LETTERS).into_font().color(&Colour::Ink.rgb())
}

/// A number at the foot, to the digits in which numbers that are `step` apart differ.
pub(crate) fn tick(at: f64, step: f64) -> String {
    match at.abs() {
        size if size >= 1e6 => format!("{:.0}M", at / 1e6),
        size if size >= 10_000.0 => format!("{:.0}k", at / 1e3),
        _ => {
            let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
            let text = format!("{at:.decimals$}");
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text,
            }
        }
    }
}

/// The interval of a figure, or its value twice.
fn ends(figure: &Figure) -> (f64, f64) {
    figure.interval.confidence().unwrap_or((figure.value, figure.value))
}

/// Lengths of a scale; what is beyond them has no place in a picture.
const DRAWN: std::ops::Range<f64> = 1e-9..1e15;
/// Pixels of a phone.
const WIDTH: u32 = 360;
const ROW: f64 = 34.0;
const FOOT: u32 = 22;
const HEAD: u32 = 24;
/// Height of lines, and of a key below them.
const LINES: u32 = 240;
const KEY: u32 = 20;
/// Distance from one line of a label to the next.
const LINE: f64 = 13.0;
/// plotters makes letters smaller than asked for: these have eleven pixels.
const LETTERS: i32 = 14;
/// Characters that fit beside each other.
const LONGEST_LABEL: usize = 52;
/// Within a row of one line, in pixels from its top.
const LABEL: f64 = 10.0;
const BAR_TOP: f64 = 18.0;
const BAR_FOOT: f64 = 30.0;
const INTERVAL_END: f64 = 3.0;
/// Pixels by which a mark goes beyond its bar.
const BEYOND: f64 = 3.0;
/// Rows that one picture has at most.
const MOST_ROWS: usize = 12;
/// The scale of points goes this share beyond their mark, at least.
const NEAR: f64 = 0.1;
const TICKS: usize = 6;

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

    #[test]
    fn long_labels_have_two_lines() {
        assert_eq!(wrapped("short"), ["short"]);
        let long = "requests/s, 512-ifma at 100 % against aes-128-gcm, as a Silver 4116, per cent";
        let lines = wrapped(long);
        assert_eq!(
            lines,
            [
                "requests/s, 512-ifma at 100 % against aes-128-gcm,",
                "as a Silver 4116, per cent"
            ]
        );
        let word = "ä".repeat(LONGEST_LABEL + 1);
        assert_eq!(wrapped(&word), [shortened(&word)]);
        for text in [long.repeat(9), format!("{word} {word}")] {
            let lines = wrapped(&text);
            assert!(lines.len() <= 2, "{lines:?}");
            let fits = |line: &String| line.chars().count() <= LONGEST_LABEL;
            assert!(lines.iter().all(fits), "{lines:?}");
        }
    }

    #[test]
    fn neighbours_at_the_foot_differ() {
        for (step, numbers, shown) in [
            (0.0004, [0.9985, 0.999], ["0.9985", "0.999"]),
            (0.02, [0.94, 1.0], ["0.94", "1"]),
            (0.4, [0.0, 2.5], ["0", "2.5"]),
            (90.0, [100.0, 5000.0], ["100", "5000"]),
            (4000.0, [15_000.0, 2e6], ["15k", "2M"]),
        ] {
            assert_eq!(numbers.map(|at| tick(at, step)), shown);
        }
    }

    #[test]
    fn rows_are_shared_out_evenly() {
        for (rows, each) in [(0, 1), (1, 1), (12, 12), (13, 7), (34, 12), (37, 10)] {
            assert_eq!(share(rows), each, "{rows}");
        }
    }

    /// Both ends of the scale are far enough from the mark that a deviation of a thousandth is
    /// beside it.
    #[test]
    fn small_deviations_look_small() {
        let row = |at: f64| Points {
            label: "x".to_owned(),
            points: vec![Point {
                at,
                interval: None,
                colour: Colour::Ours,
            }],
        };
        let [svg] = &points(&[row(0.999)], 1.0)[..] else {
            panic!("one picture");
        };
        let number = |tag: &str, name: &str| {
            let (_, rest) = svg.rsplit_once(tag).expect("a shape");
            let (_, rest) = rest.split_once(&format!("{name}=\"")).expect("a place");
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<f64>().expect("a number")
        };
        let mark = f64::from(WIDTH) / 2.0;
        assert!((number("<circle", "cx") - mark).abs() < 10.0, "{svg}");
    }
}
