//! Files in use, as metrics show them.

use std::sync::Arc;
use std::time::SystemTime;

use widelane_ocsp::StapleStatus;

use crate::material::files::Pair;
use crate::material::ticket_key::TicketKey;

/// Files of one listener, or of all.
#[derive(Debug, Default)]
pub(crate) struct FilesInUse {
    pub(crate) certificates: Vec<CertificateFile>,
    /// Names of the keys, not the keys: a connection that lives long holds its site, and old keys are to be erased.
    pub(crate) ticket_keys: Vec<TicketKeyFile>,
    pub(crate) staples: Vec<StapleStatus>,
}

/// A certificate's file, with the names in it and when it expires, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CertificateFile {
    pub(crate) file: String,
    pub(crate) names: String,
    pub(crate) not_after: i64,
}

/// A ticket key from a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TicketKeyFile {
    pub(crate) file: String,
    pub(crate) name: String,
    /// `encrypts` or `decrypts`.
    pub(crate) role: &'static str,
    /// Time at which the file was written, in seconds since 1970.
    pub(crate) written: i64,
}

impl FilesInUse {
    /// Files of all listeners, each once: one file in several listeners is one series.
    pub(crate) fn of_all<'a>(listeners: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for one in listeners {
            all.certificates.extend_from_slice(&one.certificates);
            all.ticket_keys.extend_from_slice(&one.ticket_keys);
            all.staples.extend_from_slice(&one.staples);
        }
        all.certificates.sort();
        all.certificates.dedup_by(|one, other| one.file == other.file);
        all.ticket_keys.sort();
        all.ticket_keys.dedup();
        all.staples.sort_by(|one, other| one.file.cmp(&other.file));
        all.staples.dedup_by(|one, other| {
            let same = one.file == other.file;
            if same && other.staple.is_none() {
                other.staple = one.staple.take();
            }
            other.fetched |= same && one.fetched;
            same
        });
        all
    }
}

impl From<&Pair> for CertificateFile {
    fn from(pair: &Pair) -> Self {
        let facts = &pair.identity.facts;
        Self {
            file: pair.files.cert.display().to_string(),
            names: facts.names.join(","),
            not_after: facts.not_after,
        }
    }
}

impl TicketKeyFile {
    /// The keys of one listener that come from files. The first encrypts.
    pub(crate) fn all(keys: &[Arc<TicketKey>]) -> Vec<Self> {
        let roles = std::iter::once("encrypts").chain(std::iter::repeat("decrypts"));
        let files = keys.iter().zip(roles).filter_map(|(key, role)| {
            let source = key.source.as_ref()?;
            let written = source.written.duration_since(SystemTime::UNIX_EPOCH);
            Some(Self {
                file: source.file.display().to_string(),
                name: key.name(),
                role,
                written: written.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
            })
        });
        files.collect()
    }
}
