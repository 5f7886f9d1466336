//! State of stapling, for operators.

use std::sync::Arc;

use rustls_pki_types::UnixTime;

use super::staple::Staple;

/// A certificate for which OCSP responses are wanted.
#[derive(Clone, Debug)]
pub struct StapleStatus {
    /// The certificate's file.
    pub file: String,
    /// The certificate demands one (must-staple).
    pub must: bool,
    /// A responder is asked for it.
    pub fetched: bool,
    /// `None`: the configuration wants none, or it is not possible.
    pub staple: Option<Arc<Staple>>,
}

/// State of the response that a certificate demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// There is one, or none is demanded.
    Met,
    /// There is none, because its responder has not answered for the first time.
    Awaited,
    /// There is none.
    Unmet,
}

impl StapleStatus {
    /// Returns whether clients get a response now.
    pub fn is_stapled(&self, now: UnixTime) -> bool {
        let staple = self.staple.as_ref();
        staple.is_some_and(|staple| staple.current(now).is_some())
    }

    /// Returns whether it has the response that it demands.
    pub fn demand(&self, now: UnixTime) -> Demand {
        let asked = self.staple.as_ref().map(|staple| staple.fetches());
        match self.must && !self.is_stapled(now) {
            false => Demand::Met,
            true if self.fetched && asked == Some([0, 0]) => Demand::Awaited,
            true => Demand::Unmet,
        }
    }

    /// Logs that the certificate demands a response and there is none, if so.
    pub fn log_unmet_demand(&self, now: UnixTime) {
        match self.demand(now) {
            Demand::Met => {}
            Demand::Awaited => tracing::info!(
                certificate = self.file,
                "the certificate demands a stapled OCSP response (must-staple); clients get none until \
                 its responder has answered"
            ),
            Demand::Unmet => report_unmet_demand(&self.file),
        }
    }
}

/// Says that a certificate, by its file, is served without the response that it demands.
pub(crate) fn report_unmet_demand(certificate: &str) {
    tracing::error!(
        certificate,
        "THE CERTIFICATE DEMANDS A STAPLED OCSP RESPONSE (must-staple), and there is none: Firefox and \
         others refuse it. Set `ocsp`, or see what is logged about it"
    );
}
