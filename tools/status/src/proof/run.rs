//! Switching and measuring, block by block.

use std::collections::BTreeMap;
use std::time::Duration;

use widelane_status::{Asked, InProof, Times};

use super::plan::Plan;
use super::verdict::{Block, Pair};

/// The server, and the time.
pub trait World {
    /// What can go wrong with it.
    type Error;

    /// The monotonic clock.
    fn now(&self) -> Duration;

    /// Waits until then; true if the user wants an end before.
    fn ended_before(&mut self, then: Duration) -> bool;

    /// Asks each process of the server for this.
    ///
    /// # Errors
    ///
    /// When none is left, one cannot be asked, or an operator has switched one meanwhile.
    fn ask(&mut self, asked: InProof) -> Result<(), Self::Error>;

    /// Asks for nothing any more: an operator's word counts again.
    fn restore(&mut self);

    /// What the processes have done since they began.
    ///
    /// # Errors
    ///
    /// When none is left, one cannot be looked at, or an operator has switched one since it was asked.
    fn look(&mut self) -> Result<Look, Self::Error>;
}

/// What each process of a server has done since it began, by its number.
pub type Look = BTreeMap<u32, Counts>;

/// What one process has done since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Signatures of handshakes.
    pub signed: u64,
    /// Key exchanges.
    pub agreed: u64,
    /// Waits for signatures; of the terminator, of full handshakes for the server.
    pub signed_times: Times,
    /// Waits for key exchanges; of the terminator, of resumed handshakes for the server.
    pub agreed_times: Times,
    /// Jobs.
    pub jobs: u64,
    /// Those of them that ran in lanes.
    pub in_lanes: u64,
    /// CPU time of each thread, in nanoseconds.
    pub threads: BTreeMap<u32, u64>,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The pair that has begun, from 1 on.
    pub pair: usize,
    /// Of how many.
    pub of: usize,
    /// Whether lanes are on now.
    pub on: bool,
    /// Handshakes in the blocks so far: signatures, or else key exchanges.
    pub handshakes: u64,
}

/// Why a run has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End<E> {
    /// All blocks are done.
    Done,
    /// The user wants no more.
    Asked,
    /// The server cannot be switched or looked at any more.
    Failed(E),
}

/// Runs a plan, and gives the pairs that are whole. `draw` says of each pair whether its block without lanes
/// comes first.
///
/// However it ends, also by a panic, the server is restored. Should this program be killed, what it has asked for last
/// ends soon after the end of the block.
pub fn run<W: World>(
    world: &mut W,
    plan: &Plan,
    mut draw: impl FnMut() -> bool,
    mut progress: impl FnMut(Progress),
) -> (Vec<Pair>, End<W::Error>) {
    let restoring = Restoring(world);
    let mut pairs = Vec::new();
    let mut handshakes = 0;
    for number in 1..=plan.pairs {
        let off_first = draw();
        let mut pair = Pair::default();
        for on in [!off_first, off_first] {
            progress(Progress {
                pair: number,
                of: plan.pairs,
                on,
                handshakes,
            });
            let length = if on { plan.on } else { plan.off };
            let block = match block(restoring.0, on, length) {
                Ok(Some(block)) => block,
                Ok(None) => return (pairs, End::Asked),
                Err(error) => return (pairs, End::Failed(error)),
            };
            handshakes += match block.signed {
                0 => block.agreed,
                signed => signed,
            };
            match on {
                true => pair.with = block,
                false => pair.without = block,
            }
        }
        pairs.push(pair);
    }
    (pairs, End::Done)
}

/// Waits until so many handshakes come that this plan can tell; false if the user wants an end before.
///
/// # Errors
///
/// When the server cannot be looked at any more.
pub fn wait_for_load<W: World>(world: &mut W, plan: &Plan) -> Result<bool, W::Error> {
    let (mut since, mut before) = (world.now(), world.look()?);
    loop {
        if world.ended_before(since + LOOK) {
            return Ok(false);
        }
        let (now, after) = (world.now(), world.look()?);
        let lasted = now.saturating_sub(since);
        let block = between(&before, &after, lasted);
        let needed = plan.least_rate() * lasted.as_secs_f64();
        if block.signed.max(block.agreed) as f64 >= needed {
            return Ok(true);
        }
        (since, before) = (now, after);
    }
}

/// One block; `None` if the user wants an end. If this program was stopped until the end of what it had asked for, the
/// block says nothing and begins again.
fn block<W: World>(world: &mut W, on: bool, length: Duration) -> Result<Option<Block>, W::Error> {
    loop {
        let begun = world.now();
        let ends = begun + length;
        let until = ends + MARGIN;
        world.ask(InProof {
            asked: if on { Asked::On } else { Asked::Off },
            until,
        })?;
        // Jobs that had begun run as they were to, and caches fill.
        if world.ended_before(begun + length / LEFT_OUT) {
            return Ok(None);
        }
        let (since, before) = (world.now(), world.look()?);
        if world.ended_before(ends) {
            return Ok(None);
        }
        let (now, after) = (world.now(), world.look()?);
        if world.now() < until {
            return Ok(Some(between(&before, &after, now.saturating_sub(since))));
        }
    }
}

/// What processes did between two looks that were there at both.
fn between(before: &Look, after: &Look, lasted: Duration) -> Block {
    let mut block = Block {
        lasted,
        ..Block::default()
    };
    for (pid, now) in after {
        let Some(then) = before.get(pid) else {
            continue;
        };
        block.signed += now.signed.saturating_sub(then.signed);
        block.agreed += now.agreed.saturating_sub(then.agreed);
        (block.signed_times).add(&now.signed_times.since(&then.signed_times));
        (block.agreed_times).add(&now.agreed_times.since(&then.agreed_times));
        block.jobs += now.jobs.saturating_sub(then.jobs);
        block.in_lanes += now.in_lanes.saturating_sub(then.in_lanes);
        // Those of a thread that has ended are lost.
        for (tid, ran) in &now.threads {
            let earlier = then.threads.get(tid).copied().unwrap_or(0);
            block.cpu += Duration::from_nanos(ran.saturating_sub(earlier));
        }
    }
    block
}

/// Restores the server when it goes away.
struct Restoring<'a, W: World>(&'a mut W);

impl<W: World> Drop for Restoring<'_, W> {
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// One part in so many of a block is left out at its beginning.
pub(super) const LEFT_OUT: u32 = 10;
/// For so long lanes stay on or off after the end of a block in which this program is killed.
const MARGIN: Duration = Duration::from_secs(1);
/// Time between two looks at the load.
const LOOK: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::{Latency, Span, Verdict, prove};

    /// A server with 500 handshakes a second as a rule, and a clock that only waiting moves.
    struct Server {
        now: Duration,
        word: InProof,
        asked: Vec<InProof>,
        counts: Counts,
        /// Milliseconds from one handshake to the next.
        every: u64,
        /// Microseconds of a handshake with lanes and without.
        costs: [u64; 2],
        /// The user wants an end at this time.
        ends: Duration,
        /// Its processes end at this time.
        dies: Duration,
        /// The program that proves is stopped at this time, for a minute.
        stopped: Duration,
    }

    const NEVER: Duration = Duration::MAX;

    impl Server {
        fn new(costs: [u64; 2]) -> Self {
            Self {
                now: Duration::from_secs(1000),
                word: InProof::default(),
                asked: Vec::new(),
                counts: Counts::default(),
                every: 2,
                costs,
                ends: NEVER,
                dies: NEVER,
                stopped: NEVER,
            }
        }

        fn runs(&mut self) -> (Vec<Pair>, End<&'static str>) {
            let plan = Plan::new(Duration::from_secs(60), 0.5).unwrap();
            let mut turn = 0;
            let draw = || {
                turn += 1;
                turn % 3 == 0
            };
            run(self, &plan, draw, |_| {})
        }
    }

    impl World for Server {
        type Error = &'static str;

        fn now(&self) -> Duration {
            self.now
        }

        fn ended_before(&mut self, then: Duration) -> bool {
            let mut then_or_end = then.min(self.ends).max(self.now);
            if then_or_end > self.stopped {
                then_or_end += Duration::from_secs(60);
                self.stopped = NEVER;
            }
            let handshakes = (then_or_end - self.now).as_millis() as u64 / self.every;
            self.now = then_or_end;
            // An operator has switched lanes off before.
            let is_off = self.word.at(self.now).unwrap_or(Asked::Off) == Asked::Off;
            self.counts.signed += handshakes;
            self.counts.agreed += handshakes;
            self.counts.jobs += 3 * handshakes;
            self.counts.in_lanes += 3 * handshakes * u64::from(!is_off);
            for _ in 0..handshakes {
                // What is in a pass waits for it.
                let took = Duration::from_micros(if is_off { 400 } else { 900 });
                self.counts.signed_times.count(took);
            }
            let ran = self.counts.threads.entry(7).or_default();
            *ran += handshakes * self.costs[usize::from(is_off)] * 1000;
            then > self.ends
        }

        fn ask(&mut self, asked: InProof) -> Result<(), Self::Error> {
            assert!(asked.at(self.now).is_some(), "it is at work");
            if self.now >= self.dies {
                return Err("it has ended");
            }
            self.word = asked;
            self.asked.push(asked);
            Ok(())
        }

        fn restore(&mut self) {
            self.word = InProof::default();
        }

        fn look(&mut self) -> Result<Look, Self::Error> {
            Ok(Look::from([(7, self.counts.clone())]))
        }
    }

    #[test]
    fn a_run_measures_both_kinds_of_blocks_and_restores() {
        let mut server = Server::new([171, 379]);
        let (pairs, end) = server.runs();
        assert_eq!((pairs.len(), end), (15, End::Done));
        let proof = prove(&pairs, false);
        assert_eq!(proof.verdict, Verdict::Differ);
        assert_eq!(proof.with.unwrap().middle.round(), 171.0);
        assert_eq!(proof.without.unwrap().middle.round(), 379.0);
        assert_eq!(proof.rate.map(f64::round), Some(500.0));
        let [Latency { of, median, .. }] = &proof.latencies[..] else {
            panic!("{:?}", proof.latencies);
        };
        assert_eq!(*of, Span::Signature);
        for (found, real) in [(median.with, 900.0), (median.without, 400.0)] {
            assert!((found.middle / real - 1.0).abs() < 0.07, "{median:?}");
        }
        assert_eq!(server.word, InProof::default());
        assert_eq!(server.now, Duration::from_secs(1060));
    }

    #[test]
    fn a_server_that_is_the_same_both_ways_shows_none() {
        let (pairs, _) = Server::new([200, 200]).runs();
        assert_eq!(prove(&pairs, false).verdict, Verdict::Same);
    }

    #[test]
    fn what_is_asked_for_ends_by_itself_a_second_after_the_block() {
        let mut server = Server::new([1, 1]);
        server.runs();
        let ends = (1..=30).map(|block| Duration::from_secs(1000 + 2 * block + 1));
        assert!(server.asked.iter().map(|asked| asked.until).eq(ends));
        for pair in server.asked.chunks(2) {
            assert_ne!(pair[0].asked, pair[1].asked);
        }
    }

    /// The user stops this program by ^Z in a block, and continues it later.
    #[test]
    fn a_block_in_which_the_proof_was_stopped_is_done_again() {
        for block in 0..4 {
            let mut server = Server::new([171, 379]);
            server.stopped = Duration::from_millis(1000 * (1000 + 2 * block) + 700);
            let (pairs, end) = server.runs();
            assert_eq!((pairs.len(), end), (15, End::Done));
            assert_eq!(server.asked.len(), 31);
            for pair in &pairs {
                assert_eq!((pair.with.in_lanes, pair.without.in_lanes), (pair.with.jobs, 0));
                assert_eq!(pair.without.lasted, Duration::from_millis(1800));
            }
        }
    }

    #[test]
    fn who_asks_for_an_end_gets_what_is_known() {
        let mut server = Server::new([171, 379]);
        server.ends = Duration::from_secs(1030);
        let (pairs, end) = server.runs();
        assert_eq!((pairs.len(), end), (7, End::Asked));
        assert_eq!(server.word, InProof::default());
    }

    #[test]
    fn a_server_that_ends_leaves_what_is_known() {
        let mut server = Server::new([171, 379]);
        server.dies = Duration::from_secs(1030);
        let (pairs, end) = server.runs();
        assert_eq!((pairs.len(), end), (7, End::Failed("it has ended")));
    }

    #[test]
    fn a_panic_restores() {
        let mut server = Server::new([171, 379]);
        let plan = Plan::new(Duration::from_secs(60), 0.5).unwrap();
        let panics = std::panic::AssertUnwindSafe(|| {
            run(&mut server, &plan, || true, |now| assert!(now.pair < 3));
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(server.word, InProof::default());
    }

    #[test]
    fn load_is_waited_for() {
        let plan = Plan::new(Duration::from_secs(60), 0.5).unwrap();
        let mut server = Server::new([171, 379]);
        assert_eq!(wait_for_load(&mut server, &plan), Ok(true));
        assert_eq!(server.now, Duration::from_secs(1010), "the first look is enough");
        // Twenty-eight a second make fifty in each block.
        server.every = 40;
        server.ends = Duration::from_secs(1100);
        assert_eq!(wait_for_load(&mut server, &plan), Ok(false));
        server.ends = NEVER;
        server.every = 35;
        assert_eq!(wait_for_load(&mut server, &plan), Ok(true));
        assert_eq!(server.asked, [], "nothing is switched yet");
    }

    #[test]
    fn threads_and_processes_come_and_go() {
        let counts = |signed, threads: &[(u32, u64)]| Counts {
            signed,
            threads: threads.iter().copied().collect(),
            ..Counts::default()
        };
        let before = Look::from([(1, counts(5, &[(1, 100), (2, 70)])), (2, counts(9, &[(3, 9)]))]);
        let after = Look::from([(1, counts(8, &[(1, 150), (4, 30)])), (5, counts(7, &[(5, 1)]))]);
        let block = between(&before, &after, Duration::from_secs(2));
        assert_eq!((block.signed, block.cpu), (3, Duration::from_nanos(80)));
        // A process that began anew has done nothing less.
        let block = between(&after, &before, Duration::from_secs(2));
        assert_eq!((block.signed, block.cpu), (0, Duration::from_nanos(70)));
    }
}
