//! Parts of a section, before they become HTML or JSON.

use widelane_samples::{Cell, Figure, Piece, Table};

/// A part of the page with a title.
pub(crate) struct Section {
    /// Name for addresses and programs.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) blocks: Vec<Block>,
}

/// Part that stands below the one before.
pub(crate) enum Block {
    Text(Cell),
    Heading(String),
    List(Vec<Cell>),
    /// The figures behind an answer.
    Tiles(Vec<Tile>),
    Table(Table),
    Chart {
        /// SVG, whose texts are those of figures beside it. Several are on one scale.
        pictures: Vec<String>,
        caption: String,
    },
    /// Part that can be opened and closed.
    Fold {
        title: String,
        open: bool,
        blocks: Vec<Block>,
    },
}

/// A figure that is to be seen first.
pub(crate) struct Tile {
    pub(crate) title: String,
    pub(crate) figure: Figure,
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
        let mut of = |pieces: &'a [Piece]| figures.extend(pieces.iter().filter_map(Piece::figure));
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
