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
//! 5. The check: the bytes are read again and `s^e = c` is compared modulo each prime, which is
//!    the same as modulo `n`. A lane in which they differ yields no signature.
//! 6. `r` is squared for the next use.

use super::arithmetic::{Limbs, RandomFailed, invert_mod, mod_pow2, mul_mod, random_below};
use super::key::{Factor, Parts};
use super::request::{SignError, SignRequest};
use std::sync::{Mutex, PoisonError};
use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_kernels::{Arena, Moduli, Montgomery, PowerSpace, wipe_registers};
use widelane_lanes::{DIGIT_BITS, DIGIT_MASK};
use zeroize::{Zeroize, Zeroizing};

/// Runs passes for keys of one size.
#[derive(Debug)]
pub(crate) struct Pass<const L: usize> {
    kernels: Montgomery<L>,
    /// Present where the kernels run in vector registers, to wipe those.
    registers: Option<Avx512Ifma>,
    /// Memory of passes that are not running.
    arenas: Mutex<Vec<Arena<L>>>,
}

impl Pass<8> {
    pub(crate) fn zmm(token: Avx512Ifma, prime_bits: usize) -> Self {
        Self::new(Montgomery::zmm(token, prime_bits), Some(token))
    }
}

impl Pass<4> {
    pub(crate) fn ymm(token: Avx512IfmaVl, prime_bits: usize) -> Self {
        Self::new(Montgomery::ymm(token, prime_bits), Some(token.zmm()))
    }
}

impl<const L: usize> Pass<L> {
    /// The same in portable Rust: the oracle, and far too slow for anything else.
    #[cfg(test)]
    pub(crate) fn model(prime_bits: usize) -> Self {
        Self::new(Montgomery::model(prime_bits), None)
    }

    fn new(kernels: Montgomery<L>, registers: Option<Avx512Ifma>) -> Self {
        Self {
            kernels,
            registers,
            arenas: Mutex::default(),
        }
    }

    /// Requests in a full pass.
    pub(crate) fn lanes(&self) -> usize {
        L / 2
    }

    /// Signs up to [`lanes`](Self::lanes) requests whose keys have this size.
    ///
    /// # Panics
    ///
    /// If there are more, or none, or a key of another size.
    pub(crate) fn run(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        assert!(
            (1..=self.lanes()).contains(&requests.len()),
            "{} requests",
            requests.len()
        );
        let mut blindings = Vec::with_capacity(requests.len());
        for request in requests {
            match request.key().prepared().blinding(request.key().parts()) {
                Ok(blinding) => blindings.push(blinding),
                Err(RandomFailed) => return vec![Err(SignError::Random); requests.len()],
            }
        }
        let mut arena = lock(&self.arenas)
            .pop()
            .unwrap_or_else(|| Arena::new(Work::<L>::len(&self.kernels)));
        let results = self.sign(requests, &mut blindings, &mut arena);
        arena.wipe();
        if let Some(token) = self.registers {
            wipe_registers(token);
        }
        lock(&self.arenas).push(arena);
        for ((request, blinding), result) in requests.iter().zip(blindings).zip(&results) {
            // After a fault nothing that was computed beside it is used again.
            if result.is_ok() {
                request.key().prepared().give_back(blinding);
            }
        }
        results
    }

    fn sign(
        &self,
        requests: &[SignRequest],
        blindings: &mut [Blinding],
        arena: &mut Arena<L>,
    ) -> Vec<Result<Vec<u8>, SignError>> {
        let k = &self.kernels;
        let mut work = Work::new(k, arena.vectors());
        let w = &mut work;
        let keys: [&SignRequest; L] =
            std::array::from_fn(|lane| requests.get(lane / 2).unwrap_or(&requests[0]));
        for (lane, request) in keys.into_iter().enumerate() {
            w.load_key(lane, request.key().prepared(), request.key().parts());
            let blinding = blindings.get(lane / 2).unwrap_or(&blindings[0]);
            set(w.power, lane, &blinding.pairs[lane % 2].power);
            set(w.inverse, lane, &blinding.pairs[lane % 2].inverse);
        }
        let exponents = keys.map(|request| request.key().parts().e.as_slice());
        let moduli = Moduli { n: w.n, one: w.one };

        // 0. A new r is plain and not yet raised to e.
        if blindings.iter().any(|blinding| blinding.uses == 0) {
            k.mul(w.a, w.inverse, w.r2, moduli, w.scratch);
            k.mul(w.b, w.power, w.r2, moduli, w.scratch);
            power_public(
                k,
                w.c,
                w.b,
                &exponents,
                moduli,
                [w.entry, w.other],
                w.scratch,
            );
            for lane in 0..L {
                let blinding = blindings.get(lane / 2).unwrap_or(&blindings[0]);
                if blinding.uses == 0 {
                    copy_lane(w.inverse, lane, w.a, lane);
                    copy_lane(w.power, lane, w.c, lane);
                }
            }
        }

        // 1. c in Montgomery form.
        for (lane, request) in keys.into_iter().enumerate() {
            let encoded = request
                .encoded()
                .expect("requests of an accelerated size are padded");
            set_bytes(w.limbs, lane, encoded);
        }
        residues(
            k,
            w.message,
            w.limbs,
            moduli,
            [w.double, w.a, w.r3],
            w.scratch,
        );

        // 2. and 3. With the blinding, c^d.
        k.mul(w.a, w.message, w.power, moduli, w.scratch);
        let space = PowerSpace {
            table: w.table,
            entry: w.entry,
            indices: w.indices,
            power: w.other,
        };
        k.power(w.b, w.a, w.exponent, moduli, space, w.scratch);
        k.mul(w.c, w.b, w.inverse, moduli, w.scratch);

        // 4. m1 stays in Montgomery form, m2 leaves it and joins m1 in the lane of p.
        w.b.fill([0; L]);
        w.b[0] = [1; L];
        k.mul(w.a, w.c, w.b, moduli, w.scratch);
        w.b.fill([0; L]);
        k.subtract(w.entry, w.a, w.b, moduli, w.scratch);
        for lane in (0..L).step_by(2) {
            copy_lane(w.b, lane, w.entry, lane + 1);
            copy_lane(w.other, lane, w.n, lane + 1);
        }
        let (m1, m2, q) = (&*w.c, &*w.b, &*w.other);
        k.mul(w.a, m1, w.coefficient, moduli, w.scratch);
        k.mul(w.entry, m2, w.coefficient_r, moduli, w.scratch);
        k.subtract(w.d, w.a, w.entry, moduli, w.scratch);
        k.mul_add(w.double, w.d, q, m2, w.scratch);
        k.to_limbs(w.limbs, w.double, w.scratch);
        let signatures: Vec<Vec<u8>> = (0..requests.len()).map(|j| bytes(w.limbs, 2 * j)).collect();

        // 5. From the bytes back to c.
        for lane in 0..L {
            set_bytes(
                w.limbs,
                lane,
                signatures.get(lane / 2).unwrap_or(&signatures[0]),
            );
        }
        residues(k, w.b, w.limbs, moduli, [w.double, w.a, w.r3], w.scratch);
        power_public(
            k,
            w.c,
            w.b,
            &exponents,
            moduli,
            [w.entry, w.other],
            w.scratch,
        );
        k.subtract(w.a, w.c, w.message, moduli, w.scratch);
        let differences: [u64; L] =
            std::array::from_fn(|lane| w.a.iter().fold(0, |all, digit| all | digit[lane]));

        // 6. The next r.
        k.square(w.b, w.power, moduli, w.scratch);
        k.square(w.c, w.inverse, moduli, w.scratch);
        for (j, blinding) in blindings.iter_mut().enumerate() {
            blinding.uses += 1;
            for (i, pair) in blinding.pairs.iter_mut().enumerate() {
                get(w.b, 2 * j + i, &mut pair.power);
                get(w.c, 2 * j + i, &mut pair.inverse);
            }
        }

        let check = |(j, mut signature): (usize, Vec<u8>)| {
            if differences[2 * j] | differences[2 * j + 1] == 0 {
                Ok(signature)
            } else {
                signature.zeroize();
                Err(SignError::Fault)
            }
        };
        signatures.into_iter().enumerate().map(check).collect()
    }
}

/// What lanes need of a key beside its integers, derived when it is first used.
#[derive(Debug)]
pub(super) struct Prepared {
    /// For p, then q.
    primes: [Prime; 2],
    /// `1/q mod p`.
    coefficient: Digits,
    /// The same in Montgomery form.
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
    /// For p, then q.
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

    /// Blinding values for one signature; whoever takes them has them alone.
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

impl std::fmt::Debug for Prime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prime").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Blinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blinding")
            .field("uses", &self.uses)
            .finish_non_exhaustive()
    }
}

/// The memory of a pass, by name. Numbers have `digits` vectors unless said otherwise.
struct Work<'a, const L: usize> {
    // Of the keys.
    /// And `k0`: one more vector.
    n: &'a mut [[u64; L]],
    one: &'a mut [[u64; L]],
    r2: &'a mut [[u64; L]],
    r3: &'a mut [[u64; L]],
    coefficient: &'a mut [[u64; L]],
    coefficient_r: &'a mut [[u64; L]],
    /// As many vectors as a prime has limbs.
    exponent: &'a mut [[u64; L]],
    // Of the blinding.
    power: &'a mut [[u64; L]],
    inverse: &'a mut [[u64; L]],
    // Of the computation.
    message: &'a mut [[u64; L]],
    a: &'a mut [[u64; L]],
    b: &'a mut [[u64; L]],
    c: &'a mut [[u64; L]],
    d: &'a mut [[u64; L]],
    entry: &'a mut [[u64; L]],
    other: &'a mut [[u64; L]],
    /// Twice `digits` vectors.
    double: &'a mut [[u64; L]],
    /// As many vectors as a modulus has limbs.
    limbs: &'a mut [[u64; L]],
    table: &'a mut [[u64; L]],
    /// As many vectors as an exponent has windows.
    indices: &'a mut [[u64; L]],
    scratch: &'a mut [[u64; L]],
}

impl<'a, const L: usize> Work<'a, L> {
    fn len(k: &Montgomery<L>) -> usize {
        let numbers = NUMBERS * k.digits() + 1 + 3 * k.limbs();
        numbers + k.table_len() + k.scratch_len() + k.windows()
    }

    /// Divides the memory; the table comes first, on a page of its own.
    fn new(k: &Montgomery<L>, memory: &'a mut [[u64; L]]) -> Self {
        let mut rest = memory;
        let mut take = |len: usize| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            part
        };
        let d = k.digits();
        Self {
            table: take(k.table_len()),
            scratch: take(k.scratch_len()),
            indices: take(k.windows()),
            n: take(d + 1),
            one: take(d),
            r2: take(d),
            r3: take(d),
            coefficient: take(d),
            coefficient_r: take(d),
            exponent: take(k.limbs()),
            power: take(d),
            inverse: take(d),
            message: take(d),
            a: take(d),
            b: take(d),
            c: take(d),
            d: take(d),
            entry: take(d),
            other: take(d),
            double: take(2 * d),
            limbs: take(2 * k.limbs()),
        }
    }

    /// Puts a key's constants into a lane: those of p into even lanes, of q into odd ones.
    fn load_key(&mut self, lane: usize, prepared: &Prepared, parts: &Parts) {
        let prime = &prepared.primes[lane % 2];
        set(self.n, lane, &prime.n);
        set(self.one, lane, &prime.one);
        set(self.r2, lane, &prime.r2);
        set(self.r3, lane, &prime.r3);
        set(self.coefficient, lane, &prepared.coefficient);
        set(self.coefficient_r, lane, &prepared.coefficient_r);
        set(
            self.exponent,
            lane,
            &[&parts.p, &parts.q][lane % 2].exponent,
        );
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
    exponents: &[&[u64]; L],
    moduli: Moduli<'_, L>,
    [factor, other]: [&mut [[u64; L]]; 2],
    scratch: &mut [[u64; L]],
) {
    let bit = |e: &[u64], at: usize| {
        e.get(at / 64)
            .is_some_and(|limb| limb >> (at % 64) & 1 == 1)
    };
    let longest = exponents.iter().map(|e| 64 * e.len()).max().unwrap_or(0);
    let top = (0..longest)
        .rfind(|&at| exponents.iter().any(|e| bit(e, at)))
        .unwrap_or(0);
    let select = |at: usize, to: &mut [[u64; L]]| {
        let set = exponents.map(|e| bit(e, at));
        for ((to, base), one) in to.iter_mut().zip(base).zip(moduli.one) {
            *to = std::array::from_fn(|lane| if set[lane] { base[lane] } else { one[lane] });
        }
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
}

/// Puts big-endian bytes into a lane, as limbs.
pub(super) fn set_bytes<const L: usize>(to: &mut [[u64; L]], lane: usize, bytes: &[u8]) {
    assert_eq!(8 * to.len(), bytes.len());
    for (to, chunk) in to.iter_mut().zip(bytes.rchunks_exact(8)) {
        to[lane] = u64::from_be_bytes(chunk.try_into().expect("chunks of eight"));
    }
}

/// Takes the limbs out of a lane, as big-endian bytes.
pub(super) fn bytes<const L: usize>(from: &[[u64; L]], lane: usize) -> Vec<u8> {
    from.iter()
        .rev()
        .flat_map(|limb| limb[lane].to_be_bytes())
        .collect()
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

/// Locks, also after a panic elsewhere: nothing is ever left half done under these locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Signatures after which an `r` is replaced by a new random one.
const BLINDING_USES: u32 = 256;
/// Numbers of `digits` vectors in [`Work`], with the double one counted as two.
const NUMBERS: usize = 17;
const DIGIT: usize = DIGIT_BITS as usize;
