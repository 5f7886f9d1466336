//! Sessions that a client may resume: tickets, their keys, and what each resumption checks again.
//!
//! rustls puts a session into a ticket and accepts every ticket that decrypts. It verifies the
//! client's certificate in the full handshake only, and renews the ticket at each resumption. So
//! this module puts a layer between rustls and the ticket's encryption:
//!
//! 1. When a client shows its certificate, [`Noting`] keeps the chain in the connection's
//!    [`Session`].
//! 2. When rustls makes a ticket, [`Tickets`] adds the time of the full handshake and the place of
//!    the chain, and encrypts all three.
//! 3. When a client presents a ticket, `Tickets` refuses it if the full handshake is too long ago,
//!    or if the site's verifier refuses the chain now.
//!
//! rustls treats a refused ticket like an unknown one: a full handshake follows, in which a client
//! with a bad certificate gets its alert.
//!
//! rustls does not say for which connection it calls. So the `Session` of a connection is in a
//! thread-local variable while rustls works for that connection ([`Session::enter`]).

use std::cell::Cell;
use std::collections::HashMap;
use std::future::pending;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwapOption, Guard};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::time_provider::TimeProvider;
use rustls::{DigitallySignedStruct, DistinguishedName, HandshakeKind, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::as_inside::as_inside;
use crate::config::ClientAuthMode;
use crate::front::transcript::Changed;
use crate::material::ticket_key::{NoKey, TicketKey};
use crate::observe::stats::TicketRefusal;

/// Facts about the session of one connection's handshake. Small while there are none.
#[derive(Default)]
pub(crate) struct Session(Option<Box<SessionState>>);

#[derive(Default)]
struct SessionState {
    /// From the last ticket that was accepted.
    resumed: Option<Origin>,
    /// The chain that the client has shown in this handshake.
    shown: Vec<CertificateDer<'static>>,
    /// Chains out of tickets that were verified for this connection.
    verified: u8,
    /// Reason why the last ticket was refused.
    refused: Option<TicketRefusal>,
    /// Bytes that rustls got in place of the client's last ClientHello.
    changed: Option<Changed>,
}

/// The full handshake that a session comes from.
struct Origin {
    /// Time of the full handshake, in seconds since 1970.
    began: u64,
    /// The client's certificates, its own first. Empty: it showed none.
    chain: Vec<CertificateDer<'static>>,
}

impl Session {
    /// Runs a step of the connection's handshake, during which rustls may make and take tickets.
    pub(crate) fn enter<T>(&mut self, step: impl FnOnce() -> T) -> T {
        struct Leave<'a> {
            session: &'a mut Session,
            outer: Option<Session>,
        }
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                *self.session = CURRENT.replace(self.outer.take()).unwrap_or_default();
            }
        }
        let outer = CURRENT.replace(Some(mem::take(self)));
        let _leave = Leave { session: self, outer };
        step()
    }

    /// Takes note of which kind of handshake it has become. A ticket that was good does not always
    /// lead to a resumption: the client may ask for another host name.
    pub(crate) fn settle(&mut self, kind: Option<HandshakeKind>) {
        use HandshakeKind::{Full, FullWithHelloRetryRequest};
        if let (Some(known), Some(Full | FullWithHelloRetryRequest)) = (&mut self.0, kind) {
            known.resumed = None;
        }
    }

    /// Reason why a ticket of the client was refused, if none was accepted.
    pub(crate) fn refused_ticket(&self) -> Option<TicketRefusal> {
        let known = self.0.as_deref()?;
        known.refused.filter(|_| known.resumed.is_none())
    }

    /// Takes note of a ClientHello that rustls gets in another form.
    pub(crate) fn change(&mut self, changed: Changed) {
        self.known().changed = Some(changed);
    }

    fn known(&mut self) -> &mut SessionState {
        self.0.get_or_insert_default()
    }

    /// Returns what a ticket made now must say about the session's full handshake.
    fn origin(&self, now: u64) -> (u64, &[CertificateDer<'static>]) {
        match self.0.as_deref() {
            None => (now, &[]),
            Some(SessionState {
                resumed: Some(origin), ..
            }) => (origin.began, &origin.chain),
            Some(SessionState { shown, .. }) => (now, shown),
        }
    }
}

thread_local! {
    static CURRENT: Cell<Option<Session>> = const { Cell::new(None) };
}

/// Runs `use_it` with the session of the connection that rustls works for. `None`: there is none.
/// `use_it` must not suspend.
fn current<T>(use_it: impl FnOnce(&mut Session) -> T) -> Option<T> {
    let mut session = CURRENT.take()?;
    let result = use_it(&mut session);
    CURRENT.set(Some(session));
    Some(result)
}

/// Runs `use_it` if rustls works for a connection whose ClientHello it got in another form. It must not suspend.
pub(crate) fn with_changed<T>(use_it: impl FnOnce(&Changed) -> T) -> Option<T> {
    current(|session| {
        let known = session.0.as_deref()?;
        known.changed.as_ref().map(use_it)
    })
    .flatten()
}

/// Makes and takes the tickets of one listener.
#[derive(Debug)]
pub(crate) struct Tickets {
    keys: Arc<Keys>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    clock: Arc<dyn TimeProvider>,
    /// Time after its full handshake for which a session can be resumed.
    longest: Duration,
}

impl Tickets {
    /// Lets clients of `config` resume sessions by tickets, and in no other way. `verifier` is the
    /// one that `config` has inside [`Noting`].
    pub(crate) fn install(
        config: &mut ServerConfig,
        keys: Arc<Keys>,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
        longest: Duration,
    ) {
        config.ticketer = Arc::new(Self {
            keys,
            verifier,
            clock: config.time_provider.clone(),
            longest,
        });
        config.session_storage = Arc::new(NoServerSessionStorage {});
    }

    /// Returns whether the client's certificates are still good.
    fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        match (&self.verifier, chain.split_first()) {
            (None, None) => true,
            // The listener asked for a certificate when it made the ticket, and does not now.
            (None, Some(_)) => false,
            (Some(verifier), None) => !verifier.client_auth_mandatory(),
            (Some(verifier), Some((own, others))) => {
                // One ClientHello has room for many tickets, and a chain costs signatures.
                let affordable = current(|session| {
                    let verified = &mut session.known().verified;
                    *verified += 1;
                    *verified <= MOST_VERIFIED
                });
                affordable == Some(true) && verifier.verify_client_cert(own, others, now).is_ok()
            }
        }
    }

    fn seconds_left(&self, began: u64, now: u64) -> u64 {
        self.longest.as_secs().saturating_sub(now.saturating_sub(began))
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    /// Lifetime of the ticket that was just made. A client need not keep it for longer than it is good.
    fn lifetime(&self) -> u32 {
        let keys = self.keys.rotation.map_or(u64::MAX, |rotation| (2 * rotation).as_secs());
        let session = self.clock.current_time().and_then(|now| {
            let now = now.as_secs();
            current(|session| self.seconds_left(session.origin(now).0, now))
        });
        u32::try_from(keys.min(session.unwrap_or(0))).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let now = self.clock.current_time()?.as_secs();
        let kept = current(|session| {
            let (began, chain) = session.origin(now);
            Kept::encode(began, chain, plain)
        });
        self.keys.encrypt(&kept??, Instant::now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        match self.accept(ticket) {
            Ok((origin, plain)) => {
                current(|session| session.known().resumed = Some(origin))?;
                Some(plain)
            }
            Err(refusal) => {
                tracing::debug!(why = refusal.name(), "a session is not resumed");
                current(|session| session.known().refused = Some(refusal));
                None
            }
        }
    }
}

impl Tickets {
    /// The session of a ticket, if it may be resumed.
    fn accept(&self, ticket: &[u8]) -> Result<(Origin, Vec<u8>), TicketRefusal> {
        let kept = self.keys.decrypt(ticket, Instant::now());
        let kept = kept.ok_or(TicketRefusal::Key)?;
        let kept = Kept::decode(&kept).ok_or(TicketRefusal::Key)?;
        let now = self.clock.current_time().ok_or(TicketRefusal::Age)?;
        let skew = match self.keys.rotation {
            Some(_) => Duration::ZERO,
            None => CLOCK_SKEW,
        };
        let ahead = kept.began.saturating_sub(now.as_secs());
        if ahead > skew.as_secs() || self.seconds_left(kept.began, now.as_secs()) == 0 {
            return Err(TicketRefusal::Age);
        }
        if !self.verify(&kept.chain, now) {
            return Err(TicketRefusal::Certificate);
        }
        let chain = kept.chain.into_iter().map(CertificateDer::into_owned);
        let origin = Origin {
            began: kept.began,
            chain: chain.collect(),
        };
        Ok((origin, kept.plain.to_vec()))
    }
}

/// A ticket's plaintext: the time of the full handshake (8 bytes), how many certificates follow
/// (1 byte), place and length of each in rustls' part (4 bytes each), rustls' part.
///
/// rustls' part has the certificates already, in a form that is rustls' own. Only where they are is
/// kept beside it, which says the same and does not double a ticket's size.
struct Kept<'a> {
    began: u64,
    chain: Vec<CertificateDer<'a>>,
    plain: &'a [u8],
}

impl<'a> Kept<'a> {
    /// `None`: it would be too long for a ticket, or rustls' part does not have the certificates.
    fn encode(began: u64, chain: &[CertificateDer<'_>], plain: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let length = 9 + 8 * chain.len() + plain.len();
        if length > LONGEST_PLAINTEXT {
            return None;
        }
        let mut kept = Zeroizing::new(Vec::with_capacity(length));
        kept.extend_from_slice(&began.to_be_bytes());
        kept.push(u8::try_from(chain.len()).ok()?);
        let mut end = 0;
        for certificate in chain.iter().map(|certificate| &certificate[..]) {
            if certificate.is_empty() {
                return None;
            }
            let at = end
                + plain[end..]
                    .windows(certificate.len())
                    .position(|window| window == certificate)?;
            end = at + certificate.len();
            for number in [at, certificate.len()] {
                kept.extend_from_slice(&u32::try_from(number).ok()?.to_be_bytes());
            }
        }
        kept.extend_from_slice(plain);
        Some(kept)
    }

    fn decode(kept: &'a [u8]) -> Option<Self> {
        let (began, kept) = kept.split_first_chunk()?;
        let (&count, kept) = kept.split_first()?;
        let (places, plain) = kept.split_at_checked(8 * usize::from(count))?;
        let number = |bytes: &[u8]| {
            let bytes = bytes.try_into().ok()?;
            usize::try_from(u32::from_be_bytes(bytes)).ok()
        };
        let chain = places.chunks_exact(8).map(|place| {
            let (at, length) = (number(&place[..4])?, number(&place[4..])?);
            let certificate = plain.get(at..)?.get(..length)?;
            Some(CertificateDer::from(certificate))
        });
        Some(Self {
            began: u64::from_be_bytes(*began),
            chain: chain.collect::<Option<_>>()?,
            plain,
        })
    }
}

/// Verifies as the verifier inside does, and keeps what the client has shown for its tickets.
#[derive(Debug)]
pub(crate) struct Noting(pub(crate) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Noting {
    as_inside! { 0:
        fn offer_client_auth() -> bool;
        fn client_auth_mandatory() -> bool;
        fn root_hint_subjects() -> &[DistinguishedName];
        fn verify_tls13_signature(
            message: &[u8], certificate: &CertificateDer<'_>, signed: &DigitallySignedStruct
        ) -> Result<HandshakeSignatureValid, rustls::Error>;
        fn supported_verify_schemes() -> Vec<SignatureScheme>;
        fn requires_raw_public_keys() -> bool;
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.0.verify_client_cert(own, others, now)?;
        let chain = std::iter::once(own).chain(others);
        let chain = chain.map(|one| one.clone().into_owned()).collect();
        current(|session| session.known().shown = chain);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // All messages before, as the client knows them.
        match with_changed(|changed| changed.restore(message)) {
            Some(message) => self.0.verify_tls12_signature(&message, certificate, signed),
            None => self.0.verify_tls12_signature(message, certificate, signed),
        }
    }
}

/// The keys of a listener's tickets. The first encrypts, all decrypt.
///
/// Keys of this process follow one another in time: one encrypts for `rotation` and decrypts for as
/// long again; then it is erased. That follows the clock, not the use: [`roll_in_time`] erases the
/// keys of a listener without clients. Keys from files stay until the files have others.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Time for which a key of this process encrypts. `None`: the keys come from files.
    rotation: Option<Duration>,
    /// Client certificates, of listeners that may take each other's tickets.
    rule: u8,
    /// `None`: retired.
    generation: ArcSwapOption<Generation>,
    rolling: Mutex<()>,
}

#[derive(Debug)]
struct Generation {
    /// Time since which the first one encrypts.
    since: Instant,
    keys: Vec<Arc<TicketKey>>,
}

impl Keys {
    /// Keys of this process alone.
    pub(crate) fn new(client_auth: Option<ClientAuthMode>, rotation: Duration, now: Instant) -> Result<Self, NoKey> {
        let first = TicketKey::generate()?;
        Ok(Self::with(client_auth, Some(rotation), now, vec![first]))
    }

    /// Keys of which the first encrypts since then.
    fn with(
        client_auth: Option<ClientAuthMode>,
        rotation: Option<Duration>,
        since: Instant,
        keys: Vec<Arc<TicketKey>>,
    ) -> Self {
        Self {
            rotation,
            rule: match client_auth {
                None => 0,
                Some(ClientAuthMode::Optional) => 1,
                Some(ClientAuthMode::Required) => 2,
            },
            generation: ArcSwapOption::from_pointee(Generation { since, keys }),
            rolling: Mutex::new(()),
        }
    }

    /// Changes the keys if it is time to, and says when it will be the next time. `None`: never,
    /// since they are retired or come from files.
    pub(crate) fn roll(&self, now: Instant) -> Option<Instant> {
        let rotation = self.rotation?;
        let _one_at_a_time = self.rolling.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.generation.load_full()?;
        let age = now.saturating_duration_since(old.since);
        if age < rotation {
            return Some(old.since + rotation);
        }
        let Ok(new) = TicketKey::generate() else {
            // `in_force` refuses the old ones. No randomness now; there may be some in a moment.
            return Some(now + RETRY);
        };
        let mut keys = vec![new];
        // The old key's second half is over, too, if it was not rolled for so long.
        let late = age >= 2 * rotation;
        let since = if late { now } else { old.since + rotation };
        if !late {
            keys.extend(old.keys.first().cloned());
        }
        self.generation.store(Some(Arc::new(Generation { since, keys })));
        Some(since + rotation)
    }

    /// Takes the keys that the files have now. Those that they have no more are erased.
    pub(crate) fn replace(&self, keys: Vec<Arc<TicketKey>>) {
        let since = Instant::now();
        let _one_at_a_time = self.rolling.lock().unwrap_or_else(PoisonError::into_inner);
        // Retired is for ever.
        if self.generation.load().is_none() {
            return;
        }
        self.generation.store(Some(Arc::new(Generation { since, keys })));
    }

    /// Erases the keys for ever: their listener is gone or has new ones.
    fn retire(&self) {
        let _one_at_a_time = self.rolling.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation.store(None);
    }

    fn encrypt(&self, plain: &[u8], now: Instant) -> Option<Vec<u8>> {
        let generation = self.in_force(now);
        let first = (*generation).as_ref()?.keys.first()?;
        first.encrypt(plain, self.rule)
    }

    fn decrypt(&self, ticket: &[u8], now: Instant) -> Option<Zeroizing<Vec<u8>>> {
        if ticket.len() > LONGEST_TICKET {
            return None;
        }
        let generation = self.in_force(now);
        let keys = &(*generation).as_ref()?.keys;
        let key = keys.iter().find(|key| key.is_named_by(ticket))?;
        key.decrypt(ticket, self.rule)
    }

    /// The keys of this moment, never older ones.
    fn in_force(&self, now: Instant) -> Guard<Option<Arc<Generation>>> {
        let fresh = |generation: &Option<Arc<Generation>>| {
            let since = generation.as_ref().map(|one| one.since);
            let age = since.map(|since| now.saturating_duration_since(since));
            age.zip(self.rotation).is_none_or(|(age, rotation)| age < rotation)
        };
        let generation = self.generation.load();
        if fresh(&generation) {
            return generation;
        }
        drop(generation);
        self.roll(now);
        let generation = self.generation.load();
        if fresh(&generation) {
            return generation;
        }
        Guard::from_inner(None)
    }
}

/// The ticket keys of all listeners. They survive a reload so that clients can still resume.
///
/// Listeners do not share keys of this process: a ticket of one listener is worthless at another
/// one. Keys from files are shared by all that name the files.
#[derive(Debug, Default)]
pub(crate) struct TicketKeys {
    scopes: HashMap<TicketScope, Arc<Keys>>,
    /// Keys that files have now, for keys that were in force before. Taken only if the whole configuration
    /// is.
    pending: Vec<(Arc<Keys>, Vec<Arc<TicketKey>>)>,
}

/// Scope of keys that are shared over time. Authorities and revocation lists do not belong to it, since each
/// resumption is checked with those of its time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TicketScope {
    /// The addresses of the listener, as text.
    pub(crate) listener: String,
    pub(crate) client_auth: Option<ClientAuthMode>,
    /// Time for which a key of this process encrypts. `None`: the keys come from files.
    pub(crate) rotation: Option<Duration>,
}

impl TicketKeys {
    /// The keys of `scope`, out of `before` if it has them. `files`: what is in files now. Empty: the process makes its
    /// own.
    pub(crate) fn get(
        &mut self,
        scope: TicketScope,
        files: &[Arc<TicketKey>],
        before: &Self,
    ) -> Result<Arc<Keys>, NoKey> {
        let keys = match (before.scopes.get(&scope), scope.rotation) {
            (Some(keys), Some(_)) => keys.clone(),
            (Some(keys), None) => {
                self.pending.push((keys.clone(), files.to_vec()));
                keys.clone()
            }
            (None, Some(rotation)) => Arc::new(Keys::new(scope.client_auth, rotation, Instant::now())?),
            (None, None) => Arc::new(Keys::with(scope.client_auth, None, Instant::now(), files.to_vec())),
        };
        self.scopes.insert(scope, keys.clone());
        Ok(keys)
    }

    /// Returns all keys, for [`roll_in_time`].
    pub(crate) fn all(&self) -> Vec<Arc<Keys>> {
        self.scopes.values().cloned().collect()
    }

    /// Takes the place of `before`: takes new keys out of files, and erases the keys that have not
    /// been taken over.
    pub(crate) fn succeed(&mut self, before: Self) {
        for (keys, files) in self.pending.drain(..) {
            keys.replace(files);
        }
        for (scope, keys) in before.scopes {
            let kept = self.scopes.get(&scope).is_some_and(|next| Arc::ptr_eq(next, &keys));
            if !kept {
                keys.retire();
            }
        }
    }
}

/// Rolls all keys when it is time to, used or not. Never ends while there is a sender.
pub(crate) async fn roll_in_time(mut keys: watch::Receiver<Vec<Arc<Keys>>>) {
    loop {
        let now = Instant::now();
        let rolled: Vec<_> = keys.borrow_and_update().iter().map(|keys| keys.roll(now)).collect();
        let next = rolled.into_iter().flatten().min();
        let timer = async {
            match next {
                Some(next) => tokio::time::sleep_until(next.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = keys.changed() => if changed.is_err() { return },
            () = timer => {}
        }
    }
}

/// Clients offer one or two tickets.
const MOST_VERIFIED: u8 = 4;
/// A ticket must fit into 65,535 bytes, and into a ClientHello with everything else in it.
const LONGEST_PLAINTEXT: usize = 32 * 1024;
/// With name, vector, padding and HMAC. A longer one is not looked at.
const LONGEST_TICKET: usize = LONGEST_PLAINTEXT + 256;
/// Clocks of machines that share keys differ. A session lives longer by as much at most.
const CLOCK_SKEW: Duration = Duration::from_secs(90);
const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
