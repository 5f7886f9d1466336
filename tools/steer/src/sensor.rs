//! Sensors of threads that use wide registers.

use crate::error::SteerError;
use crate::tasks::Task;
use std::collections::HashSet;

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
