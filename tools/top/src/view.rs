//! A snapshot laid out for a size: pure functions.
//!
//! The picture is a list of lines in sections. A terminal that is too small for all of them keeps
//! those that matter most, in their order; a wide one has a second column.

use crate::snapshot::{Known, Snapshot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::Widget;
use std::borrow::Cow;

/// All of it, uncut, for a pipe.
pub fn plain(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for line in sections(snapshot, None).into_iter().flatten() {
        text.push_str(line.text.trim_end());
        text.push('\n');
    }
    text
}

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

/// A line and what it is worth.
struct Line {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The summary of a section.
    Head,
    /// More about it.
    Detail,
    /// Why something is not known.
    Missing,
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

/// What there is to say, the most important section first; in each, the summary first. A picture,
/// with a `width`, puts several CPUs into a line, and breaks reasons that are too long for one.
fn sections(snapshot: &Snapshot, width: Option<usize>) -> Vec<Vec<Line>> {
    let sections = vec![
        server(snapshot),
        users(snapshot),
        licence(snapshot),
        clocks(snapshot, width.is_some()),
        classes(snapshot),
        machine(snapshot, width.is_some()),
    ];
    let Some(width) = width.filter(|width| *width >= LEAST_TO_BREAK) else {
        return sections;
    };
    let broken = |section: Vec<Line>| section.into_iter().flat_map(|line| broken(line, width));
    sections
        .into_iter()
        .map(|section| broken(section).collect())
        .collect()
}

fn server(snapshot: &Snapshot) -> Vec<Line> {
    let server = match &snapshot.server {
        Known::Known(server) => server,
        Known::Missing { why_not } => return missing("handshakes", why_not),
    };
    let all = &server.all;
    let mean = |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.1}"));
    let mut lines = vec![head(
        "handshakes",
        &format!(
            "{:.0}/s  passes {:.0}/s  lanes {}  queue {} us  failed {:.0}/s",
            server.handshakes,
            all.passes,
            mean(all.lanes),
            mean(all.queue_us),
            server.failures
        ),
    )];
    if server.batching == Some(false) {
        lines.push(note("batching is off: batching.enabled = false"));
    }
    if !server.operations.is_empty() {
        lines.push(detail(format!(
            "{:<22} {:>9} {:>9} {:>6} {:>9} {:>6}",
            "OPERATION", "JOBS/S", "PASSES/S", "LANES", "QUEUE us", "CPU %"
        )));
    }
    for one in &server.operations {
        lines.push(detail(format!(
            "{:<22} {:>9.0} {:>9.0} {:>6} {:>9} {:>6.1}",
            one.name,
            one.jobs,
            one.passes,
            mean(one.lanes),
            mean(one.queue_us),
            100.0 * one.busy
        )));
    }
    lines
}

fn users(snapshot: &Snapshot) -> Vec<Line> {
    let users = match &snapshot.users {
        Known::Known(users) => users,
        Known::Missing { why_not } => return missing("AVX users", why_not),
    };
    let mut lines = vec![head(
        "AVX users",
        &match users.processes.first() {
            None => format!("nobody, by {}", users.method),
            Some(first) => format!(
                "{:.2} CPUs surely, {:.2} at most, by {}: {}{}",
                users.wide,
                users.at_most,
                users.method,
                first.name,
                match users.processes.len() {
                    1 => String::new(),
                    more => format!(" and {} more", more - 1),
                }
            ),
        },
    )];
    for user in &users.processes {
        lines.push(detail(format!(
            "{:>8}  {:<16} {:>6.1} %  {}",
            user.pid,
            user.name,
            100.0 * user.cpus,
            user.verdict
        )));
    }
    lines.extend(
        users
            .why_not_better
            .iter()
            .map(|why| note(&format!("polled: {why}"))),
    );
    lines
}

fn licence(snapshot: &Snapshot) -> Vec<Line> {
    let licence = match &snapshot.licence {
        Known::Known(licence) => licence,
        Known::Missing { why_not } => return missing("licence", why_not),
    };
    let mut lines = vec![head("licence", &licence.words)];
    if let Some(clocks) = licence.published_ghz {
        let clock = |clock: Option<f64>| clock.map_or("n/a".to_owned(), |ghz| format!("{ghz:.1}"));
        let [l0, l1, l2] = clocks.map(clock);
        lines.push(detail(format!(
            "published for all cores: L0 {l0}, L1 {l1}, L2 {l2} GHz"
        )));
    }
    lines
}

fn clocks(snapshot: &Snapshot, short: bool) -> Vec<Line> {
    let clocks = match &snapshot.clocks {
        Known::Known(clocks) => clocks,
        Known::Missing { why_not } => return missing("clock", why_not),
    };
    let awake = || clocks.cores.iter().filter_map(|core| core.ghz);
    let (low, high) = (
        awake().fold(f64::INFINITY, f64::min),
        awake().fold(0.0, f64::max),
    );
    let range = match awake().next() {
        None => "all CPUs halted".to_owned(),
        Some(_) if high - low < 0.005 => format!("{high:.2} GHz"),
        Some(_) => format!("{low:.2} to {high:.2} GHz"),
    };
    let mut lines = vec![head(
        "clock",
        &format!("{range}, {} CPUs, {}", clocks.cores.len(), clocks.meaning),
    )];
    let one = |core: &crate::clock::Core| {
        let ghz = core
            .ghz
            .map_or("halted".to_owned(), |ghz| format!("{ghz:.2}"));
        format!("cpu{:<4}{ghz:>6}", core.cpu)
    };
    let together = if short { CPUS_IN_A_LINE } else { 1 };
    for some in clocks.cores.chunks(together) {
        let texts: Vec<_> = some.iter().map(one).collect();
        lines.push(detail(texts.join("   ")));
    }
    lines.extend(clocks.why_not_better.iter().map(|why| note(why)));
    lines
}

fn classes(snapshot: &Snapshot) -> Vec<Line> {
    let classes = match &snapshot.classes {
        Known::Known(classes) => classes,
        Known::Missing { why_not } => return missing("by class", why_not),
    };
    let most = classes.iter().map(|clock| clock.cores).max().unwrap_or(0);
    let on_all = || classes.iter().filter(|clock| clock.cores == most);
    let lowest = on_all().min_by(|a, b| a.of_scalar.total_cmp(&b.of_scalar));
    let summary = match lowest {
        None => "the profile has no clocks".to_owned(),
        Some(lowest) => format!(
            "{} is the slowest: {:.2} GHz, {:.1} % of scalar ({most} cores, profile)",
            lowest.class,
            lowest.ghz,
            100.0 * lowest.of_scalar
        ),
    };
    let mut lines = vec![head("by class", &summary)];
    for clock in on_all() {
        lines.push(detail(format!(
            "{:<10} {:>5.2} GHz  {:>5.1} %",
            clock.class,
            clock.ghz,
            100.0 * clock.of_scalar
        )));
    }
    lines
}

fn machine(snapshot: &Snapshot, keys: bool) -> Vec<Line> {
    let Snapshot {
        processor, seconds, ..
    } = snapshot;
    let keys = if keys { ", q ends" } else { "" };
    vec![head(
        "machine",
        &format!("{processor}, rates of {seconds:.1} s{keys}"),
    )]
}

fn head(name: &str, text: &str) -> Line {
    Line {
        text: plainly(&format!("{name:<11}{text}")).into_owned(),
        kind: Kind::Head,
    }
}

fn detail(text: String) -> Line {
    Line {
        text: plainly(&format!("  {text}")).into_owned(),
        kind: Kind::Detail,
    }
}

fn note(text: &str) -> Line {
    Line {
        kind: Kind::Missing,
        ..detail(text.to_owned())
    }
}

/// A reason in lines of this width; anything else as it is.
fn broken(line: Line, width: usize) -> Vec<Line> {
    if line.kind != Kind::Missing || line.text.chars().count() <= width {
        return vec![line];
    }
    let mut parts = vec![String::new()];
    for word in line.text.split_inclusive(' ') {
        let last = parts.last_mut().filter(|last| {
            let both = last.chars().count() + word.trim_end().chars().count();
            both <= width || last.trim().is_empty()
        });
        match last {
            Some(last) => last.push_str(word),
            None => parts.push(format!("{:INDENT$}{word}", "")),
        }
    }
    let kind = Kind::Missing;
    let line = |text| Line { text, kind };
    parts.into_iter().map(line).collect()
}

fn missing(name: &str, why: &str) -> Vec<Line> {
    let mut line = head(name, &format!("n/a: {why}"));
    line.kind = Kind::Missing;
    vec![line]
}

/// Names come from whoever runs a program or answers at an address: nothing of them may steer a
/// terminal.
fn plainly(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => text.replace(char::is_control, "?").into(),
        false => text.into(),
    }
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// Where the second line of a reason begins.
const INDENT: usize = 4;
/// In narrower pictures reasons are cut, for they would push everything else out.
const LEAST_TO_BREAK: usize = 40;
/// From this width on there are two columns.
const TWO_COLUMNS: usize = 160;
const GAP: u16 = 2;
const CPUS_IN_A_LINE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clocks, Core, Source};
    use crate::server::{Operation, Server};
    use crate::snapshot::ClassClock;
    use crate::users::{User, Users};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn full() -> Snapshot {
        let operation = |name: &str| Operation {
            name: name.to_owned(),
            jobs: 800.0,
            passes: 120.0,
            lanes: Some(6.7),
            queue_us: Some(41.0),
            busy: 0.25,
        };
        let core = |cpu| Core {
            cpu,
            ghz: (cpu != 3).then_some(2.1 + cpu as f64 / 10.0),
        };
        Snapshot {
            processor: "a CPU".to_owned(),
            seconds: 1.0,
            server: Known::Known(Server {
                handshakes: 512.0,
                failures: 1.0,
                batching: Some(true),
                all: operation("all"),
                operations: vec![operation("rsa2048-sign"), operation("x25519-derive")],
            }),
            clocks: Known::Known(Clocks {
                source: Source::Aperf,
                meaning: Source::Aperf.meaning(false),
                why_not_better: Vec::new(),
                cores: (0..64).map(core).collect(),
            }),
            classes: Known::Known(vec![
                ClassClock {
                    class: "scalar".to_owned(),
                    cores: 2,
                    ghz: 3.7,
                    of_scalar: 1.0,
                },
                ClassClock {
                    class: "512-heavy".to_owned(),
                    cores: 2,
                    ghz: 2.9,
                    of_scalar: 0.784,
                },
            ]),
            licence: Known::missing("nothing published"),
            users: Known::Known(Users {
                method: "ebpf",
                why_not_better: None,
                wide: 0.97,
                at_most: 1.2,
                processes: vec![User {
                    pid: 4711,
                    name: "evil\x1b[2J".to_owned(),
                    cpus: 0.97,
                    verdict: "wide",
                }],
            }),
        }
    }

    fn empty() -> Snapshot {
        Snapshot {
            server: Known::missing("no address"),
            clocks: Known::missing("no source"),
            classes: Known::missing("no profile"),
            users: Known::missing("no rights"),
            ..full()
        }
    }

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
            "4711  evil?[2J",
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
        assert!(
            shown.contains("handshakes 512/s  passes 120/s  lanes 6."),
            "{shown}"
        );
        assert!(shown.contains("by class"), "{shown}");
        let shown = text(&drawn(&full(), 10, 3, true));
        assert!(
            shown.contains("handshakes") && shown.contains("licence"),
            "{shown}"
        );
        assert!(text(&drawn(&full(), 1, 1, true)).contains('h'));
    }

    #[test]
    fn no_size_is_too_small_or_too_odd() {
        for snapshot in [full(), empty()] {
            for width in [0, 1, 2, 10, 79, 159, 160, 161, 500] {
                for height in [0, 1, 2, 4, 5, 6, 30, 200] {
                    drawn(&snapshot, width, height, true);
                }
            }
        }
    }

    #[test]
    fn a_long_reason_is_shown_to_its_end_where_there_is_room() {
        let why = "nobody answers there; is this the address of [metrics] in the configuration of the \
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
        let shown = text(&drawn(&snapshot, 20, 5, false));
        assert!(
            shown.contains("AVX users") && shown.contains("by class"),
            "{shown}"
        );
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
            assert_eq!(
                text(&terminal),
                text(&drawn(&snapshot, width, height, true))
            );
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

    #[test]
    fn a_pipe_gets_every_line_uncut_and_harmless() {
        let shown = plain(&full());
        assert!(
            shown.lines().any(|line| line.trim() == "cpu3   halted"),
            "{shown}"
        );
        assert!(!shown.contains('\x1b'));
        assert_eq!(
            shown
                .lines()
                .filter(|line| line.trim().starts_with("cpu"))
                .count(),
            64
        );
        let shown = plain(&empty());
        assert_eq!(shown.matches("n/a: ").count(), 5, "{shown}");
    }
}
