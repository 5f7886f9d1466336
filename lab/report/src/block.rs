//! Parts of a section, before they become HTML or JSON.

use crate::figure::{Figure, Source};
use std::rc::Rc;

/// A part of the page with a title.
pub(crate) struct Section {
    /// For addresses and programs.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) blocks: Vec<Block>,
}

/// Part that stands below the one before.
pub(crate) enum Block {
    Text(Vec<Piece>),
    Heading(String),
    List(Vec<Vec<Piece>>),
    /// The figures behind an answer.
    Tiles(Vec<Tile>),
    Table(Table),
    Chart {
        /// SVG, whose texts are those of figures beside it. Several are on one scale.
        pictures: Vec<String>,
        caption: String,
    },
    /// Can be opened and closed.
    Fold {
        title: String,
        open: bool,
        blocks: Vec<Block>,
    },
}

/// Part that stands beside the one before.
#[derive(Clone)]
pub(crate) enum Piece {
    Text(String),
    Strong(String),
    /// Like `2026-01-02`.
    Date(String),
    Code(String),
    Figure(Figure),
    /// A file that can be opened.
    Record(Rc<Source>),
}

/// A figure that is to be seen first.
pub(crate) struct Tile {
    pub(crate) title: String,
    pub(crate) figure: Figure,
}

/// Rows and columns of figures.
pub(crate) struct Table {
    pub(crate) head: Vec<Column>,
    pub(crate) rows: Vec<Vec<Vec<Piece>>>,
    pub(crate) source: Option<Rc<Source>>,
}

/// The title of a column, and what is in it.
pub(crate) enum Column {
    /// Texts, which begin at the left.
    Text(String),
    /// Numbers, which end at the right.
    Number(String),
}

impl Column {
    pub(crate) fn title(&self) -> &str {
        match self {
            Self::Text(title) | Self::Number(title) => title,
        }
    }
}

/// A column of texts.
pub(crate) fn text(title: &str) -> Column {
    Column::Text(title.to_owned())
}

/// A column of numbers.
pub(crate) fn number(title: &str) -> Column {
    Column::Number(title.to_owned())
}

impl Table {
    /// Without rows. The source is where all its figures come from; without one, each row says it.
    pub(crate) fn new(head: impl IntoIterator<Item = Column>, source: Option<&Rc<Source>>) -> Self {
        Self {
            head: head.into_iter().collect(),
            rows: Vec::new(),
            source: source.cloned(),
        }
    }

    /// Adds these rows, and makes the table a block.
    pub(crate) fn with(mut self, rows: impl IntoIterator<Item = Vec<Vec<Piece>>>) -> Block {
        self.rows.extend(rows);
        Block::Table(self)
    }
}

impl Section {
    /// Every figure in it, in the order of the page.
    pub(crate) fn figures(&self) -> Vec<&Figure> {
        let mut figures = Vec::new();
        for block in &self.blocks {
            block.collect(&mut figures);
        }
        figures
    }
}

impl Block {
    /// Pictures with a caption; `None` if none could be drawn.
    pub(crate) fn chart(pictures: Vec<String>, caption: &str) -> Option<Self> {
        let caption = caption.to_owned();
        (!pictures.is_empty()).then_some(Self::Chart { pictures, caption })
    }

    fn collect<'a>(&'a self, figures: &mut Vec<&'a Figure>) {
        let mut of = |pieces: &'a [Piece]| {
            figures.extend(pieces.iter().filter_map(|piece| match piece {
                Piece::Figure(figure) => Some(figure),
                _ => None,
            }));
        };
        match self {
            Self::Text(pieces) => of(pieces),
            Self::List(items) => items.iter().for_each(|item| of(item)),
            Self::Tiles(tiles) => figures.extend(tiles.iter().map(|tile| &tile.figure)),
            Self::Table(table) => table.rows.iter().flatten().for_each(|cell| of(cell)),
            Self::Heading(_) | Self::Chart { .. } => {}
            Self::Fold { blocks, .. } => blocks.iter().for_each(|block| block.collect(figures)),
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

/// A cell with `piece` alone.
pub(crate) fn cell(piece: impl Into<Piece>) -> Vec<Piece> {
    vec![piece.into()]
}

/// A cell with a figure, or with `why` where there is none.
pub(crate) fn figure_or(figure: Option<Figure>, why: &str) -> Vec<Piece> {
    figure.map_or_else(|| cell(why), cell)
}
