//! `widelane setup`: the OpenSSL provider in other people's servers.

use crate::clock::clock;
use crate::values::pid;
use clap::ArgGroup;
use clap::builder::PossibleValuesParser;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_cli::places::{CACHE, Places};
use widelane_cpu::Target;
use widelane_setup::{
    Options, Parts, Plan, Process, Root, Server, Setup, SetupError, System, Way, already_set, check_program,
    environment, forbidden, notes, undo,
};
use widelane_text::escaped;
use widelane_threads::Proc;

/// Let nginx, HAProxy, Apache and other programs with OpenSSL compute handshakes in shared passes
///
/// It writes an OpenSSL configuration for this program and a drop-in for its systemd unit, after it
/// has shown them, said what to expect, and asked. The configuration of the system and of the program
/// stay as they are, and the program is not restarted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    group(ArgGroup::new("program").required(true).args(["server", "unit", "inspect"]))
)]
pub(crate) struct Args {
    /// A program whose unit and way of waiting are known
    #[arg(value_name = "SERVER", value_parser = PossibleValuesParser::new(Server::names()))]
    server: Option<String>,

    /// Any systemd service whose program uses OpenSSL 3.0 or later as a shared library
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,

    /// Give a program that is not in the table the library that suspends handshakes: for one event loop a process, as
    /// --inspect tells
    #[arg(long, conflicts_with = "undo")]
    suspend: bool,

    /// Only look at a running program, and say what to expect of it
    #[arg(long, value_name = "PID", value_parser = pid, conflicts_with_all = WRITING)]
    inspect: Option<u32>,

    /// Only show what would be written
    #[arg(long, conflicts_with_all = ["undo", "env"])]
    print: bool,

    /// Remove what was written
    #[arg(long, conflicts_with_all = [
        "env", "provider", "shim", "imports", "profile", "no_statistics", "operations", "backend", "prefer",
        "chacha20poly1305", "overload", "log", "system_config",
    ])]
    undo: bool,

    /// For a server that is started by hand: write its OpenSSL configuration and print the variables
    /// for its environment
    #[arg(long, conflicts_with_all = ["root", "yes"])]
    env: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Replace or remove files that were edited, too, load libraries that other users can change, and set up programs
    /// that are not known to use OpenSSL
    #[arg(long)]
    force: bool,

    /// The operations that Widelane offers: all (the default) or a list of rsa, ecdsa, ed25519,
    /// x25519, ecdh, mlkem, mldsa
    #[arg(long, value_name = "LIST")]
    operations: Option<String>,

    #[arg(long, value_name = "NAME", help = backends())]
    backend: Option<String>,

    /// Who computes what OpenSSL can do, too: measured (the faster one, the default), widelane or openssl
    #[arg(long, value_name = "WHO")]
    prefer: Option<String>,

    /// The code that encrypts with ChaCha20-Poly1305: auto, 512-ifma, 512, 256 or 256-light, for records of
    /// 16 KiB [default: OpenSSL's own]
    #[arg(long, value_name = "FORM")]
    chacha20poly1305: Option<String>,

    /// Whether the kernel's queues of connections are kept short while more come than the server can serve, in nginx
    /// and lighttpd: on (the default) or off
    #[arg(long, value_name = "ON|OFF")]
    overload: Option<String>,

    /// What the provider writes to the server's standard error: off, warn (the default) or info
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,

    /// Keep other processes from reading what the provider counts: `widelane status` shows nothing
    #[arg(long)]
    no_statistics: bool,

    /// What wide code does to the clock: a profile, or a model with published figures such as "Gold
    /// 6130" [default: what `widelane probe` has measured here]
    #[arg(long, value_name = "FILE|MODEL")]
    profile: Option<String>,

    /// The provider, where it is not beside this program or in OpenSSL's folder for modules
    #[arg(long, value_name = "PATH")]
    provider: Option<PathBuf>,

    /// The library that suspends handshakes in programs with an event loop, where it is not in a usual place
    #[arg(long, value_name = "PATH")]
    shim: Option<PathBuf>,

    /// For programs with an event loop: without LD_PRELOAD. The provider puts the library that suspends
    /// handshakes into the imports of the program
    #[arg(long)]
    imports: bool,

    /// The OpenSSL configuration to keep [default: that of the system]
    #[arg(long, value_name = "PATH")]
    system_config: Option<PathBuf>,

    /// Where --env writes the OpenSSL configuration [default: a file in /run/widelane (root),
    /// $XDG_RUNTIME_DIR/widelane, or without that /tmp/widelane-UID]
    #[arg(long, value_name = "PATH", requires = "env")]
    config: Option<PathBuf>,

    /// Read and write below this folder, for packages and images
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = Root::open(&args.root).map_err(|source| {
        let path = args.root.clone();
        failed(SetupError::Read { path, source })
    })?;
    if let Some(pid) = args.inspect {
        return inspect(pid);
    }
    let server = server(args, &root)?;
    let server = &match args.suspend {
        true => server.suspending(),
        false => server,
    };
    if args.undo {
        return remove(args, server, &root);
    }
    let setup = setup(args, server, &root)?;
    let checked = match args.force {
        true => Ok(()),
        false => setup.parts.check(),
    };
    if args.env {
        checked.map_err(failed)?;
        return by_hand(args, &root, &setup);
    }
    let plan = setup.plan(&root, args.force || args.print).map_err(failed)?;
    let mut remarks = server.expectations();
    remarks.extend(notes(&root, server).map_err(failed)?);
    remarks.extend(forbidden(&root, server, &setup.parts).map_err(failed)?);
    remarks.extend(remarks_about_here(args, &setup));
    match check_program(&root, server) {
        Err(error) if args.print || args.force => remarks.push(format!("{error}.")),
        other => other.map_err(failed)?,
    }
    for found in [checked, already_set(&root, server, setup.way)] {
        match found {
            Err(error) if args.print => remarks.push(format!("{error}.")),
            other => other.map_err(failed)?,
        }
    }
    let mut text = plan.diff();
    if plan.changes().is_empty() {
        let _ = writeln!(text, "{server} is already set up.");
    }
    for remark in remarks {
        let _ = writeln!(text, "\n{remark}");
    }
    output::print(&text)?;
    if args.print {
        return Ok(());
    }
    if !plan.changes().is_empty() {
        carry_out(args, server, &plan, "Write these files?")?;
    }
    match args.root == Path::new("/") {
        true => output::print(&decisions(&setup.config_path())),
        false => Ok(()),
    }
}

/// The program that is named.
fn server(args: &Args, root: &Root) -> Result<Server, Failure> {
    if let Some(unit) = &args.unit {
        return Server::of_unit(unit).map_err(|error| Failure::Usage(error.to_string()));
    }
    let named = args.server.as_deref().and_then(|name| Server::named(root, name));
    named.ok_or_else(|| Failure::Usage("name a program, --unit or --inspect".to_owned()))
}

/// Says what to expect of a running program. The status tells whether Widelane can be put into it.
fn inspect(pid: u32) -> Result<(), Failure> {
    let found = Process::inspect(&Proc::here(), pid);
    let found = found.map_err(|error| Failure::Failed(error.to_string()))?;
    let sentences = found.sentences();
    let lines: Vec<_> = sentences.iter().map(|one| escaped(one) + "\n").collect();
    output::print(&lines.join("\n"))?;
    match found.is_suitable() {
        true => Ok(()),
        false => Err(Failure::Failed(format!("process {pid} cannot be set up"))),
    }
}

/// Says who computes what on this machine, and why: one line for each operation, as the provider measures and
/// decides it. Empty if there is no program with OpenSSL to load it, and if the provider does not start.
fn decisions(config: &Path) -> String {
    let run = || {
        let config = widelane_setup::measuring(config).ok()?;
        let mut openssl = Command::new("openssl")
            .args(["list", "-providers"])
            .env("OPENSSL_CONF", "/dev/stdin")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        // Dropped at once, which ends the program's input.
        openssl.stdin.take()?.write_all(config.as_bytes()).ok()?;
        openssl.wait_with_output().ok()
    };
    let said = run().map_or_else(Vec::new, |ended| ended.stderr);
    let said = String::from_utf8_lossy(&said);
    let decided = |line: &str| {
        let (operation, decision) = line.strip_prefix("widelane: ")?.split_once(": ")?;
        let is_operation = !operation.contains(' ');
        is_operation.then(|| format!("  {operation:<20} {}\n", widelane_text::escaped(decision)))
    };
    let lines: String = said.lines().filter_map(decided).collect();
    match lines.is_empty() {
        true => lines,
        false => {
            format!("\nWho computes what here, with the OpenSSL of the program `openssl`:\n{lines}")
        }
    }
}

fn remove(args: &Args, server: &Server, root: &Root) -> Result<(), Failure> {
    let plan = undo(server, root, args.force).map_err(failed)?;
    if plan.changes().is_empty() {
        return output::print(&format!("There is nothing to undo for {server}.\n"));
    }
    output::print(&plan.diff())?;
    carry_out(args, server, &plan, "Remove these files?")
}

/// Asks, does it, and says what is done and what is left to do.
fn carry_out(args: &Args, server: &Server, plan: &Plan<'_>, question: &str) -> Result<(), Failure> {
    // Who is asked must see the question.
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !args.yes && !terminal {
        return Err(Failure::Usage(
            "nothing is changed: there is no terminal on which to ask; --yes answers".to_owned(),
        ));
    }
    plan.check().map_err(failed)?;
    if !args.yes {
        output::print(&format!("\n{question} [y/N] "))?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(Failure::Failed("nothing is changed".to_owned()));
        }
    }
    plan.apply().map_err(failed)?;
    let mut text = "\n".to_owned();
    for change in plan.changes() {
        let done = if change.removes() { "removed" } else { "wrote" };
        let _ = writeln!(text, "{done} {}", change.path().display());
    }
    if args.root == Path::new("/") {
        let systemd = Path::new(SYSTEMD).is_dir();
        let _ = writeln!(text, "\n{}", left_to_do(server, args.undo, systemd));
    }
    output::print(&text)
}

/// Says what the administrator must do for the files to have an effect.
fn left_to_do(server: &Server, undone: bool, systemd: bool) -> String {
    match (systemd, undone) {
        (true, _) => {
            format!("To take effect: systemctl daemon-reload && systemctl restart {server}")
        }
        (false, false) => format!(
            "systemd does not run here, so its drop-in has no effect. Start {server} with the \
             variables that `widelane setup {} --env` prints.",
            server.argument()
        ),
        (false, true) => format!(
            "systemd does not run here: restart {server} without the variables OPENSSL_CONF and \
             LD_PRELOAD."
        ),
    }
}

fn by_hand(args: &Args, root: &Root, setup: &Setup) -> Result<(), Failure> {
    let config = config_by_hand(args, &setup.server)?;
    let (plan, variables) = environment(setup, root, &config, args.force).map_err(failed)?;
    plan.apply().map_err(failed)?;
    for remark in remarks_about_here(args, setup) {
        output::complain(&format!("widelane: {remark}\n"));
    }
    output::complain(&decisions(&config));
    let mut text = String::new();
    for (name, value) in variables {
        let _ = writeln!(text, "{name}={value}");
    }
    output::print(&text)
}

/// The OpenSSL configuration of a server that is started by hand.
fn config_by_hand(args: &Args, server: &Server) -> Result<PathBuf, Failure> {
    let name = format!("openssl-{server}.cnf");
    Ok(match &args.config {
        Some(path) => std::path::absolute(path)?,
        None => Places::here().runtime().join(name),
    })
}

fn setup(args: &Args, server: &Server, root: &Root) -> Result<Setup, Failure> {
    let options = options(args).map_err(|error| Failure::Usage(error.to_string()));
    let mut options = options?;
    // A folder for another machine gets no profile of this one.
    if args.root == Path::new("/") || args.profile.is_some() {
        let clock = clock(args.profile.as_deref())?.unwrap_or_default();
        let penalties = [clock.wide, clock.narrow];
        options.set_clock(penalties.map(|one| (one.depth, one.stall, one.tail)));
    }
    options.keep_calibration_in(&match args.env {
        true => config_by_hand(args, server)?.with_file_name(CALIBRATION),
        false => Path::new(CACHE).join(CALIBRATION),
    });
    let program = std::env::current_exe()?;
    let (provider, shim) = (args.provider.clone(), args.shim.clone());
    Ok(Setup {
        server: server.clone(),
        parts: Parts::find(server, &program, provider, shim).map_err(failed)?,
        system: System::read(root, args.system_config.as_deref()).map_err(failed)?,
        options,
        way: match args.imports {
            true => Way::Imports,
            false => Way::Preload,
        },
    })
}

/// The provider's options that are given as texts.
fn options(args: &Args) -> Result<Options, SetupError> {
    let mut options = Options::new(args.operations.as_deref(), args.backend.as_deref(), args.log.as_deref())?;
    if args.no_statistics {
        options.without_statistics();
    }
    if let Some(who) = &args.prefer {
        options.set_prefer(who)?;
    }
    if let Some(form) = &args.chacha20poly1305 {
        options.set_chacha20poly1305(form)?;
    }
    if let Some(text) = &args.overload {
        options.set_overload(text)?;
    }
    Ok(options)
}

/// Says what this machine and this build mean for the server.
fn remarks_about_here(args: &Args, setup: &Setup) -> Vec<String> {
    let mut remarks = Vec::new();
    if args.imports && !setup.server.needs_shim() {
        remarks.push(format!(
            "--imports changes nothing for {}, which gets no library that suspends handshakes.",
            setup.server
        ));
    }
    if args.root == Path::new("/") {
        let lacking = widelane_cpu::lanes().why_none();
        remarks.extend(lacking.map(|lacking| {
            format!(
                "No lanes here: {lacking}. Widelane computes what OpenSSL lacks, and what it does faster one by one."
            )
        }));
    }
    if let Some(copied) = setup.system.copied() {
        remarks.push(format!(
            "{} begins with a byte order mark, and OpenSSL cannot include it: it is copied. Run this again when \
             it changes.",
            copied.display()
        ));
    }
    if setup.parts.is_build() && !args.env {
        remarks.push(format!(
            "{} is in a build folder, which the next build changes. `make install-openssl` puts it \
             in a place where it stays.",
            setup.parts.provider.display()
        ));
    }
    remarks
}

fn failed(error: SetupError) -> Failure {
    let refused = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
    Failure::Failed(match &error {
        SetupError::Write { source, .. } if refused(source) => {
            format!("{error}; run this with sudo")
        }
        error => error.to_string(),
    })
}

/// Options that have no meaning where nothing is written.
const WRITING: [&str; 18] = [
    "print",
    "undo",
    "env",
    "yes",
    "force",
    "operations",
    "backend",
    "prefer",
    "chacha20poly1305",
    "overload",
    "suspend",
    "log",
    "no_statistics",
    "profile",
    "provider",
    "shim",
    "imports",
    "system_config",
];
/// File with what passes cost on this machine.
const CALIBRATION: &str = "openssl-calibration";
/// The folder that tells that systemd is the init of this system: `sd_booted(3)`.
const SYSTEMD: &str = "/run/systemd/system";
/// The help of `--backend`.
fn backends() -> String {
    let targets: Vec<_> = Target::ALL.into_iter().rev().map(Target::with_caveat).collect();
    format!(
        "The code that computes: auto (the default), {} or aws-lc",
        targets.join(", ")
    )
}

const EXAMPLES: &str = "\
Examples:
  sudo widelane setup nginx
  widelane setup haproxy --print
  sudo widelane setup apache2 --operations rsa,x25519 --log info
  sudo widelane setup nginx --imports
  sudo widelane setup nginx --overload off
  sudo widelane setup nginx --undo
  sudo widelane setup redis
  sudo widelane setup --inspect 4711      what to expect of a running program; changes nothing
  sudo widelane setup --unit my-server    any service with OpenSSL 3.0 or later
  sudo widelane setup --unit my-server --suspend    the same, for a program with one event loop
  sudo widelane setup --unit my-server --undo
  env $(widelane setup lighttpd --env) lighttpd -D -f lighttpd.conf

The files: /etc/widelane/openssl-UNIT.cnf, /etc/systemd/system/UNIT.service.d/widelane.conf, and
for nginx /etc/nginx/modules-enabled/90-widelane.conf where nginx.conf includes that folder.

Exit status: 0 it is set up, taken back or shown, 1 it cannot be, or nothing was changed, 2 the call was wrong.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_do_depends_on_systemd() {
        let nginx = Server::of_unit("nginx").unwrap();
        let left = |undone, systemd| left_to_do(&nginx, undone, systemd);
        for undone in [false, true] {
            assert!(left(undone, true).ends_with("systemctl restart nginx"));
            assert!(!left(undone, false).contains("systemctl"));
        }
        assert!(left(false, false).contains("`widelane setup nginx --env`"));
        assert!(left(true, false).contains("without the variables"));
    }
}
