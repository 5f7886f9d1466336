//! Sensors of threads that use wide registers.

use crate::error::SteerError;
use crate::tasks::Task;
use std::collections::HashSet;
use widelane_usage::Slices;

/// Tells which threads used wide registers since it was asked last.
pub trait Sensor: Send {
    /// The numbers of those among `tasks`.
    fn wide(&mut self, tasks: &[Task]) -> Result<HashSet<i32>, SteerError>;

    /// Answer for a thread that has not begun, if the sensor knows it.
    fn beforehand(&self) -> Option<bool> {
        None
    }

    /// Describes the sensor's source in a few words.
    fn how(&self) -> String;
}

/// Threads at the end of whose time slices the upper halves of registers 0 to 15 were in use.
///
/// Mask registers and registers 16 to 31 say nothing: string functions of the C library use them in every program, and
/// nothing clears them again.
pub struct RegistersInUse(Slices);

impl RegistersInUse {
    /// Begins to look.
    ///
    /// # Errors
    ///
    /// Without AVX-512, and where the kernel does not show it to this process.
    pub fn open() -> Result<Self, SteerError> {
        let reason = match std::is_x86_feature_detected!("avx512f") {
            true => match Slices::open() {
                Ok(slices) => return Ok(Self(slices)),
                Err(error) => error.to_string(),
            },
            false => "the CPU has no AVX-512, or the hypervisor hides it".to_owned(),
        };
        Err(SteerError::Sensor { reason })
    }
}

impl Sensor for RegistersInUse {
    fn wide(&mut self, _: &[Task]) -> Result<HashSet<i32>, SteerError> {
        let threads = self.0.end_and_take().into_iter().map(|slice| slice.thread.tid);
        Ok(threads.filter_map(|tid| i32::try_from(tid).ok()).collect())
    }

    fn how(&self) -> String {
        "by the registers in use at the end of time slices".to_owned()
    }
}

/// Processes that the user calls wide, whatever they do.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// Numbers of processes.
    pub pids: HashSet<i32>,
    /// Names of threads, as `ps` shows them.
    pub names: HashSet<String>,
}

impl Sensor for Named {
    fn wide(&mut self, tasks: &[Task]) -> Result<HashSet<i32>, SteerError> {
        let named = |task: &&Task| self.pids.contains(&task.pid) || self.names.contains(&task.name);
        Ok(tasks.iter().filter(named).map(|task| task.id.tid).collect())
    }

    fn how(&self) -> String {
        "what is wide was named".to_owned()
    }
}

/// Threads that are wide by one sensor or the other.
pub struct Either(pub Box<dyn Sensor>, pub Box<dyn Sensor>);

impl Sensor for Either {
    fn wide(&mut self, tasks: &[Task]) -> Result<HashSet<i32>, SteerError> {
        let mut wide = self.0.wide(tasks)?;
        wide.extend(self.1.wide(tasks)?);
        Ok(wide)
    }

    fn how(&self) -> String {
        format!("{}; {}", self.0.how(), self.1.how())
    }
}

/// Every thread, or none.
#[derive(Clone, Copy, Debug)]
pub enum All {
    /// Every thread counts as wide.
    Wide,
    /// No thread does.
    Scalar,
}

impl Sensor for All {
    fn wide(&mut self, tasks: &[Task]) -> Result<HashSet<i32>, SteerError> {
        let all = || tasks.iter().map(|task| task.id.tid).collect();
        Ok(match self {
            Self::Wide => all(),
            Self::Scalar => HashSet::new(),
        })
    }

    fn beforehand(&self) -> Option<bool> {
        Some(matches!(self, Self::Wide))
    }

    fn how(&self) -> String {
        match self {
            Self::Wide => "all of it counts as wide".to_owned(),
            Self::Scalar => "all of it counts as scalar".to_owned(),
        }
    }
}
