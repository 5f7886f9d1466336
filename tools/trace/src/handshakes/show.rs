//! A handshake as a line of text and as a line of JSON.

use std::fmt::Write as _;

use super::Handshake;
use crate::functions::Side;
use crate::text::{duration, escaped, json_line, time_of_day};

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
        let resumed = self.resumed.map(|resumed| if resumed { "yes" } else { "no" });
        let mut line = format!(
            "{:<15} {:>7} {:<15} {:<8} {:<6} {:<7} {:<28} {:<18} {:<7} {:<6} {:>7} {:>7} {:>7} {:>5} ",
            time_of_day((self.time_s * 1e6).round() as u64 * 1_000),
            self.pid,
            escaped(&self.comm),
            escaped(&self.library),
            self.side.map_or("-", Side::name),
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
        json_line(self)
    }
}
