//! One thread on one CPU.

use crate::SpeedError;
use widelane_affinity::allowed;

/// The CPU to measure on: the wanted one, or else the last that this thread may use.
pub(crate) fn choose(wanted: Option<usize>) -> Result<usize, SpeedError> {
    let allowed = allowed(None).map_err(SpeedError::system("read the CPUs that this process may run on"))?;
    match wanted {
        Some(cpu) if allowed.has(cpu) => Ok(cpu),
        Some(cpu) => Err(SpeedError::CpuNotAllowed {
            cpu,
            allowed: allowed.to_string(),
        }),
        None => Ok(allowed.iter().last().unwrap_or(0)),
    }
}

/// Keeps the calling thread, and the processes that it starts, on this CPU.
pub(crate) fn pin(cpu: usize) -> Result<(), SpeedError> {
    widelane_affinity::pin(cpu).map_err(SpeedError::system("pin a thread to a CPU"))
}

/// The model name of the CPU.
pub(crate) fn cpu_model() -> Option<String> {
    let text = widelane_files::kernel_text("/proc/cpuinfo").ok()?;
    let first = widelane_files::cpuinfo::cpus(&text).next()?;
    first.value("model name").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_last_cpu_allowed() {
        let last = choose(None).unwrap();
        assert_eq!(choose(Some(last)).unwrap(), last);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused_with_the_choices() {
        let error = choose(Some(usize::MAX)).unwrap_err().to_string();
        assert!(error.contains("only on"), "{error}");
    }

    #[test]
    fn a_pinned_thread_may_use_one_cpu() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let cpu = choose(None).unwrap();
                pin(cpu).unwrap();
                assert_eq!(allowed(None).unwrap().count(), 1);
                assert_eq!(choose(None).unwrap(), cpu);
            });
        });
    }
}
