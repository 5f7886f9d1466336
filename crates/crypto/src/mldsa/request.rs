//! Requests for signatures, and their answers one by one.

use super::key::PrivateKey;
use crate::sign::{Error, Outcome, Whole};

/// One signature to be made, with an empty context.
///
/// Signatures are hedged: answering the same request twice gives two different ones.
pub(crate) type SignRequest = Whole<PrivateKey>;

impl SignRequest {
    /// Signs through aws-lc-rs.
    pub(crate) fn alone(&self) -> Outcome {
        let mut signature = vec![0; self.key.size().signature_len()];
        match self.key.aws_lc().sign(&self.message, &mut signature) {
            Ok(_) => Ok(signature),
            Err(_) => Err(Error::AwsLc),
        }
    }
}
