//! Other libraries beside which `widelane-lab speed` measures ours.
//!
//! libcrux-ml-kem: ML-KEM in formally verified Rust, with AVX2.
//!
//! Neither `widelane-speed` nor what ships links any of them.

use libcrux_ml_kem::{mlkem512, mlkem768, mlkem1024};
use std::hint::black_box;
use widelane_speed::{Constructor, Done, Library, Prepared, Subject};

/// All libraries.
pub(crate) fn libraries() -> Vec<Library> {
    vec![Library {
        name: "libcrux",
        find: libcrux,
    }]
}

/// Constructor of the operation in libcrux-ml-kem, if it is one of ML-KEM.
fn libcrux(name: &str) -> Option<Constructor> {
    let (size, operation) = name.split_once('-')?;
    macro_rules! of_size {
        ($module:ident) => {{
            let constructor: Constructor = match operation {
                "keygen" => || single(|seed| _ = black_box($module::generate_key_pair(double(seed)))),
                "encaps" => || {
                    let pair = $module::generate_key_pair([7; 64]);
                    single(move |seed| _ = black_box($module::encapsulate(pair.public_key(), seed)))
                },
                "decaps" => || {
                    let pair = $module::generate_key_pair([7; 64]);
                    let (ciphertext, _) = $module::encapsulate(pair.public_key(), [9; 32]);
                    single(move |_| {
                        _ = black_box($module::decapsulate(pair.private_key(), &ciphertext));
                    })
                },
                _ => return None,
            };
            Some(constructor)
        }};
    }
    match size {
        "mlkem512" => of_size!(mlkem512),
        "mlkem768" => of_size!(mlkem768),
        "mlkem1024" => of_size!(mlkem1024),
        _ => None,
    }
}

/// Operations one after the other, each with its own randomness.
struct Single<F> {
    operation: F,
    count: u64,
}

fn single<F: FnMut([u8; 32]) + 'static>(operation: F) -> Prepared {
    Ok(Box::new(Single { operation, count: 0 }))
}

impl<F: FnMut([u8; 32])> Subject for Single<F> {
    fn run(&mut self, in_flight: usize) -> Result<Done, String> {
        for _ in 0..in_flight {
            self.count += 1;
            // The seed need not be random, because the time does not depend on it.
            let mut seed = [0x5a; 32];
            seed[..8].copy_from_slice(&self.count.to_le_bytes());
            (self.operation)(black_box(seed));
        }
        Ok(Done::operations(in_flight))
    }
}

fn double(seed: [u8; 32]) -> [u8; 64] {
    let mut both = [0; 64];
    both[..32].copy_from_slice(&seed);
    both[32..].copy_from_slice(&seed);
    both
}

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_speed::operations;

    #[test]
    fn libcrux_has_every_operation_of_ml_kem_and_no_other() {
        let mut found = 0;
        for operation in operations() {
            let prepared = libcrux(operation.name);
            assert_eq!(prepared.is_some(), operation.name.starts_with("mlkem"));
            let Some(prepared) = prepared else { continue };
            let done = prepared().and_then(|mut subject| subject.run(2));
            assert_eq!(done, Ok(Done::operations(2)), "{}", operation.name);
            found += 1;
        }
        assert_eq!(found, 9);
    }
}
