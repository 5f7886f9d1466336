//! Reading a configuration from hostile text never panics; an error is one line that names the
//! file; and what is accepted keeps the promises that the server relies on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use widelane_terminator::{Backend, Cpus, Document};

fuzz_target!(|text: &str| {
    // The values that flags take as well.
    if let Ok(backend) = text.parse::<Backend>() {
        assert_eq!(backend.to_string().parse(), Ok(backend));
    }
    if let Ok(cpus) = text.parse::<Cpus>() {
        assert_eq!(cpus.to_string().parse(), Ok(cpus));
    }
    match Document::parse(Path::new("w.toml"), text.into()) {
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("w.toml"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
        Ok(document) => {
            let config = document.config();
            assert!(!config.listeners.is_empty());
            assert!(config.batching.queue > 0);
            for listener in &config.listeners {
                assert!(!listener.listen.is_empty());
                let directories = &listener.certificate_directories;
                assert!(!listener.certificates.is_empty() || !directories.is_empty());
                assert!(!listener.versions.is_empty());
                assert!(listener.alpn.iter().all(|name| (1..=255).contains(&name.len())));
            }
        }
    }
});
