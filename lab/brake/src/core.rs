//! A core with its hyperthreads: one licence, several CPUs that ask.

use rustix::process::{Pid, test_kill_process};
use widelane_cpu::licence::machine::{Grant, Pace, Request};
use widelane_marks::{Kind, Look, Quiet, Slot};

use crate::account::Account;

/// State that the threads of a core's CPUs share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) account: Account,
    pub(crate) cpus: Vec<Cpu>,
    /// Time of the last check that threads with marks are alive.
    looked: u64,
}

/// CPU of a core.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) number: usize,
    pub(crate) look: Look,
    /// True for each kind that runs there by the licence's state.
    runs: [bool; 4],
    /// True while the CPU's thread sleeps until it is woken.
    pub(crate) rests: bool,
}

impl Core {
    pub(crate) fn new(account: Account, cpus: &[usize]) -> Self {
        let cpu = |&number: &usize| Cpu {
            number,
            look: Look::default(),
            runs: [false; 4],
            rests: true,
        };
        Self {
            looked: account.at(),
            account,
            cpus: cpus.iter().map(cpu).collect(),
        }
    }

    /// Reads all marks, tells the licence of them, and lets time pass until `now`.
    pub(crate) fn look<'a>(&mut self, slot: impl Fn(usize) -> Option<&'a Slot>, now: u64, crowded: bool) {
        let check = now.saturating_sub(self.looked) > CHECK;
        let mut events = Vec::new();
        for (at, cpu) in self.cpus.iter_mut().enumerate() {
            let Some(slot) = slot(cpu.number) else {
                continue;
            };
            let mut look = slot.look();
            if check && is_abandoned(slot, &look, now) {
                slot.forget(&look);
                look = slot.look();
            }
            let kinds = Kind::ALL.into_iter();
            let of = |kind| events_of(kind, &cpu.look, &look, cpu.runs[kind as usize], now);
            events.extend(kinds.flat_map(of).map(|event| (at, event)));
            cpu.look = look;
        }
        if check {
            self.looked = now;
        }
        self.tell(events, now, crowded);
        self.account.advance(now);
    }

    /// Tells the licence what began and ended, in the order in which it did.
    fn tell(&mut self, mut events: Vec<(usize, Event)>, now: u64, crowded: bool) {
        events.sort_by_key(|(_, event)| event.time);
        for (cpu, event) in events {
            self.cpus[cpu].runs[event.kind as usize] = event.runs;
            let mut time = event.time.min(now);
            if event.others_before {
                // Earlier bursts have kept the grant: a pause in which it could have run out would have woken this
                // thread.
                let change = self.account.next_change().unwrap_or(u64::MAX);
                time = time.min(change.saturating_sub(1));
            }
            let runs = self.cpus.iter().flat_map(|cpu| kinds_of(&cpu.runs));
            let requests = runs.map(|kind| Request::of(kind.class(), true));
            let request = requests.fold(Request::NOTHING, Request::together);
            self.account.run(time, request, crowded);
        }
    }

    /// Marks that need not wake a thread that sleeps from now on.
    pub(crate) fn quiet(&self) -> Quiet {
        let granted = match self.account.state().grant {
            Grant::Base => None,
            Grant::Voltage => Some(Kind::Light256),
            Grant::L1 => Some(Kind::Light512),
            Grant::L2 => Some(Kind::Heavy512),
        };
        let running = self.cpus.iter().flat_map(|cpu| kinds_of(&cpu.runs)).max();
        granted.max(running).map_or(Quiet::Never, Quiet::Granted)
    }

    /// Returns whether the core changes its level at this moment.
    pub(crate) fn is_moving(&self) -> bool {
        self.account.state().pace != Pace::Full
    }
}

/// A kind begins or ends.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: u64,
    kind: Kind,
    runs: bool,
    /// True if the event may be the last of several, which the page no longer shows.
    others_before: bool,
}

/// Events of a kind on one CPU between two looks; `ran` states whether it ran at the first.
fn events_of(kind: Kind, before: &Look, look: &Look, ran: bool, now: u64) -> Vec<Event> {
    let at = kind as usize;
    let (begun, ended) = (look.begun[at], look.ended[at]);
    let has_ended = ended != before.ended[at];
    let count = look.running[at];
    let event = |time, runs, others_before| Event {
        time,
        kind,
        runs,
        others_before,
    };
    let mut events = Vec::new();
    // One that ran ended, or another one began and ended meanwhile.
    let pauses = has_ended && (count == 0 || (count == 1 && begun > ended));
    if pauses {
        if !ran {
            events.push(event(begun.min(ended), true, true));
        }
        events.push(event(ended, false, false));
    }
    let runs = ran && !pauses;
    if count > 0 && !runs {
        events.push(event(begun, true, has_ended && !pauses));
    }
    // The thread of the kind was killed.
    if count == 0 && runs {
        events.push(event(now, false, false));
    }
    events
}

fn kinds_of(runs: &[bool; 4]) -> impl Iterator<Item = Kind> {
    let runs = *runs;
    Kind::ALL.into_iter().filter(move |&kind| runs[kind as usize])
}

/// Returns whether marks of running code belong to a thread that no longer exists: a thread that was killed does not
/// end its marks.
fn is_abandoned(slot: &Slot, look: &Look, now: u64) -> bool {
    let runs = look.kinds().next().is_some();
    let by = i32::try_from(slot.by()).ok().and_then(Pid::from_raw);
    runs && now.saturating_sub(look.newest()) > CHECK
        && by.is_some_and(|by| test_kill_process(by) == Err(rustix::io::Errno::SRCH))
}

/// Threads that have marked are looked for that often.
const CHECK: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::tests::rules;
    use widelane_cpu::licence::machine::{Machine, State};

    fn core() -> Core {
        let account = Account::new(Machine::new(rules(), 1), [2.0, 1.5, 1.0], 0);
        Core::new(account, &[0, 1])
    }

    fn look(core: &mut Core, slots: &[Slot; 2], now: u64) -> State {
        core.look(|cpu| slots.get(cpu), now, false);
        core.account.state()
    }

    #[test]
    fn a_burst_that_runs_is_reported_from_its_beginning() {
        let (mut core, slots) = (core(), <[Slot; 2]>::default());
        look(&mut core, &slots, 900_000);
        assert_eq!(core.quiet(), Quiet::Never);
        let _ = slots[1].begin(Kind::Heavy512, 1_000_000, 1);
        look(&mut core, &slots, 1_004_000);
        assert!(core.is_moving());
        assert_eq!(core.account.owed(), 3_000, "three quarters since it began");
        assert_eq!(core.quiet(), Quiet::Granted(Kind::Heavy512));
        let state = look(&mut core, &slots, 1_100_000);
        assert_eq!((state.grant, core.is_moving()), (Grant::L2, false));
    }

    #[test]
    fn a_burst_between_two_looks_sets_the_tail_again() {
        let (mut core, slots) = (core(), <[Slot; 2]>::default());
        let _ = slots[0].begin(Kind::Light512, 100_000, 1);
        look(&mut core, &slots, 100_000);
        slots[0].end(Kind::Light512, 200_000);
        look(&mut core, &slots, 210_000);
        assert_eq!(core.account.next_change(), Some(800_000));
        assert_eq!(core.quiet(), Quiet::Granted(Kind::Light512));
        let _ = slots[1].begin(Kind::Light512, 700_000, 1);
        slots[1].end(Kind::Light512, 720_000);
        look(&mut core, &slots, 790_000);
        assert_eq!(core.account.next_change(), Some(1_320_000));
    }

    #[test]
    fn a_burst_that_outlived_the_change_began_before_it() {
        let (mut core, slots) = (core(), <[Slot; 2]>::default());
        let _ = slots[0].begin(Kind::Light512, 100_000, 1);
        slots[0].end(Kind::Light512, 200_000);
        look(&mut core, &slots, 200_000);
        let expiry = core.account.next_change();
        assert!(expiry.is_some());
        let _ = slots[0].begin(Kind::Light512, 700_000, 1);
        slots[0].end(Kind::Light512, 900_000);
        let state = look(&mut core, &slots, 950_000);
        assert_eq!((state.grant, state.pace), (Grant::L1, Pace::Full));
        assert_eq!(core.account.next_change(), Some(1_500_000));
    }

    #[test]
    fn between_the_end_of_one_burst_and_the_next_nothing_runs() {
        let (mut core, slots) = (core(), <[Slot; 2]>::default());
        let _ = slots[0].begin(Kind::Light256, 1_000_000, 1);
        look(&mut core, &slots, 1_000_000);
        slots[0].end(Kind::Light256, 1_600_000);
        let _ = slots[0].begin(Kind::Heavy512, 9_000_000, 1);
        look(&mut core, &slots, 9_000_000);
        assert_eq!(core.account.owed(), 6_000, "the voltage alone");
        assert!(core.is_moving());
    }

    /// Light 256-bit code waits for its voltage again each time it comes after the voltage has run out. The brake looks
    /// when it is woken, and not between the end of one burst and the next.
    #[test]
    fn every_voltage_that_has_run_out_is_asked_for_again() {
        const BURST: u64 = 20_000;
        for (pause, voltages) in [(10_000_000, 7), (Slot::SHORTEST_TAIL - 1, 1)] {
            let (mut core, slots) = (core(), <[Slot; 2]>::default());
            slots[0].set_braked(true);
            let mut now = 1_000_000;
            for _ in 0..7 {
                if slots[0].begin(Kind::Light256, now, 1) {
                    look(&mut core, &slots, now);
                    let seen = slots[0].look();
                    assert!(slots[0].prepare_sleep(core.quiet(), &seen).is_some());
                    // When the stall is over.
                    look(&mut core, &slots, now + 8_000);
                    assert!(slots[0].prepare_sleep(core.quiet(), &seen).is_some());
                }
                slots[0].end(Kind::Light256, now + BURST);
                now += BURST + pause;
            }
            look(&mut core, &slots, now);
            assert_eq!(core.account.owed(), voltages * 6_000, "{pause}");
        }
    }

    #[test]
    fn a_level_that_bursts_keep_is_kept_between_two_looks_far_apart() {
        let (mut core, slots) = (core(), <[Slot; 2]>::default());
        let _ = slots[0].begin(Kind::Light512, 100_000, 1);
        look(&mut core, &slots, 100_000);
        slots[0].end(Kind::Light512, 200_000);
        look(&mut core, &slots, 200_000);
        for at in 1..20 {
            let begin = 100_000 + at * 500_000;
            let woken = slots[0].begin(Kind::Light512, begin, 1);
            assert!(woken, "no brake is asleep");
            slots[0].end(Kind::Light512, begin + 1_000);
        }
        look(&mut core, &slots, 9_700_000);
        assert_eq!(core.account.levels()[0], 120_000, "never again at the full clock");
        assert_eq!(core.account.next_change(), Some(9_601_000 + 600_000));
    }

    #[test]
    fn hyperthreads_ask_for_their_core_together() {
        let (mut core, slots) = (core(), <[Slot; 2]>::default());
        let _ = slots[0].begin(Kind::Heavy256, 100_000, 1);
        let _ = slots[1].begin(Kind::Light512, 100_000, 1);
        look(&mut core, &slots, 100_000);
        assert_eq!(core.account.request().in_time, Grant::L2);
    }

    #[test]
    fn marks_of_a_dead_thread_are_forgotten() {
        let (mut core, slots) = (core(), <[Slot; 2]>::default());
        // No thread has this number: it is the largest that there is, plus one.
        let _ = slots[0].begin(Kind::Heavy512, 1_000_000, 1 << 22);
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let _ = slots[1].begin(Kind::Heavy512, 1_000_000, own);
        look(&mut core, &slots, 40_000_000);
        assert_eq!(core.cpus[0].look.running[3], 1);
        look(&mut core, &slots, 60_000_000);
        assert_eq!(core.cpus[0].look.running[3], 0);
        assert_eq!(core.cpus[1].look.running[3], 1, "that one is alive");
    }
}
