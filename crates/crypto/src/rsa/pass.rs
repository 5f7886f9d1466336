//! One pass: up to `L / 2` signatures at once, the two primes of each key in neighbouring lanes.
//!
//! Lane `2 j` works modulo the larger prime `p` of request `j`, lane `2 j + 1` modulo `q`; from
//! the reduction of the padded message to the check of the result both do the same at the same
//! time. Lanes without a request repeat the first one's work, and their results are dropped.
//!
//! The steps of RSASP1 (RFC 8017, section 5.2.1, the form of 2.b) and around it:
//!
//! 1. `c mod p`, `c mod q` in Montgomery form.
//! 2. Blinding (Kocher, "Timing attacks on implementations of Diffie-Hellman, RSA, DSS, and other
//!    systems", CRYPTO 1996, section 10): multiply by `r^e`, for random `r` that the machine keeps
//!    modulo each prime.
//! 3. The two exponentiations; multiply by `1/r`.
//! 4. `s := m2 + q h`, `h := (m1 - m2) / q mod p`, and its bytes.
//! 5. The check, from the bytes that leave and the bytes of the request: `s^e = c` modulo each
//!    prime, and the product of the two moduli in the lanes is the public modulus. Together that is
//!    `s^e = c mod n`. A request for which it does not hold gets no signature.
//! 6. `r` is squared for the next use.

use super::arithmetic::{Limbs, RandomFailed, invert_mod, mod_pow2, mul_mod, random_below};
use super::key::{Factor, Parts};
use super::request::SignRequest;
use crate::faults;
use crate::passes::{Family, lock, memory};
use crate::secrecy;
use crate::secrecy::opaque;
use crate::sign::{Error, Outcome};
use std::borrow::Borrow;
use std::sync::Mutex;
use widelane_kernels::{Arena, Machine, Method, Moduli, Montgomery, PowerSpace};
use widelane_lanes::{DIGIT_BITS, DIGIT_MASK};
use zeroize::{Zeroize, Zeroizing};

/// Signatures by keys whose primes have `prime_bits` bits.
#[derive(Clone, Copy, Debug)]
pub struct Signatures {
    pub(super) prime_bits: usize,
}

impl Family for Signatures {
    type Kernels<const L: usize> = Montgomery<L>;
    type Memory<const L: usize> = Arena<L>;

    fn kernels<const L: usize>(self, machine: Machine<L>) -> Montgomery<L> {
        Montgomery::new(machine, self.prime_bits)
    }

    fn memory<const L: usize>(self, kernels: &Montgomery<L>) -> Arena<L> {
        Arena::new(Work::len(kernels))
    }
}

/// Runs passes for keys of one size.
pub(super) type Pass<const L: usize> = crate::passes::Pass<Signatures, L>;

impl<const L: usize> Pass<L> {
    /// Signs up to `L / 2` requests whose keys have this size, with powers by `method`.
    ///
    /// # Panics
    ///
    /// If there are more, or none, or a key of another size.
    pub(super) fn sign(&self, method: Method, requests: &[impl Borrow<SignRequest>]) -> Vec<Outcome> {
        let requests: Vec<&SignRequest> = requests.iter().map(Borrow::borrow).collect();
        assert!((1..=L / 2).contains(&requests.len()), "{} requests", requests.len());
        let mut blindings = Vec::with_capacity(requests.len());
        for request in &requests {
            match request.key.prepared().blinding(request.key.parts()) {
                Ok(blinding) => blindings.push(blinding),
                Err(RandomFailed) => return vec![Err(Error::Random); requests.len()],
            }
        }
        let results = self.run(|arena| {
            let lanes: [&SignRequest; L] = std::array::from_fn(|lane| *requests.get(lane / 2).unwrap_or(&requests[0]));
            let mut run = Run {
                k: &self.kernels,
                w: Work::new(&self.kernels, arena.vectors()),
                lanes,
            };
            run.load(&blindings);
            run.start_blinding(&blindings);
            run.exponentiate(method);
            let signatures = run.recombine(requests.len());
            let faults = run.check(&signatures);
            run.next_blinding(&mut blindings);
            let release = |(j, mut signature): (usize, Vec<u8>)| {
                // Public: what leaves is a signature or an error.
                if secrecy::public(faults[2 * j] | faults[2 * j + 1] == 0) {
                    secrecy::publish(&signature);
                    Ok(signature)
                } else {
                    signature.zeroize();
                    Err(Error::Fault)
                }
            };
            signatures.into_iter().enumerate().map(release).collect::<Vec<_>>()
        });
        for ((request, blinding), result) in requests.iter().zip(blindings).zip(&results) {
            // After a fault nothing that was computed beside it is used again.
            if result.is_ok() {
                request.key.prepared().give_back(blinding);
            }
        }
        results
    }
}

/// A pass under way.
struct Run<'a, const L: usize> {
    k: &'a Montgomery<L>,
    w: Work<'a, L>,
    /// The request of each lane.
    lanes: [&'a SignRequest; L],
}

impl<const L: usize> Run<'_, L> {
    /// Keys and blinding values.
    fn load(&mut self, blindings: &[Blinding]) {
        let w = &mut self.w;
        for (lane, request) in self.lanes.into_iter().enumerate() {
            w.load_key(lane, request.key.prepared(), request.key.parts());
            let blinding = blindings.get(lane / 2).unwrap_or(&blindings[0]);
            set(w.power, lane, &blinding.pairs[lane % 2].power);
            set(w.inverse, lane, &blinding.pairs[lane % 2].inverse);
        }
        w.rest();
    }

    /// A new `r` is plain and not yet raised to e.
    fn start_blinding(&mut self, blindings: &[Blinding]) {
        if blindings.iter().all(|blinding| blinding.uses > 0) {
            return;
        }
        let (k, w) = (self.k, &mut self.w);
        let moduli = Moduli { n: w.n, one: w.one };
        k.mul(w.a, w.inverse, w.r2, moduli, w.scratch);
        k.mul(w.b, w.power, w.r2, moduli, w.scratch);
        let space = [&mut *w.entry, &mut *w.other];
        power_public(k, w.c, w.b, &self.lanes, moduli, space, w.scratch);
        for lane in 0..L {
            let blinding = blindings.get(lane / 2).unwrap_or(&blindings[0]);
            if blinding.uses == 0 {
                copy_lane(w.inverse, lane, w.a, lane);
                copy_lane(w.power, lane, w.c, lane);
            }
        }
        w.rest();
    }

    /// `c := c^d` in Montgomery form: steps 1 to 3.
    fn exponentiate(&mut self, method: Method) {
        self.load_messages();
        let (k, w) = (self.k, &mut self.w);
        let moduli = Moduli { n: w.n, one: w.one };
        residues(k, w.d, w.limbs, moduli, [w.double, w.a, w.r3], w.scratch);
        k.mul(w.a, w.d, w.power, moduli, w.scratch);
        w.rest();
        let moduli = Moduli { n: w.n, one: w.one };
        let space = PowerSpace {
            table: w.table,
            entry: w.entry,
            indices: w.indices,
            power: w.other,
        };
        k.power(method, w.b, w.a, w.exponent, moduli, space, w.scratch);
        k.mul(w.c, w.b, w.inverse, moduli, w.scratch);
        w.rest();
    }

    /// Step 4: `m1` stays in Montgomery form, `m2` leaves it and joins `m1` in the lane of `p`.
    fn recombine(&mut self, requests: usize) -> Vec<Vec<u8>> {
        let (k, w) = (self.k, &mut self.w);
        let moduli = Moduli { n: w.n, one: w.one };
        set_all(w.b, 1);
        k.mul(w.a, w.c, w.b, moduli, w.scratch);
        set_all(w.b, 0);
        k.subtract(w.entry, w.a, w.b, moduli, w.scratch);
        for lane in (0..L).step_by(2) {
            copy_lane(w.b, lane, w.entry, lane + 1);
            copy_lane(w.other, lane, w.n, lane + 1);
        }
        w.rest();
        let moduli = Moduli { n: w.n, one: w.one };
        let (m1, m2, q) = (&*w.c, &*w.b, &*w.other);
        k.mul(w.a, m1, w.coefficient, moduli, w.scratch);
        k.mul(w.entry, m2, w.coefficient_r, moduli, w.scratch);
        k.subtract(w.d, w.a, w.entry, moduli, w.scratch);
        k.mul_add(w.double, w.d, q, m2, w.scratch);
        k.to_limbs(w.limbs, w.double, w.scratch);
        w.rest();
        (0..requests).map(|j| bytes(w.limbs, 2 * j)).collect()
    }

    /// Step 5: other than zero in lanes where the signature is not the message's. Nothing that the
    /// signature was computed from takes part, but for the moduli, and these are checked last.
    fn check(&mut self, signatures: &[Vec<u8>]) -> [u64; L] {
        // c / R, which needs no constant of the key.
        self.load_messages();
        let (k, w) = (self.k, &mut self.w);
        let moduli = Moduli { n: w.n, one: w.one };
        k.to_digits(w.double, w.limbs, w.scratch);
        k.reduce(w.message, w.double, moduli, w.scratch);
        // s^e / R. A constant that is wrong, or zero, spoils this side only.
        for lane in 0..L {
            let signature = signatures.get(lane / 2).unwrap_or(&signatures[0]);
            set_bytes(w.limbs, lane, signature);
        }
        w.rest();
        let moduli = Moduli { n: w.n, one: w.one };
        residues(k, w.b, w.limbs, moduli, [w.double, w.a, w.r3], w.scratch);
        let space = [&mut *w.entry, &mut *w.other];
        power_public(k, w.c, w.b, &self.lanes, moduli, space, w.scratch);
        set_all(w.b, 1);
        k.mul(w.a, w.c, w.b, moduli, w.scratch);
        k.mul(w.c, w.a, w.b, moduli, w.scratch);
        w.rest();
        let moduli = Moduli { n: w.n, one: w.one };
        k.subtract(w.a, w.c, w.message, moduli, w.scratch);
        let mut faults: [u64; L] = std::array::from_fn(|lane| w.a.iter().fold(0, |all, digit| all | digit[lane]));

        // p q = n, and -1/n belongs to n.
        let digits = k.digits();
        set_all(w.b, 0);
        for lane in (0..L).step_by(2) {
            copy_lane(w.other, lane, w.n, lane + 1);
        }
        k.mul_add(w.double, &w.n[..digits], w.other, w.b, w.scratch);
        k.to_limbs(w.limbs, w.double, w.scratch);
        for (lane, request) in self.lanes.into_iter().enumerate() {
            let unit = w.n[0][lane].wrapping_mul(w.n[digits][lane]);
            faults[lane] |= unit.wrapping_add(1) & DIGIT_MASK;
            if lane % 2 == 0 {
                let n = &request.key.parts().n;
                assert_eq!(n.len(), w.limbs.len());
                let limbs = w.limbs.iter().zip(n);
                faults[lane] |= limbs.fold(0, |all, (limb, n)| all | limb[lane] ^ n);
            }
        }
        faults
    }

    /// Step 6.
    fn next_blinding(&mut self, blindings: &mut [Blinding]) {
        let (k, w) = (self.k, &mut self.w);
        w.rest();
        let moduli = Moduli { n: w.n, one: w.one };
        k.square(w.b, w.power, moduli, w.scratch);
        k.square(w.c, w.inverse, moduli, w.scratch);
        for (j, blinding) in blindings.iter_mut().enumerate() {
            blinding.uses += 1;
            for (i, pair) in blinding.pairs.iter_mut().enumerate() {
                get(w.b, 2 * j + i, &mut pair.power);
                get(w.c, 2 * j + i, &mut pair.inverse);
            }
        }
    }

    /// The padded messages of the requests.
    fn load_messages(&mut self) {
        for (lane, request) in self.lanes.into_iter().enumerate() {
            let encoded = request.encoded().expect("requests of an accelerated size are padded");
            set_bytes(self.w.limbs, lane, encoded);
        }
    }
}

/// Values that lanes need beside a key's integers, derived when the key is first used.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Prime p, then q.
    primes: [Prime; 2],
    /// `1/q mod p`.
    coefficient: Digits,
    /// Coefficient `1/q mod p` in Montgomery form.
    coefficient_r: Digits,
    /// Blinding values that no pass is using.
    blindings: Mutex<Vec<Blinding>>,
}

/// A prime and its constants, `R := 2^(52 digits)`.
struct Prime {
    /// `n`, then `-1/n mod 2^52`.
    n: Digits,
    /// `R mod n`.
    one: Digits,
    /// `R^2 mod n`.
    r2: Digits,
    /// `R^3 mod n`.
    r3: Digits,
}

/// A secret number in radix 2^52.
type Digits = Zeroizing<Vec<u64>>;

/// A random `r` modulo both primes.
struct Blinding {
    /// Pair for p, then for q.
    pairs: [Pair; 2],
    /// Signatures made; before the first, the pairs hold `r` and `1/r`, plain.
    uses: u32,
}

/// `r^e` and `1/r` in Montgomery form.
struct Pair {
    power: Digits,
    inverse: Digits,
}

impl Prepared {
    /// Derives the constants of a key with an accelerated size.
    pub(super) fn new(parts: &Parts) -> Self {
        let count = digit_count(&parts.p);
        let coefficient = digits(&parts.q_inverse, count);
        let r = mod_pow2(DIGIT * count, &parts.p.prime);
        let coefficient_r = mul_mod(&parts.q_inverse, &r, &parts.p.prime);
        Self {
            primes: [Prime::new(&parts.p), Prime::new(&parts.q)],
            coefficient,
            coefficient_r: digits(&coefficient_r, count),
            blindings: Mutex::default(),
        }
    }

    /// Drops all blinding values: the next pass makes new ones.
    #[cfg(test)]
    pub(super) fn forget_blindings(&self) {
        lock(&self.blindings).clear();
    }

    /// Declares everything secret to valgrind.
    #[cfg(test)]
    pub(super) fn declare_secret(&self) {
        for prime in &self.primes {
            for number in [&prime.n, &prime.one, &prime.r2, &prime.r3] {
                secrecy::secret(number);
            }
        }
        secrecy::secret(&self.coefficient);
        secrecy::secret(&self.coefficient_r);
    }

    /// Blinding values for one signature, which no other signature uses.
    fn blinding(&self, parts: &Parts) -> Result<Blinding, RandomFailed> {
        if let Some(blinding) = lock(&self.blindings).pop() {
            return Ok(blinding);
        }
        let pair = |factor: &Factor| loop {
            let r = random_below(&factor.prime)?;
            // Every r below a prime has an inverse; below a damaged one, some have.
            if let Some(inverse) = invert_mod(&r, &factor.prime) {
                let count = digit_count(factor);
                break Ok(Pair {
                    power: digits(&r, count),
                    inverse: digits(&inverse, count),
                });
            }
        };
        Ok(Blinding {
            pairs: [pair(&parts.p)?, pair(&parts.q)?],
            uses: 0,
        })
    }

    fn give_back(&self, blinding: Blinding) {
        if blinding.uses < BLINDING_USES {
            lock(&self.blindings).push(blinding);
        }
    }
}

impl Prime {
    fn new(factor: &Factor) -> Self {
        let count = digit_count(factor);
        let power = |k| digits(&mod_pow2(k * DIGIT * count, &factor.prime), count);
        let mut n = digits(&factor.prime, count + 1);
        n.truncate(count);
        let k0 = minus_inverse(n[0]);
        n.push(k0);
        Self {
            n,
            one: power(1),
            r2: power(2),
            r3: power(3),
        }
    }
}

opaque!(Prime {});

impl std::fmt::Debug for Blinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blinding")
            .field("uses", &self.uses)
            .finish_non_exhaustive()
    }
}

memory! {
    /// The memory of a pass, by name. Numbers have `digits` vectors unless said otherwise.
    struct Work(k: &Montgomery<L>) {
        /// Comes first, on a page of its own.
        table: k.table_len(),
        scratch: k.scratch_len(),
        /// One vector per window of an exponent.
        indices: k.windows(),
        // Values of the keys.
        /// And `k0`: one more vector.
        n: k.digits() + 1,
        one: k.digits(),
        r2: k.digits(),
        r3: k.digits(),
        coefficient: k.digits(),
        coefficient_r: k.digits(),
        /// One vector per limb of a prime.
        exponent: k.limbs(),
        // Values of the blinding.
        power: k.digits(),
        inverse: k.digits(),
        // Values of the computation.
        /// The request's message, for the check.
        message: k.digits(),
        a: k.digits(),
        b: k.digits(),
        c: k.digits(),
        d: k.digits(),
        entry: k.digits(),
        other: k.digits(),
        double: 2 * k.digits(),
        /// One vector per limb of a modulus.
        limbs: 2 * k.limbs(),
    }
}

impl<const L: usize> Work<'_, L> {
    /// Puts a key's constants into a lane: those of p into even lanes, of q into odd ones.
    fn load_key(&mut self, lane: usize, prepared: &Prepared, parts: &Parts) {
        let prime = &prepared.primes[lane % 2];
        set(self.n, lane, &prime.n);
        set(self.one, lane, &prime.one);
        set(self.r2, lane, &prime.r2);
        set(self.r3, lane, &prime.r3);
        set(self.coefficient, lane, &prepared.coefficient);
        set(self.coefficient_r, lane, &prepared.coefficient_r);
        set(self.exponent, lane, &[&parts.p, &parts.q][lane % 2].exponent);
    }
}

/// `out := limbs R mod n`, for numbers of the modulus's size below `R n`.
fn residues<const L: usize>(
    k: &Montgomery<L>,
    out: &mut [[u64; L]],
    limbs: &[[u64; L]],
    moduli: Moduli<'_, L>,
    [double, single, r3]: [&mut [[u64; L]]; 3],
    scratch: &mut [[u64; L]],
) {
    k.to_digits(double, limbs, scratch);
    k.reduce(single, double, moduli, scratch);
    k.mul(out, single, r3, moduli, scratch);
}

/// `out := base^e` for each lane's own public `e`; which steps are taken depends on those alone.
fn power_public<const L: usize>(
    k: &Montgomery<L>,
    out: &mut [[u64; L]],
    base: &[[u64; L]],
    lanes: &[&SignRequest; L],
    moduli: Moduli<'_, L>,
    [factor, other]: [&mut [[u64; L]]; 2],
    scratch: &mut [[u64; L]],
) {
    let exponents = lanes.map(|request| request.key.parts().e.as_slice());
    let bit = |e: &[u64], at: usize| e.get(at / 64).is_some_and(|limb| limb >> (at % 64) & 1 == 1);
    let longest = exponents.iter().map(|e| 64 * e.len()).max().unwrap_or(0);
    let top = (0..longest)
        .rfind(|&at| exponents.iter().any(|e| bit(e, at)))
        .unwrap_or(0);
    let select = |at: usize, to: &mut [[u64; L]]| {
        let set = exponents.map(|e| bit(e, at));
        for ((to, base), one) in to.iter_mut().zip(base).zip(moduli.one) {
            *to = std::array::from_fn(|lane| if set[lane] { base[lane] } else { one[lane] });
        }
        faults::loaded("base or one", to);
        set.contains(&true)
    };
    select(top, out);
    for at in (0..top).rev() {
        k.square(other, out, moduli, scratch);
        if select(at, factor) {
            k.mul(out, other, factor, moduli, scratch);
        } else {
            out.copy_from_slice(other);
        }
    }
}

/// `-1/n mod 2^52` for an odd `n`, of which the lowest digit suffices.
pub(super) fn minus_inverse(n: u64) -> u64 {
    // Newton's iteration doubles the correct bits of 1/n mod 2^64, from 3 at the start.
    let mut inverse = n;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(n.wrapping_mul(inverse)));
    }
    inverse.wrapping_neg() & DIGIT_MASK
}

/// Puts a number into a lane.
pub(super) fn set<const L: usize>(to: &mut [[u64; L]], lane: usize, number: &[u64]) {
    assert_eq!(to.len(), number.len());
    for (to, &unit) in to.iter_mut().zip(number) {
        to[lane] = unit;
    }
    faults::loaded("number", to);
}

/// Puts a number of one digit into all lanes.
fn set_all<const L: usize>(to: &mut [[u64; L]], digit: u64) {
    to.fill([0; L]);
    to[0] = [digit; L];
    faults::loaded("digit", to);
}

/// Takes a number out of a lane.
fn get<const L: usize>(from: &[[u64; L]], lane: usize, number: &mut [u64]) {
    for (from, unit) in from.iter().zip(number) {
        *unit = from[lane];
    }
}

fn copy_lane<const L: usize>(to: &mut [[u64; L]], lane: usize, from: &[[u64; L]], source: usize) {
    for (to, from) in to.iter_mut().zip(from) {
        to[lane] = from[source];
    }
    faults::loaded("copy", to);
}

/// Puts big-endian bytes into a lane, as limbs.
pub(super) fn set_bytes<const L: usize>(to: &mut [[u64; L]], lane: usize, bytes: &[u8]) {
    assert_eq!(8 * to.len(), bytes.len());
    for (to, chunk) in to.iter_mut().zip(bytes.rchunks_exact(8)) {
        to[lane] = u64::from_be_bytes(chunk.try_into().expect("chunks of eight"));
    }
    faults::loaded("bytes", to);
}

/// Takes the limbs out of a lane, as big-endian bytes.
pub(super) fn bytes<const L: usize>(from: &[[u64; L]], lane: usize) -> Vec<u8> {
    from.iter().rev().flat_map(|limb| limb[lane].to_be_bytes()).collect()
}

/// Limbs to `count` digits.
fn digits(limbs: &Limbs, count: usize) -> Digits {
    let limb = |i: usize| limbs.get(i).copied().unwrap_or(0);
    let digit = |i: usize| {
        let (at, offset) = (i * DIGIT / 64, i * DIGIT % 64);
        // In two steps, as a shift by 64 is none.
        (limb(at) >> offset | limb(at + 1) << 1 << (63 - offset)) & DIGIT_MASK
    };
    Zeroizing::new((0..count).map(digit).collect())
}

/// Digits of a prime: as many as the kernels of its size work with.
fn digit_count(factor: &Factor) -> usize {
    factor.prime.len() * 10 / 8
}

/// Signatures after which an `r` is replaced by a new random one.
const BLINDING_USES: u32 = 256;
const DIGIT: usize = DIGIT_BITS as usize;
