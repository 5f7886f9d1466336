//! The cipher suites of a listener: the provider's, with what rustls' own server does not do.
//!
//! - Ticket nonces are short ([`short_nonces`](crate::front::short_nonces)).
//! - The transcript has what the client has sent, also where rustls gets something else
//!   ([`transcript`](crate::front::transcript)).

use std::collections::HashMap;
use std::ptr;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustls::crypto::CipherSuiteCommon;
use rustls::{SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};

use crate::front::{short_nonces, transcript};

/// The suite for a server's configuration.
pub(crate) fn for_server(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    // rustls keeps suites for ever (`&'static`), and each reload asks for them again.
    static MADE: LazyLock<Mutex<HashMap<usize, SupportedCipherSuite>>> = LazyLock::new(Mutex::default);
    let place = match suite {
        SupportedCipherSuite::Tls12(suite) => ptr::from_ref(suite).addr(),
        SupportedCipherSuite::Tls13(suite) => ptr::from_ref(suite).addr(),
    };
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    *made.entry(place).or_insert_with(|| make(suite))
}

fn make(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let common = |theirs: &CipherSuiteCommon| CipherSuiteCommon {
        suite: theirs.suite,
        hash_provider: leaked(transcript::Restoring(theirs.hash_provider)),
        confidentiality_limit: theirs.confidentiality_limit,
    };
    match suite {
        SupportedCipherSuite::Tls13(suite) => SupportedCipherSuite::Tls13(leaked(Tls13CipherSuite {
            common: common(&suite.common),
            hkdf_provider: leaked(short_nonces::Schedule(suite.hkdf_provider)),
            aead_alg: leaked(short_nonces::Protection(suite.aead_alg)),
            quic: suite.quic,
        })),
        SupportedCipherSuite::Tls12(suite) => SupportedCipherSuite::Tls12(leaked(Tls12CipherSuite {
            common: common(&suite.common),
            prf_provider: suite.prf_provider,
            kx: suite.kx,
            sign: suite.sign,
            aead_alg: suite.aead_alg,
        })),
    }
}

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;

    use super::*;

    #[test]
    fn a_suite_is_made_once() {
        for suite in ALL_CIPHER_SUITES {
            let place = |suite: SupportedCipherSuite| match suite {
                SupportedCipherSuite::Tls12(suite) => ptr::from_ref(suite).addr(),
                SupportedCipherSuite::Tls13(suite) => ptr::from_ref(suite).addr(),
            };
            let ours = for_server(*suite);
            assert_eq!(ours.suite(), suite.suite());
            assert_ne!(place(ours), place(*suite));
            assert_eq!(place(for_server(*suite)), place(ours));
        }
    }
}
