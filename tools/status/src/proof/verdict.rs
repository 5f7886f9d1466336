//! What blocks with and without lanes say together.

use std::time::Duration;

use widelane_statistics::{interval_of_median, median};

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
    /// Handshakes a second.
    pub rate: f64,
    /// Microseconds of CPU for each, with lanes; `None` if there are too few.
    pub with: Option<Estimate>,
    /// The same without.
    pub without: Option<Estimate>,
    /// How many times as much without as with.
    pub quotient: Option<Estimate>,
    /// How many CPUs less lanes take at this load.
    pub saved: Option<f64>,
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
    /// No job ran in lanes also where they were on.
    Unused,
    /// Jobs ran in lanes also where these were off.
    NotHeeded,
}

/// What stands for a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counted {
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
        self.jobs += other.jobs;
        self.in_lanes += other.in_lanes;
    }
}

impl Counted {
    fn of(self, block: &Block) -> u64 {
        match self {
            Self::Signatures => block.signed,
            Self::Exchanges => block.agreed,
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

/// What these pairs say. Blocks with too few handshakes are joined with the next ones of their kind.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub fn prove(pairs: &[Pair]) -> Proof {
    let sum = pairs.iter().fold(Pair::default(), |mut sum, pair| {
        sum.with.add(&pair.with);
        sum.without.add(&pair.without);
        sum
    });
    let of_both = |part: fn(&Block) -> u64| part(&sum.with) + part(&sum.without);
    let (signed, agreed) = (of_both(|block| block.signed), of_both(|block| block.agreed));
    let counted = match signed {
        0 => Counted::Exchanges,
        _ => Counted::Signatures,
    };
    let handshakes = if signed == 0 { agreed } else { signed };
    let joined = join(pairs, counted);
    let microseconds = |block: &Block| block.cpu.as_secs_f64() * 1e6 / counted.of(block) as f64;
    let with: Vec<_> = joined.iter().map(|pair| microseconds(&pair.with)).collect();
    let without: Vec<_> = joined
        .iter()
        .map(|pair| microseconds(&pair.without))
        .collect();
    let quotients: Vec<_> = without
        .iter()
        .zip(&with)
        .map(|(without, with)| without / with)
        .collect();
    let quotient = Estimate::of(&quotients);
    let (with, without) = (Estimate::of(&with), Estimate::of(&without));
    let lasted = (sum.with.lasted + sum.without.lasted).as_secs_f64();
    let rate = match lasted > 0.0 {
        true => handshakes as f64 / lasted,
        false => 0.0,
    };
    let saved = with
        .zip(without)
        .map(|(with, without)| (without.middle - with.middle) * rate / 1e6);
    let verdict = match quotient {
        _ if sum.without.in_lanes > sum.without.jobs / LEFT_OVER => Verdict::NotHeeded,
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
        quotient,
        saved,
    }
}

/// Joins pairs until each has enough handshakes on both sides. What is left at the end goes to the last.
fn join(pairs: &[Pair], counted: Counted) -> Vec<Pair> {
    let mut joined = Vec::new();
    let mut open = Pair::default();
    for pair in pairs {
        open.with.add(&pair.with);
        open.without.add(&pair.without);
        let sides = [&open.with, &open.without];
        if sides.iter().all(|side| counted.of(side) >= FEWEST) {
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
const FEWEST: u64 = 50;
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
                in_lanes: 0,
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
                let proof = prove(&minute(seed, 1.0, noise));
                proof.verdict == Verdict::Differ
            });
            let differ = differ.count();
            assert!(differ <= 50, "{differ} of 1000 with noise of {noise}");
        }
    }

    #[test]
    fn three_percent_are_found() {
        let found = |noise| {
            let runs = (0..1000).map(|seed| prove(&minute(seed, 1.03, noise)));
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
        let proof = prove(&minute(7, 2.2, 0.01));
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
        assert!(
            (saved - 0.0001026 * proof.rate * 2.0).abs() < 0.2,
            "{saved}"
        );
    }

    #[test]
    fn lanes_that_cost_more_are_seen_too() {
        let proof = prove(&minute(7, 0.9, 0.01));
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
                in_lanes: 0,
            };
            Pair {
                with: Block {
                    in_lanes: 1,
                    ..block
                },
                without: block,
            }
        };
        let joined = join(&[pair(20); 10], Counted::Signatures);
        let counts: Vec<_> = joined.iter().map(|pair| pair.with.signed).collect();
        assert_eq!(counts, [60, 60, 80]);
        let proof = prove(&[pair(20); 10]);
        assert_eq!((proof.verdict, proof.handshakes), (Verdict::TooFew, 400));
        assert_eq!((proof.others, proof.with), (40, None));
        assert_eq!(prove(&[pair(20); 30]).verdict, Verdict::Same);
        assert_eq!(prove(&[pair(60); 5]).verdict, Verdict::TooFew);
        assert_eq!(prove(&[]).verdict, Verdict::TooFew);
        assert_eq!(prove(&[Pair::default(); 9]).rate, 0.0);
    }

    #[test]
    fn without_signatures_exchanges_are_counted() {
        let mut pairs = minute(7, 1.5, 0.01);
        for pair in &mut pairs {
            (pair.with.signed, pair.without.signed) = (0, 0);
        }
        let proof = prove(&pairs);
        assert_eq!(proof.counted, Counted::Exchanges);
        assert_eq!((proof.verdict, proof.others), (Verdict::Differ, 0));
    }

    #[test]
    fn what_did_not_do_as_it_was_asked_proves_nothing() {
        let mut pairs = minute(7, 2.0, 0.01);
        pairs[3].without.in_lanes = pairs[3].without.jobs;
        assert_eq!(prove(&pairs).verdict, Verdict::NotHeeded);
        let mut pairs = minute(7, 1.0, 0.0);
        for pair in &mut pairs {
            pair.with.in_lanes = 0;
        }
        assert_eq!(prove(&pairs).verdict, Verdict::Unused);
    }
}
