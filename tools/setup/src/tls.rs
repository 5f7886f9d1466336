//! The TLS library of a program.

use crate::elf::{Elf, Unfit};
use crate::error::SetupError;
use crate::server::Server;
use crate::unit::Unit;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use widelane_files::Root;

/// Source of a program's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// OpenSSL 3.0 or later, as a shared library of this name: it loads providers.
    OpenSsl(String),
    /// A shared libssl of this name that loads no providers.
    OtherLibssl(String),
    /// Another library.
    Other(&'static str),
    /// Functions of libssl in the program itself.
    Inside,
    /// A program without shared libraries.
    Static,
    /// No library that is known. A module may bring one.
    NotSeen,
    /// A program of another kind, into which the provider cannot be loaded whatever its TLS library is.
    OtherKind(Unfit),
}

impl Tls {
    /// Chooses by the names of libraries.
    pub(crate) fn of<'a>(libraries: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found = Self::NotSeen;
        for name in libraries {
            if let Some(version) = name.strip_prefix("libssl.so") {
                let number = version.strip_prefix('.').and_then(|version| {
                    let first = version.split('.').next()?;
                    first.parse::<u32>().ok()
                });
                // Red Hat calls 0.9.8 and 1.0 by 6 and 10; LibreSSL counts from 26 on.
                if number.is_some_and(|number| (3..6).contains(&number)) {
                    return Self::OpenSsl(name.to_owned());
                }
                found = Self::OtherLibssl(name.to_owned());
            }
            let other = OTHERS.iter().find(|(prefix, _)| name.starts_with(prefix));
            if let (Self::NotSeen, Some((_, title))) = (&found, other) {
                found = Self::Other(title);
            }
        }
        found
    }

    /// The same of a program and the libraries that it needs, with theirs.
    pub(crate) fn of_program(root: &Root, path: &Path) -> Result<Self, Unreadable> {
        let read = |path: &Path| root.read(path, MOST_BYTES);
        let content = read(path).map_err(|error| Unreadable(format!("cannot be read: {error}")))?;
        let program = match Elf::parse(&content) {
            Err(unfit) if unfit.is_of_other_kind() => return Ok(Self::OtherKind(unfit)),
            parsed => parsed.map_err(|unfit| Unreadable(unfit.to_string()))?,
        };
        if !program.has_loader {
            return Ok(Self::inside(&program));
        }
        let inside = Self::inside(&program);
        let usual = usual_folders(root);
        let mut names = BTreeSet::new();
        let mut left = vec![(path.to_owned(), program)];
        while let Some((path, elf)) = left.pop() {
            for name in elf.needed {
                // One with a folder is none that the loader looks for.
                let is_new = names.len() < MOST_LIBRARIES && !name.contains('/');
                if !is_new || !names.insert(name.clone()) {
                    continue;
                }
                let own = elf.folders.iter().map(|folder| origin(folder, &path));
                let mut places = own.chain(usual.iter().cloned()).map(|folder| folder.join(&name));
                // The loader passes over libraries for other CPUs.
                left.extend(places.find_map(|place| {
                    let elf = Elf::parse(&read(&place).ok()?).ok()?;
                    Some((place, elf))
                }));
            }
        }
        Ok(match Self::of(names.iter().map(|name| &**name)) {
            found @ Self::OpenSsl(_) => found,
            found if inside == Self::Static => found,
            _ => inside,
        })
    }

    /// The same by the program's file alone: [`Static`](Self::Static) if that names none.
    pub(crate) fn inside(program: &Elf) -> Self {
        match program {
            Elf { is_go: true, .. } => Self::Other("Go's crypto/tls"),
            Elf {
                has_loader: true,
                has_libssl: true,
                ..
            } => Self::Inside,
            _ => Self::Static,
        }
    }

    /// Returns whether the provider can be loaded: `None` if that cannot be told.
    pub(crate) fn takes_providers(&self) -> Option<bool> {
        match self {
            Self::OpenSsl(_) => Some(true),
            Self::NotSeen => None,
            _ => Some(false),
        }
    }
}

impl fmt::Display for Tls {
    /// A part of a sentence whose subject is the program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenSsl(name) => {
                write!(f, "uses OpenSSL 3.0 or later as a shared library ({name})")
            }
            Self::OtherLibssl(name) => write!(
                f,
                "uses {name}, which is no OpenSSL 3.0 or later and loads no providers"
            ),
            Self::Other(title) => write!(f, "has its TLS from {title}, not from OpenSSL"),
            Self::Inside => f.write_str("has its TLS library inside, and no shared libssl"),
            Self::Static => f.write_str("is static: no library can be loaded into it"),
            Self::NotSeen => f.write_str(
                "names no TLS library; a module that it loads later, or a program that it starts, may have one",
            ),
            Self::OtherKind(unfit) => unfit.fmt(f),
        }
    }
}

/// Reason why a program's file tells nothing.
pub(crate) struct Unreadable(pub(crate) String);

/// Looks whether the program of a server's unit can load the provider, and whether it may load our libraries.
///
/// # Errors
///
/// When it cannot, or that is not known of it: says why. A program of the table without a unit is not looked at.
pub fn check_program(root: &Root, server: &Server) -> Result<(), SetupError> {
    let unit = match Unit::read(root, server.unit())? {
        Some(unit) => unit,
        None if server.known().is_some() => return Ok(()),
        None => {
            return Err(SetupError::NoUnit { server: server.clone() });
        }
    };
    let Some(program) = unit.program.as_deref().and_then(|path| located(root, path)) else {
        return match server.known() {
            Some(_) => Ok(()),
            None => Err(SetupError::NoProgram { server: server.clone() }),
        };
    };
    let loads_tls = server.known().is_some_and(|known| known.loads_tls);
    let why = match Tls::of_program(root, &program) {
        // Its own library comes later, whatever it has for other purposes.
        Ok(tls) if loads_tls && !matches!(tls, Tls::Static | Tls::OtherKind(_)) => return Ok(()),
        Ok(tls) if tls.takes_providers() == Some(true) => return Ok(()),
        Ok(tls) => tls.to_string(),
        // A starter of the distribution.
        Err(_) if server.known().is_some() => return Ok(()),
        Err(Unreadable(why)) => why,
    };
    Err(SetupError::Unsuitable {
        program: root.outside(&program),
        why,
    })
}

/// The program of a unit, which may be named without a folder.
fn located(root: &Root, name: &str) -> Option<PathBuf> {
    if name.contains('%') {
        return None;
    }
    let folders = PROGRAMS.iter().map(|folder| Path::new(folder).join(name));
    let mut places = [PathBuf::from(name)]
        .into_iter()
        .filter(|path| path.is_absolute())
        .chain(folders);
    places.find(|path| root.has(path))
}

/// Folders in which the loader of every program looks.
fn usual_folders(root: &Root) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let listed = Path::new("/etc/ld.so.conf.d");
    for name in root.names(listed).unwrap_or_default() {
        let text = root.read(&listed.join(name), MOST_LIST).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().map(str::trim);
        folders.extend(lines.filter(|line| line.starts_with('/')).map(PathBuf::from));
    }
    folders.extend(USUAL.map(PathBuf::from));
    folders
}

/// A folder of an ELF file, in which `$ORIGIN` is that of the file itself.
fn origin(folder: &str, file: &Path) -> PathBuf {
    let own = file.parent().unwrap_or(file).to_string_lossy();
    let folder = folder.replace("${ORIGIN}", &own).replace("$ORIGIN", &own);
    PathBuf::from(folder)
}

/// Libraries by the beginning of their files' names.
const OTHERS: [(&str, &str); 6] = [
    ("libgnutls.so", "GnuTLS"),
    ("libssl3.so", "NSS"),
    ("libmbedtls.so", "Mbed TLS"),
    ("libwolfssl.so", "wolfSSL"),
    ("libs2n.so", "s2n-tls"),
    ("libbotan-", "Botan"),
];
const USUAL: [&str; 7] = [
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// Folders in which systemd looks for programs.
const PROGRAMS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
/// Largest program or library: browsers are smaller.
pub(crate) const MOST_BYTES: u64 = 1 << 30;
/// Longest list of folders.
const MOST_LIST: u64 = 1 << 20;
/// Programs have some hundred at most.
const MOST_LIBRARIES: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::{foreign_sample, go_sample, sample};
    use object::elf::{ELFCLASS32, ELFCLASS64, ELFDATA2LSB, EM_386, EM_AARCH64};

    #[test]
    fn libraries_are_known_by_the_names_of_their_files() {
        let of = |names: &[&str]| Tls::of(names.iter().copied());
        let open = |name: &str| Tls::OpenSsl(name.into());
        let old = |name: &str| Tls::OtherLibssl(name.into());
        assert_eq!(of(&["libc.so.6", "libssl.so.3"]), open("libssl.so.3"));
        assert_eq!(of(&["libgnutls.so.30", "libssl.so.4"]), open("libssl.so.4"));
        assert_eq!(of(&["libssl.so.1.1", "libcrypto.so.1.1"]), old("libssl.so.1.1"));
        // LibreSSL's, and BoringSSL's.
        assert_eq!(of(&["libssl.so.53"]), old("libssl.so.53"));
        assert_eq!(of(&["libssl.so.10"]), old("libssl.so.10"));
        assert_eq!(of(&["libssl.so"]), old("libssl.so"));
        assert_eq!(of(&["libc.so.6", "libgnutls.so.30"]), Tls::Other("GnuTLS"));
        assert_eq!(of(&["libcrypto.so.3"]), Tls::NotSeen);
        assert_eq!(of(&["libssl.so.x", ""]), old("libssl.so.x"));
    }

    struct Tree(
        Root,
        #[expect(dead_code, reason = "goes when this does")] tempfile::TempDir,
    );

    impl Tree {
        fn new(files: &[(&str, &[u8])]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = Root::open(folder.path()).unwrap();
            for (name, content) in files {
                root.replace(Path::new(name), content, 0o755).unwrap();
            }
            Self(root, folder)
        }

        fn message(&self, unit: &str) -> Option<String> {
            let server = Server::of_unit(unit).unwrap();
            let checked = check_program(&self.0, &server);
            checked.err().map(|error| error.to_string())
        }
    }

    /// Postfix's smtpd needs OpenSSL by a library of its own, in a folder of its own.
    #[test]
    fn libraries_of_libraries_count() {
        let program = sample(true, &["libown.so", "libc.so.6"], Some("$ORIGIN/../lib"));
        let library = sample(false, &["libssl.so.3"], None);
        let listed = sample(false, &["libgnutls.so.30"], None);
        let tree = Tree::new(&[
            ("/opt/a/bin/a", &program),
            ("/opt/a/lib/libown.so", &library),
            ("/etc/ld.so.conf.d/b.conf", b"# x\n/opt/b\n"),
            ("/opt/b/libc.so.6", &listed),
            ("/opt/loop", &sample(true, &["libc.so.6", "libx.so"], None)),
            ("/usr/lib/libx.so", &sample(false, &["libx.so", "liby.so"], None)),
        ]);
        let of = |path: &str| Tls::of_program(&tree.0, Path::new(path)).ok();
        assert_eq!(of("/opt/a/bin/a"), Some(Tls::OpenSsl("libssl.so.3".into())));
        assert_eq!(of("/opt/loop"), Some(Tls::Other("GnuTLS")));
        assert_eq!(of("/opt/none"), None);
    }

    #[test]
    fn a_unit_whose_program_cannot_load_the_provider_is_refused_with_the_reason() {
        let unit = |program: &str| format!("[Service]\nExecStart=-{program} --x\n");
        let open = sample(true, &["libssl.so.3"], None);
        let old = sample(true, &["libssl.so.1.1"], None);
        let gnutls = sample(true, &["libgnutls.so.30"], None);
        let none = sample(true, &["libc.so.6"], None);
        let fixed = sample(false, &[], None);
        let go = go_sample();
        let bits32 = foreign_sample(ELFCLASS32, ELFDATA2LSB, EM_386);
        let arm = foreign_sample(ELFCLASS64, ELFDATA2LSB, EM_AARCH64);
        let programs: [(&str, &[u8]); 9] = [
            ("open", &open),
            ("old", &old),
            ("gnutls", &gnutls),
            ("none", &none),
            ("fixed", &fixed),
            ("go", &go),
            ("bits32", &bits32),
            ("arm", &arm),
            ("script", b"#!/bin/sh\n"),
        ];
        let mut files = Vec::new();
        for (name, content) in programs {
            files.push((format!("/usr/sbin/{name}"), content.to_vec()));
            let text = unit(name).into_bytes();
            files.push((format!("/lib/systemd/system/{name}.service"), text));
        }
        for (known, program) in [
            ("lighttpd", "none"),
            ("nginx", "none"),
            ("apache2", "fixed"),
            ("mosquitto", "bits32"),
            ("dovecot", "bits32"),
        ] {
            let text = unit(&format!("/usr/sbin/{program}")).into_bytes();
            files.push((format!("/etc/systemd/system/{known}.service"), text));
        }
        let text = unit("/usr/sbin/gone").into_bytes();
        files.push(("/etc/systemd/system/gone.service".to_owned(), text));
        let files: Vec<_> = files.iter().map(|(name, content)| (&**name, &**content)).collect();
        let tree = Tree::new(&files);
        for (unit, expected) in [
            ("open", None),
            ("old", Some("uses libssl.so.1.1, which is no OpenSSL 3.0")),
            ("gnutls", Some("has its TLS from GnuTLS")),
            ("none", Some("names no TLS library")),
            ("fixed", Some("is static")),
            ("go", Some("has its TLS from Go's crypto/tls, not from OpenSSL")),
            ("bits32", Some("is a 32-bit program, which cannot load the provider")),
            ("arm", Some("is not for x86-64")),
            // Also of the table, and where a module has its TLS.
            ("mosquitto", Some("is a 32-bit program")),
            ("dovecot", Some("is a 32-bit program")),
            ("script", Some("is a script")),
            ("gone", Some("gone.service starts no program that is here")),
            ("absent", Some("there is no unit absent.service here")),
            // A module has its TLS.
            ("lighttpd", None),
            ("nginx", Some("names no TLS library")),
            ("apache2", Some("is static")),
            // Nothing is known where there is no unit.
            ("haproxy", None),
        ] {
            let message = tree.message(unit);
            match expected {
                None => assert_eq!(message, None, "{unit}"),
                Some(part) => {
                    let message = message.expect(unit);
                    assert!(message.contains(part), "{unit}: {message}");
                }
            }
        }
    }
}
