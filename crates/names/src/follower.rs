//! The work: decides when each name is looked up, and hands on the answers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout_at;

use crate::resolver::{NoAnswer, Resolver};
use crate::schedule::Schedule;

/// The names that are wanted. Without it, the work ends.
#[derive(Debug)]
pub struct Names(UnboundedSender<Event>);

/// The work that follows [`Names`].
#[derive(Debug)]
pub struct Follower {
    resolver: Resolver,
    orders: UnboundedReceiver<Event>,
    /// Where lookups send their answers, and where they arrive.
    answers: (UnboundedSender<Event>, UnboundedReceiver<Event>),
    schedule: Schedule,
}

#[derive(Debug)]
enum Event {
    Follow { hosts: BTreeSet<String>, anew: bool },
    Answer(String, Result<Vec<IpAddr>, NoAnswer>),
}

impl Names {
    /// Names that `resolver` looks up, none so far, and the work to be run.
    pub fn new(resolver: Resolver) -> (Self, Follower) {
        let (send, orders) = unbounded_channel();
        let follower = Follower {
            resolver,
            orders,
            answers: unbounded_channel(),
            schedule: Schedule::default(),
        };
        (Self(send), follower)
    }

    /// Has these names looked up from now on, and no others. With `anew`, also those at once that were looked up before.
    pub fn follow(&self, hosts: BTreeSet<String>, anew: bool) {
        let _ = self.0.send(Event::Follow { hosts, anew });
    }
}

impl Follower {
    /// Looks names up, and calls `report` with each answer. Ends when [`Names`] are dropped. Where a call has ended
    /// early, as by a panic of `report`, another one goes on. The answer whose report has panicked is not reported again:
    /// the answer of the name's next lookup is.
    pub async fn run(&mut self, mut report: impl FnMut(&str, Result<Vec<IpAddr>, NoAnswer>)) {
        loop {
            let now = Instant::now();
            while let Some(host) = self.schedule.late(now) {
                report(&host, Err(NoAnswer::passing("no answer in time")));
            }
            for host in self.schedule.begin(now) {
                self.look_up(host);
            }
            let event = async {
                tokio::select! {
                    biased;
                    order = self.orders.recv() => order,
                    answer = self.answers.1.recv() => answer,
                }
            };
            let event = match self.schedule.next() {
                Some(next) => timeout_at(next.into(), event).await,
                None => Ok(event.await),
            };
            match event {
                Ok(Some(Event::Follow { hosts, anew })) => self.schedule.follow(&hosts, anew, Instant::now()),
                Ok(Some(Event::Answer(host, answer))) => {
                    if self.schedule.answered(&host, answer.is_ok(), Instant::now()) {
                        report(&host, answer);
                    }
                }
                Ok(None) => return,
                Err(_) => {}
            }
        }
    }

    /// Looks a name up on a thread for which no other one waits: a call of the system cannot be cut off.
    fn look_up(&self, host: String) {
        let (resolver, answer) = (self.resolver.clone(), self.answers.0.clone());
        let name = host.clone();
        let started = thread::Builder::new().name("widelane-lookup".into()).spawn(move || {
            // Without an answer, the name would never be looked up again.
            let found = catch_unwind(AssertUnwindSafe(|| resolver.look_up(&name)));
            let found =
                found.unwrap_or_else(|_| Err(NoAnswer::passing("the lookup has failed: a fault of the program")));
            let _ = answer.send(Event::Answer(name, found));
        });
        if let Err(error) = started {
            let fault = NoAnswer::passing(format!("cannot start a thread: {error}"));
            let _ = self.answers.0.send(Event::Answer(host, Err(fault)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    type Answers = mpsc::Receiver<(String, Result<Vec<IpAddr>, NoAnswer>)>;

    fn hosts(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|&host| host.to_owned()).collect()
    }

    /// Runs the work on a thread. It ends with the names.
    fn run(look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> (Names, Answers) {
        let (names, mut follower) = Names::new(Resolver::new(look_up));
        let (report, answers) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let work = follower.run(|host, answer| report.send((host.to_owned(), answer)).unwrap());
            runtime.unwrap().block_on(work);
        });
        (names, answers)
    }

    /// One name hangs, of which another one is looked up all the same; and nothing waits for it at the end.
    #[test]
    fn a_lookup_that_hangs_holds_up_neither_others_nor_the_end() {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let hung = Arc::new(AtomicUsize::new(0));
        let counts = hung.clone();
        let (names, answers) = run(move |host| {
            if host == "hangs.test" {
                counts.fetch_add(1, Ordering::Relaxed);
                let _ = released.lock().unwrap().recv();
            }
            Ok(vec![[127, 0, 0, 1].into()])
        });
        let address = Ok(vec![[127, 0, 0, 1].into()]);
        names.follow(hosts(&["good.test", "hangs.test"]), false);
        assert_eq!(answers.recv().unwrap(), ("good.test".into(), address.clone()));
        // Forgotten and wanted again, as by reloads that are refused, it is not asked for twice.
        for _ in 0..3 {
            names.follow(hosts(&["good.test"]), false);
            names.follow(hosts(&["good.test", "hangs.test", "new.test"]), true);
        }
        let mut known = BTreeMap::new();
        while !known.contains_key("new.test") {
            known.extend([answers.recv().unwrap()]);
        }
        assert_eq!(known["new.test"], address);
        assert!(hung.load(Ordering::Relaxed) <= 1 && !known.contains_key("hangs.test"));
        drop(names);
        let rest: Vec<_> = answers.iter().map(|(host, _)| host).collect();
        assert!(
            !rest.contains(&"hangs.test".to_owned()),
            "the work has ended without it"
        );
        drop(release);
    }

    #[test]
    fn a_lookup_that_panics_has_failed_and_is_tried_again() {
        let (names, answers) = run(|_| panic!("in a lookup"));
        for _ in 0..2 {
            names.follow(hosts(&["a.test"]), true);
            let (host, answer) = answers.recv().unwrap();
            let fault = answer.unwrap_err();
            assert!(host == "a.test" && fault.passing && fault.reason.contains("a fault of the program"));
        }
    }

    #[test]
    fn work_that_a_panic_has_ended_goes_on_with_its_names() {
        let (names, mut follower) = Names::new(Resolver::new(|_| Ok(vec![[127, 0, 0, 1].into()])));
        names.follow(hosts(&["a.test", "b.test"]), false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let mut known = Vec::new();
        let fails = follower.run(|host, _| {
            known.push(host.to_owned());
            panic!("in a report");
        });
        catch_unwind(AssertUnwindSafe(|| runtime.block_on(fails))).unwrap_err();
        let mut names = Some(names);
        runtime.block_on(follower.run(|host, answer| {
            assert!(answer.is_ok());
            known.push(host.to_owned());
            // The other one was asked for, or is still to be.
            names = None;
        }));
        known.sort();
        assert_eq!(known, ["a.test", "b.test"]);
    }

    #[test]
    fn a_panic_about_one_late_name_does_not_keep_back_the_others() {
        let (_names, mut follower) = Names::new(Resolver::new(|_| Ok(vec![[127, 0, 0, 1].into()])));
        let long_ago = Instant::now() - Duration::from_secs(60);
        let all = hosts(&["a.test", "b.test", "c.test"]);
        follower.schedule.follow(&all, false, long_ago);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let mut reported = Vec::new();
        for _ in &all {
            let fails = follower.run(|host, answer| {
                reported.push((host.to_owned(), answer));
                panic!("in a report");
            });
            catch_unwind(AssertUnwindSafe(|| runtime.block_on(fails))).unwrap_err();
        }
        let late = Err(NoAnswer::passing("no answer in time"));
        let expected = all.into_iter().map(|host| (host, late.clone()));
        assert_eq!(reported, Vec::from_iter(expected));
    }

    #[test]
    fn failures_are_reported_and_lasting_ones_differ_from_others() {
        let answer = Arc::new(Mutex::new(Ok(vec![[127, 0, 0, 1].into()])));
        let now = answer.clone();
        let (names, answers) = run(move |_| now.lock().unwrap().clone().map_err(io::Error::from));
        let until = |so: fn(&Result<Vec<IpAddr>, NoAnswer>) -> bool| loop {
            names.follow(hosts(&["a.test"]), true);
            if so(&answers.recv().unwrap().1) {
                break;
            }
        };
        until(Result::is_ok);
        *answer.lock().unwrap() = Err(io::ErrorKind::NotFound);
        until(|answer| answer.as_ref().is_err_and(|fault| !fault.passing));
        *answer.lock().unwrap() = Err(io::ErrorKind::Other);
        until(|answer| answer.as_ref().is_err_and(|fault| fault.passing));
    }
}
