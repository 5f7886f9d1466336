//! The response of one certificate: held, replaced, and given to handshakes while it is valid.

use std::collections::HashMap;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use arc_swap::{ArcSwapOption, Guard};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::check::{Refusal, Verdict, check, check_kept};
use super::renewal::Renewable;
use super::subject::{NoIssuer, Subject};

/// A response that was checked.
#[derive(Debug)]
pub struct Response {
    /// In DER.
    pub bytes: Vec<u8>,
    /// What it says.
    pub verdict: Verdict,
}

/// The response of one certificate. It outlives reloads, so that a bad file takes nothing away.
#[derive(Debug)]
pub struct Staple {
    /// The certificate's file, for messages.
    file: String,
    subject: Subject,
    response: ArcSwapOption<Response>,
    /// From when the newest is that was ever taken, in seconds since 1970, also by an earlier process.
    newest: AtomicU64,
    /// Whether the last that was offered was taken.
    is_current: AtomicBool,
    fetched: AtomicU64,
    failed: AtomicU64,
}

/// A fetched response that was found good.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) response: Arc<Response>,
    /// Not the one from before.
    pub(crate) is_new: bool,
}

/// The staples of one configuration.
#[derive(Debug, Default)]
pub struct Staples {
    /// By the certificate's file and fingerprint.
    known: HashMap<(String, String), Arc<Staple>>,
    /// Responses from files, which wait until all of the configuration is known to be good.
    waiting: Vec<(Arc<Staple>, FromFile)>,
    wanted: Vec<Renewable>,
}

/// What was read from a file that should have a response.
#[derive(Debug)]
pub struct FromFile {
    /// The file.
    pub path: PathBuf,
    /// The response, empty if it is still to come; or why it could not be read.
    pub read: Result<Vec<u8>, String>,
}

impl Staple {
    fn new(file: String, subject: Subject) -> Self {
        Self {
            file,
            subject,
            response: ArcSwapOption::empty(),
            newest: AtomicU64::new(0),
            is_current: AtomicBool::new(false),
            fetched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// The response to staple at this moment. This is asked in each handshake: whatever becomes of
    /// renewals, a response is never given away once it has expired. A guard, because a count of
    /// references would be a line of memory that all workers write.
    pub fn current(&self, now: UnixTime) -> Option<Guard<Option<Arc<Response>>>> {
        let held = self.response.load();
        let is_valid = held
            .as_ref()
            .is_some_and(|held| now.as_secs() < held.verdict.next_update);
        is_valid.then_some(held)
    }

    /// What the response that was taken last says, expired or not.
    pub fn last(&self) -> Option<Verdict> {
        self.response.load().as_ref().map(|held| held.verdict)
    }

    /// Whether the last response that was read was taken.
    pub fn is_current(&self) -> bool {
        self.is_current.load(Relaxed)
    }

    /// How often a response was fetched, and how often that failed.
    pub fn fetches(&self) -> [u64; 2] {
        [&self.fetched, &self.failed].map(|count| count.load(Relaxed))
    }

    /// The certificate's file.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// A name for this certificate and its issuer.
    pub fn fingerprint(&self) -> &str {
        &self.subject.fingerprint
    }

    pub(super) fn request(&self) -> der::Result<Vec<u8>> {
        self.subject.request()
    }

    pub(super) fn fetch_failed(&self) {
        self.failed.fetch_add(1, Relaxed);
        self.is_current.store(false, Relaxed);
    }

    /// Takes a fetched response if it is good and newer than the one from before. Who can answer in the
    /// responder's place could bring back what was good before a revocation, also when the response that
    /// says so has expired.
    pub(super) fn offer_fetched(&self, bytes: Vec<u8>, now: UnixTime) -> Result<Offered, Refusal> {
        let verdict = check(&self.subject, &bytes, now)?;
        let before = self.current(now);
        let before = before.as_ref().and_then(|before| before.as_ref());
        // Caches on the way may lag behind; that is no failure as long as there is one.
        if before.is_none() && verdict.this_update < self.newest.load(Relaxed) {
            return Err(Refusal::Older);
        }
        self.fetched.fetch_add(1, Relaxed);
        self.is_current.store(true, Relaxed);
        if let Some(before) = before
            && before.verdict.this_update >= verdict.this_update
        {
            return Ok(Offered {
                response: before.clone(),
                is_new: false,
            });
        }
        let response = Arc::new(Response { bytes, verdict });
        self.replace(response.clone());
        Ok(Offered { response, is_new: true })
    }

    /// Takes what an earlier process has fetched, if it is good. If it has expired, nothing older is fetched
    /// after it.
    pub fn offer_kept(&self, bytes: Vec<u8>, now: UnixTime) {
        let known = check_kept(&self.subject, &bytes, now);
        match self.offer(bytes, now) {
            Ok(()) => {}
            Err(refusal) => {
                if let Ok(verdict) = known {
                    self.newest.fetch_max(verdict.this_update, Relaxed);
                }
                tracing::debug!(certificate = self.file, "not taken from the disk: {refusal}");
            }
        }
    }

    /// Takes a response if it is good. Otherwise the one from before stays.
    pub fn offer(&self, bytes: Vec<u8>, now: UnixTime) -> Result<(), Refusal> {
        let checked = check(&self.subject, &bytes, now);
        self.is_current.store(checked.is_ok(), Relaxed);
        let verdict = checked?;
        self.replace(Arc::new(Response { bytes, verdict }));
        Ok(())
    }

    /// Takes a response that was checked, and says so if the certificate is revoked.
    fn replace(&self, new: Arc<Response>) {
        let verdict = new.verdict;
        self.newest.fetch_max(verdict.this_update, Relaxed);
        let before = self.response.swap(Some(new));
        if verdict.revoked && before.is_none_or(|before| !before.verdict.revoked) {
            tracing::error!(
                certificate = self.file,
                "THE CERTIFICATE IS REVOKED, says its issuer. Clients that ask are told so. Replace \
                 the certificate and its key"
            );
        }
    }

    /// Takes the response of a file, or says why not.
    fn offer_file(&self, file: FromFile, now: UnixTime) {
        let (certificate, path) = (&self.file, file.path.display());
        let fails = match file.read {
            // As HAProxy has it: a file for responses that are still to come.
            Ok(bytes) if bytes.is_empty() => "it is empty".to_owned(),
            Ok(bytes) => match self.offer(bytes, now) {
                Ok(()) => return,
                Err(refusal) => refusal.to_string(),
            },
            Err(problem) => problem,
        };
        self.is_current.store(false, Relaxed);
        match self.current(now) {
            Some(_) => tracing::warn!(
                certificate,
                "kept the OCSP response from before; that in {path} is not taken: {fails}"
            ),
            None => tracing::warn!(
                certificate,
                "clients get no OCSP response; that in {path} is not taken: {fails}"
            ),
        }
    }
}

impl Staples {
    /// The staple of a chain's first certificate, whose file is `file`: that from `before`, if it had one.
    pub fn get(
        &mut self,
        file: &str,
        chain: &[CertificateDer<'static>],
        before: &Self,
    ) -> Result<Arc<Staple>, NoIssuer> {
        let subject = Subject::of(chain)?;
        let certificate = (file.to_owned(), subject.fingerprint.clone());
        let known = [&self.known, &before.known].into_iter();
        let known = known.filter_map(|known| known.get(&certificate)).next();
        let staple = match known {
            Some(known) => known.clone(),
            None => Arc::new(Staple::new(file.to_owned(), subject)),
        };
        self.known.insert(certificate, staple.clone());
        Ok(staple)
    }

    /// Has the response of a certificate renewed or watched.
    pub fn want(&mut self, wanted: Renewable) {
        // One certificate of several listeners is one question.
        let same =
            |known: &Renewable| Arc::ptr_eq(&known.staple, &wanted.staple) && known.responder == wanted.responder;
        if !self.wanted.iter().any(same) {
            self.wanted.push(wanted);
        }
    }

    /// What is to be renewed or watched.
    pub fn wanted(&self) -> Vec<Renewable> {
        self.wanted.clone()
    }

    /// Has a response from a file wait for [`Staples::take_waiting`].
    pub fn wait(&mut self, staple: Arc<Staple>, file: FromFile) {
        self.waiting.push((staple, file));
    }

    /// Takes the responses that wait.
    pub fn take_waiting(&mut self, now: UnixTime) {
        for (staple, file) in mem::take(&mut self.waiting) {
            staple.offer_file(file, now);
        }
    }
}
