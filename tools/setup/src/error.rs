//! Errors of a setup.

use crate::parts::Library;
use crate::server::Server;
use std::io;
use std::path::PathBuf;

/// Reason why a server is not set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A library is in none of the usual places.
    #[error(
        "the {} is not found; looked for\n  {}\nThe package widelane and \
         `make install-openssl` install it; {} PATH names another place",
        .library.name,
        list(.looked),
        .library.option
    )]
    NotFound {
        /// Library that is missing.
        library: &'static Library,
        /// Paths that were searched.
        looked: Vec<PathBuf>,
    },
    /// The path of a library that was named is no file.
    #[error("{} is no file", .0.display())]
    NoFile(PathBuf),
    /// The file that was named for a library is something else.
    #[error(
        "{} is not the {}: it has no symbol {}; without {}, the installed one is looked for",
        .path.display(),
        .library.name,
        .library.symbol,
        .library.option
    )]
    OtherFile {
        /// The file.
        path: PathBuf,
        /// Library that the file should be.
        library: &'static Library,
    },
    /// Other users can change a library that the server is to load.
    #[error(
        "other users can change {}, and with it what the server loads from {}; make root own it and take their \
         right to write (chmod go-w), or accept it with --force",
        .place.display(),
        .library.display()
    )]
    Exposed {
        /// The library.
        library: PathBuf,
        /// The file itself, or a folder above it.
        place: PathBuf,
    },
    /// A path cannot be written into the files.
    #[error(
        "`{}` cannot be written into configurations: it must be absolute, and of letters, \
         digits and the characters {EXTRA}",
        .path.to_string_lossy().escape_debug()
    )]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// A list of operations, a backend or a level that the provider does not know.
    #[error("{option}: `{value}` is none of {known}")]
    Option {
        /// The option.
        option: &'static str,
        /// Value of the setting.
        value: String,
        /// The values that it can have.
        known: String,
    },
    /// No service of systemd has this name, or files cannot have it.
    #[error(
        "`{}` is no name of a service that can be set up: letters, digits and the characters -_.@+, with or without \
         .service at its end; of a socket or a timer, name the service that it starts, of a template one instance \
         (name@1)",
        .0.escape_debug()
    )]
    UnitName(String),
    /// The unit does not exist.
    #[error(
        "there is no unit {server}.service here; `systemctl list-units --type service` lists those that run. For a \
         program that is started by hand, see `widelane setup {} --env`",
        .server.argument()
    )]
    NoUnit {
        /// The program.
        server: Server,
    },
    /// The program of a unit is not known.
    #[error(
        "{server}.service starts no program that is here, so nothing tells whether it uses OpenSSL; --force sets it up \
         nevertheless"
    )]
    NoProgram {
        /// The program.
        server: Server,
    },
    /// The program of a unit cannot load the provider, or it is not known to.
    #[error(
        "{} {why}. `widelane setup --inspect PID` looks at the program while it runs; --force sets it up nevertheless",
        .program.display()
    )]
    Unsuitable {
        /// The program.
        program: PathBuf,
        /// A part of a sentence about the program.
        why: String,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A file could not be written or removed.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A file of ours was changed since, or is another's.
    #[error("{} was changed by hand: this is kept; --force overrides", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A folder for the configuration could be changed by other users.
    #[error("other users can write to {}, or it is a link; name a file of your own with --config", .path.display())]
    Untrusted {
        /// The folder.
        path: PathBuf,
    },
    /// The system's configuration allows FIPS algorithms only.
    #[error(
        "{} allows only algorithms of the FIPS provider, and Widelane's are not among them",
        .path.display()
    )]
    Fips {
        /// The file that says so.
        path: PathBuf,
    },
    /// The system's configuration has the provider already.
    #[error("{} has a provider named `widelane` already; remove it there first", .path.display())]
    AlreadyThere {
        /// The file that has it.
        path: PathBuf,
    },
    /// OpenSSL cannot read the system's configuration.
    #[error(
        "{}:{line}: OpenSSL refuses a file with this line, and would not load the provider: a section needs `]`, \
         a setting `=`, and a file that is included begins without a byte order mark; correct it first",
        .path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The system's configuration computes the name of a section that must be known.
    #[error("{}: `{name} = {value}`: a value with `$` cannot be kept", .path.display())]
    Computed {
        /// The file.
        path: PathBuf,
        /// The setting.
        name: String,
        /// Value of the setting.
        value: String,
    },
    /// A file that is not ours gives the server another value of a variable that it needs, or none.
    #[error(
        "{}:{line} sets or unsets {variable} for {server}; remove that line, or {}",
        .path.display(),
        match *variable {
            "LD_PRELOAD" => "use --imports, which needs no LD_PRELOAD".to_owned(),
            _ => format!("add by hand what `widelane setup {} --print` shows", server.argument()),
        }
    )]
    AlreadySet {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
        /// The variable.
        variable: &'static str,
        /// The server.
        server: Server,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join("\n  ")
}

/// Characters that a path may contain besides letters and digits.
pub(crate) const EXTRA: &str = "/._+-@~=";
