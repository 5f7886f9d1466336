//! Memory of servers that hold idle connections.

use crate::backend::Backend;
use crate::drive::Drive;
use crate::error::TrialError;
use crate::process::Server;
use crate::servers::{self, Contender, Side};
use crate::setup::{Setting, Setup};
use crate::stage::{Stage, raise_descriptors};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;
use widelane_threads::Proc;

/// Opens `connections` to a fresh server of `side`, lets them rest, and gives its memory before
/// and with them.
///
/// It is the memory of the server's processes (proportional set size); what the kernel holds for
/// sockets is not in it. The terminator holds a backend connection for each, nginx does not.
pub(crate) fn idle(stage: &Stage, side: Side, connections: usize) -> Result<Value, TrialError> {
    let wanted = connections as u64 * DESCRIPTORS_EACH + SPARE_DESCRIPTORS;
    let allowed = raise_descriptors(wanted);
    // A limit of 20,000 is common: rather a few connections less than no figure.
    let most = allowed.saturating_sub(SPARE_DESCRIPTORS) / DESCRIPTORS_EACH;
    let connections = connections.min(usize::try_from(most).unwrap_or(usize::MAX));
    // Without an order it says nothing.
    let backend = Backend::start(stage.options.load_cpu)?;
    let setup = Setup::new(Setting::Bare, backend.address());
    let mut contender = servers::start(stage, side, setup)?;
    // One handshake of each kind, so that what is set up once counts as before.
    for &condition in &stage.options.conditions {
        let bare = condition.setting() == setup.setting;
        if bare && side.can(condition, &stage.options) {
            let drive = Drive::Closed(64);
            stage.drive(&mut contender.running, condition, drive, (0.1, 0.3))?;
        }
    }
    thread::sleep(SETTLE);
    let family = contender.running.server.family();
    let before = memory(&family);
    let (seen, with) = {
        let mut load = Command::new(&stage.options.widelane);
        load.arg("load").arg(contender.running.address.to_string());
        load.args(["--hold", "--insecure", "--tls", "1.3", "--group", "x25519"]);
        load.args(["--cipher", "TLS_AES_128_GCM_SHA256"]);
        load.args(["--json", "--no-preflight"]);
        load.args(["--concurrency", &connections.to_string()]);
        load.args(["--warmup", "0.1", "--timeout", "60"]);
        load.args(["--duration", &HOLD.as_secs().to_string()]);
        let mut holder = Server::start("load", &mut load, stage.options.load_cpu, stage.folder())?;
        let seen = wait_for_sockets(stage, &contender, &mut holder, connections)?;
        thread::sleep(SETTLE);
        (seen, memory(&family))
    };
    drop(contender);
    let each = |key: &str| -> Option<f64> {
        let grown = with[key].as_f64()? - before[key].as_f64()?;
        Some(grown * 1024.0 / seen as f64)
    };
    Ok(json!({
        "side": side.name(), "connections": seen, "before": before, "with": with,
        "pss_bytes_each": each("pss_kib"), "rss_bytes_each": each("rss_kib"),
    }))
}

/// Waits until the server has a socket for each connection; gives how many it has at the end.
fn wait_for_sockets(
    stage: &Stage,
    contender: &Contender,
    holder: &mut Server,
    connections: usize,
) -> Result<usize, TrialError> {
    let address = contender.running.address;
    let all = stage.interrupt.wait_for(PATIENCE, || {
        holder.alive()?;
        // To list 20,000 sockets costs the load's CPU, not the server's.
        thread::sleep(Duration::from_millis(250));
        let open = established(address);
        Ok((open >= connections).then_some(open))
    })?;
    Ok(all.unwrap_or_else(|| established(address)))
}

/// Connections to the local `address` that its server has accepted and not closed. The kernel may show a socket twice
/// while others come and go.
fn established(address: SocketAddr) -> usize {
    let sockets = Proc::here().sockets(std::process::id()).unwrap_or_default().into_iter();
    let accepted = sockets.filter(|one| !one.listens && one.port == address.port() && one.inode != 0);
    accepted.map(|one| one.inode).collect::<HashSet<_>>().len()
}

/// Resident and proportional memory of some processes, summed, in KiB.
fn memory(processes: &[u32]) -> Value {
    let sum = |key: &str| -> u64 {
        let each = processes.iter().filter_map(|process| {
            let file = format!("/proc/{process}/smaps_rollup");
            let text = fs::read_to_string(file).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        });
        each.sum()
    };
    json!({
        "processes": processes.len(),
        "pss_kib": sum("Pss:"),
        "rss_kib": sum("Rss:"),
        "anonymous_kib": sum("Anonymous:"),
    })
}

/// The terminator's side and the backend's side of a connection.
const DESCRIPTORS_EACH: u64 = 2;
/// Descriptors for everything else that a server opens.
const SPARE_DESCRIPTORS: u64 = 400;
/// Long enough to open the connections and to look at them; the holder is stopped before.
const HOLD: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_millis(1_500);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn this_process_has_memory() {
        let own = memory(&[std::process::id()]);
        assert!(own["pss_kib"].as_u64().expect("a number") > 100, "{own}");
    }

    #[test]
    fn accepted_connections_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("an address");
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).expect("connects")).collect();
        let _accepted: Vec<_> = (0..3).map(|_| listener.accept()).collect();
        assert_eq!(established(address), clients.len());
    }
}
