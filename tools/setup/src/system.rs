//! The system's OpenSSL configuration, which a server must keep: TLS limits, engines, other
//! providers.
//!
//! OpenSSL reads one file. Ours therefore includes the system's and adds settings to the same
//! sections, so their names must be known here. If they change later, OpenSSL does not find ours and
//! does everything by itself.

use crate::error::SetupError;
use crate::parts::plain;
use crate::stamp;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use widelane_files::Root;

/// Settings of the system's configuration that ours adds to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// The file to include.
    pub(crate) include: Option<PathBuf>,
    /// Text of that file, if it must be copied because it begins with a byte order mark: OpenSSL leaves that out of the
    /// file that it reads first, and refuses one that is included.
    pub(crate) copy: Option<String>,
    /// The section that `openssl_conf` names.
    pub(crate) start: Option<String>,
    /// The section with the list of providers.
    pub(crate) providers: Option<String>,
    /// The section of the provider `default`.
    pub(crate) default: Option<String>,
    /// The section with the property query.
    pub(crate) properties: Option<String>,
    /// The property query.
    pub(crate) query: Option<String>,
}

impl System {
    /// Reads `file`, or the usual one if there is one. Both are paths below `root`.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or says something that ours cannot be added to.
    pub fn read(root: &Root, file: Option<&Path>) -> Result<Self, SetupError> {
        let usual = || USUAL.iter().map(Path::new).find(|path| root.has(path));
        let Some(path) = file.or_else(usual) else {
            return Ok(Self::default());
        };
        plain(path)?;
        let mut settings = Settings::default();
        settings.read(root, path, 0)?;
        Self::of(path, &settings)
    }

    /// The file that is copied and not included: what changes in it later has no effect on the server.
    pub fn copied(&self) -> Option<&Path> {
        self.include.as_deref().filter(|_| self.copy.is_some())
    }

    fn of(path: &Path, settings: &Settings) -> Result<Self, SetupError> {
        let get = |section: Option<&str>, name: &str| -> Result<Option<String>, SetupError> {
            let section = section.and_then(|section| settings.sections.get(section));
            match section.and_then(|section| section.get(name)) {
                Some(value) if value.contains('$') => Err(SetupError::Computed {
                    path: path.to_owned(),
                    name: name.to_owned(),
                    value: value.clone(),
                }),
                value => Ok(value.cloned()),
            }
        };
        let start = get(Some(TOP), "openssl_conf")?;
        let providers = get(start.as_deref(), "providers")?;
        let default = get(providers.as_deref(), "default")?;
        let properties = get(start.as_deref(), "alg_section")?;
        let query = get(properties.as_deref(), "default_properties")?;
        if get(providers.as_deref(), "widelane")?.is_some() {
            return Err(SetupError::AlreadyThere { path: path.to_owned() });
        }
        let fips_only = default.is_none() && get(providers.as_deref(), "fips")?.is_some();
        let asks = |part: &str| matches!(part.trim(), "fips" | "fips=yes");
        if fips_only || query.as_deref().is_some_and(|query| query.split(',').any(asks)) {
            return Err(SetupError::Fips { path: path.to_owned() });
        }
        Ok(Self {
            include: Some(path.to_owned()),
            copy: settings.copy.clone(),
            start,
            providers,
            default,
            properties,
            query,
        })
    }
}

/// Returns whether OpenSSL reads a line. A line that it cannot read makes it refuse the whole file, and everything in
/// ours.
fn is_readable(line: &str) -> bool {
    let is_directive = [".include", ".pragma"].iter().any(|name| line.starts_with(name));
    match line.chars().next() {
        None => true,
        Some(MARK) => false,
        Some('[') => line.contains(']'),
        Some(_) => is_directive || line.contains('='),
    }
}

/// The text of a file, `None` if there is none.
pub(crate) fn read(root: &Root, path: &Path) -> Result<Option<String>, SetupError> {
    match root.read(path, MOST_BYTES) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SetupError::Read {
            path: root.outside(path),
            source,
        }),
    }
}

/// Sections with their settings, as OpenSSL merges them: `config(5)`.
#[derive(Default)]
struct Settings {
    sections: BTreeMap<String, BTreeMap<String, String>>,
    current: Option<String>,
    /// The text of the first file, if it begins with a byte order mark.
    copy: Option<String>,
}

impl Settings {
    fn read(&mut self, root: &Root, path: &Path, depth: usize) -> Result<(), SetupError> {
        if root.has_folder(path) {
            return self.read_folder(root, path, depth);
        }
        let Some(mut text) = read(root, path)? else {
            // OpenSSL ignores a file that is included and does not exist.
            return match depth {
                0 => Err(SetupError::Read {
                    path: root.outside(path),
                    source: rustix::io::Errno::NOENT.into(),
                }),
                _ => Ok(()),
            };
        };
        if depth == 0
            && let Some(rest) = text.strip_prefix(MARK)
        {
            text = rest.to_owned();
            self.copy = Some(text.clone());
        }
        if stamp::is_ours(&text) {
            return Err(SetupError::AlreadyThere { path: path.to_owned() });
        }
        let mut lines = text.lines().zip(1..);
        while let Some((line, number)) = lines.next() {
            let mut line = uncommented(line);
            while line.ends_with('\\') {
                line.pop();
                line.push_str(&uncommented(lines.next().map_or("", |(line, _)| line)));
            }
            let line = line.trim();
            if !is_readable(line) {
                return Err(SetupError::Malformed {
                    path: path.to_owned(),
                    line: number,
                });
            }
            self.line(root, line, depth)?;
        }
        Ok(())
    }

    fn read_folder(&mut self, root: &Root, path: &Path, depth: usize) -> Result<(), SetupError> {
        let names = root.names(path).map_err(|source| SetupError::Read {
            path: root.outside(path),
            source,
        })?;
        let is_read = |path: &PathBuf| {
            let end = path.extension();
            end.is_some_and(|end| end == "cnf" || end == "conf")
        };
        let mut paths = names.iter().map(|name| path.join(name)).filter(is_read);
        // The files in the folder are included by the folder's line.
        paths.try_for_each(|path| self.read(root, &path, depth.max(1)))
    }

    fn line(&mut self, root: &Root, line: &str, depth: usize) -> Result<(), SetupError> {
        let section = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        if let Some((section, _)) = section {
            self.current = Some(section.trim().to_owned());
            return Ok(());
        }
        if let Some(included) = line.strip_prefix(".include") {
            let included = unquoted(included.trim_start().trim_start_matches('=').trim());
            let path = Path::new(&included);
            // A relative path depends on the working directory of the server.
            if path.is_absolute() && depth < DEEPEST {
                self.read(root, path, depth + 1)?;
            }
            return Ok(());
        }
        let Some((name, value)) = line.split_once('=') else {
            return Ok(());
        };
        let name = name.trim();
        let current = self.current.as_deref().unwrap_or(TOP);
        let (section, name) = name.split_once("::").unwrap_or((current, name));
        let section = self.sections.entry(section.to_owned()).or_default();
        section.insert(name.to_owned(), unquoted(value.trim()));
        Ok(())
    }
}

/// A line without its comment.
fn uncommented(line: &str) -> String {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in line.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (None, '#') => return line[..at].to_owned(),
            (None, '"' | '\'' | '`') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    line.to_owned()
}

fn unquoted(value: &str) -> String {
    value.replace(['"', '\'', '`'], "")
}

/// The section in which a file begins.
pub(crate) const TOP: &str = "default";
/// Debian's, and that of Red Hat.
const USUAL: [&str; 2] = ["/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf"];
/// The byte order mark.
const MARK: char = '\u{feff}';
/// No configuration is so long.
pub(crate) const MOST_BYTES: u64 = 16 << 20;
/// Deeper includes are those of a file that includes itself.
const DEEPEST: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn system(files: &[(&str, &str)]) -> Result<System, SetupError> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        System::read(&Root::open(root.path()).unwrap(), None)
    }

    fn debian(text: &str) -> Result<System, SetupError> {
        system(&[("etc/ssl/openssl.cnf", text)])
    }

    #[test]
    fn without_a_file_there_is_nothing_to_keep() {
        assert_eq!(system(&[]).unwrap(), System::default());
        let named = System::read(&Root::of_this_system(), Some(Path::new("/no/such.cnf")));
        assert!(matches!(named, Err(SetupError::Read { .. })));
    }

    #[test]
    fn a_line_that_openssl_refuses_is_named() {
        for wrong in ["[ start", "providers", ".other x"] {
            let found = system(&[
                ("etc/ssl/openssl.cnf", "a = \\\n b\n.include /etc/more.cnf\n"),
                ("etc/more.cnf", &format!(".pragma dollarid:on\n\n{wrong} # x\n")),
            ]);
            let message = found.unwrap_err().to_string();
            assert!(message.starts_with("/etc/more.cnf:3: OpenSSL refuses"), "{message}");
        }
    }

    #[test]
    fn sections_are_found_through_comments_includes_and_repeated_sections() {
        let found = system(&[
            (
                "etc/pki/tls/openssl.cnf",
                "openssl_conf = \"start\" # first\n\
                 [ list ]\n default = def # the usual\n legacy = leg\n\
                 .include = /etc/more\n.include /etc/none.cnf\n.include relative.cnf\n\
                 alg_section = \\\n  algs\n[other]\nalgs::default_properties = ?tpm=yes\n",
            ),
            ("etc/more/b.cnf", "[ start ]\n"),
            ("etc/more/a.conf", "[start]\nproviders=list\n"),
            ("etc/more/c.txt", "[start]\nproviders=wrong\n"),
        ]);
        let expected = System {
            include: Some("/etc/pki/tls/openssl.cnf".into()),
            copy: None,
            start: Some("start".into()),
            providers: Some("list".into()),
            default: Some("def".into()),
            properties: Some("algs".into()),
            query: Some("?tpm=yes".into()),
        };
        assert_eq!(found.unwrap(), expected);
    }

    /// OpenSSL leaves a byte order mark out of the first file alone.
    #[test]
    fn a_file_with_a_byte_order_mark_is_copied_and_an_included_one_refused() {
        let text = "openssl_conf = s\n[s]\nproviders = p\n";
        let found = debian(&format!("{MARK}{text}")).unwrap();
        assert_eq!(found.start.as_deref(), Some("s"));
        assert_eq!(found.copy.as_deref(), Some(text));
        assert_eq!(found.copied(), Some(Path::new("/etc/ssl/openssl.cnf")));
        assert_eq!(debian(text).unwrap().copied(), None);
        let included = system(&[
            ("etc/ssl/openssl.cnf", ".include /etc/more.cnf\n"),
            ("etc/more.cnf", &format!("{MARK}a = b\n")),
        ]);
        let message = included.unwrap_err().to_string();
        assert!(message.starts_with("/etc/more.cnf:1: OpenSSL refuses"), "{message}");
    }

    #[test]
    fn what_ours_cannot_be_added_to_is_refused() {
        let with = |rest: &str| debian(&format!("openssl_conf = s\n[s]\n{rest}"));
        let properties = "alg_section = a\n[a]\ndefault_properties = ";
        for fips in [
            "providers = p\n[p]\nfips = f\nbase = b\n".to_owned(),
            format!("{properties}fips=yes\n"),
            format!("{properties}?tpm=yes, fips\n"),
        ] {
            assert!(matches!(with(&fips), Err(SetupError::Fips { .. })), "{fips}");
        }
        assert!(with(&format!("{properties}?fips=yes\n")).is_ok());
        let there = "providers = p\n[p]\nwidelane = w\n";
        assert!(matches!(with(there), Err(SetupError::AlreadyThere { .. })));
        let computed = "x = y\nproviders = $x\n";
        assert!(matches!(with(computed), Err(SetupError::Computed { .. })));
        let ours = stamp::stamped(&crate::Server::of_unit("nginx").unwrap(), "");
        assert!(matches!(debian(&ours), Err(SetupError::AlreadyThere { .. })));
        // The file would include itself for ever.
        assert!(debian(".include /etc/ssl/openssl.cnf\n").is_ok());
    }
}
