//! Tables of figures, and their writers for terminals and for Markdown.

use crate::figure::{Figure, Source};
use std::rc::Rc;
use widelane_text::columns;

/// Rows and columns of figures.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Headings.
    pub head: Vec<Column>,
    /// Cells below them.
    pub rows: Vec<Vec<Cell>>,
    /// File in which all figures have their origin; without one, each row says it.
    pub source: Option<Rc<Source>>,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Heading.
    pub title: Cell,
    /// True for texts, which begin at the left. Numbers end at the right.
    pub is_text: bool,
    /// Heading of a further column with the intervals of this one's figures, where figures have no room for them.
    pub interval: Option<&'static str>,
}

/// Content of a cell, from left to right.
pub type Cell = Vec<Piece>;

/// Part of a cell or of a text.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Plain text.
    Text(String),
    /// Emphasised text.
    Strong(String),
    /// A day like `2026-01-02`.
    Date(String),
    /// Text that is typed, or printed by a machine.
    Code(String),
    /// A number.
    Figure(Figure),
    /// A file that can be opened.
    Record(Rc<Source>),
}

/// A column of texts.
pub fn text(title: impl Into<Piece>) -> Column {
    Column {
        title: cell(title),
        is_text: true,
        interval: None,
    }
}

/// A column of numbers.
pub fn number(title: impl Into<Piece>) -> Column {
    Column {
        is_text: false,
        ..text(title)
    }
}

/// A cell with `piece` alone.
pub fn cell(piece: impl Into<Piece>) -> Cell {
    vec![piece.into()]
}

/// A cell with a figure, or with `why` where there is none.
pub fn figure_or(figure: Option<Figure>, why: &str) -> Cell {
    figure.map_or_else(|| cell(why), cell)
}

/// A cell as plain text.
pub fn plain(cell: &[Piece]) -> String {
    cell.iter().map(Piece::plain).collect()
}

impl Table {
    /// A table without rows.
    pub fn new(head: impl IntoIterator<Item = Column>, source: Option<&Rc<Source>>) -> Self {
        Self {
            head: head.into_iter().collect(),
            rows: Vec::new(),
            source: source.cloned(),
        }
    }

    /// Adds these rows.
    pub fn with(mut self, rows: impl IntoIterator<Item = Vec<Cell>>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// Leaves out the columns with these headings.
    pub fn without(mut self, titles: &[&str]) -> Self {
        let place = |table: &Self, title: &str| table.head.iter().position(|one| plain(&one.title) == title);
        for title in titles {
            if let Some(place) = place(&self, title) {
                self.head.remove(place);
                self.rows.iter_mut().for_each(|row| drop(row.remove(place)));
            }
        }
        self
    }

    /// The table in columns, for terminals.
    pub fn text(&self) -> String {
        let (left, rows) = self.flat(Piece::plain);
        columns(&rows, &left)
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let (_, rows) = self.flat(Piece::markdown);
        let mut text = String::new();
        for (index, row) in rows.iter().enumerate() {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
            if index == 0 {
                text.push_str(&format!("|{}\n", " --- |".repeat(row.len())));
            }
        }
        text
    }

    /// Texts of the cells below their headings, intervals in columns of their own, and whether a column holds texts.
    fn flat(&self, written: fn(&Piece) -> String) -> (Vec<bool>, Vec<Vec<String>>) {
        let joined = |cell: &Cell| cell.iter().map(written).collect::<String>();
        let (mut left, mut rows) = (Vec::new(), vec![Vec::new(); self.rows.len() + 1]);
        for (place, column) in self.head.iter().enumerate() {
            left.push(column.is_text);
            rows[0].push(joined(&column.title));
            left.extend(column.interval.map(|_| false));
            rows[0].extend(column.interval.map(str::to_owned));
            for (row, cells) in rows[1..].iter_mut().zip(&self.rows) {
                let cell = cells.get(place);
                row.push(cell.map(joined).unwrap_or_default());
                let figure = cell.into_iter().flatten().find_map(Piece::figure);
                row.extend(
                    column
                        .interval
                        .map(|_| figure.map(Figure::shown_interval).unwrap_or_default()),
                );
            }
        }
        (left, rows)
    }
}

impl Piece {
    /// Figure that the piece is.
    pub fn figure(&self) -> Option<&Figure> {
        match self {
            Self::Figure(figure) => Some(figure),
            _ => None,
        }
    }

    fn plain(&self) -> String {
        match self {
            Self::Text(text) | Self::Strong(text) | Self::Date(text) | Self::Code(text) => text.clone(),
            Self::Figure(figure) => figure.shown(),
            Self::Record(source) => source.name.clone(),
        }
    }

    fn markdown(&self) -> String {
        match self {
            Self::Code(text) => format!("`{text}`"),
            Self::Record(source) => {
                format!("[{}]({})", source.name, source.link.as_deref().unwrap_or_default())
            }
            other => other.plain().replace('|', "\\|"),
        }
    }
}

impl From<&str> for Piece {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Figure> for Piece {
    fn from(figure: Figure) -> Self {
        Self::Figure(figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Interval, Origin, Unit};

    fn table() -> Table {
        let source = Rc::new(Source::default());
        let figure = |value: f64, interval| {
            let origin = Origin::of_profile("");
            Figure::new("x", value, Unit::Times, interval, origin, &source)
        };
        let times = Column {
            interval: Some("95 % interval"),
            ..number("×")
        };
        Table::new([text("a"), number("b|"), times], None).with([
            vec![
                cell(Piece::Code("cc".into())),
                cell("1,000"),
                figure_or(figure(2.0, Interval::Confidence(1.0, 3.0)), "–"),
            ],
            vec![cell("d"), cell("2"), figure_or(None, "–")],
        ])
    }

    #[test]
    fn columns_line_up() {
        let expected = "a      b|     ×  95 % interval\n\
                        --  -----  ----  -------------\n\
                        cc  1,000  2.00   1.00 to 3.00\n\
                        d       2     –\n";
        assert_eq!(table().text(), expected);
    }

    #[test]
    fn markdown_has_the_same_cells() {
        let expected = "| a | b\\| | × | 95 % interval |\n\
                        | --- | --- | --- | --- |\n\
                        | `cc` | 1,000 | 2.00 | 1.00 to 3.00 |\n\
                        | d | 2 | – |  |\n";
        assert_eq!(table().markdown(), expected);
    }

    #[test]
    fn columns_are_left_out_with_their_cells() {
        let table = table().without(&["b|", "none"]);
        assert_eq!((table.head.len(), plain(&table.rows[1][1])), (2, "–".to_owned()));
    }
}
