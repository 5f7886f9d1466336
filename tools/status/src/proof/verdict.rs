//! What blocks with and without lanes say together.

use std::time::Duration;

use widelane_statistics::{interval_of_median, median};
use widelane_status::{Found, Proved, Times};

/// What a server did in one block, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// CPU time of its processes.
    pub cpu: Duration,
    /// How long the block lasted.
    pub lasted: Duration,
    /// Signatures of handshakes.
    pub signed: u64,
    /// Key exchanges.
    pub agreed: u64,
    /// Waits for signatures; of the terminator, of full handshakes for the server.
    pub signed_times: Times,
    /// Waits for key exchanges; of the terminator, of resumed handshakes for the server.
    pub agreed_times: Times,
    /// Jobs of public-key operations.
    pub jobs: u64,
    /// Those of them that ran in lanes.
    pub in_lanes: u64,
}

/// Two blocks, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// With lanes.
    pub with: Block,
    /// Without.
    pub without: Block,
}

/// A figure, and the interval in which it is with a confidence of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub middle: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// What it says.
    pub verdict: Verdict,
    /// What is counted.
    pub counted: Counted,
    /// Blocks of both kinds.
    pub blocks: usize,
    /// Handshakes in them.
    pub handshakes: u64,
    /// The same that were seen and not counted: those that resume a session, and connections to backends.
    pub others: u64,
    /// Handshakes a second; `None` if no block has ended.
    pub rate: Option<f64>,
    /// Microseconds of CPU for each, with lanes; `None` if there are too few, or no CPU time was seen.
    pub with: Option<Estimate>,
    /// The same without.
    pub without: Option<Estimate>,
    /// Microseconds of CPU for each with lanes and without, pair by pair.
    pub pairs: Vec<[f64; 2]>,
    /// How many times as much without as with.
    pub quotient: Option<Estimate>,
    /// How many CPUs less lanes take at this load.
    pub saved: Option<f64>,
    /// Waits of handshakes, as far as they are seen.
    pub latencies: Vec<Latency>,
}

/// Time by the clock for which handshakes wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Kind of wait.
    pub of: Span,
    /// Microseconds that half of them do not exceed.
    pub median: Both,
    /// Microseconds that 99 of 100 do not exceed; `None` if they are too few.
    pub p99: Option<Both>,
}

/// A figure with lanes and without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Both {
    /// With lanes.
    pub with: Estimate,
    /// Without.
    pub without: Estimate,
}

/// Kind of wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Span {
    /// Wait of a full handshake for the server, from ClientHello to Finished.
    FullHandshake,
    /// The same of one that resumes a session.
    ResumedHandshake,
    /// Wait for a signature, from the question to the answer.
    Signature,
    /// Wait for a key exchange: for the key, and for the agreement.
    KeyExchange,
}

/// What a proof says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Both differ.
    Differ,
    /// No difference is seen: the interval of the quotient includes 1.
    Same,
    /// Too few handshakes, or too few blocks.
    TooFew,
    /// A block had enough handshakes and no CPU time: the threads that did them began and ended within it, or the
    /// system counts none.
    NoCpu,
    /// No job ran in lanes also where they were on.
    Unused,
    /// Jobs ran in lanes also where these were off.
    NotHeeded,
}

/// What stands for a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counted {
    /// Full handshakes, which the process tells from others.
    FullHandshakes,
    /// Handshakes that resume a session, where there are no others.
    ResumedHandshakes,
    /// A signature: full handshakes.
    Signatures,
    /// A key exchange, where the process makes no signature that is seen: also handshakes that resume a session.
    Exchanges,
}

impl Block {
    fn add(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.lasted += other.lasted;
        self.signed += other.signed;
        self.agreed += other.agreed;
        self.signed_times.add(&other.signed_times);
        self.agreed_times.add(&other.agreed_times);
        self.jobs += other.jobs;
        self.in_lanes += other.in_lanes;
    }
}

impl Counted {
    fn of(self, block: &Block) -> u64 {
        match self {
            Self::FullHandshakes | Self::Signatures => block.signed,
            Self::ResumedHandshakes | Self::Exchanges => block.agreed,
        }
    }
}

impl Estimate {
    fn of(values: &[f64]) -> Option<Self> {
        let (low, high) = interval_of_median(values)?;
        Some(Self {
            middle: median(values.to_vec())?,
            low,
            high,
        })
    }
}

impl Proof {
    /// Returns what others see of this proof, which ends at an instant of the monotonic clock.
    pub fn noted(&self, now: Duration) -> Proved {
        let middle = |estimate: Option<Estimate>| {
            let micros = estimate.map_or(0.0, |estimate| estimate.middle);
            Duration::try_from_secs_f64(micros / 1e6).unwrap_or_default()
        };
        Proved {
            ended: now,
            found: match self.verdict {
                Verdict::Differ => Found::Differ,
                Verdict::Same => Found::Same,
                _ => Found::Nothing,
            },
            with: middle(self.with),
            without: middle(self.without),
        }
    }
}

/// Concludes from these pairs, of a process that may tell full handshakes from others. Blocks with too few handshakes
/// are joined with the next ones of their kind.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub fn prove(pairs: &[Pair], tells_kinds: bool) -> Proof {
    let sum = pairs.iter().fold(Pair::default(), |mut sum, pair| {
        sum.with.add(&pair.with);
        sum.without.add(&pair.without);
        sum
    });
    let of_both = |part: fn(&Block) -> u64| part(&sum.with) + part(&sum.without);
    let (signed, agreed) = (of_both(|block| block.signed), of_both(|block| block.agreed));
    let counted = match (signed, agreed) {
        (0, 1..) if tells_kinds => Counted::ResumedHandshakes,
        (0, 1..) => Counted::Exchanges,
        _ if tells_kinds => Counted::FullHandshakes,
        _ => Counted::Signatures,
    };
    let handshakes = if signed == 0 { agreed } else { signed };
    let joined = join(pairs, |block| counted.of(block), FEWEST);
    let microseconds = |block: &Block| block.cpu.as_secs_f64() * 1e6 / counted.of(block) as f64;
    let sides = |pair: &Pair| [&pair.with, &pair.without].map(microseconds);
    let paired: Vec<_> = joined.iter().map(sides).collect();
    // Nothing is known of blocks without CPU time, and there is no quotient of them.
    let lacks_cpu = paired.iter().flatten().any(|cpu| *cpu == 0.0);
    let estimate = |of: fn(&[f64; 2]) -> f64| match lacks_cpu {
        true => None,
        false => Estimate::of(&Vec::from_iter(paired.iter().map(of))),
    };
    let [with, without, quotient] = [
        estimate(|[with, _]| *with),
        estimate(|[_, without]| *without),
        estimate(|[with, without]| without / with),
    ];
    let lasted = (sum.with.lasted + sum.without.lasted).as_secs_f64();
    let rate = (lasted > 0.0).then(|| handshakes as f64 / lasted);
    let saved = with.zip(without).zip(rate);
    let saved = saved.map(|((with, without), rate)| (without.middle - with.middle) * rate / 1e6);
    let verdict = match quotient {
        _ if sum.without.in_lanes > sum.without.jobs / LEFT_OVER => Verdict::NotHeeded,
        None if lacks_cpu => Verdict::NoCpu,
        None => Verdict::TooFew,
        Some(_) if sum.with.in_lanes == 0 => Verdict::Unused,
        Some(Estimate { low, high, .. }) if low > 1.0 || high < 1.0 => Verdict::Differ,
        Some(_) => Verdict::Same,
    };
    Proof {
        verdict,
        counted,
        blocks: 2 * pairs.len(),
        handshakes,
        others: agreed.saturating_sub(handshakes),
        rate,
        with,
        without,
        pairs: paired,
        quotient,
        saved,
        latencies: latencies(pairs, tells_kinds),
    }
}

/// Waits of both kinds of handshakes, or for signatures and key exchanges.
fn latencies(pairs: &[Pair], tells_kinds: bool) -> Vec<Latency> {
    let [first, second] = match tells_kinds {
        true => [Span::FullHandshake, Span::ResumedHandshake],
        false => [Span::Signature, Span::KeyExchange],
    };
    type Read = fn(&Block) -> &Times;
    let times: [(Span, Read); 2] = [
        (first, |block| &block.signed_times),
        (second, |block| &block.agreed_times),
    ];
    let latencies = times.into_iter().filter_map(|(of, times)| {
        let quantile = |share, fewest| {
            let joined = join(pairs, |block| times(block).total(), fewest);
            let micros = |side: fn(&Pair) -> &Block| {
                let found = joined.iter().filter_map(|pair| times(side(pair)).quantile(share));
                Estimate::of(&found.map(|found| found.as_secs_f64() * 1e6).collect::<Vec<_>>())
            };
            Some(Both {
                with: micros(|pair| &pair.with)?,
                without: micros(|pair| &pair.without)?,
            })
        };
        Some(Latency {
            of,
            median: quantile(0.5, FEWEST)?,
            p99: quantile(0.99, FEWEST_OF_A_TAIL),
        })
    });
    latencies.collect()
}

/// Joins pairs until each has enough handshakes on both sides. What is left at the end goes to the last.
fn join(pairs: &[Pair], count: impl Fn(&Block) -> u64, fewest: u64) -> Vec<Pair> {
    let mut joined = Vec::new();
    let mut open = Pair::default();
    for pair in pairs {
        open.with.add(&pair.with);
        open.without.add(&pair.without);
        let sides = [&open.with, &open.without];
        if sides.iter().all(|side| count(side) >= fewest) {
            joined.push(std::mem::take(&mut open));
        }
    }
    if let Some(last) = joined.last_mut() {
        last.with.add(&open.with);
        last.without.add(&open.without);
    }
    joined
}

/// Handshakes that a block needs: fewer are so different from each other that their mean says little.
pub(super) const FEWEST: u64 = 50;
/// The same for a 99th percentile: five are above it.
const FEWEST_OF_A_TAIL: u64 = 500;
/// One job in so many may run in lanes where they are off: one that had begun.
const LEFT_OVER: u64 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers that are the same on every machine (Steele, Lea, Flood 2014: SplitMix).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// Normal with mean 0 and deviation 1, as near as twelve numbers come to it.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.next()).sum::<f64>() - 6.0
        }
    }

    /// Blocks of a server whose machine wanders by a tenth in a minute and whose blocks differ by `noise` from
    /// each other, where handshakes without lanes take `factor` times as much.
    fn minute(seed: u64, factor: f64, noise: f64) -> Vec<Pair> {
        let mut random = Random(seed);
        let mut drift = 1.0;
        let mut block = |factor: f64| {
            drift *= 1.0 + 0.01 * random.normal();
            let load = (900.0 * (1.0 + 0.1 * random.normal())) as u64;
            let each = 171e-6 * factor * drift * (1.0 + noise * random.normal());
            Block {
                cpu: Duration::from_secs_f64(each * load as f64),
                lasted: Duration::from_millis(1800),
                signed: load,
                agreed: load,
                jobs: 3 * load,
                ..Block::default()
            }
        };
        let pair = |_| {
            let with = block(1.0);
            Pair {
                with: Block {
                    in_lanes: with.jobs,
                    ..with
                },
                without: block(factor),
            }
        };
        (0..15).map(pair).collect()
    }

    #[test]
    fn no_difference_is_none_in_nineteen_of_twenty_runs() {
        for noise in [0.002, 0.01, 0.03] {
            let differ = (0..1000).filter(|&seed| {
                let proof = prove(&minute(seed, 1.0, noise), false);
                proof.verdict == Verdict::Differ
            });
            let differ = differ.count();
            assert!(differ <= 50, "{differ} of 1000 with noise of {noise}");
        }
    }

    #[test]
    fn three_percent_are_found() {
        let found = |noise| {
            let runs = (0..1000).map(|seed| prove(&minute(seed, 1.03, noise), false));
            let right = |proof: &Proof| {
                let above = proof.quotient.is_some_and(|quotient| quotient.low > 1.0);
                proof.verdict == Verdict::Differ && above
            };
            runs.filter(right).count()
        };
        let often = found(0.01);
        assert!(often >= 950, "{often} of 1000");
    }

    #[test]
    fn a_large_difference_has_the_right_figures() {
        let proof = prove(&minute(7, 2.2, 0.01), false);
        assert_eq!((proof.verdict, proof.blocks), (Verdict::Differ, 30));
        let is_near = |estimate: Option<Estimate>, value: f64| {
            let Estimate { middle, low, high } = estimate.unwrap();
            assert!(low <= middle && middle <= high, "{estimate:?}");
            assert!((middle / value - 1.0).abs() < 0.1, "{estimate:?}");
        };
        is_near(proof.with, 171.0);
        is_near(proof.without, 171.0 * 2.2);
        is_near(proof.quotient, 2.2);
        let saved = proof.saved.unwrap();
        assert!((saved - 0.0001026 * proof.rate.unwrap() * 2.0).abs() < 0.2, "{saved}");
    }

    #[test]
    fn lanes_that_cost_more_are_seen_too() {
        let proof = prove(&minute(7, 0.9, 0.01), false);
        assert_eq!(proof.verdict, Verdict::Differ);
        assert!(proof.saved.unwrap() < 0.0 && proof.quotient.unwrap().high < 1.0);
    }

    #[test]
    fn few_handshakes_are_joined_or_too_few() {
        let pair = |signed| {
            let block = Block {
                signed,
                agreed: signed + 2,
                cpu: Duration::from_millis(signed),
                lasted: Duration::from_secs(2),
                jobs: signed,
                ..Block::default()
            };
            Pair {
                with: Block { in_lanes: 1, ..block },
                without: block,
            }
        };
        let joined = join(&[pair(20); 10], |block| block.signed, 50);
        let counts: Vec<_> = joined.iter().map(|pair| pair.with.signed).collect();
        assert_eq!(counts, [60, 60, 80]);
        let proof = prove(&[pair(20); 10], false);
        assert_eq!((proof.verdict, proof.handshakes), (Verdict::TooFew, 400));
        assert_eq!((proof.others, proof.with), (40, None));
        assert_eq!(prove(&[pair(20); 30], false).verdict, Verdict::Same);
        assert_eq!(prove(&[pair(60); 5], false).verdict, Verdict::TooFew);
        assert_eq!(prove(&[], false).verdict, Verdict::TooFew);
        assert_eq!(prove(&[Pair::default(); 9], false).rate, None);
    }

    /// A server whose threads end with their connections: their CPU time is lost.
    #[test]
    fn blocks_without_cpu_time_prove_nothing_and_have_no_quotient() {
        for lost in [
            |pair: &mut Pair| pair.with.cpu = Duration::ZERO,
            |pair: &mut Pair| pair.without.cpu = Duration::ZERO,
            |pair: &mut Pair| (pair.with.cpu, pair.without.cpu) = Default::default(),
        ] {
            for blocks in [1, 15] {
                let mut pairs = minute(7, 2.0, 0.01);
                pairs.iter_mut().take(blocks).for_each(lost);
                let proof = prove(&pairs, false);
                assert_eq!(proof.verdict, Verdict::NoCpu);
                assert_eq!((proof.with, proof.without, proof.quotient), (None, None, None));
                assert_eq!(proof.saved, None);
                assert!(proof.pairs.iter().flatten().all(|cpu| cpu.is_finite()));
            }
        }
    }

    #[test]
    fn blocks_without_handshakes_are_too_few() {
        let mut pairs = minute(7, 2.0, 0.01);
        for pair in &mut pairs {
            (pair.with.signed, pair.with.agreed) = (0, 0);
        }
        let proof = prove(&pairs, false);
        assert_eq!(
            (proof.verdict, proof.quotient, proof.saved),
            (Verdict::TooFew, None, None)
        );
        assert!(proof.pairs.is_empty());
        let none = prove(&[Pair::default(); 9], true);
        assert_eq!((none.verdict, none.saved), (Verdict::TooFew, None));
        assert_eq!(
            (proof.counted, none.counted),
            (Counted::Signatures, Counted::FullHandshakes)
        );
    }

    #[test]
    fn without_signatures_exchanges_are_counted() {
        let mut pairs = minute(7, 1.5, 0.01);
        for pair in &mut pairs {
            (pair.with.signed, pair.without.signed) = (0, 0);
        }
        let proof = prove(&pairs, false);
        assert_eq!(proof.counted, Counted::Exchanges);
        assert_eq!((proof.verdict, proof.others), (Verdict::Differ, 0));
    }

    #[test]
    fn full_and_resumed_handshakes_are_told_apart() {
        let mut pairs = minute(7, 2.0, 0.01);
        for pair in &mut pairs {
            for (block, micros) in [(&mut pair.with, 900), (&mut pair.without, 400)] {
                block.agreed = block.signed + 100;
                for _ in 0..block.signed {
                    block.signed_times.count(Duration::from_micros(micros));
                }
                for _ in 0..100 {
                    block.agreed_times.count(Duration::from_micros(micros / 4));
                }
            }
        }
        let proof = prove(&pairs, true);
        assert_eq!(proof.counted, Counted::FullHandshakes);
        assert_eq!(proof.others, 3000);
        let [full, resumed] = &proof.latencies[..] else {
            panic!("{:?}", proof.latencies);
        };
        assert_eq!((full.of, resumed.of), (Span::FullHandshake, Span::ResumedHandshake));
        let is_near = |both: Both, with: f64, without: f64| {
            for (found, real) in [(both.with, with), (both.without, without)] {
                assert!((found.middle / real - 1.0).abs() < 0.1, "{both:?}");
            }
        };
        is_near(full.median, 900.0, 400.0);
        is_near(full.p99.unwrap(), 900.0, 400.0);
        is_near(resumed.median, 225.0, 100.0);
        // Fifteen hundred of each kind of block make three pairs of five hundred.
        assert_eq!(resumed.p99, None);
        let noted = proof.noted(Duration::from_secs(7));
        assert_eq!((noted.found, noted.ended), (Found::Differ, Duration::from_secs(7)));
        assert!(noted.without > noted.with);
    }

    #[test]
    fn what_did_not_do_as_it_was_asked_proves_nothing() {
        let mut pairs = minute(7, 2.0, 0.01);
        pairs[3].without.in_lanes = pairs[3].without.jobs;
        assert_eq!(prove(&pairs, false).verdict, Verdict::NotHeeded);
        let mut pairs = minute(7, 1.0, 0.0);
        for pair in &mut pairs {
            pair.with.in_lanes = 0;
        }
        assert_eq!(prove(&pairs, false).verdict, Verdict::Unused);
    }
}
