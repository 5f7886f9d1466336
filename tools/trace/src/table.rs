//! The table of functions: the rows that are built in, and those of a user's file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use crate::functions::{Function, Returns, Role, Size};
use crate::marks::{MOST_ARGUMENTS, Mark};

/// Functions that can be traced, and the libraries that have them.
#[derive(Clone, Debug, Default)]
pub struct Table {
    functions: Vec<Arc<Function>>,
    marks: Vec<Arc<Mark>>,
    libraries: Vec<Library>,
}

/// A family of libraries.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    /// The name that rows have in `library`.
    pub name: String,
    /// Symbols of the library. Its rows apply only to a file that defines or imports one of them. Empty: to every file.
    #[serde(default)]
    pub with: Vec<String>,
    /// Symbols of other libraries: the rows do not apply to a file that defines or imports one of these.
    #[serde(default)]
    pub without: Vec<String>,
    /// True if the functions are Go's.
    #[serde(default)]
    pub goroutine: bool,
}

/// A mistake in a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// A row is wrong.
    #[error("{}, line {line}: {why}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Line of the mistake, from 1.
        line: usize,
        /// Description of the mistake, and what is allowed.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    #[serde(default)]
    library: Vec<Spanned<Library>>,
    #[serde(default)]
    function: Vec<Spanned<Function>>,
    #[serde(default)]
    probe: Vec<Spanned<Mark>>,
}

impl Table {
    /// The rows that are built in.
    ///
    /// # Panics
    ///
    /// Never: a test reads them.
    pub fn builtin() -> Self {
        let rows = Self::default().with_rows(BUILTIN, Path::new("functions.toml"));
        rows.expect("the table that is built in is valid")
    }

    /// Adds the rows of a file. A row of the file replaces one that has the same library and
    /// symbol.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or a row of it is wrong.
    pub fn with_file(self, path: &Path) -> Result<Self, TableError> {
        let read = |cause| TableError::Read {
            path: path.to_owned(),
            cause,
        };
        let file = widelane_threads::RegularFile::named(path).map_err(read)?;
        let bytes = file.read(MOST_BYTES).map_err(read)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            row(path, before, "it is not UTF-8 text".to_owned())
        })?;
        self.with_rows(text, path)
    }

    /// Adds the rows of a text; `path` is for messages.
    ///
    /// # Errors
    ///
    /// When a row is wrong.
    pub fn with_rows(mut self, text: &str, path: &Path) -> Result<Self, TableError> {
        let wrong = |at: usize, why| {
            let before = text.as_bytes().get(..at).unwrap_or_default();
            row(path, before, why)
        };
        let rows: Rows = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            wrong(at, error.message().to_owned())
        })?;
        for library in rows.library {
            let at = library.span().start;
            let library = library.into_inner();
            check_library(&library).map_err(|why| wrong(at, why))?;
            self.libraries.retain(|old| old.name != library.name);
            self.libraries.push(library);
        }
        let mut functions: Vec<Arc<Function>> = Vec::new();
        for function in rows.function {
            let at = function.span().start;
            let function = function.into_inner();
            check(&function, self.library(&function.library)).map_err(|why| wrong(at, why))?;
            if functions.iter().any(|other| same(other, &function)) {
                let why = format!("there is a row for {} already", function.symbol);
                return Err(wrong(at, why));
            }
            functions.push(Arc::new(function));
        }
        for mark in rows.probe {
            let at = mark.span().start;
            let mark = mark.into_inner();
            check_mark(&mark).map_err(|why| wrong(at, why))?;
            let named = |old: &Arc<Mark>| (&old.provider, &old.name) == (&mark.provider, &mark.name);
            self.marks.retain(|old| !named(old));
            self.marks.push(Arc::new(mark));
        }
        // The first match wins.
        let replaced = |old: &Arc<Function>| functions.iter().any(|new| same(new, old));
        let kept: Vec<_> = (self.functions.into_iter()).filter(|old| !replaced(old)).collect();
        functions.extend(kept);
        self.functions = functions;
        Ok(self)
    }

    /// The rows.
    pub fn functions(&self) -> &[Arc<Function>] {
        &self.functions
    }

    /// The row of a static probe.
    pub(crate) fn mark(&self, provider: &[u8], name: &[u8]) -> Option<&Arc<Mark>> {
        let mut marks = self.marks.iter();
        marks.find(|mark| mark.provider.as_bytes() == provider && mark.name.as_bytes() == name)
    }

    /// The families of libraries that say more than their name.
    pub fn libraries(&self) -> &[Library] {
        &self.libraries
    }

    /// A family of libraries.
    pub fn library(&self, name: &str) -> Option<&Library> {
        self.libraries.iter().find(|library| library.name == name)
    }

    /// Returns whether a function is Go's.
    pub fn is_goroutine(&self, function: &Function) -> bool {
        let library = self.library(&function.library);
        library.is_some_and(|library| library.goroutine)
    }
}

/// A symbol with at most one `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern<'a> {
    /// One symbol.
    Whole(&'a str),
    /// Symbols with this beginning and this end.
    Around(&'a str, &'a str),
    /// One symbol, alone or after a prefix that ends in `_`.
    Prefixed(&'a str),
}

impl<'a> Pattern<'a> {
    pub(crate) fn of(symbol: &'a str) -> Self {
        if let Some(rest) = symbol.strip_prefix("*_") {
            return Self::Prefixed(rest);
        }
        match stars(symbol)
            .next()
            .and_then(|at| Some((symbol.get(..at)?, symbol.get(at + 1..)?)))
        {
            Some((before, after)) => Self::Around(before, after),
            None => Self::Whole(symbol),
        }
    }

    pub(crate) fn matches(self, name: &[u8]) -> bool {
        match self {
            Self::Whole(whole) => name == whole.as_bytes(),
            Self::Around(before, after) => {
                (name.strip_prefix(before.as_bytes())).is_some_and(|rest| rest.ends_with(after.as_bytes()))
            }
            Self::Prefixed(end) => {
                (name.strip_suffix(end.as_bytes())).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with(b"_"))
            }
        }
    }

    /// Last byte of each symbol that the pattern matches; `None` if it can be any.
    pub(crate) fn last(self) -> Option<u8> {
        match self {
            Self::Whole(text) | Self::Prefixed(text) | Self::Around(_, text) => text.as_bytes().last().copied(),
        }
    }

    /// Number of literal bytes in the pattern.
    fn literal(self) -> usize {
        match self {
            Self::Whole(text) | Self::Prefixed(text) => text.len(),
            Self::Around(before, after) => before.len() + after.len(),
        }
    }
}

/// Places of each `*` that stands for any text.
fn stars(symbol: &str) -> impl Iterator<Item = usize> {
    let stars = symbol.match_indices('*').map(|(at, _)| at);
    stars.filter(|&at| !symbol[..at].ends_with('('))
}

fn same(a: &Function, b: &Function) -> bool {
    a.library == b.library && a.symbol == b.symbol
}

fn check_library(library: &Library) -> Result<(), String> {
    check_name("a library's name", &library.name)?;
    let mut symbols = library.with.iter().chain(&library.without);
    symbols.try_for_each(|symbol| check_symbol(symbol))
}

fn check_mark(mark: &Mark) -> Result<(), String> {
    check_name("library", &mark.library)?;
    check_name("provider", &mark.provider)?;
    check_name("name", &mark.name)?;
    match mark.arguments.len() {
        0..=MOST_ARGUMENTS => Ok(()),
        count => Err(format!(
            "{} has {count} arguments: {MOST_ARGUMENTS} are looked at",
            mark.name
        )),
    }
}

fn check(function: &Function, library: Option<&Library>) -> Result<(), String> {
    check_name("library", &function.library)?;
    check_symbol(&function.symbol)?;
    if let Some(symbol) = &function.instead {
        check_name("instead", symbol)?;
    }
    if let Some(symbol) = &function.state {
        check_name("state", symbol)?;
        let carries = matches!(function.role, Role::Read | Role::Write);
        if !carries {
            return Err("state is for functions that read or write data".to_owned());
        }
    }
    let go = library.is_some_and(|library| library.goroutine);
    let (most, kind) = match go {
        true => (8, "Go's registers"),
        false => (5, "arguments in registers"),
    };
    let in_size = match function.size {
        None | Some(Size::Result) => None,
        Some(Size::Argument(at) | Size::SizeBehind(at) | Size::IntBehind(at) | Size::PointersBehind(at)) => Some(at),
        Some(Size::GoResult(_)) if !go => return Err(only_go("go-result")),
        Some(Size::GoResult(at)) => Some(at),
    };
    let in_returns = match function.returns {
        Returns::GoError(_) if !go => return Err(only_go("go-error")),
        Returns::GoError(at) => Some(at),
        _ => None,
    };
    let numbers = [
        ("object", Some(function.object)),
        ("output", function.output),
        ("size", in_size),
        ("returns", in_returns),
    ];
    for (field, number) in numbers {
        if let Some(number) = number.filter(|&number| number > most) {
            return Err(format!("{field} is {number}: {kind} are counted from 0 to {most}"));
        }
    }
    match &function.name {
        Some(name) => check_name("name", name),
        None => Ok(()),
    }
}

fn only_go(what: &str) -> String {
    format!("{what} is for libraries with `goroutine = true`")
}

fn check_name(field: &str, name: &str) -> Result<(), String> {
    let fits = (1..=MOST_NAME).contains(&name.len());
    match fits && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(format!(
            "{field} is `{}`: 1 to {MOST_NAME} bytes without control characters are allowed",
            name.escape_debug()
        )),
    }
}

fn check_symbol(symbol: &str) -> Result<(), String> {
    check_name("symbol", symbol)?;
    if stars(symbol).count() > 1 {
        return Err(format!("the symbol {symbol} has more than one `*`: one is allowed"));
    }
    if Pattern::of(symbol).literal() < LEAST_LITERAL {
        return Err(format!(
            "the symbol {symbol} means too many functions: write at least {LEAST_LITERAL} letters \
             beside the `*`"
        ));
    }
    Ok(())
}

fn row(path: &Path, before: &[u8], why: String) -> TableError {
    TableError::Row {
        path: path.to_owned(),
        line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
        why,
    }
}

const BUILTIN: &str = include_str!("../functions.toml");
/// Tables are written by hand.
const MOST_BYTES: u64 = 1 << 20;
/// Go's names with their packages are long.
const MOST_NAME: usize = 256;
/// Fewer letters would mean half of a program.
const LEAST_LITERAL: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::Role;

    fn error(text: &str) -> String {
        let answer = Table::builtin().with_rows(text, Path::new("own.toml"));
        answer.unwrap_err().to_string()
    }

    #[test]
    fn what_is_built_in_is_valid_and_names_its_libraries() {
        let table = Table::builtin();
        for function in table.functions() {
            assert!(table.library(&function.library).is_some(), "{function:?}");
        }
        let handshake = |library: &str| {
            let rows = table.functions().iter();
            let mut rows = rows.filter(|row| row.library == library);
            rows.any(|row| row.role == Role::Handshake)
        };
        for library in ["openssl", "boringssl", "gnutls", "nss", "go"] {
            assert!(handshake(library), "{library}");
        }
    }

    #[test]
    fn a_file_adds_rows_and_replaces_those_of_the_same_symbol() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        std::fs::write(
            &path,
            "[[function]]\nlibrary = \"openssl\"\nsymbol = \"SSL_read\"\nrole = \"write\"\n\
             [[function]]\nlibrary = \"own\"\nsymbol = \"own_sign\"\nrole = \"sign\"\n\
             size = { int-behind = 3 }\n",
        )
        .unwrap();
        let before = Table::builtin().functions().len();
        let table = Table::builtin().with_file(&path).unwrap();
        assert_eq!(table.functions().len(), before + 1);
        let rows = |symbol: &str| {
            let rows = table.functions().iter();
            let rows = rows.filter(|row| row.symbol == symbol);
            rows.map(|row| (row.role, row.size)).collect::<Vec<_>>()
        };
        assert_eq!(rows("SSL_read"), [(Role::Write, None)]);
        assert_eq!(rows("own_sign"), [(Role::Sign, Some(Size::IntBehind(3)))]);
        let error = Table::builtin().with_file(&folder.path().join("none"));
        assert!(error.unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn mistakes_are_reported_with_the_line_and_what_is_allowed() {
        let head = "# a table\n[[function]]\nlibrary = \"openssl\"\n";
        for (rest, line, why) in [
            ("symbol = \"own_sign\"\nrole = \"sing\"\n", 5, "`sign`"),
            ("symbol = \"own_sign\"\n", 2, "role"),
            ("symbol = \"own_sign\"\nrole = \"sign\"\nobjet = 1\n", 6, "`object`"),
            ("symbol = \"own_sign\"\nrole = \"sign\"\nobject = 6\n", 2, "0 to 5"),
            ("symbol = \"\"\nrole = \"sign\"\n", 2, "1 to 256"),
            ("symbol = \"*_*_sign\"\nrole = \"sign\"\n", 2, "more than one"),
            ("symbol = \"*_a\"\nrole = \"sign\"\n", 2, "too many"),
            (
                "symbol = \"own_sign\"\nrole = \"sign\"\nreturns = { go-error = 0 }\n",
                2,
                "goroutine",
            ),
            (
                "symbol = \"own_sign\"\nrole = \"sign\"\n\
                 [[function]]\nlibrary = \"openssl\"\nsymbol = \"own_sign\"\nrole = \"sign\"\n",
                6,
                "already",
            ),
        ] {
            let error = error(&format!("{head}{rest}"));
            let place = format!("own.toml, line {line}: ");
            assert!(error.starts_with(&place) && error.contains(why), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        std::fs::write(&path, b"# a\n\xff\n").unwrap();
        let error = Table::builtin().with_file(&path).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("UTF-8"), "{error}");
    }

    #[test]
    fn patterns_mean_what_the_table_says() {
        let matches = |pattern, name: &str| Pattern::of(pattern).matches(name.as_bytes());
        for (pattern, name, expected) in [
            ("SSL_free", "SSL_free", true),
            ("SSL_free", "SSL_free2", false),
            ("*_RSA_sign", "RSA_sign", true),
            ("*_RSA_sign", "aws_lc_0_39_1_RSA_sign", true),
            ("*_RSA_sign", "MYRSA_sign", false),
            ("mbx_*_mb8", "mbx_x25519_mb8", true),
            ("mbx_*_mb8", "mbx_mb8", false),
            ("mbx_*_mb8", "ifma_x25519_mb8", false),
            ("a/tls.(*Conn).Close", "a/tls.(*Conn).Close", true),
            ("a/tls.(*Conn).Close", "a/tls.(x)*Conn).Close", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
