//! The thread that writes the lines.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use super::options::LogFormat;
use super::output::Output;
use super::{Counts, Destination, Message, Orders, line};

pub(super) struct Writer {
    inbox: Receiver<Message>,
    orders: Arc<Orders>,
    counts: Arc<Counts>,
    /// `None`: lines go nowhere.
    output: Option<Output>,
    format: LogFormat,
    unwritten: Unwritten,
    trouble: Option<Trouble>,
    /// Of the lines that were lost, those of which the log tells.
    told: u64,
    complained: Option<Instant>,
    /// Whether not to gather lines.
    hurry: bool,
}

/// Lines that the output has not taken yet.
#[derive(Default)]
struct Unwritten {
    bytes: Vec<u8>,
    taken: usize,
}

/// The output takes nothing.
struct Trouble {
    since: Instant,
    /// `None`: it has a reader who does not read.
    error: Option<io::Error>,
    is_told: bool,
}

impl Writer {
    pub(super) fn new(inbox: Receiver<Message>, orders: Arc<Orders>, counts: Arc<Counts>) -> Self {
        Self {
            inbox,
            orders,
            counts,
            output: None,
            format: LogFormat::default(),
            unwritten: Unwritten::default(),
            trouble: None,
            told: 0,
            complained: None,
            hurry: false,
        }
    }

    pub(super) fn run(mut self) {
        let deadline = loop {
            // An order that came while the queue was full has no message in it. One that comes after this
            // has one, or the queue has others.
            if let Some(deadline) = self.obey(Duration::ZERO) {
                break deadline;
            }
            let patience = match &self.trouble {
                // Lines that end together are written together. The workers need not wake this thread
                // for each of them: until the time is over it does not look at the queue.
                None => match self.inbox.recv() {
                    Ok(message) => {
                        self.take(message);
                        if self.hurry { Duration::ZERO } else { GATHER }
                    }
                    Err(_) => return,
                },
                Some(trouble) => self.wait_for_room(trouble),
            };
            if let Some(deadline) = self.obey(patience) {
                break deadline;
            }
            // All that waits: then the thread may sleep.
            self.write_waiting();
        };
        self.finish(deadline);
    }

    /// Writes all that is in the queue, as far as the output takes it now.
    fn write_waiting(&mut self) {
        while self.gather() && self.trouble.is_none() {
            self.write();
        }
        self.write();
    }

    /// Takes in what the queue has, as long as there is room. `false`: the queue is empty.
    fn gather(&mut self) -> bool {
        self.tell_lost();
        while self.unwritten.bytes.len() < FULL {
            match self.inbox.try_recv() {
                Ok(message) => self.take(message),
                Err(_) => return false,
            }
        }
        true
    }

    fn take(&mut self, message: Message) {
        if let Message::Ended(entry) = message
            && self.output.is_some()
        {
            line::connection(&mut self.unwritten.bytes, self.format, &entry);
        }
    }

    /// Says in the log how many lines are missing.
    fn tell_lost(&mut self) {
        let lost = self.counts.lost.load(Relaxed);
        if lost == self.told || self.output.is_none() || self.unwritten.bytes.len() >= FULL {
            return;
        }
        let lines = lost - self.told;
        self.told = lost;
        line::lost(&mut self.unwritten.bytes, self.format, SystemTime::now(), lines);
        let now = Instant::now();
        let complained = self.complained;
        if self.may_tell() && complained.is_none_or(|before| now - before >= COMPLAINT_INTERVAL) {
            self.complained = Some(now);
            tracing::warn!(lines, "the access log was too slow, and lost lines");
        }
    }

    /// Whether a line in the process's own log cannot wait for the reader who keeps this log waiting.
    fn may_tell(&self) -> bool {
        !self.output.as_ref().is_some_and(Output::is_own_log)
    }

    /// Writes all that is there, as far as the output takes it now.
    fn write(&mut self) {
        let Some(output) = &mut self.output else {
            return self.unwritten.clear();
        };
        while !self.unwritten.rest().is_empty() {
            let error = match output.write(self.unwritten.rest()) {
                Ok(taken) if taken > 0 => {
                    let lines = self.unwritten.taken(taken);
                    self.counts.written.fetch_add(lines, Relaxed);
                    if let Some(Trouble { is_told: true, .. }) = self.trouble.take() {
                        tracing::info!(log = %output.target(), "the access log takes lines again");
                    }
                    continue;
                }
                Ok(_) => Some(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) => Some(error),
            };
            let trouble = self.trouble.get_or_insert_with(|| Trouble {
                since: Instant::now(),
                error: None,
                is_told: false,
            });
            trouble.error = error;
            trouble.tell(output);
            return;
        }
        self.unwritten.clear();
    }

    /// Waits until the output may take more. Returns how long to wait for an order then.
    fn wait_for_room(&self, trouble: &Trouble) -> Duration {
        match (&self.output, &trouble.error) {
            (Some(output), None) => {
                let _ = output.wait(LOOK_INTERVAL);
                Duration::ZERO
            }
            _ => RETRY_INTERVAL,
        }
    }

    /// Does what was ordered, and waits for an order for at most `patience`. Returns until when to write
    /// the last lines, if it is time to stop.
    fn obey(&mut self, patience: Duration) -> Option<Instant> {
        let given = self.orders.take(patience);
        match given.destination {
            None | Some(Destination::Same) => {}
            Some(Destination::Off) => {
                self.write_waiting();
                self.give_up();
                self.switch(None);
            }
            Some(Destination::Opened(output, format)) => {
                self.change_format(format);
                self.write();
                self.switch(Some(output));
            }
            Some(Destination::Reopened(format)) => {
                self.change_format(format);
                self.reopen();
            }
        }
        if given.reopen {
            self.reopen();
        }
        self.hurry |= given.hurry;
        given.stop
    }

    /// Lines have this format from now on. Those in another one that the output does not take now are lost: the
    /// next output gets one format only.
    fn change_format(&mut self, format: LogFormat) {
        if format == self.format {
            return;
        }
        self.write();
        let lost = self.unwritten.drop_whole_lines();
        self.counts.lost.fetch_add(lost, Relaxed);
        self.format = format;
    }

    fn reopen(&mut self) {
        match self.output.as_ref().and_then(Output::reopened) {
            None => {}
            Some(Ok(output)) => {
                tracing::debug!(log = %output.target(), "opened the access log anew");
                self.switch(Some(output));
            }
            Some(Err(error)) => tracing::error!(
                log = %self.output.as_ref().map(Output::target).cloned().unwrap_or_default(),
                %error,
                "cannot open the access log anew, and go on with the old file; let the user of this \
                 process write there, and send SIGUSR1"
            ),
        }
    }

    fn switch(&mut self, output: Option<Output>) {
        // The other file has the beginning of this line.
        let lost = self.unwritten.skip_to_line();
        self.counts.lost.fetch_add(lost, Relaxed);
        self.trouble = None;
        self.output = output;
        self.orders.may_tell.store(self.may_tell(), Relaxed);
    }

    /// Drops the lines that the output has not taken and those in the queue, and counts them.
    fn give_up(&mut self) -> u64 {
        let mut lost = self.unwritten.lines();
        self.unwritten.clear();
        if self.output.is_some() {
            let waiting = self.inbox.try_iter();
            let waiting = waiting.filter(|message| matches!(message, Message::Ended(_)));
            lost += waiting.count() as u64;
        }
        self.counts.lost.fetch_add(lost, Relaxed);
        lost
    }

    /// Writes the last lines, until `deadline`.
    fn finish(mut self, deadline: Instant) {
        loop {
            let more = self.gather();
            self.write();
            match &self.trouble {
                None if !more && self.unwritten.rest().is_empty() => return,
                None => {}
                Some(_) if Instant::now() >= deadline => break,
                Some(trouble) => match (&self.output, &trouble.error) {
                    (Some(output), None) => drop(output.wait(LOOK_INTERVAL)),
                    _ => std::thread::sleep(LOOK_INTERVAL),
                },
            }
        }
        let lost = self.give_up();
        if self.may_tell() {
            tracing::error!(
                lines = lost,
                "the access log took no more lines; the last ones are lost"
            );
        }
    }
}

impl Trouble {
    /// Says so, once; a reader may be late for a moment. If it would be said to the same reader, it waits
    /// with the log.
    fn tell(&mut self, output: &Output) {
        let log = output.target();
        if self.is_told || output.is_own_log() {
            return;
        }
        match &self.error {
            Some(error) => {
                tracing::error!(%log, %error, "cannot write the access log; what does not fit into the \
                                queue is lost");
            }
            None if self.since.elapsed() >= COMPLAINT_INTERVAL => {
                tracing::error!(%log, "the access log's reader does not read; what does not fit into \
                                the queue is lost");
            }
            None => return,
        }
        self.is_told = true;
    }
}

impl Unwritten {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn lines(&self) -> u64 {
        count_lines(self.rest())
    }

    /// Takes note that the next `bytes` are written. Returns how many lines end in them.
    fn taken(&mut self, bytes: usize) -> u64 {
        let lines = count_lines(&self.rest()[..bytes]);
        self.taken += bytes;
        lines
    }

    /// Drops the rest of a line whose beginning is written. Returns how many lines that are.
    fn skip_to_line(&mut self) -> u64 {
        let torn = self.torn();
        self.taken += torn;
        u64::from(torn > 0)
    }

    /// Drops all lines of which nothing is written. Returns how many that are.
    fn drop_whole_lines(&mut self) -> u64 {
        let kept = self.taken + self.torn();
        let lines = count_lines(&self.bytes[kept..]);
        self.bytes.truncate(kept);
        lines
    }

    /// How many bytes a line still has whose beginning is written.
    fn torn(&self) -> usize {
        if self.taken == 0 || self.bytes[self.taken - 1] == b'\n' {
            return 0;
        }
        let end = self.rest().iter().position(|&byte| byte == b'\n');
        end.map_or(self.rest().len(), |end| end + 1)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Lines that end within this time are written together.
const GATHER: Duration = Duration::from_millis(50);
/// How much is written at once at most, but for one line.
const FULL: usize = 64 * 1024;
/// How often to try again after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How often to look for orders while waiting for a reader.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, sync_channel};

    use super::*;

    /// Orders that were given while the queue was full.
    #[test]
    fn an_order_without_a_message_is_obeyed_before_the_thread_sleeps() {
        let (_queue, inbox) = sync_channel(1);
        let (alive, ended) = sync_channel::<()>(0);
        let orders = Arc::<Orders>::default();
        super::super::lock(&orders.given).stop = Some(Instant::now());
        let writer = Writer::new(inbox, orders, Arc::default());
        let thread = std::thread::spawn(move || {
            let _alive = alive;
            writer.run();
        });
        let ended = ended.recv_timeout(Duration::from_secs(60));
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected), "it sleeps");
        thread.join().unwrap();
    }

    #[test]
    fn lines_of_another_format_are_lost_when_the_output_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let open = |path: &std::path::Path| Output::open(&crate::options::LogTarget::File(path.to_owned())).unwrap();
        for (format, lost, expected) in [
            (LogFormat::Text, 3, " lost_lines=3\n"),
            (LogFormat::Json, 1, "two\nthree\n{\"time\":"),
        ] {
            let _ = std::fs::remove_file(&path);
            let (_queue, inbox) = sync_channel(1);
            let orders = Arc::<Orders>::default();
            let counts = Arc::<Counts>::default();
            let mut writer = Writer::new(inbox, orders.clone(), counts.clone());
            writer.output = Some(open("/dev/full".as_ref()));
            writer.unwritten.bytes = b"one\ntwo\nthree\n".to_vec();
            // A disk that has just become full has the beginning of the first line.
            writer.unwritten.taken = 2;
            let destination = Destination::Opened(open(&path), format);
            super::super::lock(&orders.given).destination = Some(destination);
            assert_eq!(writer.obey(Duration::ZERO), None);
            assert_eq!(counts.lost.load(Relaxed), lost);
            writer.write_waiting();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("one") && text.contains("two") == (lost == 1), "{text}");
        }
    }

    fn after(taken: usize, text: &str) -> (u64, String) {
        let mut unwritten = Unwritten {
            bytes: text.into(),
            taken: 0,
        };
        unwritten.taken(taken);
        let lost = unwritten.skip_to_line();
        let rest = String::from_utf8(unwritten.rest().to_vec()).unwrap();
        assert_eq!(unwritten.lines(), rest.lines().count() as u64);
        (lost, rest)
    }

    #[test]
    fn another_file_begins_with_a_whole_line() {
        let whole = |lost, rest: &str| (lost, rest.to_owned());
        assert_eq!(after(0, "one\ntwo\n"), whole(0, "one\ntwo\n"));
        assert_eq!(after(2, "one\ntwo\n"), whole(1, "two\n"));
        assert_eq!(after(3, "one\ntwo\n"), whole(1, "two\n"));
        assert_eq!(after(4, "one\ntwo\n"), whole(0, "two\n"));
        assert_eq!(after(5, "one\ntwo\n"), whole(1, ""));
        assert_eq!(after(8, "one\ntwo\n"), whole(0, ""));
        assert_eq!(after(0, ""), whole(0, ""));
    }

    #[test]
    fn a_line_whose_beginning_is_written_is_kept_until_the_output_changes() {
        for (taken, lost, kept) in [(0, 2, ""), (2, 1, "e\n"), (3, 1, "\n"), (4, 1, ""), (8, 0, "")] {
            let mut unwritten = Unwritten {
                bytes: b"one\ntwo\n".to_vec(),
                taken,
            };
            assert_eq!(unwritten.drop_whole_lines(), lost, "{taken}");
            assert_eq!(unwritten.rest(), kept.as_bytes(), "{taken}");
        }
    }

    #[test]
    fn written_lines_are_counted_once() {
        let mut unwritten = Unwritten {
            bytes: b"one\ntwo\nthree\n".to_vec(),
            taken: 0,
        };
        let lines = [2, 3, 9].map(|taken| unwritten.taken(taken));
        assert_eq!(lines, [0, 1, 2]);
    }
}
