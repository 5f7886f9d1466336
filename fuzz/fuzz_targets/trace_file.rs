//! Any file may be mapped by a process that is traced: it is refused or searched, and never a panic.
//! A probe is a breakpoint in the code of all processes that share the file: each place is in the
//! file, where a function returns there is a return instruction, and where a static probe is a `nop`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use widelane_trace::{Calls, Image, Place, Table};

fuzz_target!(|data: &[u8]| {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(Table::builtin);
    let byte = |at: u64| data[usize::try_from(at).unwrap()];
    if let Ok(image) = Image::of(data, table) {
        for one in &image.functions {
            let _ = byte(one.entry);
            if let Ok(places) = &one.leaves {
                assert!(!places.is_empty());
                for &at in places {
                    let rest = data[usize::try_from(at).unwrap()..].iter();
                    let mut code = rest.skip_while(|byte| is_prefix(**byte));
                    assert!(matches!(code.next(), Some(0xc2 | 0xc3)));
                }
            }
        }
        for one in &image.marks {
            let code = &data[usize::try_from(one.offset).unwrap()..];
            assert!(code.starts_with(&[0x90]) || code.starts_with(&[0x0f, 0x1f, 0x44, 0, 0]));
            assert!(one.places.len() <= 8);
            for place in &one.places {
                if let Place::Register { register, form } | Place::Memory { register, form, .. } = place {
                    assert!(register.offset() <= 152 && matches!(form.bytes, 1 | 2 | 4 | 8));
                }
            }
        }
    }
    if let Ok(calls) = Calls::of(data, table) {
        for &at in calls.after.values().flatten() {
            let at = usize::try_from(at).unwrap();
            let near = at >= 5 && data[at - 5] == 0xe8;
            let by_slot = at >= 6 && data[at - 6..at - 4] == [0xff, 0x15];
            assert!(near || by_slot);
        }
    }
});

/// Prefixes change nothing about a return.
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}
