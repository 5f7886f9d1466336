//! ML-KEM in lanes gives what aws-lc-rs gives, whatever the peer sends.
//!
//! The first byte chooses the size. The others are an encapsulation key, a ciphertext and an expanded
//! decapsulation key. Such bytes rarely get past the checks, so they are also taken as lists of
//! changes to good ones. Five requests share a pass: these, and good ones whose results must not
//! change. On a CPU without lanes, aws-lc-rs runs the passes, and only the loading of keys is tested.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use widelane_crypto::agreement::{Answer, Request};
use widelane_crypto::mlkem::{Decapsulate, Decapsulation, DecapsulationKey, Encapsulate, Encapsulation, Size};
use widelane_crypto::{OnBackend, Operation, Preference, Task};

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let Kem {
        size,
        encaps,
        decaps,
        decapsulate,
    } = &KEMS[usize::from(first) % KEMS.len()];

    // What comes from a stranger must load as it is, or be refused with a message.
    let expanded = changed(decapsulate.key.expanded(), data);
    let mut keys = vec![decapsulate.key.clone()];
    for bytes in [data, &expanded] {
        match DecapsulationKey::from_expanded(*size, bytes) {
            Ok(key) => keys.push(key),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    let sound = decapsulate.key.encapsulation_key();
    let public = [sound.to_vec(), data.to_vec(), changed(sound, data)];
    let of_key = |key: &DecapsulationKey| key.encapsulation_key().to_vec();
    let public = public.into_iter().chain(keys.iter().map(of_key));
    let requests: Vec<_> = public.map(|key| Encapsulate { size: *size, key }).collect();
    let answers = encaps.pass(&requests.iter().cloned().map(Request::from).collect::<Vec<_>>());
    assert!(answers[0].is_ok(), "a neighbour did harm");
    let mut ciphertexts = vec![data.to_vec(), changed(&decapsulate.ciphertext, data)];
    for (request, answer) in requests.iter().zip(answers) {
        let alone = Request::from(request.clone()).alone();
        assert_eq!(answer.is_ok(), alone.is_ok(), "one refuses the key");
        let Ok(answer) = answer else {
            continue;
        };
        let ciphertext = answer.clone().into_share();
        if request.key == sound {
            let key = decapsulate.key.clone();
            let ciphertext = ciphertext.clone();
            let theirs = Request::from(Decapsulate { key, ciphertext }).alone();
            let theirs = theirs.expect("the ciphertext has the right length");
            assert_eq!(secret(answer), secret(theirs));
        }
        ciphertexts.push(ciphertext);
    }

    let requests: Vec<Request> = keys
        .iter()
        .flat_map(|key| {
            let request = move |ciphertext: &Vec<u8>| {
                let (key, ciphertext) = (key.clone(), ciphertext.clone());
                Decapsulate { key, ciphertext }.into()
            };
            ciphertexts.iter().map(request)
        })
        .collect();
    for (request, answer) in requests.iter().zip(decaps.pass(&requests)) {
        match (answer, request.alone()) {
            (Ok(ours), Ok(theirs)) => assert_eq!(secret(ours), secret(theirs)),
            (Err(ours), Err(theirs)) => assert_eq!(ours, theirs),
            (ours, theirs) => panic!("{ours:?}, but aws-lc-rs: {theirs:?}"),
        }
    }
});

fn secret(answer: Answer) -> Vec<u8> {
    let shared = answer.into_shared().expect("what was asked for");
    shared.as_bytes().to_vec()
}

/// One size in the lanes of this machine, and a sound request.
struct Kem {
    size: Size,
    encaps: OnBackend<Encapsulation>,
    decaps: OnBackend<Decapsulation>,
    decapsulate: Decapsulate,
}

/// Sound bytes with changes of three bytes each: where (big-endian) and what.
fn changed(sound: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for change in data.chunks_exact(3) {
        let index = usize::from(u16::from_be_bytes([change[0], change[1]])) % bytes.len();
        bytes[index] ^= change[2];
    }
    bytes
}

fn expanded(size: Size) -> &'static [u8] {
    match size {
        Size::MlKem512 => include_bytes!("../../crates/crypto/tests/data/mlkem512.bin"),
        Size::MlKem768 => include_bytes!("../../crates/crypto/tests/data/mlkem768.bin"),
        Size::MlKem1024 => include_bytes!("../../crates/crypto/tests/data/mlkem1024.bin"),
    }
}

static KEMS: LazyLock<[Kem; 3]> = LazyLock::new(|| {
    let backend = Preference::Auto.resolve().expect("aws-lc runs everywhere");
    Size::ALL.map(|size| {
        let encaps = Encapsulation(size).on(backend).expect("the backend runs here");
        let decaps = Decapsulation(size).on(backend).expect("the backend runs here");
        // Always the same, so that findings repeat.
        let key = DecapsulationKey::from_expanded(size, expanded(size)).expect("a key of this size");
        let ciphertext = vec![7; size.ciphertext_len()];
        let decapsulate = Decapsulate { key, ciphertext };
        Kem {
            size,
            encaps,
            decaps,
            decapsulate,
        }
    })
});
