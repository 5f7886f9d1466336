//! `widelane setup` reads the libraries that any program needs: it refuses a file or reads what is there, and never
//! panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_setup::Elf;

fuzz_target!(|data: &[u8]| {
    if let Ok(elf) = Elf::parse(data) {
        // Each library costs an entry of the file.
        assert!(elf.needed.len() <= data.len() / 16);
    }
});
