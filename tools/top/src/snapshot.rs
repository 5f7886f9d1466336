//! All that is shown, taken at one time.

use crate::clock::{Clocks, Reader};
use crate::licence::{Licence, estimate};
use crate::metrics::{Sample, fetch};
use crate::provider::{Looks, Providers};
use crate::server::{Server, rates};
use crate::tls::{Tls, Tracing};
use crate::users::{Users, Watch};
use serde::Serialize;
use std::time::{Duration, Instant};
use widelane_cpu::licence::{Generation, Turbo, turbo_of};
use widelane_frequency::{Machine, Profile};

/// Something, or why it is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Known<T> {
    /// Something that is known.
    Known(T),
    /// Something that is not known.
    Missing {
        /// Reason for that.
        why_not: String,
    },
}

impl<T> Known<T> {
    /// Makes one that is not known, with the reason.
    pub fn missing(why_not: impl ToString) -> Self {
        let why_not = why_not.to_string();
        Self::Missing { why_not }
    }
}

impl<T, E: ToString> From<Result<T, E>> for Known<T> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(Self::missing, Self::Known)
    }
}

/// State of the machine at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// The name of the processor.
    pub processor: String,
    /// The length of the interval that rates and means are of.
    pub seconds: f64,
    /// Rates of a server.
    pub server: Known<Server>,
    /// Rates of processes with the OpenSSL provider.
    pub providers: Known<Providers>,
    /// The clock of each CPU now.
    pub clocks: Known<Clocks>,
    /// The clock by class of code, from the profile of this machine.
    pub classes: Known<Vec<ClassClock>>,
    /// Licence levels.
    pub licence: Known<Licence>,
    /// Users of wide registers.
    pub users: Known<Users>,
    /// TLS handshakes of any process; `None`: they were not asked for.
    pub tls: Option<Known<Tls>>,
}

/// The clock of a class of code.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassClock {
    /// The class, like `512-heavy`.
    pub class: String,
    /// Cores that ran it at once.
    pub cores: usize,
    /// GHz.
    pub ghz: f64,
    /// The clock as a share of that of scalar code.
    pub of_scalar: f64,
}

/// Choice of what is shown.
#[derive(Clone, Debug)]
pub struct Options {
    /// The metrics address of a `widelane serve`, or why there is none.
    pub metrics: Result<String, String>,
    /// Permission to find out who uses wide registers, or the reason why there is none.
    pub users: Result<(), String>,
    /// True if the TLS handshakes of all processes are traced.
    pub handshakes: bool,
    /// The profile of this machine, or why there is none.
    pub profile: Result<Profile, String>,
    /// Time that a snapshot waits for what is not yet known of the code of processes. Without it, a
    /// snapshot says so, and a later one knows.
    pub patience: Duration,
}

/// Takes snapshots, one interval after the other.
pub struct Monitor {
    machine: Machine,
    generation: Generation,
    turbo: Option<&'static Turbo>,
    classes: Known<Vec<ClassClock>>,
    clocks: Reader,
    metrics: Result<String, String>,
    scraped: Option<(Instant, Vec<Sample>)>,
    providers: Looks,
    users: Result<Watch, String>,
    tracing: Option<Result<Tracing, String>>,
    patience: Duration,
    since: Instant,
}

impl Monitor {
    /// The first interval begins. What cannot be looked at is missing in snapshots.
    pub fn new(options: Options) -> Self {
        let machine = Machine::here();
        let users = options.users.and_then(|()| {
            let watch = Watch::open();
            watch.map_err(|error| error.to_string())
        });
        let mut monitor = Self {
            generation: Generation::of(&machine.vendor, machine.family, machine.model, machine.stepping),
            // The row for the most active cores: the figure of a busy machine.
            turbo: turbo_of(&machine.name).last().copied(),
            classes: classes(&options.profile),
            clocks: Reader::new("/".into()),
            metrics: options.metrics,
            scraped: None,
            providers: Looks::new(),
            users,
            tracing: options.handshakes.then(Tracing::start),
            patience: options.patience,
            since: Instant::now(),
            machine,
        };
        // Counts begin here. If this reading failed, the next one says why.
        monitor.server();
        monitor
    }

    /// Takes a snapshot, with rates since the last one.
    pub fn snapshot(&mut self) -> Snapshot {
        let now = Instant::now();
        let since = std::mem::replace(&mut self.since, now);
        let clocks = self.clocks.read(self.machine.virtual_machine).into();
        let server = self.server();
        let users = match &mut self.users {
            Ok(watch) => watch.read(self.machine.cpus, self.patience).into(),
            Err(why) => Known::missing(why),
        };
        let tls = self.tracing.as_mut().map(|tracing| match tracing {
            Ok(tracing) => tracing.read().into(),
            Err(why) => Known::missing(why),
        });
        Snapshot {
            processor: self.machine.name.clone(),
            seconds: now.duration_since(since).as_secs_f64(),
            server,
            providers: self.providers.read().into(),
            clocks,
            classes: self.classes.clone(),
            licence: estimate(self.generation, self.turbo, self.machine.cpus, &users),
            users,
            tls,
        }
    }

    fn server(&mut self) -> Known<Server> {
        let address = match &self.metrics {
            Ok(address) => address,
            Err(why) => return Known::missing(why),
        };
        let before = self.scraped.take();
        let samples = match fetch(address) {
            Ok(samples) => samples,
            Err(error) => return Known::missing(error),
        };
        let (end, after) = self.scraped.insert((Instant::now(), samples));
        let Some((start, before)) = &before else {
            return Known::missing("it has answered once; rates come with the next answer");
        };
        let seconds = end.duration_since(*start).as_secs_f64();
        match rates(before, after, seconds) {
            Some(server) => Known::Known(server),
            None => Known::missing("it was started anew; rates come with the next answer"),
        }
    }
}

/// The clocks of a profile.
fn classes(profile: &Result<Profile, String>) -> Known<Vec<ClassClock>> {
    let profile = match profile {
        Ok(profile) => profile,
        Err(why) => return Known::missing(why),
    };
    let clocks = profile.clocks.iter().map(|clock| ClassClock {
        class: clock.class.clone(),
        cores: clock.cores,
        ghz: clock.ghz.value,
        of_scalar: clock.of_scalar.value,
    });
    Known::Known(clocks.collect())
}
