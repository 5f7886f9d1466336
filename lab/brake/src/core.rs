//! A core with its hyperthreads: one licence, several CPUs that ask.

use rustix::process::{Pid, test_kill_process};
use widelane_cpu::licence::machine::{Grant, Pace, Request};
use widelane_marks::{Kind, Look, Quiet, Slot};

use crate::account::Account;

/// What the threads of a core's CPUs share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) account: Account,
    pub(crate) cpus: Vec<Cpu>,
    /// When it was last looked at whether threads that have marked are alive.
    looked: u64,
}

/// One of its CPUs.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) number: usize,
    pub(crate) look: Look,
    /// Its thread sleeps until it is woken.
    pub(crate) rests: bool,
}

impl Core {
    pub(crate) fn new(account: Account, cpus: &[usize]) -> Self {
        let cpu = |&number: &usize| Cpu {
            number,
            look: Look::default(),
            rests: true,
        };
        Self {
            looked: account.at(),
            account,
            cpus: cpus.iter().map(cpu).collect(),
        }
    }

    /// Reads all marks, tells the licence of them, and lets time pass until `now`.
    pub(crate) fn look<'a>(
        &mut self,
        slot: impl Fn(usize) -> Option<&'a Slot>,
        now: u64,
        crowded: bool,
    ) {
        let check = now.saturating_sub(self.looked) > CHECK;
        let mut marks = Marks::NONE;
        for cpu in &mut self.cpus {
            let Some(slot) = slot(cpu.number) else {
                continue;
            };
            let mut look = slot.look();
            if check && is_abandoned(slot, &look, now) {
                slot.forget(&look);
                look = slot.look();
            }
            marks.add(&cpu.look, &look);
            cpu.look = look;
        }
        if check {
            self.looked = now;
        }
        marks.tell(&mut self.account, now, crowded);
        self.account.advance(now);
    }

    /// Which marks need not wake a thread that sleeps from `now` on.
    pub(crate) fn quiet(&self, now: u64) -> Quiet {
        let state = self.account.state();
        let told = self.account.told();
        let most = match state.grant.max(told.in_time) {
            Grant::Base => return Quiet::NEVER,
            Grant::Voltage => Kind::Light256,
            Grant::L1 => Kind::Light512,
            Grant::L2 => Kind::Heavy512,
        };
        // Code that has ended unseen, and begins again after its tail, must be heard of.
        let until = match told {
            Request::NOTHING => self.account.next_change().unwrap_or(now),
            _ => now + SHORTEST_TAIL,
        };
        Quiet {
            most: Some(most),
            until,
        }
    }

    /// Whether its level changes at this moment.
    pub(crate) fn is_moving(&self) -> bool {
        self.account.state().pace != Pace::Full
    }
}

/// What has been marked since the last look.
struct Marks {
    /// What runs now, and the part of it that has run all the time.
    running: Request,
    kept: Request,
    /// When something was begun last that still runs.
    begun: Option<u64>,
    /// What has ended, and when.
    ended: Option<(Request, u64)>,
}

impl Marks {
    const NONE: Self = Self {
        running: Request::NOTHING,
        kept: Request::NOTHING,
        begun: None,
        ended: None,
    };

    fn add(&mut self, before: &Look, now: &Look) {
        for kind in Kind::ALL {
            let asked = now.asked[kind as usize];
            let is_new = asked != before.asked[kind as usize];
            let request = Request::of(kind.class(), true);
            match (now.running[kind as usize] > 0, is_new) {
                (true, true) => {
                    self.running = self.running.together(request);
                    self.begun = self.begun.max(Some(asked));
                }
                (true, false) => {
                    self.running = self.running.together(request);
                    self.kept = self.kept.together(request);
                }
                (false, true) => {
                    let (others, end) = self.ended.unwrap_or((Request::NOTHING, 0));
                    self.ended = Some((others.together(request), end.max(asked)));
                }
                (false, false) => {}
            }
        }
    }

    fn tell(self, account: &mut Account, now: u64, crowded: bool) {
        if let Some((ended, end)) = self.ended {
            // When it began is not known; had it been after the next change, it would have woken us.
            let change = account.next_change().unwrap_or(u64::MAX);
            let end = end.min(now);
            let begin = end.min(change.saturating_sub(1));
            account.run(begin, account.told().together(ended), crowded);
            account.run(end, self.kept, crowded);
        }
        if self.running != account.told() {
            account.run(self.begun.unwrap_or(now).min(now), self.running, crowded);
        }
    }
}

/// Whether what runs here by its marks is long gone: a thread that was killed does not end its marks.
fn is_abandoned(slot: &Slot, look: &Look, now: u64) -> bool {
    let newest = look.asked.into_iter().max().unwrap_or(0);
    let runs = look.kinds().next().is_some();
    let by = i32::try_from(slot.by()).ok().and_then(Pid::from_raw);
    runs && now.saturating_sub(newest) > CHECK
        && by.is_some_and(|by| test_kill_process(by) == Err(rustix::io::Errno::SRCH))
}

/// Threads that have marked are looked for that often.
const CHECK: u64 = 50_000_000;
/// No known tail is shorter.
const SHORTEST_TAIL: u64 = 600_000;

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
    fn a_burst_that_runs_is_told_from_its_beginning() {
        let (mut core, slots) = (core(), <[Slot; 2]>::default());
        look(&mut core, &slots, 900_000);
        assert_eq!(core.quiet(900_000), Quiet::NEVER);
        let _ = slots[1].begin(Kind::Heavy512, 1_000_000, 1);
        look(&mut core, &slots, 1_004_000);
        assert!(core.is_moving());
        assert_eq!(core.account.owed(), 3_000, "three quarters since it began");
        let quiet = core.quiet(1_004_000);
        assert_eq!(quiet.most, Some(Kind::Heavy512));
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
        assert_eq!(core.quiet(210_000).until, 800_000);
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

    #[test]
    fn hyperthreads_ask_for_their_core_together() {
        let (mut core, slots) = (core(), <[Slot; 2]>::default());
        let _ = slots[0].begin(Kind::Heavy256, 100_000, 1);
        let _ = slots[1].begin(Kind::Light512, 100_000, 1);
        look(&mut core, &slots, 100_000);
        assert_eq!(core.account.told().in_time, Grant::L2);
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
