//! `widelane scan`: wide code in a program, a library or a running process.

use crate::object::object;
use crate::values::one_of;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_scan::{Class, Function, Generation, Image, Level, ScanError, scan_file, scan_process};
use widelane_text::{escaped, json_line};

/// Find functions with wide vector code, and the clock that they ask for
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// An ELF program or library, or the number of a running process
    #[arg(value_name = "FILE|PID")]
    target: PathBuf,

    /// Show at least functions of this class; 256-heavy and 512-light ask for the same licence
    #[arg(long, value_name = "CLASS", default_value = "256-heavy", value_parser = one_of(CLASSES))]
    from: Class,

    /// Show at most this many functions of a file; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 40)]
    limit: usize,

    /// Licence levels as on this generation of processors: skylake, cascade-lake, ice-lake,
    /// sapphire-rapids, emerald-rapids, granite-rapids, zen4, zen5
    #[arg(long, value_name = "NAME", default_value = "ice-lake", value_parser = generation)]
    generation: Generation,

    /// Print a JSON object a line for each function
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let (images, skipped) = scan(&args.target)?;
    for error in skipped {
        output::complain(&format!("widelane: skipped: {error}\n"));
    }
    output::print(&match args.json {
        true => lines(&images, &args),
        false => tables(&images, &args),
    })
}

/// A target of digits alone is a process, unless there is a file of that name.
fn scan(target: &Path) -> Result<(Vec<Image>, Vec<ScanError>), Failure> {
    let failed = |error: ScanError| Failure::Failed(error.to_string());
    let number = target.to_str().and_then(|text| text.parse().ok());
    match number {
        Some(pid) if !target.exists() => {
            let process = scan_process(pid).map_err(failed)?;
            Ok((process.images, process.skipped))
        }
        _ => Ok((vec![scan_file(target).map_err(failed)?], Vec::new())),
    }
}

/// A line for each function, for programs.
fn lines(images: &[Image], args: &Args) -> String {
    let mut text = String::new();
    for image in images {
        for function in shown(image, args) {
            let [scalar, vector128, light256, heavy256, light512, heavy512] = function.counts;
            text.push_str(&json_line(&object! {
                file: &image.path,
                function: function.name.as_deref(),
                near: function.near.as_deref(),
                used_by: &function.used_by,
                address: format!("{:#x}", function.address),
                bytes: function.size,
                class: function.class().name(),
                level: function.level(args.generation).map(Level::name),
                scalar,
                #[serde(rename = "128")]
                vector128,
                #[serde(rename = "256-light")]
                light256,
                #[serde(rename = "256-heavy")]
                heavy256,
                #[serde(rename = "512-light")]
                light512,
                #[serde(rename = "512-heavy")]
                heavy512,
                digit_products: function.digit_products,
            }));
        }
    }
    text
}

fn tables(images: &[Image], args: &Args) -> String {
    let mut text = String::new();
    for image in images {
        let wide = wide(image, args).count();
        let _ = writeln!(
            text,
            "{}: {wide} of {} functions have code of class {} or heavier{}",
            escaped(&image.path.to_string_lossy()),
            image.examined,
            args.from,
            if image.symbols { "" } else { " (no local symbols)" },
        );
        if wide == 0 {
            continue;
        }
        let _ = writeln!(
            text,
            "{:>10} {:>7} {:<9} {:<5} {:>9} {:>9} {:>9} {:>9}  function",
            "address", "bytes", "class", "level", "256", "256 heavy", "512", "512 heavy"
        );
        for function in shown(image, args) {
            let [_, _, light256, heavy256, light512, heavy512] = function.counts;
            let _ = writeln!(
                text,
                "{:>10x} {:>7} {:<9} {:<5} {:>9} {:>9} {:>9} {:>9}  {}",
                function.address,
                function.size,
                function.class().name(),
                function.level(args.generation).map_or("n/a", Level::name),
                light256,
                heavy256,
                light512,
                heavy512,
                escaped(&title(function)),
            );
        }
        let left_out = wide - shown(image, args).count();
        if left_out > 0 {
            let _ = writeln!(text, "… and {left_out} more; --limit 0 shows all");
        }
    }
    let _ = write!(
        text,
        "level: the licence that dense code of the class asks for on {}; n/a: nothing is published",
        args.generation
    );
    text.push_str(".\nWhat is there need not run: libraries choose among such functions by CPU.\n");
    text
}

/// Functions that are heavy enough.
fn wide<'a>(image: &'a Image, args: &Args) -> impl Iterator<Item = &'a Function> {
    let from = args.from;
    let wide = move |function: &&Function| function.class() >= from;
    image.functions.iter().filter(wide)
}

/// Functions that are shown.
fn shown<'a>(image: &'a Image, args: &Args) -> impl Iterator<Item = &'a Function> {
    let most = if args.limit == 0 || args.json {
        usize::MAX
    } else {
        args.limit
    };
    wide(image, args).take(most)
}

/// Name of a function. One that leads to it says more than what lies beside it.
fn title(function: &Function) -> String {
    let mut title = match (&function.name, &*function.used_by, &function.near) {
        (Some(name), _, _) => name.clone(),
        (None, [one], _) => format!("(for {one})"),
        (None, [one, others @ ..], _) => format!("(for {one} and {} others)", others.len()),
        (None, [], Some(near)) => format!("(beside the label \"{near}\")"),
        (None, [], None) => "(no name)".to_owned(),
    };
    if function.digit_products > 0 {
        let _ = write!(title, " (VPMADD52 {} times)", function.digit_products);
    }
    title
}

fn generation(text: &str) -> Result<Generation, String> {
    let names = || Generation::ALL.map(|(_, name)| name).join(", ");
    let unknown = |()| format!("no generation of that name; there are {}", names());
    text.parse().map_err(unknown)
}

/// The lightest classes that can be shown.
const CLASSES: [(&str, &str, Class); 4] = [
    ("256-light", "Any use of 256-bit registers", Class::Light256),
    (
        "256-heavy",
        "256-bit multiplications and floating-point arithmetic",
        Class::Heavy256,
    ),
    ("512-light", "Any use of 512-bit registers", Class::Light512),
    (
        "512-heavy",
        "512-bit multiplications and floating-point arithmetic",
        Class::Heavy512,
    ),
];

const EXAMPLES: &str = "\
Examples:
  widelane scan /usr/lib/x86_64-linux-gnu/libcrypto.so.3
  widelane scan --from 256-light /usr/bin/openssl
  widelane scan $(pidof -s nginx)
  widelane scan --json /usr/sbin/nginx

A function without a symbol is shown with an exported one that leads to it, or else with the text
nearest to it among the code, if that looks like the label of a module: hints, not names.";

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_number_is_a_process_and_anything_else_a_file() {
        // Has less code than the tests. It ends when its input ends.
        let piped = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut cat = piped.unwrap();
        // At its start, it has no code yet.
        cat.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let exe = std::fs::read_link(format!("/proc/{}/exe", cat.id())).unwrap();
        let (images, _) = scan(Path::new(&cat.id().to_string())).unwrap();
        assert!(images.iter().any(|image| image.path == exe));
        drop(cat.stdin.take());
        cat.wait().unwrap();
        let Err(Failure::Failed(message)) = scan(Path::new("no/such/file")) else {
            panic!("there is no such file");
        };
        assert!(message.contains("no/such/file"), "{message}");
    }

    #[test]
    fn an_unknown_generation_is_refused_with_the_choices() {
        assert_eq!(generation("zen5"), Ok(Generation::Zen5));
        assert!(generation("zen9").unwrap_err().contains("ice-lake, "));
    }
}
