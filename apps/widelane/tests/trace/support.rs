//! Servers, clients and tracers for tests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
pub(crate) use widelane_testkit::process::{Process, Running};
pub(crate) use widelane_testkit::servers::free_port;
use widelane_testkit::servers::nginx;
use widelane_testkit::skip;
pub(crate) use widelane_testkit::wait::{PATIENCE, eventually};

/// A process, once it takes connections at a port of this machine.
pub(crate) fn listening(command: &mut Command, port: u16) -> Running {
    let mut server = Running::start(command);
    eventually("the server listens", || {
        server.assert_runs();
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    server
}

/// Files of a program that knows nothing of us. The error names what is missing.
pub(crate) fn installed(files: &[&str]) -> Result<(), String> {
    kernels()?;
    match files.iter().find(|file| !Path::new(file).exists()) {
        Some(missing) => Err(format!("{missing} is not installed")),
        None => Ok(()),
    }
}

/// Compiles a program in C. The error is what is missing.
pub(crate) fn compile(source: &str, folder: &Path, more: &[&str]) -> Result<PathBuf, String> {
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    let compiler = compiler.arg("-O1").arg("-o").args([&program, &file]).args(more);
    let compiled = compiler.output().map_err(|error| format!("cc: {error}"))?;
    match compiled.status.success() {
        true => Ok(program),
        false => Err(String::from_utf8_lossy(&compiled.stderr).into_owned()),
    }
}

/// Debian's nginx with one worker, TLS 1.2 and 1.3, and an RSA key.
pub(crate) struct Nginx {
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
    running: Running,
}

impl Nginx {
    pub(crate) fn start() -> Result<Self, String> {
        kernels()?;
        let program = skip::installed("nginx").ok_or("nginx is not installed")?;
        let folder = tempfile::tempdir().unwrap();
        make_certificate(folder.path())?;
        fs::write(folder.path().join("index.html"), "secret body\n").unwrap();
        let root = folder.path().display();
        let port = free_port();
        let server = format!(
            "server {{ listen 127.0.0.1:{port} ssl; root {root}; ssl_protocols TLSv1.2 TLSv1.3;\n\
             ssl_ecdh_curve X25519:P-256:P-384;\n\
             ssl_certificate {root}/certificate; ssl_certificate_key {root}/key; }}"
        );
        let configuration = nginx(folder.path(), "user root;", &server);
        let mut command = Command::new(program);
        command.arg("-p").arg(folder.path());
        let running = listening(command.arg("-c").arg(configuration), port);
        running.process().only_child();
        Ok(Self { port, folder, running })
    }

    /// Master and worker, for --pid.
    pub(crate) fn pids(&self) -> String {
        format!("{},{}", self.running.id(), self.worker())
    }

    pub(crate) fn worker(&self) -> u32 {
        let workers = self.running.process().children();
        workers.last().expect("a worker").0.cast_unsigned()
    }

    /// Comes back when a new worker serves alone.
    pub(crate) fn reload(&self) {
        let master = self.running.process();
        let before = master.children();
        master.signal(Signal::HUP);
        eventually("nginx has a new worker", || {
            let workers = master.children();
            workers.len() == 1 && workers.is_disjoint(&before)
        });
    }

    pub(crate) fn get(&self, path: &str) {
        let url = format!("https://127.0.0.1:{}{path}", self.port);
        let output = Command::new("curl")
            .args(["-sk", "--http1.1", "--cookie", "id=1", &url])
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"secret body\n", "{output:?}");
    }
}

/// Makes the files `certificate` and `key`, with an RSA-2048 key. The error is what is missing.
pub(crate) fn make_certificate(folder: &Path) -> Result<(), String> {
    make_certificate_with(folder, &[])
}

/// The same with further arguments of `openssl req`.
pub(crate) fn make_certificate_with(folder: &Path, more: &[&str]) -> Result<(), String> {
    let at = |name: &str| folder.join(name).display().to_string();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes"])
        .args(["-subj", "/CN=localhost", "-keyout", &at("key")])
        .args(["-out", &at("certificate")])
        .args(more)
        .output();
    let made = made.map_err(|error| format!("openssl: {error}"))?;
    assert!(made.status.success(), "{made:?}");
    Ok(())
}

/// The error says that this is not the first PID namespace. What others allow differs from one to the
/// next; one test makes its own.
pub(crate) fn first_namespace() -> Result<(), String> {
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let first = namespace == Path::new(FIRST_PID_NAMESPACE);
    first
        .then_some(())
        .ok_or_else(|| "this is not the first PID namespace".to_owned())
}

/// The error says that the kernels are left out: what sees other libraries only is tested once, with them.
pub(crate) fn kernels() -> Result<(), String> {
    match std::env::var_os("WIDELANE_CPU_DISABLE") {
        None => Ok(()),
        Some(_) => Err("it does not depend on the kernels, and is tested with them".to_owned()),
    }
}

/// Output of `widelane top --handshakes` of a process to which clients come. The error is what is
/// missing here.
pub(crate) fn shown_by_top(pid: u32, mut come: impl FnMut()) -> Result<Value, String> {
    first_namespace()?;
    let mut top = crate::under_test::widelane();
    top.args(["top", "--json", "--handshakes", "--no-users"]);
    let top = top.args(["--interval", "2"]).stdout(Stdio::piped());
    let mut child = top.spawn().unwrap();
    let lines = read(child.stdout.take().unwrap());
    let mut shown = None;
    // It probes all processes with a library that it knows, which takes a while where there are many.
    eventually("top shows the server", || {
        come();
        let line = lines.recv_timeout(PATIENCE).expect("top goes on");
        let line: Value = serde_json::from_str(&line).unwrap();
        let why = line["tls"]["why_not"].as_str().map(str::to_owned);
        let mut processes = line["tls"]["processes"].as_array().into_iter().flatten();
        let own = processes.find(|one| one["pid"] == pid);
        shown = why.map(Err).or_else(|| own.cloned().map(Ok));
        shown.is_some()
    });
    send(Signal::TERM, child.id());
    let _ = child.wait();
    let shown = shown.expect("it was waited for")?;
    assert!(shown["handshakes"].as_f64() > Some(0.0), "{shown}");
    let functions = shown["functions"].as_array().unwrap();
    let sign = functions.iter().find(|one| {
        let name = one["name"].as_str().unwrap_or_default();
        name.ends_with(" sign")
    });
    assert!(sign.is_some_and(|sign| sign["cpus"].as_f64() > Some(0.0)), "{shown}");
    Ok(shown)
}

/// `openssl s_client`.
pub(crate) struct Client {
    port: u16,
}

impl Client {
    pub(crate) fn to(port: u16) -> Self {
        Self { port }
    }

    pub(crate) fn run(&self, arguments: &[&str]) {
        let output = self.output(arguments);
        assert!(output.status.success(), "{output:?}");
    }

    pub(crate) fn fail(&self, arguments: &[&str]) {
        let output = self.output(arguments);
        assert!(!output.status.success(), "{output:?}");
    }

    fn output(&self, arguments: &[&str]) -> std::process::Output {
        Command::new("/usr/bin/openssl")
            .args(["s_client", "-connect", &format!("127.0.0.1:{}", self.port)])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

/// `openssl s_server` from this file, which asks its clients for a certificate if they have one, and its port.
pub(crate) fn openssl_server(program: &Path, folder: &Path) -> (Running, u16) {
    let port = free_port();
    (openssl_server_at(program, folder, port), port)
}

/// The same at a port.
pub(crate) fn openssl_server_at(program: &Path, folder: &Path, port: u16) -> Running {
    let mut command = Command::new(program);
    command.args(["s_server", "-quiet", "-rev", "-verify", "1"]);
    command.args(["-accept", &port.to_string()]);
    command.arg("-cert").arg(folder.join("certificate"));
    command.arg("-key").arg(folder.join("key"));
    listening(&mut command, port)
}

/// Makes so many full handshakes, as fast as the server answers.
pub(crate) fn load(port: u16, count: usize) {
    let output = crate::under_test::widelane()
        .args(["load", &format!("127.0.0.1:{port}"), "--insecure", "--no-preflight"])
        .args(["--count", &count.to_string(), "--duration", "60", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A program that calls a function with eight, with three and with one pointer, again and again.
pub(crate) fn passes(folder: &Path) -> Result<Running, String> {
    let program = compile(PASSES, folder, &[])?;
    Ok(Running::start(&mut Command::new(program)))
}

const PASSES: &str = r#"
#include <unistd.h>
__attribute__((noinline)) unsigned mbx_test_mb8(const void *const lanes[8])
{
    __asm__ volatile("" : : "r"(lanes) : "memory");
    return 0;
}
int main(void)
{
    const int sizes[] = { 8, 3, 1 };
    for (;;)
        for (int pass = 0; pass < 3; pass++) {
            const void *lanes[8] = { 0 };
            for (int lane = 0; lane < sizes[pass]; lane++)
                lanes[lane] = lanes;
            mbx_test_mb8(lanes);
            usleep(1000);
        }
}
"#;

/// Answer of a server of plain HTTP.
pub(crate) fn scrape(port: u16) -> String {
    let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    server.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    answer
}

/// Keeps other tests waiting: some trace every nginx, and the kernel removes probes one after the other,
/// which takes a second or more.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `widelane trace`, which has begun to trace.
pub(crate) struct Tracer {
    child: Child,
    lines: mpsc::Receiver<String>,
    /// Lines that were taken already.
    taken: Vec<String>,
    complaints: mpsc::Receiver<String>,
    said: String,
}

impl Tracer {
    /// The error is what is missing here.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, String> {
        let mut command = crate::under_test::widelane();
        Self::run(command.arg("trace").args(arguments))
    }

    /// The same by a command that ends as `widelane trace`.
    pub(crate) fn run(command: &mut Command) -> Result<Self, String> {
        first_namespace()?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = read(child.stdout.take().unwrap());
        let complaints = read(child.stderr.take().unwrap());
        let mut tracer = Self {
            child,
            lines,
            taken: Vec::new(),
            complaints,
            said: String::new(),
        };
        while let Ok(line) = tracer.complaints.recv_timeout(PATIENCE) {
            tracer.said.push_str(&line);
            tracer.said.push('\n');
            if line.contains("widelane: traces") || line.contains("no process to trace yet") {
                return Ok(tracer);
            }
            let missing = [
                "tracing takes root",
                "was built without",
                "takes Linux",
                "takes a kernel",
            ];
            if missing.iter().any(|missing| line.contains(missing)) {
                return Err(line);
            }
        }
        panic!("it does not trace: {}", tracer.said);
    }

    /// Returns whether one of the lines that it has printed is so.
    pub(crate) fn has_told(&mut self, is_it: impl Fn(&Value) -> bool) -> bool {
        self.taken.extend(self.lines.try_iter());
        let objects = self.taken.iter().map(|line| serde_json::from_str(line));
        objects.flatten().any(|object| is_it(&object))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The memory that it uses, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        process(self.id()).resident()
    }

    /// Ends it as ^C does: what it has printed, line by line.
    pub(crate) fn objects(self) -> Vec<Value> {
        self.finish().0
    }

    /// The same, with what it has complained of.
    pub(crate) fn finish(self) -> (Vec<Value>, String) {
        let (lines, said) = self.end_by_interrupt();
        let object = |line: &String| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        (lines.iter().map(object).collect(), said)
    }

    /// The same, as it was printed.
    pub(crate) fn lines(self) -> Vec<String> {
        self.end_by_interrupt().0
    }

    fn end_by_interrupt(mut self) -> (Vec<String>, String) {
        // What has happened before is reported within the pause of the tracer.
        thread::sleep(Duration::from_millis(500));
        send(Signal::INT, self.child.id());
        assert!(self.child.wait().unwrap().success(), "{}", self.said);
        self.taken.extend(self.lines.iter());
        self.said.extend(self.complaints.iter());
        (std::mem::take(&mut self.taken), std::mem::take(&mut self.said))
    }

    /// Ends it by a signal.
    pub(crate) fn end(mut self, signal: Signal) {
        send(signal, self.child.id());
        self.child.wait().unwrap();
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Number of bytes of the code that a process has mapped and that differ from the files: breakpoints.
pub(crate) fn probed_bytes(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut differing = 0;
    for line in maps.lines().filter(|line| line.contains(" r-xp ")) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [range, _, offset, _, _, path] = words[..] else {
            continue;
        };
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let length = usize::try_from(number(end) - number(start)).unwrap();
        let Ok(file) = fs::File::open(PathBuf::from(path)) else {
            continue;
        };
        let (mut mapped, mut original) = (vec![0; length], Vec::with_capacity(length));
        memory.read_exact_at(&mut mapped, number(start)).unwrap();
        original.resize(length, 0);
        let read = file.read_at(&mut original, number(offset)).unwrap();
        differing += mapped[..read].iter().zip(&original).filter(|(a, b)| a != b).count();
    }
    differing
}

fn process(pid: u32) -> Process {
    Process(pid.cast_signed())
}

pub(crate) fn send(signal: Signal, pid: u32) {
    process(pid).signal(signal);
}

/// The lines of a pipe, as they come.
fn read(from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Its name is the same on every machine.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
