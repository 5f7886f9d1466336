//! Sections as one HTML file that needs nothing else: no script, no font, no picture from elsewhere.
//!
//! Every text goes through maud, which escapes it. Only the style sheet and what plotters drew are
//! taken as they are.

use crate::block::{Block, Section};
use crate::chart::Colour;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use widelane_samples::{Cell, Figure, Interval, Piece, Source, Table, ranges};

/// The page.
pub(crate) fn page(title: &str, made: &str, sections: &[Section]) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "Widelane report: " (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(colours())) }
            }
            body {
                header {
                    h1 { "Widelane report" }
                    p { (title) ", made on " (made) }
                }
                main {
                    @for (index, section) in sections.iter().enumerate() {
                        section id=(section.id) {
                            h2 { (section.title) }
                            (blocks(&section.blocks))
                        }
                        @if index == 0 {
                            nav aria-label="Contents" {
                                @for section in &sections[1..] {
                                    a href={ "#" (section.id) } { (section.title) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    markup.into_string()
}

fn blocks(all: &[Block]) -> Markup {
    let mut rest = all;
    let mut markup = Vec::new();
    while let [first, others @ ..] = rest {
        rest = others;
        markup.push(match (first, others) {
            // A picture stands beside its table where there is room for both.
            (Block::Chart { pictures, .. }, [all @ Block::Table(table), ..])
                if pictures.len() == 1 && is_narrow(table) =>
            {
                rest = &others[1..];
                html! { div.beside { (block(first)) (block(all)) } }
            }
            _ => block(first),
        });
    }
    html! { @for one in markup { (one) } }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Text(pieces) => html! { p { (inline(pieces)) } },
        Block::Heading(text) => html! { h3 { (text) } },
        Block::List(items) => html! { ul { @for item in items { li { (inline(item)) } } } },
        Block::Tiles(tiles) => html! {
            ul.tiles {
                @for tile in tiles {
                    li {
                        strong { (figure(&tile.figure)) }
                        small { (tile.figure.shown_interval()) }
                        span { (tile.title) }
                        (origin(&tile.figure))
                    }
                }
            }
            div.source { (INTERVALS) }
        },
        Block::Table(all) => table(all),
        Block::Chart { pictures, caption } => html! {
            // The table has the same numbers for those who do not see the picture.
            figure aria-hidden="true" {
                figcaption { (caption) }
                div.pictures { @for svg in pictures { (PreEscaped(svg)) } }
            }
        },
        Block::Fold {
            title,
            open,
            blocks: inner,
        } => html! {
            details open[*open] { summary { (title) } (blocks(inner)) }
        },
    }
}

fn inline(pieces: &[Piece]) -> Markup {
    html! {
        @for piece in pieces {
            @match piece {
                Piece::Text(text) => (text),
                Piece::Date(text) => time { (text) },
                Piece::Strong(text) => strong { (text) },
                Piece::Code(text) => code { (text) },
                Piece::Record(source) => (record(source)),
                Piece::Figure(one) => { (figure(one)) " (" (one.shown_interval()) ")" },
            }
        }
    }
}

fn table(table: &Table) -> Markup {
    let lines: Vec<_> = table.rows.iter().map(|row| lines(row)).collect();
    // Rows of several sources name them.
    let with_lines = table.source.is_some() && lines.iter().any(|lines| !lines.is_empty());
    html! {
        div.figures {
            // A wide table scrolls in here; the page does not.
            div.scroll tabindex="0" {
                table {
                    thead { tr {
                        @for column in &table.head {
                            th.text[column.is_text] scope="col" { (inline(&column.title)) }
                        }
                        @if with_lines { th scope="col" { "lines" } }
                    } }
                    tbody {
                        @for (row, lines) in table.rows.iter().zip(&lines) {
                            tr {
                                @for (cell, column) in row.iter().zip(&table.head) {
                                    td.text[column.is_text] { (tabular(cell)) }
                                }
                                @if with_lines { td { (lines) } }
                            }
                        }
                    }
                }
            }
            @if let Some(source) = &table.source { (source_line(source)) }
        }
    }
}

/// Lines with the numbers of a row's figures.
fn lines(row: &[Cell]) -> String {
    let origins = row
        .iter()
        .flatten()
        .filter_map(Piece::figure)
        .map(|figure| &figure.origin);
    ranges(origins.flat_map(|origin| origin.lines.iter().chain(&origin.by)))
}

/// Returns whether a picture leaves room for the table on a desk. Rows that name their records are longer.
fn is_narrow(table: &Table) -> bool {
    table.head.len() <= if table.source.is_some() { 7 } else { 6 }
}

/// A cell: an interval stands below its figure.
fn tabular(pieces: &[Piece]) -> Markup {
    html! {
        @for piece in pieces {
            @match piece {
                Piece::Figure(one) => {
                    (figure(one))
                    @if one.interval != Interval::NotMeasured {
                        small.why[matches!(one.interval, Interval::None(_))] {
                            (one.shown_interval())
                        }
                    }
                },
                other => (inline(std::slice::from_ref(other))),
            }
        }
    }
}

/// The number, with all by which it can be found again.
fn figure(figure: &Figure) -> Markup {
    let origin = &figure.origin;
    let list = |lines: &[usize]| lines.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    let (low, high) = match figure.interval {
        Interval::Confidence(low, high) | Interval::Spread(low, high) | Interval::Range(low, high) => {
            (Some(low), Some(high))
        }
        Interval::TooFew(_) | Interval::None(_) | Interval::NotMeasured => (None, None),
    };
    html! {
        data value=(figure.value) title=(figure.provenance())
            data-unit=(figure.unit.name())
            data-low=[low] data-high=[high]
            data-record=[figure.source.link.as_ref()]
            data-statistic=(origin.statistic.name())
            data-field=(origin.field) data-scale=(origin.scale)
            data-lines=(list(&origin.lines)) data-by=(list(&origin.by))
            { (figure.shown()) }
    }
}

/// Source of a single figure.
fn origin(figure: &Figure) -> Markup {
    let source = &figure.source;
    let lines = ranges(figure.origin.lines.iter().chain(&figure.origin.by));
    html! {
        span.source {
            (source.machine) ", " time { (source.date) } ", commit " (source.short_commit()) ", "
            (record(source))
            @if !lines.is_empty() { ", lines " (lines) }
        }
    }
}

fn source_line(source: &Source) -> Markup {
    html! {
        p.source {
            (source.machine) @if source.virtual_machine { ", virtual machine" } ", "
            time { (source.date) } ", "
            @match &source.commit {
                Some(_) => { "commit " (source.short_commit()) },
                None => "no commit in the file",
            }
            @for note in &source.notes { ", " strong { (note) } }
            ". " (record(source)) " of " code { (source.command) }
        }
    }
}

fn record(source: &Source) -> Markup {
    html! {
        @match &source.link {
            Some(link) => a href=(link) { (source.name) },
            None => code { (source.name) },
        }
    }
}

/// Colours of pictures on dark paper.
fn colours() -> String {
    let hex = |(red, green, blue): (u8, u8, u8)| format!("#{red:02X}{green:02X}{blue:02X}");
    let rules = Colour::ALL.map(|colour| {
        let [light, dark] = colour.colours().map(hex);
        format!("svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}")
    });
    format!("@media (prefers-color-scheme:dark){{{}}}", rules.concat())
}

/// Explanation beside the figures of the answer.
const INTERVALS: &str = "Beside each number, here and below: its interval of 95\u{a0}%, which takes six \
                         measured values; of fewer, how many there are. p5 to p95: nine tenths of \
                         what was measured are in this range.";
/// Policy that allows nothing but the style sheet.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
const STYLE: &str = include_str!("page.css");
