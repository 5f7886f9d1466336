//! Programs and the CPUs on which they run.

use crate::condition::Condition;
use crate::error::TrialError;
use std::path::PathBuf;
use std::process::Command;

/// Programs and the CPUs on which they run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The `widelane` binary.
    pub widelane: PathBuf,
    /// The `widelane-lab` binary, which emulates other CPUs and measures single operations.
    pub lab: PathBuf,
    /// The `nginx` binary, if there is one to compare with.
    pub nginx: Option<PathBuf>,
    /// The `haproxy` binary, if there is one to compare with.
    pub haproxy: Option<PathBuf>,
    /// The `hitch` binary, if there is one to compare with.
    pub hitch: Option<PathBuf>,
    /// Another `widelane` binary, to compare with what it was before.
    pub old: Option<PathBuf>,
    /// CPU of every server.
    pub server_cpu: usize,
    /// CPU of the load generator.
    pub load_cpu: usize,
    /// The kinds of handshake that are compared.
    pub conditions: Vec<Condition>,
    /// Notes about this machine that readers need to judge the figures.
    pub notes: Vec<String>,
    /// True if a record may be written from a tree with uncommitted changes, and by a program of another commit.
    pub allow_modified: bool,
    /// The model as which the servers' CPU behaves, if it is to behave as one: see
    /// [`Options::emulated`].
    pub model: Option<String>,
}

impl Options {
    /// The command that runs `command` on CPUs that behave as those of [`Options::model`]; `command`
    /// itself without one. If `cpu` is given, the program stays there, and not on all of these CPUs.
    ///
    /// The CPUs of servers and load count as active. What the brake did is in the last line of what the
    /// program writes.
    pub fn emulated(&self, command: Command, cpu: Option<usize>) -> Command {
        let Some(model) = &self.model else {
            return command;
        };
        let mut outer = Command::new(&self.lab);
        // Published experiments are repeated with code as wide as theirs, whatever it multiplies by.
        outer.args(["emulate", "--json", "--all-instructions", "--as", model, "--cpus"]);
        outer.arg(format!("{},{}", self.server_cpu, self.load_cpu)).arg("--");
        if let Some(cpu) = cpu {
            outer.args(["taskset", "--cpu-list", &cpu.to_string()]);
        }
        outer.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer
    }

    /// Finds programs and CPUs: `widelane` beside this program, nginx where it is usually
    /// installed, the first CPU for the servers and one of another core for the load.
    ///
    /// # Errors
    ///
    /// [`TrialError::Machine`] if the system does not say which CPUs there are.
    pub fn find() -> Result<Self, TrialError> {
        let me = std::env::current_exe().map_err(TrialError::machine("cannot find this program's folder"))?;
        let cpus = widelane_affinity::allowed(None).map_err(TrialError::machine("cannot list the CPUs"))?;
        let server_cpu = cpus.iter().next().unwrap_or(0);
        let core = widelane_affinity::siblings(server_cpu);
        let other_core = cpus.without(&core).iter().next();
        let other_thread = cpus.iter().find(|&cpu| cpu != server_cpu);
        let mut notes = Vec::new();
        let load_cpu = match (other_core, other_thread) {
            (Some(cpu), _) => cpu,
            (None, Some(cpu)) => {
                notes.push(format!(
                    "CPUs {server_cpu} and {cpu} share a core: load and server slow each other."
                ));
                cpu
            }
            (None, None) => {
                notes.push(format!(
                    "Only CPU {server_cpu} is usable: the load takes part of it from every \
                     server, so all rates are too low and their ratios too close to 1."
                ));
                server_cpu
            }
        };
        Ok(Self {
            widelane: me.with_file_name("widelane"),
            lab: me,
            nginx: find_program("nginx"),
            haproxy: find_program("haproxy"),
            hitch: find_program("hitch"),
            old: None,
            server_cpu,
            load_cpu,
            conditions: Condition::BARE.into(),
            notes,
            allow_modified: false,
            model: None,
        })
    }
}

/// A server's program, where it is usually installed.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/usr/local/nginx/sbin"];
    std::env::split_paths(&path)
        .chain(usual.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
