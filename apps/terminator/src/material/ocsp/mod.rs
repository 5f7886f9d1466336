//! OCSP stapling: what a certificate's issuer says about it, for clients that ask while they shake hands.

mod check;
mod fetch;
mod message;
mod renewal;
mod staple;
mod store;
mod subject;

pub(crate) use check::{LONGEST, Verdict, check, is_demanded};
pub(crate) use renewal::{Renewable, Renewal};
pub(crate) use staple::{FromFile, Response, Staple, Staples, report_unmet_demand};
pub(crate) use store::Store;
pub(crate) use subject::Subject;

#[cfg(test)]
pub(crate) mod specimen;
#[cfg(test)]
mod tests;
