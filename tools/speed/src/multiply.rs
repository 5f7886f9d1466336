//! The exponentiation kernels, and the limit that the CPU's ports set for them.

use crate::operation::{Done, Subject};
use crate::works::why_not;
use serde::Serialize;
use std::time::{Duration, Instant};
use widelane_cpu::{AnyToken, Target, Token};
use widelane_crypto::{Backend, rsa};
use widelane_kernels::{Arena, MODULUS_BITS, Method, Moduli, Montgomery, PowerSpace, port_limit};

/// The name of the operation that measures the limit.
pub(crate) const PORT_LIMIT: &str = "port-limit";

/// Independent multiply-adds.
pub(crate) fn port_limit(target: Target) -> Result<Box<dyn Subject>, String> {
    let run: Box<dyn Fn(u32) -> u64> = match token(target)? {
        AnyToken::Four(token) => Box::new(move |rounds| port_limit::run(token, rounds)),
        AnyToken::Eight(token) => Box::new(move |rounds| port_limit::run(token, rounds)),
    };
    Ok(Box::new(PortLimit { run }))
}

/// Exponentiations with moduli of `bits` bits in all lanes of a register.
pub(crate) fn power(bits: usize, target: Target) -> Result<Box<dyn Subject>, String> {
    Ok(match token(target)? {
        AnyToken::Four(token) => Box::new(Power::fastest(Montgomery::new(token, bits))),
        AnyToken::Eight(token) => Box::new(Power::fastest(Montgomery::new(token, bits))),
    })
}

fn token(target: Target) -> Result<AnyToken, String> {
    AnyToken::detect(target).ok_or_else(|| why_not(Backend::Lanes(target)))
}

struct PortLimit {
    run: Box<dyn Fn(u32) -> u64>,
}

impl Subject for PortLimit {
    fn run(&mut self, _: usize) -> Result<Done, String> {
        let multiply_adds = (self.run)(ROUNDS);
        Ok(Done {
            operations: multiply_adds,
            multiply_adds,
        })
    }
}

/// Exponentiations in all lanes, by one method.
struct Power<const L: usize> {
    kernels: Montgomery<L>,
    method: Method,
    multiply_adds: u64,
    memory: Arena<L>,
}

impl<const L: usize> Power<L> {
    /// The fastest here of the methods that the environment allows.
    fn fastest(kernels: Montgomery<L>) -> Self {
        let timed = methods(&kernels).into_iter().map(|method| {
            let mut power = Self::new(kernels, method);
            let mut times: Vec<_> = (0..TRIALS).map(|_| power.time()).collect();
            times.sort();
            (times[TRIALS / 2], power)
        });
        let fastest = timed.min_by_key(|(time, _)| *time);
        fastest.expect("there are methods").1
    }

    fn new(kernels: Montgomery<L>, method: Method) -> Self {
        let (d, limbs) = (kernels.digits(), kernels.limbs());
        let len = kernels.table_len() + kernels.scratch_len() + kernels.windows() + 6 * d + 1 + limbs;
        let mut memory = Arena::new(len);
        // The time does not depend on the values. Any digits within the kernel's bounds will do.
        let mut state = 0x5eed_u64;
        for word in memory.vectors().as_flattened_mut() {
            state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
            *word = state >> 13;
        }
        Self {
            kernels,
            method,
            multiply_adds: kernels.power_multiply_adds(method) as u64,
            memory,
        }
    }

    fn time(&mut self) -> Duration {
        let start = Instant::now();
        self.power();
        start.elapsed()
    }

    fn power(&mut self) {
        let k = &self.kernels;
        let d = k.digits();
        let mut rest = self.memory.vectors();
        let mut take = |len: usize| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            part
        };
        let space = PowerSpace {
            table: take(k.table_len()),
            entry: take(d),
            indices: take(k.windows()),
            power: take(d),
        };
        let (scratch, out, base) = (take(k.scratch_len()), take(d), take(d));
        let moduli = Moduli {
            n: take(d + 1),
            one: take(d),
        };
        let exponent = take(k.limbs());
        k.power(self.method, out, base, exponent, moduli, space, scratch);
    }
}

impl<const L: usize> Subject for Power<L> {
    fn run(&mut self, _: usize) -> Result<Done, String> {
        self.power();
        Ok(Done {
            operations: L as u64,
            multiply_adds: self.multiply_adds,
        })
    }
}

fn methods<const L: usize>(kernels: &Montgomery<L>) -> Vec<Method> {
    let mut methods = kernels.methods();
    // An unknown name is reported by the first pass that asks for it.
    if let Ok(Some(forced)) = rsa::forced_method()
        && methods.contains(&forced)
    {
        methods = vec![forced];
    }
    methods
}

/// Speed of a method of exponentiation on this core.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MethodSpeed {
    /// Bits of the moduli.
    pub bits: usize,
    /// Target whose registers it uses.
    pub backend: &'static str,
    /// Exponentiations at once.
    pub lanes: usize,
    /// The method's name.
    pub method: &'static str,
    /// Microseconds of exponentiations in all lanes.
    pub microseconds: f64,
    /// The share of the multiply-adds that the core's ports could have done in that time.
    pub share_of_port_limit: f64,
    /// True if the method is the fastest, or the environment forces it.
    pub used: bool,
}

/// Measures every method of every size in registers of both widths, as far as the CPU has them. All
/// methods of a size take turns; medians count.
///
/// # Errors
///
/// When the environment forces a method that there is not.
pub fn method_speeds() -> Result<Vec<MethodSpeed>, rsa::UnknownMethod> {
    let forced = rsa::forced_method()?;
    let mut speeds = Vec::new();
    for bits in MODULUS_BITS {
        for target in Target::available().rev() {
            match AnyToken::detect(target) {
                Some(AnyToken::Four(token)) => speeds.extend(speeds_of(bits, token, forced)),
                Some(AnyToken::Eight(token)) => speeds.extend(speeds_of(bits, token, forced)),
                None => {}
            }
        }
    }
    Ok(speeds)
}

fn speeds_of<const L: usize>(bits: usize, token: Token<L>, forced: Option<Method>) -> Vec<MethodSpeed> {
    let kernels = Montgomery::new(token, bits);
    let with_times = |method| (Power::new(kernels, method), Vec::new());
    let mut powers: Vec<_> = kernels.methods().into_iter().map(with_times).collect();
    let mut limits = Vec::new();
    for _ in 0..SHOWN_TRIALS {
        for (power, times) in &mut powers {
            times.push(power.time());
        }
        // Beside the trials, as the clock changes.
        let start = Instant::now();
        let multiply_adds = port_limit::run(token, 20 * ROUNDS);
        limits.push(start.elapsed().div_f64(multiply_adds as f64 / 1e6));
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let million = median(&mut limits).as_secs_f64();
    let mut speeds: Vec<_> = powers
        .iter_mut()
        .map(|(power, times)| {
            let seconds = median(times).as_secs_f64();
            MethodSpeed {
                bits,
                backend: token.target().name(),
                lanes: L,
                method: power.method.name(),
                microseconds: seconds * 1e6,
                share_of_port_limit: power.multiply_adds as f64 / 1e6 * million / seconds,
                used: forced == Some(power.method),
            }
        })
        .collect();
    let fastest = speeds
        .iter_mut()
        .min_by(|a, b| a.microseconds.total_cmp(&b.microseconds));
    if let (None, Some(fastest)) = (forced, fastest) {
        fastest.used = true;
    }
    speeds
}

/// Rounds of the loop in one run: about ten microseconds.
const ROUNDS: u32 = 1000;
/// Exponentiations by each method, to find the fastest.
const TRIALS: usize = 9;
/// Number of trials if the times are shown.
const SHOWN_TRIALS: usize = 41;

/// Knuth's linear congruential generator (MMIX).
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;
