//! nginx that speaks TLS itself, with Widelane's provider in its OpenSSL: the pages of [`crate::web`], and
//! ChaCha20-Poly1305 in a form of ours.

use std::process::Command;

use widelane_handshakes::{Stage, free_address, output};

use crate::error::ExperimentError;
use crate::front::FrontServer;
use crate::programs::Programs;
use crate::web::{Listener, nginx};

/// Starts it with this form, and waits until it answers.
///
/// # Errors
///
/// Also when its OpenSSL runs without the provider, or the provider without the form: OpenSSL goes on alone
/// then, and what it does would be measured.
pub(crate) fn start(stage: &Stage, needs: &Programs, form: &str) -> Result<FrontServer, ExperimentError> {
    stage.interrupt().check()?;
    let (options, folder) = (stage.options(), stage.folder());
    let address = free_address()?;
    let mut setup = Command::new(&options.widelane);
    setup.args(["setup", "nginx", "--env", "--force", "--log", "info"]);
    setup.args(["--chacha20poly1305", form, "--config"]);
    setup.arg(folder.join("openssl.cnf"));
    let printed = output(&mut setup, options.load_cpu, stage.interrupt())?;
    let listener = Listener::Tls(address, stage.certificates());
    let mut command = nginx(needs, folder, &listener)?;
    // Only the provider: handshakes are few here, and need not be suspended.
    command.envs(configured(&String::from_utf8_lossy(&printed)));
    let cpu = options.server_cpu;
    let mut command = options.emulated(command, Some(cpu));
    let alone = options.model.is_none().then_some(cpu);
    let front = FrontServer::start(stage, NAME, &mut command, alone, address)?;
    match complaint(&front.server.said()) {
        None => Ok(front),
        Some(what) => Err(ExperimentError::Answer {
            server: format!("nginx at {address}"),
            what,
        }),
    }
}

/// The variable that names OpenSSL's configuration, of those that `widelane setup --env` prints.
fn configured(printed: &str) -> Option<(&str, &str)> {
    let mut pairs = printed.lines().filter_map(|line| line.split_once('='));
    pairs.find(|(name, _)| *name == "OPENSSL_CONF")
}

/// Reason in nginx's output why it does not encrypt as configured.
fn complaint(said: &str) -> Option<String> {
    let of_widelane = |line: &str| Some(line.split_once("widelane: ")?.1.to_owned());
    let lines: Vec<_> = said.lines().filter_map(of_widelane).collect();
    let alone = lines.iter().find(|line| line.contains(" by itself"));
    let loaded = lines.iter().any(|line| line.contains(" in OpenSSL "));
    match (alone, loaded) {
        (Some(line), _) => Some(format!("no page by Widelane's code: {line}")),
        (None, true) => None,
        (None, false) => {
            let why = "its OpenSSL has not loaded the provider; it takes OpenSSL 3.0 or later";
            Some(format!("no page by Widelane's code: {why}"))
        }
    }
}

const NAME: &str = "nginx-inside";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_the_provider_or_the_form_is_noticed() {
        let loaded = "[notice] x\nwidelane: 0.1.0 in OpenSSL 3.0.22, backend avx512ifma\n";
        assert_eq!(complaint(loaded), None);
        let alone = format!("{loaded}widelane: OpenSSL encrypts by itself: no 512-ifma here\n");
        let why = complaint(&alone).expect("a reason");
        assert!(why.contains("no 512-ifma here"), "{why}");
        let none = complaint("[notice] x\n").expect("a reason");
        assert!(none.contains("has not loaded the provider"), "{none}");
    }

    #[test]
    fn only_the_configuration_is_taken_from_the_environment() {
        let printed = "LD_PRELOAD=/lib/a.so\nOPENSSL_CONF=/tmp/a=b.cnf\n";
        assert_eq!(configured(printed), Some(("OPENSSL_CONF", "/tmp/a=b.cnf")));
        assert_eq!(configured(""), None);
    }
}
