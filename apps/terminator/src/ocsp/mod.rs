//! OCSP stapling: what a certificate's issuer says about it, for clients that ask while they shake hands.

mod check;
mod message;
mod staple;
mod subject;

pub(crate) use check::{LONGEST, Verdict, is_demanded};
pub(crate) use staple::{FromFile, Response, Staple, Staples};

#[cfg(test)]
pub(crate) mod specimen;
#[cfg(test)]
mod tests;
