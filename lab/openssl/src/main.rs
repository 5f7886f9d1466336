//! `build-openssl FOLDER`: builds the `openssl` programs of OpenSSL 3.5, 4.0 and 1.1.1 once, and prints
//! their paths, one a line.
//!
//! For tests that need another implementation of the post-quantum groups and certificates than
//! ours, or versions of OpenSSL that distributions have later or no more. The sources come as Rust packages,
//! the build wants perl, make and a C compiler and takes a few minutes of CPU time. Nothing is installed:
//! FOLDER gets a program of each version, and beside it the folder with its shared libraries, which
//! the program finds wherever both are moved together. The next call finds them there. The program of
//! 1.1.1 has its libraries inside, as programs had it that were built apart from their distribution.
//!
//! It is not a way to get OpenSSL for production: what the tests do not use is left out, and the
//! compiler is asked for little optimisation.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Form in which a program has OpenSSL's libraries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Files beside the program: OpenSSL 3 or later.
    Shared,
    /// Inside: OpenSSL 1.1.1, which does not know all options of later versions.
    Static,
}

/// Reason why there is no program.
#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error("call it with one folder, for example target/openssl")]
    Usage,
    #[error("cannot write to {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot run {program}: {source}; install it (Debian: apt-get install perl make gcc)")]
    NoProgram {
        program: &'static str,
        source: io::Error,
    },
    #[error("{step} ended with {status}; see {}", log.display())]
    Step {
        step: &'static str,
        status: std::process::ExitStatus,
        log: PathBuf,
    },
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let built = match (arguments.next(), arguments.next()) {
        (Some(folder), None) => build_all(Path::new(&folder)),
        _ => Err(BuildError::Usage),
    };
    match built {
        Ok(programs) => {
            for program in programs {
                println!("{}", program.display());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("build-openssl: {error}");
            ExitCode::from(if matches!(error, BuildError::Usage) {
                2
            } else {
                1
            })
        }
    }
}

/// The programs in `folder`: OpenSSL 3.5, then 4.0, then 1.1.1.
fn build_all(folder: &Path) -> Result<[PathBuf; 3], BuildError> {
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let folder = folder.canonicalize().map_err(failed(folder))?;
    let shared = Form::Shared;
    let long_term = build(
        &folder,
        openssl_3::version(),
        &openssl_3::source_dir(),
        shared,
    )?;
    let newest = build(
        &folder,
        openssl_4::version(),
        &openssl_4::source_dir(),
        shared,
    )?;
    let old = build(
        &folder,
        openssl_1::version(),
        &openssl_1::source_dir(),
        Form::Static,
    )?;
    Ok([long_term, newest, old])
}

fn failed(path: &Path) -> impl Fn(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::Folder {
        path: path.clone(),
        source,
    }
}

/// The program of one version in `folder`, built if it is not there yet.
fn build(folder: &Path, package: &str, source: &Path, form: Form) -> Result<PathBuf, BuildError> {
    // A package's version ends with OpenSSL's, as in `300.5.5+3.5.5`.
    let version = package.rsplit('+').next().unwrap_or(package);
    let program = folder.join(format!("openssl-{version}"));
    if program.is_file() {
        return Ok(program);
    }
    let place = folder.join(format!("build-{version}"));
    // An interrupted build may have left half-written files.
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).map_err(failed(&place))?;
    let log = folder.join("build.log");
    let output = File::create(&log).map_err(failed(&log))?;

    let libraries = format!("libraries-{version}");
    let sources = place.join("sources");
    complete(source, &sources, form).map_err(failed(&sources))?;
    let mut configure = Command::new("perl");
    configure.arg(sources.join("Configure"));
    configure.args(["linux-x86_64", "-O1"]).args(LEFT_OUT);
    configure.args(match form {
        Form::Shared => LEFT_OUT_SINCE_3,
        Form::Static => &["no-shared"],
    });
    // The Makefile and its shell take away one dollar and the backslash.
    configure.arg(format!(r"-Wl,-rpath,\$$ORIGIN/{libraries}"));
    // No configuration of the machine's may change what a test sees.
    configure.arg(format!("--openssldir={}", folder.join("etc").display()));
    run(
        "Configure",
        "perl",
        configure.current_dir(&place),
        &output,
        &log,
    )?;

    let jobs = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut make = Command::new("make");
    make.arg(format!("-j{jobs}")).arg("build_programs");
    // A make around this one must not lend its job slots.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
    run("make", "make", make.current_dir(&place), &output, &log)?;

    // The program comes last and by another name first: one that is found is a whole one.
    let libraries = folder.join(libraries);
    fs::create_dir_all(&libraries).map_err(failed(&libraries))?;
    for entry in fs::read_dir(&place).map_err(failed(&place))?.flatten() {
        if entry.file_name().to_string_lossy().contains(".so.") {
            let library = libraries.join(entry.file_name());
            fs::copy(entry.path(), &library).map_err(failed(&library))?;
        }
    }
    let partial = folder.join("openssl.partial");
    fs::copy(place.join("apps/openssl"), &partial)
        .and_then(|_| fs::rename(&partial, &program))
        .map_err(failed(&program))?;
    let _ = fs::remove_dir_all(&place);
    Ok(program)
}

/// Makes a folder of links to the sources, with the one script that the package lacks and that
/// shared libraries need.
fn complete(source: &Path, folder: &Path, form: Form) -> io::Result<()> {
    let link_all = |from: &Path, to: &Path| -> io::Result<()> {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if form == Form::Static || entry.file_name() != "util" {
                symlink(entry.path(), to.join(entry.file_name()))?;
            }
        }
        Ok(())
    };
    link_all(source, folder)?;
    if form == Form::Static {
        return Ok(());
    }
    let scripts = folder.join("util");
    link_all(&source.join("util"), &scripts)?;
    fs::write(scripts.join("mkdef.pl"), include_str!("mkdef.pl"))
}

fn run(
    step: &'static str,
    program: &'static str,
    command: &mut Command,
    output: &File,
    log: &Path,
) -> Result<(), BuildError> {
    let missing = |source| BuildError::NoProgram { program, source };
    let both = output
        .try_clone()
        .and_then(|out| Ok((out, output.try_clone()?)));
    let (out, err) = both.map_err(|source| BuildError::Folder {
        path: log.to_owned(),
        source,
    })?;
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let status = command.status().map_err(missing)?;
    if status.success() {
        return Ok(());
    }
    Err(BuildError::Step {
        step,
        status,
        log: log.to_owned(),
    })
}

/// Parts that no test of ours speaks, or that would make the build depend on the machine.
const LEFT_OUT: &[&str] = &[
    "no-engine",
    "no-tests",
    "no-makedepend",
    "no-zlib",
    "no-comp",
    "no-ui-console",
    "no-dtls",
    "no-sctp",
    "no-srtp",
    "no-srp",
    "no-psk",
    "no-nextprotoneg",
    "no-ssl3",
    "no-tls1",
    "no-tls1_1",
    "no-ct",
    "no-ts",
    "no-ocsp",
    "no-rfc3779",
    "no-gost",
    "no-dsa",
    "no-ec2m",
    "no-sm2",
    "no-sm3",
    "no-sm4",
    "no-aria",
    "no-bf",
    "no-blake2",
    "no-camellia",
    "no-cast",
    "no-des",
    "no-idea",
    "no-md4",
    "no-mdc2",
    "no-rc2",
    "no-rc4",
    "no-rmd160",
    "no-scrypt",
    "no-seed",
    "no-siphash",
    "no-whirlpool",
];

/// Parts to leave out that OpenSSL 1.1.1 does not have: it refuses unknown options.
const LEFT_OUT_SINCE_3: &[&str] = &[
    "no-legacy",
    "no-docs",
    "no-http",
    "no-quic",
    "no-cmp",
    "no-slh-dsa",
    "no-siv",
];
