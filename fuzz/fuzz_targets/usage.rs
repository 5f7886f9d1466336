//! What the kernel writes about processes carries names that anybody may choose: it is parsed or
//! refused, and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_usage::procfs;

fuzz_target!(|text: &str| {
    procfs::elapsed(text);
    procfs::run_time(text);
    procfs::waits(text);
    if let Some(stat) = procfs::stat(text) {
        assert!(text.contains(stat.name));
    }
    if let Some(path) = procfs::cgroup(text) {
        assert!(path.starts_with('/') || text.starts_with("0:") || text.contains("\n0:"));
        procfs::container(path);
        procfs::unit(path);
    }
    if let Some(container) = procfs::container(text) {
        assert!(!container.to_string().contains('/'));
    }
    procfs::unit(text);
    for mapping in procfs::code_mappings(text) {
        assert!(mapping.path.is_none_or(|path| path.starts_with('/')));
    }
    procfs::field(text, "xfeatures");
});
