//! A handshake as a line of text and as a line of JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Handshake, Operations};
use crate::functions::Side;
use crate::text::{duration, escaped, micros, time_of_day};

impl Handshake {
    /// The heading of the columns of [`Handshake::text`].
    pub fn header() -> String {
        format!(
            "{:<15} {:>7} {:<15} {:<8} {:<6} {:<7} {:<28} {:<18} {:<7} {:<6} {:>7} {:>7} {:>7} {:>5}  {}\n",
            "TIME (UTC)",
            "PID",
            "COMMAND",
            "LIBRARY",
            "SIDE",
            "VERSION",
            "CIPHER",
            "GROUP",
            "RESUMED",
            "RESULT",
            "WALL",
            "CPU",
            "WAITING",
            "CALLS",
            "FUNCTIONS, SERVER NAME"
        )
    }

    /// A line for people.
    pub fn text(&self) -> String {
        let unknown = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let resumed = self
            .resumed
            .map(|resumed| if resumed { "yes" } else { "no" });
        let mut line = format!(
            "{:<15} {:>7} {:<15} {:<8} {:<6} {:<7} {:<28} {:<18} {:<7} {:<6} {:>7} {:>7} {:>7} {:>5} ",
            time_of_day((self.time_s * 1e6).round() as u64 * 1_000),
            self.pid,
            escaped(&self.comm),
            escaped(&self.library),
            self.side.map_or("-", side),
            unknown(self.version.clone()),
            unknown(self.cipher.clone()),
            unknown(self.group.clone()),
            resumed.unwrap_or("-"),
            self.result.name(),
            duration(self.wall),
            unknown(self.cpu.map(duration)),
            unknown(self.waiting.map(duration)),
            self.calls,
        );
        let mut separator = " ";
        for one in &self.functions {
            let _ = write!(line, "{separator}{}", escaped(&one.name));
            if one.count > 1 {
                let _ = write!(line, " ×{}", one.count);
            }
            let _ = write!(line, " {}", duration(one.ns));
            separator = ", ";
        }
        if let Some(alert) = &self.alert {
            let _ = write!(line, "{separator}alert {alert}");
            separator = ", ";
        }
        if let Some(name) = &self.server_name {
            let _ = write!(line, "{separator}{name}");
        }
        line.push('\n');
        line
    }

    /// A line for programs.
    pub fn json(&self) -> String {
        let line = Line {
            time_s: self.time_s,
            pid: self.pid,
            tid: self.tid,
            comm: &self.comm,
            library: &self.library,
            side: self.side.map(side),
            version: self.version.as_deref(),
            cipher: self.cipher.as_deref(),
            group: self.group.as_deref(),
            resumed: self.resumed,
            server_name: self.server_name.as_deref(),
            result: self.result.name(),
            alert: self.alert.as_deref(),
            wall_us: micros(self.wall),
            cpu_us: self.cpu.map(micros),
            waiting_us: self.waiting.map(micros),
            calls: self.calls,
            again: self.again,
            functions: self.functions.iter().map(LineFunction::from).collect(),
        };
        crate::text::json_line(&line)
    }
}

fn side(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time_s: f64,
    pid: u32,
    tid: u32,
    comm: &'a str,
    library: &'a str,
    side: Option<&'static str>,
    version: Option<&'a str>,
    cipher: Option<&'a str>,
    group: Option<&'a str>,
    resumed: Option<bool>,
    server_name: Option<&'a str>,
    result: &'static str,
    alert: Option<&'a str>,
    wall_us: f64,
    cpu_us: Option<f64>,
    waiting_us: Option<f64>,
    calls: u64,
    again: u64,
    functions: Vec<LineFunction<'a>>,
}

#[derive(Serialize)]
struct LineFunction<'a> {
    name: &'a str,
    count: u64,
    us: f64,
}

impl<'a> From<&'a Operations> for LineFunction<'a> {
    fn from(one: &'a Operations) -> Self {
        Self {
            name: &one.name,
            count: one.count,
            us: micros(one.ns),
        }
    }
}
