//! A snapshot laid out for a terminal's size: pure functions.
//!
//! A terminal that is too small for all lines keeps those that matter most, in their order; a wide
//! one has a second column.

use crate::snapshot::Snapshot;
use crate::view::{Kind, Line, sections};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::Widget;

/// A snapshot as a widget.
pub(crate) struct Picture<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) colour: bool,
}

impl Widget for Picture<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        if usize::from(area.width) < TWO_COLUMNS {
            let sections = sections(self.snapshot, Some(area.width.into()));
            return self.column(sections, area, buffer);
        }
        let half = area.width / 2;
        let left = Rect {
            width: half.saturating_sub(GAP),
            ..area
        };
        let mut sections = sections(self.snapshot, Some(left.width.into()));
        let right = sections.split_off(sections.len() / 3);
        self.column(sections, left, buffer);
        let place = Rect {
            x: area.x + half,
            width: area.width - half,
            ..area
        };
        self.column(right, place, buffer);
    }
}

impl Picture<'_> {
    fn column(&self, sections: Vec<Vec<Line>>, area: Rect, buffer: &mut Buffer) {
        let chosen = choose(sections, area.height.into());
        for (row, line) in (area.y..area.bottom()).zip(&chosen) {
            let style = match (line.kind, self.colour) {
                (Kind::Head, true) => Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD),
                (Kind::Head, false) => Style::new().add_modifier(Modifier::BOLD),
                (Kind::Missing, true) => Style::new().fg(Color::Yellow),
                (Kind::Detail, _) | (Kind::Missing, false) => Style::new(),
            };
            let text = cut(&line.text, area.width.into());
            buffer.set_stringn(area.x, row, text, area.width.into(), style);
        }
    }
}

/// Summaries first, then details, a line of each section in turn.
fn choose(sections: Vec<Vec<Line>>, height: usize) -> Vec<Line> {
    let mut takes = vec![0; sections.len()];
    let mut left = height;
    while left > 0 {
        let before = left;
        for (take, section) in takes.iter_mut().zip(&sections) {
            if left > 0 && *take < section.len() {
                *take += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    let kept = sections.into_iter().zip(takes);
    kept.flat_map(|(section, take)| section.into_iter().take(take))
        .collect()
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// Width from which on there are two columns.
const TWO_COLUMNS: usize = 160;
const GAP: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Known;
    use crate::view::LEAST_TO_BREAK;
    use crate::view::specimens::{empty, full, traced};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(snapshot: &Snapshot, width: u16, height: u16, colour: bool) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is in memory");
        let picture = |frame: &mut ratatui::Frame<'_>| {
            let picture = Picture { snapshot, colour };
            frame.render_widget(picture, frame.area());
        };
        terminal.draw(picture).expect("it is in memory");
        terminal
    }

    fn text(terminal: &Terminal<TestBackend>) -> String {
        terminal.backend().to_string()
    }

    #[test]
    fn a_large_terminal_shows_everything() {
        let shown = text(&drawn(&full(), 200, 60, true));
        for expected in [
            "512/s  passes 120/s  lanes 6.7  queue 41.0 us",
            "x25519-derive",
            "4711  evil\\u{1b}[2J",
            "cpu63",
            "halted",
            "512-heavy   2.90 GHz   78.4 %",
            "n/a: nothing published",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
    }

    #[test]
    fn an_ordinary_terminal_shows_every_summary_and_some_of_each() {
        let shown = text(&drawn(&full(), 80, 24, true));
        for expected in [
            "handshakes 512/s",
            "AVX users  0.97 CPUs surely, 1.20 at most, by ebpf: evil",
            "licence    n/a",
            "clock      2.10 to 8.40 GHz",
            "by class   512-heavy",
            "rsa2048-sign",
            "cpu0",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
    }

    #[test]
    fn small_terminals_keep_what_matters_most() {
        let shown = text(&drawn(&full(), 40, 10, true));
        assert!(shown.contains("handshakes 512/s  passes 120/s  lanes 6."), "{shown}");
        assert!(shown.contains("by class"), "{shown}");
        let shown = text(&drawn(&full(), 10, 4, true));
        assert!(shown.contains("handshakes") && shown.contains("licence"), "{shown}");
        assert!(text(&drawn(&full(), 1, 1, true)).contains('h'));
    }

    #[test]
    fn no_size_is_too_small_or_too_odd() {
        for snapshot in [full(), traced(), empty()] {
            for width in [0, 1, 2, 10, 79, 159, 160, 161, 500] {
                for height in [0, 1, 2, 4, 5, 6, 30, 200] {
                    drawn(&snapshot, width, height, true);
                }
            }
        }
    }

    #[test]
    fn a_long_reason_is_shown_to_its_end_where_there_is_room() {
        let why = "no server answers there; is this the address of [metrics] in the configuration of the \
                   server that was started in another terminal?";
        let snapshot = Snapshot {
            server: Known::missing(why),
            ..full()
        };
        for width in [LEAST_TO_BREAK, 80, 200] {
            let width = u16::try_from(width).unwrap();
            let shown = text(&drawn(&snapshot, width, 60, false));
            let words = shown.replace('"', " ");
            let words: Vec<_> = words.split_whitespace().collect();
            let missed = why.split(' ').find(|word| !words.contains(word));
            assert_eq!(missed, None, "{shown}");
        }
        let shown = text(&drawn(&snapshot, 20, 6, false));
        assert!(shown.contains("AVX users") && shown.contains("by class"), "{shown}");
    }

    #[test]
    fn a_resize_is_followed() {
        let snapshot = full();
        let mut terminal = drawn(&snapshot, 200, 60, true);
        for (width, height) in [(10, 3), (1, 1), (80, 24)] {
            terminal.backend_mut().resize(width, height);
            let picture = |frame: &mut ratatui::Frame<'_>| {
                let picture = Picture {
                    snapshot: &snapshot,
                    colour: true,
                };
                frame.render_widget(picture, frame.area());
            };
            terminal.draw(picture).expect("it is in memory");
            assert_eq!(text(&terminal), text(&drawn(&snapshot, width, height, true)));
        }
    }

    #[test]
    fn without_colour_there_is_none() {
        let colours = |colour| {
            let terminal = drawn(&empty(), 80, 24, colour);
            let cells = terminal.backend().buffer().content().to_vec();
            cells.iter().filter(|cell| cell.fg != Color::Reset).count()
        };
        assert_eq!(colours(false), 0);
        assert!(colours(true) > 0);
    }
}
