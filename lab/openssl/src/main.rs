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

use std::error::Error;
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

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        eprintln!("build-openssl: call it with one folder, for example target/openssl");
        return ExitCode::from(2);
    };
    match build_all(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("build-openssl: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds OpenSSL 3.5, 4.0 and 1.1.1 in `folder`, and prints their programs.
fn build_all(folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let folder = folder.canonicalize().map_err(failed(folder))?;
    let packages = [
        (openssl_3::version(), openssl_3::source_dir(), Form::Shared),
        (openssl_4::version(), openssl_4::source_dir(), Form::Shared),
        (openssl_1::version(), openssl_1::source_dir(), Form::Static),
    ];
    for (package, source, form) in packages {
        println!("{}", build(&folder, package, &source, form)?.display());
    }
    Ok(())
}

fn failed(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("cannot write to {}: {error}", path.display())
}

/// Returns the program of one version in `folder`, built if it is not there yet.
fn build(folder: &Path, package: &str, source: &Path, form: Form) -> Result<PathBuf, Box<dyn Error>> {
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
    File::create(&log).map_err(failed(&log))?;

    let libraries = format!("libraries-{version}");
    let sources = place.join("sources");
    complete(source, &sources, form).map_err(failed(&sources))?;
    let mut configure = Command::new("perl");
    configure.arg(sources.join("Configure"));
    configure.args(["linux-x86_64", "-O1"]);
    configure.args(LEFT_OUT.split_whitespace());
    match form {
        Form::Shared => configure.args(LEFT_OUT_SINCE_3.split_whitespace()),
        Form::Static => configure.arg("no-shared"),
    };
    // The Makefile and its shell take away one dollar and the backslash.
    configure.arg(format!(r"-Wl,-rpath,\$$ORIGIN/{libraries}"));
    // No configuration of the machine's may change what a test sees.
    configure.arg(format!("--openssldir={}", folder.join("etc").display()));
    run(configure.current_dir(&place), &log)?;

    let jobs = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut make = Command::new("make");
    make.arg(format!("-j{jobs}")).arg("build_programs");
    // A make around this one must not lend its job slots.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
    run(make.current_dir(&place), &log)?;

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

/// Runs a step of the build, whose output goes to the end of the log.
fn run(command: &mut Command, log: &Path) -> Result<(), Box<dyn Error>> {
    let program = command.get_program().display().to_string();
    let output = || File::options().append(true).open(log).map_err(failed(log));
    command.stdin(Stdio::null()).stdout(output()?).stderr(output()?);
    let status = command.status().map_err(|error| {
        format!("cannot run {program}: {error}; install it (Debian: apt-get install perl make gcc)")
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{program} ended with {status}; see {}", log.display()).into()),
    }
}

/// Parts that no test of ours speaks, or that would make the build depend on the machine.
const LEFT_OUT: &str = "\
    no-engine no-tests no-makedepend no-zlib no-comp no-ui-console no-dtls no-sctp no-srtp no-srp no-psk \
    no-nextprotoneg no-ssl3 no-tls1 no-tls1_1 no-ct no-ts no-ocsp no-rfc3779 no-gost no-dsa no-ec2m no-sm2 no-sm3 \
    no-sm4 no-aria no-bf no-blake2 no-camellia no-cast no-des no-idea no-md4 no-mdc2 no-rc2 no-rc4 no-rmd160 \
    no-scrypt no-seed no-siphash no-whirlpool";

/// Parts to leave out that OpenSSL 1.1.1 does not have: it refuses unknown options.
const LEFT_OUT_SINCE_3: &str = "no-legacy no-docs no-http no-quic no-cmp no-slh-dsa no-siv";
