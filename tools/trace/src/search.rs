//! Matches the symbols of a file with the table.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::functions::Function;
use crate::symbols::Kind;
use crate::table::{Pattern, Table};

/// Functions of the table, as they are found among the symbols of a file.
pub(crate) struct Search<'t> {
    table: &'t Table,
    whole: HashMap<&'t [u8], Vec<usize>>,
    patterns: Vec<(Pattern<'t>, usize)>,
    /// True for each byte that is the last of a pattern.
    last: [bool; 256],
    marks: Vec<Mark<'t>>,
    found: Vec<Found<'t>>,
    /// True if a function of the table is imported.
    pub(crate) imports: bool,
}

/// A symbol by which a library is known.
struct Mark<'t> {
    pattern: Pattern<'t>,
    library: &'t str,
    /// True if the symbol speaks for the library, false if against it.
    speaks_for: bool,
    seen: bool,
}

/// A symbol that a row of the table fits.
pub(crate) struct Found<'t> {
    /// The row.
    pub(crate) function: &'t Arc<Function>,
    /// Rank among the rows that fit the symbol; the first has 0.
    rank: usize,
    /// The whole symbol.
    pub(crate) name: &'t [u8],
    /// Address of the symbol.
    pub(crate) address: u64,
    /// Size of the function in bytes; 0 if the file does not say.
    pub(crate) size: u64,
}

impl<'t> Search<'t> {
    /// Makes one that has found nothing yet.
    pub(crate) fn new(table: &'t Table) -> Self {
        let mut search = Self {
            table,
            whole: HashMap::new(),
            patterns: Vec::new(),
            last: [false; 256],
            marks: Vec::new(),
            found: Vec::new(),
            imports: false,
        };
        for (row, function) in table.functions().iter().enumerate() {
            match Pattern::of(&function.symbol) {
                Pattern::Whole(symbol) => {
                    let rows = search.whole.entry(symbol.as_bytes()).or_default();
                    rows.push(row);
                }
                pattern => search.patterns.push((pattern, row)),
            }
        }
        for library in table.libraries() {
            let marks = library.with.iter().map(|symbol| (symbol, true));
            let marks = marks.chain(library.without.iter().map(|symbol| (symbol, false)));
            search.marks.extend(marks.map(|(symbol, speaks_for)| Mark {
                pattern: Pattern::of(symbol),
                library: &library.name,
                speaks_for,
                seen: false,
            }));
        }
        let patterns = search.patterns.iter().map(|(pattern, _)| *pattern);
        for pattern in patterns.chain(search.marks.iter().map(|mark| mark.pattern)) {
            match pattern.last() {
                Some(byte) => search.last[usize::from(byte)] = true,
                None => search.last = [true; 256],
            }
        }
        search
    }

    /// Returns whether nothing of the table has been found in the file.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds a symbol to the search.
    pub(crate) fn symbol(&mut self, name: &'t [u8], kind: Kind) {
        let patterns = name.last().is_some_and(|&byte| self.last[usize::from(byte)]);
        if patterns {
            let marks = self.marks.iter_mut();
            for mark in marks.filter(|mark| mark.pattern.matches(name)) {
                mark.seen = true;
            }
        }
        match kind {
            Kind::Import => {
                let fits = |(pattern, _): &(Pattern<'_>, usize)| pattern.matches(name);
                self.imports |= self.whole.contains_key(name) || patterns && self.patterns.iter().any(fits);
            }
            Kind::Function { address, size } => {
                let exact = self.whole.get(name).into_iter().flatten().copied();
                let mut rows: Vec<_> = exact.collect();
                if patterns {
                    let fitting = self.patterns.iter();
                    let fitting = fitting.filter(|(pattern, _)| pattern.matches(name));
                    rows.extend(fitting.map(|&(_, row)| row));
                }
                // The first row that applies to the file is taken when all symbols have been seen.
                for (rank, row) in rows.into_iter().enumerate() {
                    if let Some(function) = self.table.functions().get(row)
                        && self.found.len() < MOST_FUNCTIONS
                    {
                        self.found.push(Found {
                            function,
                            rank,
                            name,
                            address,
                            size,
                        });
                    }
                }
            }
            Kind::Other => {}
        }
    }

    fn applies(&self, library: &str) -> bool {
        let marks = || self.marks.iter().filter(|mark| mark.library == library);
        let mut with = marks().filter(|mark| mark.speaks_for).peekable();
        let speaks = with.peek().is_none() || with.any(|mark| mark.seen);
        speaks && !marks().any(|mark| !mark.speaks_for && mark.seen)
    }

    /// One row for each address. A row that names the symbol in full comes before a pattern, and both
    /// in the order of the table.
    pub(crate) fn best(&self) -> BTreeMap<u64, &Found<'t>> {
        let mut best: BTreeMap<u64, &Found<'t>> = BTreeMap::new();
        let applies: HashMap<&str, bool> = (self.found.iter())
            .map(|found| &*found.function.library)
            .map(|library| (library, self.applies(library)))
            .collect();
        for found in &self.found {
            if applies.get(&*found.function.library) == Some(&true) {
                let kept = best.entry(found.address).or_insert(found);
                // The tables of symbols may differ in what they say of the size.
                if (found.rank, Reverse(found.size)) < (kept.rank, Reverse(kept.size)) {
                    *kept = found;
                }
            }
        }
        best
    }
}

/// Bound for files that repeat their symbols again and again.
const MOST_FUNCTIONS: usize = 4096;
