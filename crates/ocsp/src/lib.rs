//! OCSP stapling (RFC 6960, RFC 5019, RFC 6066): what the issuer of a certificate says about it, for clients that ask
//! while they shake hands.
//!
//! A [`Staple`] holds the response about one certificate. Responses come from a file ([`Staples::wait`]), from the disk
//! of an earlier process ([`Store`]) or from the responder ([`Renewal`]). Wherever one comes from, [`check`] refuses it
//! unless the issuer has signed it, it is about this certificate, and it is valid now; what was taken before stays then.
//! A [`ServedCertificate`] gives handshakes the certificate with the response of the moment. Each handshake looks at
//! the clock, so that no client gets a response that has expired, whatever becomes of renewals.
//!
//! [`Staples`] are those of one configuration: the next one takes over what it needs too, so that a reload with a bad
//! file takes nothing away. [`StapleStatus`] says for operators whether a certificate has what it demands.
//!
//! The crate reads no configuration and opens no file but those of its [`Store`]. It logs what an operator has to know:
//! that a certificate is revoked, that a response has expired, that a responder does not answer.

#![forbid(unsafe_code)]

mod check;
mod fetch;
mod message;
mod renewal;
mod served;
mod staple;
mod status;
mod store;
mod subject;
mod words;

#[cfg(test)]
mod specimen;
#[cfg(test)]
mod tests;

pub use check::{LONGEST, Refusal, Verdict, check, is_demanded};
pub use fetch::is_responder;
pub use renewal::{Renewable, Renewal, RenewalWork};
pub use served::ServedCertificate;
pub use staple::{FromFile, Response, Staple, Staples};
pub use status::{Demand, StapleStatus};
pub use store::Store;
pub use subject::{NoIssuer, Subject};
pub use words::words;
