//! Server that takes the clients' connections: `widelane serve` in front of the pages, or nginx itself.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};
use widelane_handshakes::{Server, Stage, output};

use crate::error::ExperimentError;
use crate::programs::Programs;
use crate::web::{page, stripped};

/// A running one.
pub(crate) struct FrontServer {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    cpu: usize,
}

impl FrontServer {
    /// Starts a command, by whose name its output is kept, and waits until it takes connections. It stays on
    /// `cpu` if that is given; under a brake the command must see to that.
    pub(crate) fn start(
        stage: &Stage,
        name: &'static str,
        command: &mut Command,
        cpu: Option<usize>,
        address: SocketAddr,
    ) -> Result<Self, ExperimentError> {
        let mut server = Server::start(name, command, cpu, stage.folder())?;
        server.ready(address, stage.interrupt())?;
        Ok(Self {
            server,
            address,
            cpu: stage.options().server_cpu,
        })
    }

    /// Asks for the page and checks it. Gives its compressed length in bytes.
    pub(crate) fn check(&self, stage: &Stage, needs: &Programs) -> Result<usize, ExperimentError> {
        let url = format!("https://{}/", self.address);
        let get = |compressed: bool| {
            let mut command = Command::new(&needs.curl);
            command.args(["--silent", "--show-error", "--insecure", "--noproxy", "*"]);
            if compressed {
                command.args(["--header", "accept-encoding: br"]);
            }
            command.arg(&url);
            output(&mut command, stage.options().load_cpu, stage.interrupt())
        };
        let plain = get(false)?;
        let wrong = |what: String| ExperimentError::Answer {
            server: url.clone(),
            what,
        };
        if plain != stripped(&page()).as_bytes() {
            return Err(wrong(format!("{} bytes that are not the page", plain.len())));
        }
        let compressed = get(true)?.len();
        match (1..plain.len()).contains(&compressed) {
            true => Ok(compressed),
            false => Err(wrong(format!("{compressed} bytes, which are not compressed"))),
        }
    }

    /// Stops it. Gives the shares of the time for which the servers' core was at each level, under a
    /// brake, from its start to its end.
    pub(crate) fn stop(self) -> Option<Value> {
        levels_in(&self.server.stop(), self.cpu)
    }
}

/// Levels of one CPU that a brake prints at its end.
fn levels_in(log: &str, cpu: usize) -> Option<Value> {
    let lines = log.lines().rev();
    let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let summary = lines.find(|line| line["cpus"].is_array())?;
    let mut cpus = summary["cpus"].as_array()?.iter();
    let of = cpus.find(|one| one["cpu"].as_u64() == Some(cpu as u64))?;
    let seconds: Option<Vec<f64>> = of["level_seconds"].as_array()?.iter().map(Value::as_f64).collect();
    let seconds = seconds.filter(|seconds| seconds.len() == 3)?;
    let sum: f64 = seconds.iter().sum();
    (sum > 0.0).then(|| json!(seconds.iter().map(|one| one / sum).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_the_servers_cpu() {
        let log = "listens\n{\"cpus\":[{\"cpu\":0,\"level_seconds\":[1.0,3.0,0.0]},\
                   {\"cpu\":1,\"level_seconds\":[4.0,0.0,0.0]}]}\n";
        assert_eq!(levels_in(log, 0), Some(json!([0.25, 0.75, 0.0])));
        assert_eq!(levels_in(log, 2), None);
        assert_eq!(levels_in("it ended", 0), None);
    }
}
