//! OCSP stapling: what a certificate's issuer says about it, for clients that ask while they shake hands.

mod check;
mod message;
mod subject;

#[cfg(test)]
pub(crate) mod specimen;
#[cfg(test)]
mod tests;
