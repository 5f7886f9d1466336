//! Real processes with the provider: OpenSSL's test server, and nginx for a fork.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use widelane_status_tool::{BadPage, Report, State, StatusError, process, survey};
use widelane_threads::Memory;

#[test]
fn a_server_counts_and_its_figures_are_read_while_it_runs() {
    let Some(folder) = folder() else { return };
    let server = Server::start(&folder);
    let pid = server.child.0.id();
    for _ in 0..3 {
        shake_hands(server.port);
    }
    let Some(report) = counts(pid) else { return };
    assert_eq!(report.facts.provider, env!("CARGO_PKG_VERSION"));
    assert!(report.facts.openssl.starts_with('3'), "{report:?}");
    assert!(!report.facts.suspends);
    if report.facts.backend == "aws-lc" {
        println!("SKIP: this CPU has no AVX-512 IFMA, so that OpenSSL does everything by itself");
    } else {
        for (name, jobs) in [("rsa2048-sign", 3), ("x25519", 3)] {
            let rows = report
                .operations
                .iter()
                .filter(|row| row.name.contains(name));
            let done: u64 = rows.map(|row| row.totals.jobs).sum();
            assert!(done >= jobs, "{name}: {report:#?}");
        }
    }
    let found = survey().unwrap();
    assert!(found.processes.iter().any(|process| process.pid == pid));

    // What another process would do with the page.
    let page = Page::of(pid);
    page.write(12, &u32::MAX.to_ne_bytes());
    assert!(matches!(state(pid), State::Inherited(_)));
    page.write(0, b"?");
    assert_eq!(state(pid), State::Damaged(BadPage::NoPage));
}

#[test]
fn a_worker_that_did_nothing_has_the_page_of_its_parent() {
    let Some(folder) = folder() else { return };
    if !is_installed("nginx", "-v") {
        println!("SKIP: nginx is not installed");
        return;
    }
    let path = folder.path().display();
    let config = format!(
        "daemon off; worker_processes 1; pid {path}/pid; error_log {path}/log;\n\
         env OPENSSL_CONF; env STATE_DIRECTORY;\n\
         events {{}}\n\
         http {{ access_log off;\n\
         client_body_temp_path {path}/1; proxy_temp_path {path}/2; fastcgi_temp_path {path}/3;\n\
         uwsgi_temp_path {path}/4; scgi_temp_path {path}/5;\n\
         server {{ listen unix:{path}/socket ssl;\n\
         ssl_certificate {path}/certificate; ssl_certificate_key {path}/key; }} }}\n"
    );
    fs::write(folder.path().join("nginx"), config).unwrap();
    let mut command = with_provider("nginx", &folder);
    let child = command
        .args(["-e", "stderr", "-c"])
        .arg(folder.path().join("nginx"))
        .spawn()
        .unwrap();
    let nginx = Running(child);
    let master = nginx.0.id();
    let worker = until(|| {
        let path = format!("/proc/{master}/task/{master}/children");
        fs::read_to_string(path)
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    let Some(of_master) = counts(master) else {
        return;
    };
    assert_eq!(of_master.process, master);
    match process(worker).map(|found| found.map(|found| found.state)) {
        Ok(Some(State::Inherited(report))) => assert_eq!(report, of_master),
        // As root, nginx gives its workers another user.
        Err(StatusError::NotAllowed { .. }) | Ok(Some(State::NotAllowed)) => {
            println!("SKIP: root may not look at processes of other users here");
        }
        other => panic!("{other:?}"),
    }
}

/// What counts in a process once it does; `None` if this user may not see it.
fn counts(pid: u32) -> Option<Report> {
    // Counters are written after the answers.
    sleep(Duration::from_millis(50));
    let found = until(|| process(pid).ok().flatten());
    match found.state {
        State::Counts(report) => Some(report),
        State::NotAllowed => {
            println!("SKIP: this user may not read the memory of other processes");
            None
        }
        other => panic!("{other:?}"),
    }
}

fn state(pid: u32) -> State {
    process(pid).unwrap().unwrap().state
}

/// Where a process has its page.
struct Page {
    memory: fs::File,
    start: u64,
}

impl Page {
    fn of(pid: u32) -> Self {
        let mappings = Memory::of(pid).unwrap().mappings;
        let page = mappings.iter().find(|mapping| {
            let path = mapping.path.as_deref();
            path == Some(Path::new("/memfd:widelane-status (deleted)"))
        });
        let memory = fs::File::options()
            .write(true)
            .open(format!("/proc/{pid}/mem"));
        Self {
            memory: memory.unwrap(),
            start: page.unwrap().range.start,
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, self.start + at).unwrap();
    }
}

/// `openssl s_server`, on a port of its own choice.
struct Server {
    child: Running,
    port: u16,
    /// What it says; if this were closed, it would end.
    _said: BufReader<ChildStdout>,
}

impl Server {
    fn start(folder: &TempDir) -> Self {
        let child = with_provider("openssl", folder)
            .args(["s_server", "-accept", "127.0.0.1:0", "-www", "-cert"])
            .arg(folder.path().join("certificate"))
            .arg("-key")
            .arg(folder.path().join("key"))
            .stdout(Stdio::piped())
            .spawn();
        let mut child = Running(child.unwrap());
        let mut said = BufReader::new(child.0.stdout.take().unwrap());
        let port = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
            let address = line.trim().strip_prefix("ACCEPT ");
            if let Some((_, port)) = address.and_then(|address| address.rsplit_once(':')) {
                break port.parse().unwrap();
            }
        };
        Self {
            child,
            port,
            _said: said,
        }
    }
}

/// A process that is ended when the test does not need it any more.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = self.0.id();
        let _ = Command::new("kill").arg(pid.to_string()).status();
        let ends = Instant::now() + PATIENCE;
        while Instant::now() < ends {
            if let Ok(Some(_)) = self.0.try_wait() {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn shake_hands(port: u16) {
    let client = Command::new("openssl")
        .args(["s_client", "-groups", "X25519", "-connect"])
        .arg(format!("127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&client.stdout);
    assert!(said.contains("Cipher is TLS_"), "{said}");
}

/// A folder with a key, a certificate and a configuration of OpenSSL; `None` without OpenSSL 3.
fn folder() -> Option<TempDir> {
    let version = Command::new("openssl").arg("version").output();
    let version = version.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    if !version.starts_with("OpenSSL 3") {
        println!("SKIP: OpenSSL 3 is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes"])
        .args(["-subj", "/CN=localhost", "-days", "2"])
        .arg("-keyout")
        .arg(folder.path().join("key"))
        .arg("-out")
        .arg(folder.path().join("certificate"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let provider = provider();
    let configuration = format!(
        "openssl_conf = all\n\
         [all]\nproviders = providers\nalg_section = preference\n\
         [preference]\ndefault_properties = ?widelane.batch=yes\n\
         [providers]\ndefault = base\nwidelane = lanes\n\
         [base]\nactivate = 1\n\
         [lanes]\nmodule = {}\nactivate = 1\n",
        provider.display()
    );
    fs::write(folder.path().join("openssl.cnf"), configuration).unwrap();
    Some(folder)
}

fn with_provider(program: &str, folder: &TempDir) -> Command {
    let mut command = Command::new(program);
    command
        .env("OPENSSL_CONF", folder.path().join("openssl.cnf"))
        // For measured costs: a test reads nothing that was left on the machine.
        .env("STATE_DIRECTORY", folder.path())
        .stdin(Stdio::null());
    command
}

/// The provider, which cargo has built because this package needs it for its tests.
fn provider() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.with_file_name("libwidelane_openssl.so");
    assert!(path.exists(), "{}", path.display());
    path
}

fn is_installed(program: &str, option: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg(option)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let ends = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < ends, "it did not come in time");
        sleep(Duration::from_millis(10));
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
