//! Wide threads by a tracepoint of the kernel.
//!
//! When a thread is taken off its CPU, the kernel saves its registers, and the processor says which
//! groups of them were in use: at the tracepoint `x86_fpu_regs_deactivated`. Only the upper halves
//! of registers 0 to 15 count here. Mask registers and registers 16 to 31 say nothing: string
//! functions of the C library use them in every program, and nothing clears them again.
//!
//! The tracepoint is read through tracefs, with an instance of its own that disturbs no other
//! tracing, and that is removed at the end.

use crate::error::SteerError;
use crate::sensor::Sensor;
use crate::tasks::{self, Task};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Reads the tracepoint from when it is opened to when it is dropped. There must be one at a time
/// in a process.
#[derive(Debug)]
pub struct Traced {
    pipe: File,
    /// Dropped after the pipe, since what is open cannot be removed.
    instance: Instance,
    /// A line of which only the beginning has been read.
    rest: String,
}

/// A folder of tracefs, removed when it is dropped.
#[derive(Debug)]
struct Instance(PathBuf);

impl Drop for Instance {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

impl Traced {
    /// Begins to trace.
    ///
    /// # Errors
    ///
    /// Without root, without AVX-512, in a PID namespace, on a kernel without the tracepoint, and
    /// where tracing is forbidden.
    pub fn open() -> Result<Self, SteerError> {
        if !std::is_x86_feature_detected!("avx512f") {
            return Err(SteerError::Sensor {
                reason: "the CPU has no AVX-512, or the hypervisor hides it".to_owned(),
            });
        }
        // The kernel numbers threads as the first namespace does.
        if fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link != Path::new(FIRST_PIDS)) {
            return Err(SteerError::Sensor {
                reason: "this process is in a PID namespace; run it on the host (--pid=host)".to_owned(),
            });
        }
        let refused = |doing: &str, error: io::Error| SteerError::Sensor {
            reason: format!("{doing}: {error}; as root it works on most systems"),
        };
        let listed = FOLDERS.map(|folder| fs::read_dir(Path::new(folder).join("instances")));
        let found = listed.iter().position(Result::is_ok);
        let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let tracing = match found {
            Some(at) => Path::new(FOLDERS[at]),
            None if listed.iter().flat_map(|listed| listed.as_ref().err()).any(denied) => {
                return Err(refused(FOLDERS[0], io::ErrorKind::PermissionDenied.into()));
            }
            None => {
                return Err(SteerError::Sensor {
                    reason: format!("there is no tracefs; mount -t tracefs nodev {}", FOLDERS[0]),
                });
            }
        };
        if !tracing.join(EVENT).exists() {
            return Err(SteerError::Sensor {
                reason: format!("this kernel has no tracepoint {EVENT}"),
            });
        }
        let name = format!("{INSTANCE}{}", std::process::id());
        let instance = Instance(tracing.join("instances").join(name));
        let path = &instance.0;
        let open = || {
            if !path.exists() {
                fs::create_dir(path)?;
            }
            let write = |name: &str, text: &str| widelane_files::set_kernel(path.join(name), text);
            write("buffer_size_kb", BUFFER_KB)?;
            write(&format!("{EVENT}/filter"), FILTER)?;
            let pipe = widelane_files::open_kernel(path.join("trace_pipe"))?;
            write(&format!("{EVENT}/enable"), "1")?;
            Ok(pipe)
        };
        let pipe = open().map_err(|error| refused(&path.display().to_string(), error))?;
        Ok(Self {
            pipe,
            instance,
            rest: String::new(),
        })
    }

    /// The threads in what has been traced since.
    fn read(&mut self) -> io::Result<HashSet<i32>> {
        let mut found = HashSet::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.pipe.read(&mut buffer) {
                Ok(0) => return Ok(found),
                Ok(count) => {
                    self.rest.push_str(&String::from_utf8_lossy(&buffer[..count]));
                    let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
                    found.extend(self.rest[..whole].lines().filter_map(thread_of));
                    self.rest.drain(..whole);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(found),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Sensor for Traced {
    fn wide(&mut self, _: &[Task]) -> Result<HashSet<i32>, SteerError> {
        visit_cpus();
        self.read().map_err(|error| SteerError::Sensor {
            reason: format!("{}: {error}", self.instance.0.display()),
        })
    }

    fn how(&self) -> String {
        "by the registers in use at the end of time slices (tracepoint)".to_owned()
    }
}

/// Removes what was left by processes that were killed.
pub(crate) fn remove_abandoned() {
    for folder in FOLDERS {
        let instances = fs::read_dir(Path::new(folder).join("instances"));
        for instance in instances.into_iter().flatten().flatten() {
            let name = instance.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(INSTANCE));
            if let Some(pid) = pid.and_then(|pid| pid.parse().ok())
                && tasks::start_of(pid).is_none()
            {
                remove(&instance.path());
            }
        }
    }
}

/// An instance whose event is enabled cannot be removed on some kernels.
fn remove(instance: &Path) {
    let _ = widelane_files::set_kernel(instance.join(EVENT).join("enable"), "0");
    let _ = fs::remove_dir(instance);
}

/// Goes to each CPU for a moment, which ends the time slice there. A thread that has a CPU to
/// itself would else go on unseen for seconds. CPUs that are kept free of interruptions are left
/// alone.
fn visit_cpus() {
    let visit = || {
        let Ok(allowed) = widelane_affinity::allowed(None) else {
            return;
        };
        let began = Instant::now();
        for cpu in allowed.without(&widelane_affinity::kept_free()).iter() {
            // One that has gone offline is not visited.
            let _ = widelane_affinity::pin(cpu);
            if began.elapsed() > MOST_FOR_VISITS {
                return;
            }
        }
    };
    // A thread of its own, so that ours keeps its affinity.
    let _ = thread::spawn(visit).join();
}

/// The thread that a line of `trace_pipe` is about: `  name-123   [001] d..2. 2.5: event: …`. The
/// name may hold any character.
fn thread_of(line: &str) -> Option<i32> {
    let (before, _) = line.split_once(": x86_fpu_regs_deactivated: ")?;
    let (who, _) = before.rsplit_once(" [")?;
    let (_, tid) = who.trim_end().rsplit_once('-')?;
    tid.parse().ok().filter(|&tid| tid > 0)
}

const FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The number that every kernel gives to the first PID namespace.
const FIRST_PIDS: &str = "pid:[4026531836]";
const EVENT: &str = "events/x86_fpu/x86_fpu_regs_deactivated";
const INSTANCE: &str = "widelane-steer-";
/// Component 6 of the extended state: the upper 256 bits of registers 0 to 15.
const FILTER: &str = "xfeatures & 0x40";
/// For each CPU, more than a thousand ends of time slices; older ones are overwritten.
const BUFFER_KB: &str = "64";
const MOST_FOR_VISITS: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_their_thread() {
        let event = "x86_fpu_regs_deactivated: x86/fpu: 00 load: 1 xfeatures: e6 xcomp_bv: 8e7";
        let line = |name: &str| format!("  {name}-6126    [000] d..2. 25429.173891: {event}");
        for name in ["openssl", "a [1] b", "a-7 ", "x: y"] {
            assert_eq!(thread_of(&line(name)), Some(6126), "{name:?}");
        }
        for wrong in [
            "",
            "CPU:0 [LOST 12 EVENTS]",
            "x [000] 1: sched_switch: y",
            &line("")[5..],
        ] {
            assert_eq!(thread_of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn nothing_is_left_behind() {
        let traced = match Traced::open() {
            Ok(traced) => traced,
            Err(error) => {
                println!("SKIP: {error}");
                return;
            }
        };
        let instance = traced.instance.0.clone();
        assert!(instance.exists());
        remove_abandoned();
        assert!(instance.exists(), "its process lives");
        drop(traced);
        assert!(!instance.exists());
    }
}
