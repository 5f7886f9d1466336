//! The first lines of each file that is written: they tell an unchanged file from one that was
//! edited.

use crate::server::Server;
use sha2::{Digest, Sha256};

/// The text with these lines in front.
pub(crate) fn stamped(server: &Server, body: &str) -> String {
    with_stamp(&server.argument(), body)
}

fn with_stamp(argument: &str, body: &str) -> String {
    format!(
        "{HEAD}{argument}`; `widelane setup {argument} --undo` removes it.\n{CHECKSUM}{}\n{body}",
        checksum(body)
    )
}

/// Returns whether `text` is a result of [`stamped`], for some server and some body.
pub(crate) fn is_untouched(text: &str) -> bool {
    let body = || {
        let (head, rest) = text.split_once('\n')?;
        let (stated, body) = rest.split_once('\n')?;
        let argument = head.strip_prefix(HEAD)?.split('`').next()?;
        let is_whole = stated.starts_with(CHECKSUM) && text == with_stamp(argument, body);
        (is_whole && Server::is_argument(argument)).then_some(())
    };
    body().is_some()
}

/// Returns whether `text` began as a file of ours.
pub(crate) fn is_ours(text: &str) -> bool {
    text.starts_with(HEAD)
}

fn checksum(body: &str) -> String {
    let digest = Sha256::digest(body.as_bytes());
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A comment in each of the languages: OpenSSL's, systemd's and nginx's.
const HEAD: &str = "# Written by `widelane setup ";
const CHECKSUM: &str = "# An edited file is kept as it is. Checksum of the lines below: ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edit_shows() {
        let stamped = |unit| stamped(&Server::of_unit(unit).unwrap(), "a = b\nc = d\n");
        let other = stamped("other@1");
        assert!(is_untouched(&other) && other.contains("setup --unit other@1 --undo`"));
        let text = stamped("nginx");
        assert!(is_untouched(&text) && is_ours(&text));
        for edited in [
            text.replace("a = b", "a = c"),
            text.replacen(" nginx`", " haproxy`", 1),
            text.replacen(" nginx`", " apache`", 2),
            text.replacen("# W", "#  W", 1),
            text.clone() + "\n",
            "a = b\n".into(),
            String::new(),
        ] {
            assert!(!is_untouched(&edited), "{edited}");
        }
    }
}
