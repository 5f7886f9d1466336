//! What the kernel writes about processes carries names that their owners choose: it is parsed or
//! refused, and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_files::cpuinfo::cpus;
use widelane_threads::{Avx512, Cgroups, Container, Mapping, Stat, Times, unit};

fuzz_target!(|bytes: &[u8]| {
    Avx512::parse(bytes);
    Times::parse(bytes);
    if let Some(stat) = Stat::parse(bytes) {
        assert!(String::from_utf8_lossy(bytes).contains(&stat.name));
    }
    if let Some(path) = Cgroups::parse(bytes).path() {
        Container::of(path);
        unit(path);
    }
    let text = String::from_utf8_lossy(bytes);
    if let Some(container) = Container::of(&text) {
        assert!(!container.to_string().contains('/'));
    }
    unit(&text);
    for cpu in cpus(&text) {
        assert!(cpu.value("processor").is_some());
    }
    for mapping in Mapping::parse(bytes) {
        assert!(mapping.path.is_none_or(|path| path.is_absolute()));
    }
});
