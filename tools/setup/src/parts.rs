//! The libraries that a server needs: where they are.

use crate::error::{EXTRA, SetupError};
use crate::server::Server;
use std::path::{Path, PathBuf};

/// The libraries for one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The provider, which OpenSSL loads.
    pub provider: PathBuf,
    /// The library that suspends handshakes, for servers that need it.
    pub shim: Option<PathBuf>,
}

impl Parts {
    /// The named files, and for each that is not named the first in the usual places: beside
    /// `program`, where a build puts it, then where an installation puts it.
    ///
    /// # Errors
    ///
    /// When one is nowhere, or has a path that configurations cannot hold.
    pub fn find(
        server: &Server,
        program: &Path,
        provider: Option<PathBuf>,
        shim: Option<PathBuf>,
    ) -> Result<Self, SetupError> {
        let provider = choose(provider, &PROVIDER, || providers(program))?;
        let shim = match server.needs_shim() {
            true => Some(choose(shim, &SHIM, || shims(program))?),
            false => None,
        };
        Ok(Self { provider, shim })
    }

    /// Refuses libraries that others than root and this user can change: the server loads them, as root where it
    /// is started so, for as long as it is set up.
    ///
    /// # Errors
    ///
    /// When others can change the file or a folder above it: names which.
    pub fn check(&self) -> Result<(), SetupError> {
        for library in [Some(&self.provider), self.shim.as_ref()].into_iter().flatten() {
            let read = |source| SetupError::Read {
                path: library.clone(),
                source,
            };
            if let Some(place) = widelane_files::writable_by_others(library).map_err(read)? {
                let library = library.clone();
                return Err(SetupError::Exposed { library, place });
            }
        }
        Ok(())
    }

    /// Returns whether a file is one that `cargo` built, which its next run may replace or remove.
    pub fn is_build(&self) -> bool {
        let built = |path: &Path| path.with_file_name(BUILD).exists();
        built(&self.provider) || self.shim.as_deref().is_some_and(built)
    }
}

/// A path that every file of ours can hold as it is: configurations of OpenSSL, units of systemd and
/// LD_PRELOAD have different rules for special characters.
pub(crate) fn plain(path: &Path) -> Result<&str, SetupError> {
    let fits = |text: &&str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || EXTRA.contains(c);
        path.is_absolute() && text.chars().all(fits)
    };
    path.to_str()
        .filter(fits)
        .ok_or_else(|| SetupError::Path { path: path.to_owned() })
}

fn choose(
    named: Option<PathBuf>,
    library: &'static Library,
    places: impl FnOnce() -> Vec<PathBuf>,
) -> Result<PathBuf, SetupError> {
    let path = match named {
        Some(path) if !path.is_file() => return Err(SetupError::NoFile(path)),
        Some(path) => {
            let read = |source| SetupError::Read {
                path: path.clone(),
                source,
            };
            if !library.is(&widelane_files::read_named(&path, MOST_BYTES).map_err(read)?) {
                return Err(SetupError::OtherFile { path, library });
            }
            // A relative path means something else to a server.
            path.canonicalize().map_err(read)?
        }
        None => {
            let looked = places();
            let found = looked.iter().find(|path| path.is_file()).cloned();
            found.ok_or(SetupError::NotFound { library, looked })?
        }
    };
    plain(&path)?;
    Ok(path)
}

/// A library of ours.
#[derive(Debug)]
pub struct Library {
    /// Name in messages.
    pub(crate) name: &'static str,
    /// The option that names its file.
    pub(crate) option: &'static str,
    /// A symbol that it exports and the other one does not.
    pub(crate) symbol: &'static str,
}

const PROVIDER: Library = Library {
    name: "provider",
    option: "--provider",
    symbol: "OSSL_provider_init",
};
const SHIM: Library = Library {
    name: "library that suspends handshakes",
    option: "--shim",
    symbol: "widelane_suspension_1",
};

impl Library {
    /// Returns whether a file with this content can be the library. The name of a symbol stands in an ELF file as it
    /// is.
    fn is(&self, content: &[u8]) -> bool {
        let mut windows = content.windows(self.symbol.len());
        content.starts_with(b"\x7fELF") && windows.any(|text| text == self.symbol.as_bytes())
    }
}

fn providers(program: &Path) -> Vec<PathBuf> {
    let mut places = vec![program.with_file_name("libwidelane_openssl.so")];
    for prefix in prefixes(program) {
        for library in LIBRARIES {
            places.push(prefix.join(library).join("ossl-modules/widelane.so"));
        }
    }
    places
}

fn shims(program: &Path) -> Vec<PathBuf> {
    let mut places = vec![program.with_file_name(SHIM_FILE)];
    for prefix in prefixes(program) {
        places.push(prefix.join("lib/widelane").join(SHIM_FILE));
    }
    places
}

/// Prefixes to search, that of the program first. OpenSSL's module directory may be in another one.
fn prefixes(program: &Path) -> Vec<PathBuf> {
    let own = program.parent().and_then(Path::parent).map(Path::to_owned);
    let mut prefixes: Vec<PathBuf> = own.into_iter().collect();
    for usual in ["/usr/local", "/usr"] {
        if !prefixes.iter().any(|known| known == Path::new(usual)) {
            prefixes.push(usual.into());
        }
    }
    prefixes
}

const SHIM_FILE: &str = "libwidelane_openssl_shim.so";
/// Folders of libraries in distributions: Debian's, those of Red Hat and SUSE, others.
const LIBRARIES: [&str; 3] = ["lib/x86_64-linux-gnu", "lib64", "lib"];
/// Largest size of a library: with the debug information of everything it is smaller.
const MOST_BYTES: u64 = 1 << 30;
/// A file that cargo keeps beside what it builds.
const BUILD: &str = ".cargo-lock";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn server(unit: &str) -> Server {
        Server::of_unit(unit).unwrap()
    }

    const PROVIDER_CONTENT: &str = "\x7fELF OSSL_provider_init";

    fn put(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn what_lies_beside_the_program_comes_before_what_is_installed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let program = folder.join("bin/widelane");
        let installed = folder.join("lib/x86_64-linux-gnu/ossl-modules/widelane.so");
        let find = || Parts::find(&server("haproxy"), &program, None, None).unwrap();
        put(&installed);
        assert_eq!(find().provider, installed);
        assert!(!find().is_build());
        let beside = folder.join("bin/libwidelane_openssl.so");
        put(&beside);
        put(&folder.join("bin/.cargo-lock"));
        assert_eq!(find().provider, beside);
        assert!(find().is_build());
        assert_eq!(find().shim, None);
    }

    #[test]
    fn a_missing_library_names_every_place_and_the_way_to_install_it() {
        let provider = tempfile::NamedTempFile::with_suffix("x").unwrap();
        fs::write(&provider, PROVIDER_CONTENT).unwrap();
        let provider = Some(provider.path().to_owned());
        let found = Parts::find(&server("nginx"), Path::new("/no/bin/widelane"), provider, None);
        let message = found.unwrap_err().to_string();
        for part in [
            "/no/bin/libwidelane_openssl_shim.so\n",
            "/no/lib/widelane/libwidelane_openssl_shim.so\n",
            "/usr/local/lib/widelane/libwidelane_openssl_shim.so\n",
            "make install-openssl",
            "--shim PATH",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn libraries_that_others_can_change_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/w.so");
        put(&file);
        let parts = |shim| Parts {
            provider: file.clone(),
            shim,
        };
        let allow = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        allow(&file, 0o644);
        allow(&folder.path().join("a"), 0o755);
        parts(None).check().unwrap();
        let shim = folder.path().join("b/shim.so");
        put(&shim);
        allow(&shim, 0o644);
        allow(&folder.path().join("b"), 0o777);
        let error = parts(Some(shim)).check().unwrap_err().to_string();
        assert!(error.contains("/b, and with it what the server loads"), "{error}");
        allow(&file, 0o666);
        assert!(matches!(parts(None).check(), Err(SetupError::Exposed { place, .. }) if place.ends_with("w.so")));
    }

    #[test]
    fn a_named_library_must_exist_and_have_a_plain_path() {
        let named = |path: &Path| {
            let provider = Some(path.to_owned());
            Parts::find(&server("haproxy"), Path::new("/no/widelane"), provider, None)
        };
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(
            named(folder.path()),
            Err(SetupError::NoFile(path)) if path == folder.path()
        ));
        let strange = folder.path().join("a $b.so");
        fs::write(&strange, PROVIDER_CONTENT).unwrap();
        assert!(matches!(named(&strange), Err(SetupError::Path { .. })));
        // A text, and the other library.
        for other in ["OSSL_provider_init", "\x7fELF widelane_suspension_1"] {
            let path = folder.path().join("other.so");
            fs::write(&path, other).unwrap();
            let message = named(&path).unwrap_err().to_string();
            let expected = "is not the provider: it has no symbol OSSL_provider_init; without --provider,";
            assert!(message.contains(expected), "{message}");
        }
    }
}
