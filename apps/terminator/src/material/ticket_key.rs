//! One key of session tickets, and the formats in which files hold such keys.
//!
//! A ticket is what RFC 5077, section 4 recommends: the key's name (16 bytes), an initialisation
//! vector (16), the session encrypted with AES in CBC mode, and an HMAC-SHA-256 over all of it. The
//! HMAC covers the length of the encrypted part, as the RFC says, and behind it the listener's rule
//! for client certificates, which is not sent.
//!
//! nginx and HAProxy use the same keys in OpenSSL's way, whose HMAC covers no length. So a key that
//! they share with us is no harm: neither takes a ticket of the other.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{constant_time, hmac, rand};
use base64ct::{Base64, Encoding};
use zeroize::{Zeroize, Zeroizing};

/// A key that encrypts and decrypts tickets.
pub(crate) struct TicketKey {
    name: [u8; NAME],
    encrypting: PaddedBlockEncryptingKey,
    decrypting: PaddedBlockDecryptingKey,
    mac: hmac::Key,
    /// The file that it comes from. `None`: it was made in this process.
    pub(crate) source: Option<KeySource>,
}

/// The file that a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySource {
    pub(crate) file: PathBuf,
    /// Time at which the file was written last.
    pub(crate) written: SystemTime,
}

/// The bytes of a key as files hold them. Erased when dropped.
#[derive(Clone)]
pub(crate) struct KeyBytes(Zeroizing<Vec<u8>>);

/// The library refuses to make a key or has no randomness.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the cryptography library gave no ticket key")]
pub(crate) struct NoKey;

impl TicketKey {
    /// A new one that only this process knows.
    pub(crate) fn generate() -> Result<Arc<Self>, NoKey> {
        Self::new(&KeyBytes::generate()?, None)
    }

    /// The key with these bytes, in one place: it is never moved, since a move leaves a copy behind.
    pub(crate) fn new(bytes: &KeyBytes, source: Option<KeySource>) -> Result<Arc<Self>, NoKey> {
        let made = Self::assemble(bytes, source);
        erase_stack();
        made
    }

    #[inline(never)]
    fn assemble(bytes: &KeyBytes, source: Option<KeySource>) -> Result<Arc<Self>, NoKey> {
        let (name, aes, mac) = bytes.parts();
        let algorithm = if aes.len() == 16 { &AES_128 } else { &AES_256 };
        let unbound = || UnboundCipherKey::new(algorithm, aes).map_err(|_| NoKey);
        Ok(Arc::new(Self {
            name: *name,
            encrypting: PaddedBlockEncryptingKey::cbc_pkcs7(unbound()?).map_err(|_| NoKey)?,
            decrypting: PaddedBlockDecryptingKey::cbc_pkcs7(unbound()?).map_err(|_| NoKey)?,
            mac: hmac::Key::new(hmac::HMAC_SHA256, mac),
            source,
        }))
    }

    /// The name, which each ticket carries in plain.
    pub(crate) fn name(&self) -> String {
        hex(&self.name)
    }

    /// A ticket of `plain`, for listeners of this `rule` alone.
    pub(crate) fn encrypt(&self, plain: &[u8], rule: u8) -> Option<Vec<u8>> {
        // With room for the padding: a vector that moves leaves a copy behind.
        let mut encrypted = Vec::with_capacity(plain.len() + BLOCK);
        encrypted.extend_from_slice(plain);
        let context = self.encrypting.encrypt(&mut encrypted).ok()?;
        let vector: &[u8] = (&context).try_into().ok()?;
        let tag = self.tag(vector, &encrypted, rule)?;
        let mut ticket = Vec::with_capacity(OVERHEAD + encrypted.len());
        for part in [&self.name, vector, &encrypted, tag.as_ref()] {
            ticket.extend_from_slice(part);
        }
        Some(ticket)
    }

    /// Decrypts a ticket. `None`: it is not of this key and `rule`, or it is damaged.
    pub(crate) fn decrypt(&self, ticket: &[u8], rule: u8) -> Option<Zeroizing<Vec<u8>>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        if *name != self.name {
            return None;
        }
        let (vector, rest) = rest.split_first_chunk::<BLOCK>()?;
        let (encrypted, tag) = rest.split_last_chunk::<TAG>()?;
        let expected = self.tag(vector, encrypted, rule)?;
        constant_time::verify_slices_are_equal(expected.as_ref(), tag).ok()?;
        let mut bytes = Zeroizing::new(encrypted.to_vec());
        let context = DecryptionContext::Iv128(FixedLength::from(vector));
        let length = self.decrypting.decrypt(&mut bytes, context).ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }

    /// Returns whether a ticket names this key.
    pub(crate) fn is_named_by(&self, ticket: &[u8]) -> bool {
        ticket.starts_with(&self.name)
    }

    fn tag(&self, vector: &[u8], encrypted: &[u8], rule: u8) -> Option<hmac::Tag> {
        let length = u16::try_from(encrypted.len()).ok()?;
        let mut context = hmac::Context::with_key(&self.mac);
        for part in [&self.name, vector, &length.to_be_bytes(), encrypted, &[rule]] {
            context.update(part);
        }
        Some(context.sign())
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TicketKey").field(&self.name()).finish()
    }
}

impl KeyBytes {
    /// 80 random bytes.
    pub(crate) fn generate() -> Result<Self, NoKey> {
        let mut bytes = Zeroizing::new(vec![0; LONG]);
        rand::fill(&mut bytes).map_err(|_| NoKey)?;
        Ok(Self(bytes))
    }

    /// The keys in a file, the one that encrypts first. The error is what is wrong with the file.
    ///
    /// nginx: 48 or 80 bytes, one key. HAProxy: a line of base64 for each key, of which the last
    /// three count. The last but one encrypts, so that a key that is appended is known to all
    /// machines before one of them uses it.
    pub(crate) fn parse(file: &[u8]) -> Result<Vec<Self>, String> {
        if [SHORT, LONG].contains(&file.len()) {
            return Ok(vec![Self::checked(Zeroizing::new(file.to_vec()))?]);
        }
        let not_base64 = || {
            let length = file.len();
            format!("it has {length} bytes, which are neither 48 nor 80, nor lines of base64")
        };
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/= \t\r\n".contains(byte);
        let text = std::str::from_utf8(widelane_pem::without_mark(file)).ok();
        let text = text.filter(|text| text.as_bytes().iter().all(is_base64));
        let text = text.ok_or_else(not_base64)?;
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let mut keys = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let mut bytes = Zeroizing::new(vec![0; LONG + 1]);
            let decoded = Base64::decode(line, &mut bytes).map(<[u8]>::len);
            let length = decoded.map_err(|_| match lines.len() {
                1 => not_base64(),
                _ => format!("key {} of it is not base64", index + 1),
            })?;
            if ![SHORT, LONG].contains(&length) {
                return Err(format!("key {} of it has {length} bytes", index + 1));
            }
            bytes.truncate(length);
            keys.push(Self::checked(bytes)?);
        }
        let mut last: Vec<Self> = keys.into_iter().rev().take(LAST).collect();
        match last.len() {
            0 => return Err("it is empty".into()),
            1 => {}
            _ => last.swap(0, 1),
        }
        Ok(last)
    }

    /// The bytes as nginx reads them from a file.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn name(&self) -> String {
        hex(self.parts().0)
    }

    /// Returns whether both are the same key.
    pub(crate) fn is(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }

    fn checked(bytes: Zeroizing<Vec<u8>>) -> Result<Self, String> {
        // No random generator makes that, but `openssl rand -hex` does, and so does a file that is cut off.
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        if bytes.iter().all(is_text) {
            return Err(format!(
                "it is text of {} characters, not as many random bytes; make it with: openssl rand \
                 {LONG}",
                bytes.len()
            ));
        }
        // What a full disk or a crash leaves, and what no random generator makes.
        let (first, rest) = bytes.split_at(1);
        if rest.iter().all(|byte| *byte == first[0]) {
            return Err("all its bytes are the same".into());
        }
        Ok(Self(bytes))
    }

    /// Name, AES key, HMAC key. nginx has them in this order in 48 bytes; in 80, the HMAC key comes
    /// before the AES key.
    fn parts(&self) -> (&[u8; NAME], &[u8], &[u8]) {
        let (name, keys) = self.0.split_first_chunk().unwrap_or((&[0; NAME], &[]));
        let (first, second) = keys.split_at(keys.len() / 2);
        match self.0.len() {
            SHORT => (name, first, second),
            _ => (name, second, first),
        }
    }
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyBytes").field(&self.name()).finish()
    }
}

/// Erases what functions that have returned to the caller have left on the stack.
#[inline(never)]
fn erase_stack() {
    let mut left = [0_u8; LEFT_ON_STACK];
    left.zeroize();
    std::hint::black_box(&left);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes by which a ticket is longer than its plaintext, without the padding.
const OVERHEAD: usize = NAME + BLOCK + TAG;
const NAME: usize = 16;
const BLOCK: usize = 16;
const TAG: usize = 32;
/// Name, AES-128 key, HMAC key of 16 bytes.
const SHORT: usize = 48;
/// Name, HMAC key of 32 bytes, AES-256 key.
const LONG: usize = 80;
/// Several times what the functions that make a key use.
const LEFT_ON_STACK: usize = 32 * 1024;
/// Number of keys of a file that HAProxy keeps.
const LAST: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize, seed: u8) -> Vec<u8> {
        (0..length).map(|at| seed ^ at as u8).collect()
    }

    fn key(bytes: &[u8]) -> Arc<TicketKey> {
        TicketKey::new(&KeyBytes::parse(bytes).unwrap()[0], None).unwrap()
    }

    #[test]
    fn a_ticket_is_for_its_key_and_its_rule_and_damage_is_found() {
        for length in [SHORT, LONG] {
            let own = key(&bytes(length, 1));
            let mut other = bytes(length, 1);
            other[length - 1] ^= 1;
            let other = key(&other);
            for plain in [&b""[..], b"a session", &[7; 1000]] {
                let ticket = own.encrypt(plain, 1).unwrap();
                assert!(ticket.starts_with(&bytes(length, 1)[..NAME]));
                assert_eq!(own.decrypt(&ticket, 1).unwrap()[..], *plain);
                assert!(own.decrypt(&ticket, 2).is_none(), "another rule");
                assert!(other.decrypt(&ticket, 1).is_none(), "the same name");
                for at in 0..ticket.len() {
                    let mut damaged = ticket.clone();
                    damaged[at] ^= 0x10;
                    assert!(own.decrypt(&damaged, 1).is_none(), "byte {at}");
                    assert!(own.decrypt(&ticket[..at], 1).is_none(), "{at} bytes");
                }
            }
        }
    }

    /// Counts 32 bytes, each changed by [`MASK`], in this process' writable memory.
    fn in_memory(masked: &[u8; 32]) -> usize {
        use std::os::unix::fs::FileExt;
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut chunk = Zeroizing::new(vec![0; 1 << 20]);
        let own = chunk.as_ptr().addr()..chunk.as_ptr().addr() + chunk.len();
        let mut found = 0;
        for line in maps.lines().filter(|line| line.contains(" rw")) {
            let (from, rest) = line.split_once('-').unwrap();
            let until = rest.split_once(' ').unwrap().0;
            let [mut from, until] = [from, until].map(|at| usize::from_str_radix(at, 16).unwrap());
            while from < until {
                // What is read lies in the chunk as well.
                if own.contains(&from) {
                    from = own.end;
                    continue;
                }
                let ends = if from < own.start { until.min(own.start) } else { until };
                let length = chunk.len().min(ends - from);
                let Ok(read) = memory.read_at(&mut chunk[..length], from as u64) else {
                    break;
                };
                let chunk = &chunk[..read];
                // `contains` is optimised even where the rest of a test is not.
                for (place, block) in chunk.chunks(64).enumerate() {
                    if !block.contains(&(masked[0] ^ MASK)) {
                        continue;
                    }
                    let from = 64 * place;
                    let until = chunk.len().min(from + block.len() + 31);
                    let is_it = |bytes: &[u8]| bytes.iter().zip(masked).all(|(a, b)| *a == b ^ MASK);
                    found += chunk[from..until].windows(32).filter(|one| is_it(one)).count();
                }
                // The next chunk begins before what could be cut in two.
                from += if read == ends - from {
                    read
                } else {
                    read.saturating_sub(31).max(1)
                };
            }
        }
        found
    }

    #[test]
    fn a_key_that_is_dropped_is_nowhere_in_memory() {
        if !std::arch::is_x86_feature_detected!("aes") {
            println!("SKIP: without AES-NI, a key schedule does not begin with the key");
            return;
        }
        // In a thread of its own, whose stack is searched while it waits.
        let (say, hear) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let bytes = KeyBytes::generate().unwrap();
            let masked: Vec<u8> = bytes.parts().1.iter().map(|byte| byte ^ MASK).collect();
            let masked: [u8; 32] = masked.try_into().unwrap();
            let key = TicketKey::new(&bytes, None).unwrap();
            drop(bytes);
            say.send(masked).unwrap();
            wait.recv().unwrap();
            let ticket = key.encrypt(b"a session", 1).unwrap();
            assert_eq!(key.decrypt(&ticket, 1).unwrap()[..], *b"a session");
            drop(key);
            say.send(masked).unwrap();
            wait.recv().unwrap();
        });
        let mut seen = Vec::new();
        for _ in 0..2 {
            let masked = hear.recv().unwrap();
            seen.push(in_memory(&masked));
            go.send(()).unwrap();
        }
        thread.join().unwrap();
        // Both objects of the library have the schedule that encrypts, which begins with the key.
        assert_eq!(seen, [2, 0], "while the key exists, and after");
    }

    const MASK: u8 = 0x5a;

    /// OpenSSL's own commands decrypt a ticket with the bytes at nginx's places.
    #[test]
    fn the_parts_of_a_key_are_where_nginx_has_them() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let openssl = |arguments: &[&str], input: &[u8]| {
            let mut child = Command::new("openssl")
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .ok()?;
            child.stdin.take()?.write_all(input).ok()?;
            let output = child.wait_with_output().ok()?;
            assert!(output.status.success(), "{arguments:?}");
            Some(output.stdout)
        };
        if openssl(&["version"], b"").is_none() {
            println!("SKIP: openssl is not installed");
            return;
        }
        // `struct { name, aes_key, hmac_key }` and `struct { name, hmac_key, aes_key }`.
        for (length, cipher, aes, mac) in [
            (SHORT, "-aes-128-cbc", 16..32, 32..48),
            (LONG, "-aes-256-cbc", 48..80, 16..48),
        ] {
            let bytes = bytes(length, 9);
            let ticket = key(&bytes).encrypt(b"a session", 2).unwrap();
            let (head, tag) = ticket.split_at(ticket.len() - TAG);
            let (names, encrypted) = head.split_at(NAME + BLOCK);
            let aes = hex(&bytes[aes]);
            let vector = hex(&names[NAME..]);
            let plain = openssl(&["enc", "-d", cipher, "-K", &aes, "-iv", &vector], encrypted);
            assert_eq!(plain.unwrap(), b"a session");
            let length = u16::try_from(encrypted.len()).unwrap().to_be_bytes();
            let covered = [names, &length, encrypted, &[2]].concat();
            let mac = format!("hexkey:{}", hex(&bytes[mac]));
            let arguments = ["dgst", "-sha256", "-mac", "HMAC", "-macopt", &mac, "-binary"];
            assert_eq!(openssl(&arguments, &covered).unwrap(), tag);
        }
    }

    #[test]
    fn files_of_nginx_and_of_haproxy_are_read() {
        let keys = |file: &[u8]| -> Vec<Vec<u8>> {
            let keys = KeyBytes::parse(file).unwrap();
            keys.iter().map(|key| key.as_bytes().to_vec()).collect()
        };
        let all: Vec<Vec<u8>> = (1..=4).map(|seed| bytes(LONG, seed)).collect();
        let lines: Vec<String> = all.iter().map(|key| Base64::encode_string(key)).collect();
        assert_eq!(keys(&all[0]), all[..1]);
        assert_eq!(keys(&bytes(SHORT, 5)), [bytes(SHORT, 5)]);
        assert_eq!(keys(lines[0].as_bytes()), all[..1]);
        let two = format!("{}\n{}\n", lines[0], lines[1]);
        assert_eq!(keys(two.as_bytes()), all[..2], "the last but one encrypts");
        let marked = format!("\u{feff}{two}");
        assert_eq!(keys(marked.as_bytes()), all[..2], "as editors write it");
        let four = format!("\n{}\r\n", lines.join("\r\n\r\n"));
        let expected = [all[2].clone(), all[3].clone(), all[1].clone()];
        assert_eq!(keys(four.as_bytes()), expected, "the last three");
        let mixed = format!("{}\n{}\n", lines[0], Base64::encode_string(&bytes(SHORT, 9)));
        assert_eq!(keys(mixed.as_bytes()), [bytes(LONG, 1), bytes(SHORT, 9)]);
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_reason() {
        let line = Base64::encode_string(&bytes(LONG, 1));
        let short = Base64::encode_string(&bytes(47, 1));
        for (file, reason) in [
            (&b""[..], "it is empty"),
            (b"\n\n", "it is empty"),
            (&bytes(47, 1), "it has 47 bytes, which are neither 48 nor 80"),
            (&bytes(81, 0xf0), "it has 81 bytes"),
            (hex(&bytes(24, 1)).as_bytes(), "it is text of 48 characters"),
            (hex(&bytes(40, 1)).as_bytes(), "it is text of 80 characters"),
            (&line.as_bytes()[..LONG], "make it with: openssl rand 80"),
            (&line.as_bytes()[..SHORT], "it is text of 48 characters"),
            (
                Base64::encode_string(hex(&bytes(40, 1)).as_bytes()).as_bytes(),
                "it is text of 80 characters",
            ),
            (&[0; LONG], "all its bytes are the same"),
            (b"-----BEGIN CERTIFICATE-----", "nor lines of base64"),
            (format!("{line}\n{short}\n").as_bytes(), "key 2 of it has 47"),
            (
                format!("{line}\n{}\n", &line[..90]).as_bytes(),
                "key 2 of it is not base64",
            ),
            (Base64::encode_string(&bytes(200, 1)).as_bytes(), "neither"),
        ] {
            let error = KeyBytes::parse(file).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn keys_are_not_printed() {
        let raw = KeyBytes::parse(&bytes(LONG, 1)).unwrap().remove(0);
        let secret = format!("{:02x}{:02x}{:02x}", raw.0[16], raw.0[17], raw.0[18]);
        for text in [format!("{raw:?}"), format!("{:?}", key(&bytes(LONG, 1)))] {
            assert!(text.contains(&raw.name()) && !text.contains(&secret), "{text}");
        }
    }
}
