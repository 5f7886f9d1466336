//! The user as which this process opens files.

use rustix::process::{getegid, geteuid};

/// The user and group of this process, for messages about files that it may not open.
pub fn this_user() -> String {
    format!("user id {}, group id {}", geteuid().as_raw(), getegid().as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_that_this_process_makes_has_the_user_of_the_message() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let made = file.as_file().metadata().unwrap();
        let user = this_user();
        assert!(
            user.starts_with(&format!("user id {}, group id ", made.uid())),
            "{user}"
        );
    }
}
