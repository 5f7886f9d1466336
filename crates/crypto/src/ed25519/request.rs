//! Requests for signatures, and their answers one by one, from aws-lc-rs.

use super::PrivateKey;
use crate::sign::{Error, Outcome, Whole};

/// Sign a message.
pub(crate) type SignRequest = Whole<PrivateKey>;

impl SignRequest {
    /// Signs through aws-lc-rs.
    pub(crate) fn alone(&self) -> Outcome {
        let signature = self.key.aws_lc().try_sign(&self.message);
        let signature = signature.map_err(|_| Error::AwsLc)?;
        Ok(signature.as_ref().to_vec())
    }
}
