//! What one core does for a moment, as a picture.

use std::fmt::Write as _;

use widelane_cpu::licence::machine::Pace;

/// The level, pace and code of one core between two moments.
#[derive(Clone, Debug)]
pub struct Timeline {
    core: usize,
    from: u64,
    until: u64,
    changes: Vec<Change>,
}

/// What a core does from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    at: u64,
    level: usize,
    pace: Pace,
    khz: u64,
    wide: bool,
}

impl Timeline {
    pub(crate) fn new(core: usize, from: u64, until: u64) -> Self {
        Self {
            core,
            from,
            until,
            changes: Vec::new(),
        }
    }

    /// A core does something else.
    pub(crate) fn note(
        &mut self,
        core: usize,
        at: u64,
        (level, pace): (usize, Pace),
        clocks: [u64; 3],
        wide: bool,
    ) {
        if core != self.core || at > self.until || self.changes.len() >= MOST_CHANGES {
            return;
        }
        let change = Change {
            at: at.max(self.from),
            level,
            pace,
            khz: clocks[level],
            wide,
        };
        // Of what happens before the beginning, only the last counts; of two changes at a time, too.
        match self.changes.last_mut() {
            Some(last) if last.at == change.at => *last = change,
            Some(last)
                if Change {
                    at: change.at,
                    ..*last
                } == change => {}
            _ => self.changes.push(change),
        }
    }

    /// The picture, as SVG: the clock over time, halts and throttled times marked, and wide code
    /// below. `title` stands above.
    pub fn svg(&self, title: &str) -> String {
        let top = self.changes.iter().map(|change| change.khz).max();
        let top = top.unwrap_or(1) as f64 * 1.1;
        let x = |at: u64| LEFT + (at - self.from) as f64 / (self.until - self.from) as f64 * WIDTH;
        let y = |khz: f64| TOP + HEIGHT * (1.0 - khz / top);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" \
             font-family=\"sans-serif\" font-size=\"13\" shape-rendering=\"crispEdges\">\n\
             <rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">{}</text>\n",
            escaped(title),
            w = LEFT + WIDTH + 20.0,
            h = TOP + HEIGHT + 70.0,
        );
        let ends = self.changes.iter().skip(1).map(|change| change.at);
        for (change, end) in self.changes.iter().zip(ends.chain([self.until])) {
            let (begin, end) = (x(change.at), x(end));
            let bar = |svg: &mut String, y: f64, height: f64, colour: &str| {
                // What is too short for a line is drawn as one.
                let width = (end - begin).max(1.0);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{begin:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" \
                     height=\"{height:.2}\" fill=\"{colour}\"/>",
                );
            };
            let colour = match change.pace {
                Pace::Full => LEVELS[change.level],
                Pace::Throttled => THROTTLED,
                Pace::Halted => HALTED,
            };
            let at = y(change.khz as f64);
            bar(&mut svg, at, TOP + HEIGHT - at, colour);
            if change.wide {
                bar(&mut svg, TOP + HEIGHT + 4.0, 8.0, WIDE);
            }
        }
        self.axes(&mut svg, top, y);
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, svg: &mut String, top: f64, y: impl Fn(f64) -> f64) {
        for tenths in (0..=(top / 1e5) as u64).step_by(5) {
            let at = y(tenths as f64 * 1e5);
            let _ = writeln!(
                svg,
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{:.1} GHz</text>",
                LEFT - 6.0,
                at + 4.0,
                tenths as f64 / 10.0
            );
        }
        let span = (self.until - self.from) as f64 / 1e3;
        for part in 0..=4 {
            let share = f64::from(part) / 4.0;
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"{}\">{:.0} us</text>",
                LEFT + share * WIDTH,
                TOP + HEIGHT + 30.0,
                if part == 4 { "end" } else { "middle" },
                share * span
            );
        }
        let keys = [
            (LEVELS[0], "level 0"),
            (LEVELS[1], "level 1"),
            (LEVELS[2], "level 2"),
            (THROTTLED, "throttled"),
            (HALTED, "halted"),
            (WIDE, "wide code"),
        ];
        for (index, (colour, name)) in keys.into_iter().enumerate() {
            let x = LEFT + index as f64 * 130.0;
            let y = TOP + HEIGHT + 48.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
                 <text x=\"{:.0}\" y=\"{y:.0}\">{name}</text>",
                y - 11.0,
                x + 17.0
            );
        }
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

const LEFT: f64 = 70.0;
const TOP: f64 = 34.0;
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 200.0;
const LEVELS: [&str; 3] = ["#9ecae1", "#4292c6", "#08519c"];
const THROTTLED: &str = "#fdae6b";
const HALTED: &str = "#d62728";
const WIDE: &str = "#333";
/// More bars than this no picture shows.
const MOST_CHANGES: usize = 20_000;
