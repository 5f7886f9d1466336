//! OCSP responses of the certificates of a configuration, and their sources.

use rustls_pki_types::UnixTime;
use widelane_ocsp::{FromFile, Renewable, StapleStatus, Staples, Store};

use crate::config::{Certificate, Document, OcspSource};
use crate::material::files::Pair;
use crate::privileges::Account;

/// The directory of fetched OCSP responses.
pub(crate) fn store(document: &Document) -> Option<Store> {
    let directory = &document.environment.ocsp_directory;
    directory.clone().map(Store::new)
}

/// Makes the place where they are kept, for the account that this process will have.
pub(crate) fn prepare(document: &Document, account: Option<&Account>) {
    let listeners = document.config().listeners.iter();
    let mut certificates = listeners.flat_map(|listener| &listener.certificates);
    let is_fetched = |one: &Certificate| matches!(one.ocsp, Some(OcspSource::Fetch | OcspSource::Responder(_)));
    if certificates.any(is_fetched)
        && let Some(store) = store(document)
    {
        let owner = account.map(|account| (account.uid.as_raw(), account.gid.as_raw()));
        if let Err(error) = store.prepare(owner) {
            tracing::warn!(%error, "OCSP responses are not kept for the next start");
        }
    }
}

/// Finds the staple of a certificate, and says what is wrong if it can have none.
pub(crate) fn find(
    pair: &mut Pair,
    store: Option<&Store>,
    before: &Staples,
    next: &mut Staples,
) -> Option<StapleStatus> {
    let files = &pair.files;
    let file = files.cert.display().to_string();
    let must = pair.identity.facts.must_staple;
    if files.ocsp.is_none() && !must {
        return None;
    }
    let mut fetched = false;
    if files.ocsp.is_some() {
        match next.get(&file, &pair.identity.chain, before) {
            Ok(staple) => pair.staple = Some(staple),
            Err(error) => tracing::warn!(
                certificate = file,
                "clients get no OCSP response: {error}; append it behind the server's own"
            ),
        }
    }
    if let (Some(source), Some(staple)) = (&files.ocsp, &pair.staple) {
        let responder = match source {
            OcspSource::File(_) => None,
            OcspSource::Responder(address) => Some(address.clone()),
            OcspSource::Fetch => pair.identity.facts.responder.clone(),
        };
        if *source == OcspSource::Fetch && responder.is_none() {
            tracing::warn!(
                certificate = file,
                "clients get no OCSP response: the certificate names no responder that can be asked \
                 over HTTP; name one (ocsp = \"http://…\"), or remove `ocsp`"
            );
        }
        if let Some((path, read)) = pair.ocsp.take() {
            let read = read.map_err(|fault| fault.problem);
            next.wait(staple.clone(), FromFile { path, read });
        } else if let Some(store) = store
            && staple.last().is_none()
            && let Some(kept) = store.read(staple.fingerprint())
        {
            staple.offer_kept(kept, UnixTime::now());
        }
        fetched = responder.is_some();
        next.want(Renewable {
            staple: staple.clone(),
            responder,
            must_staple: must,
        });
    }
    Some(StapleStatus {
        file,
        must,
        fetched,
        staple: pair.staple.clone(),
    })
}
