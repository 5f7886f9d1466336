//! A certificate that clients may get, with the OCSP response of the moment.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;

use super::staple::{Response, Staple};

/// A certificate, its key and its staple.
#[derive(Debug)]
pub struct ServedCertificate {
    /// The certificate without a response.
    pub plain: Arc<CertifiedKey>,
    staple: Option<Arc<Staple>>,
    stapled: ArcSwapOption<Stapled>,
}

/// The certificate with the response that a client got last. The first handshake after a response has come
/// makes it anew; nothing has to reach all listeners that have the certificate.
#[derive(Debug)]
struct Stapled {
    response: Arc<Response>,
    certified: Arc<CertifiedKey>,
}

impl ServedCertificate {
    /// Makes it of a certificate and its key. Without a staple, clients get no response.
    pub fn new(plain: CertifiedKey, staple: Option<Arc<Staple>>) -> Self {
        Self {
            plain: Arc::new(plain),
            staple,
            stapled: ArcSwapOption::empty(),
        }
    }

    /// Returns what a client gets at this moment. Without a time it gets no response, which may have expired.
    pub fn certified(&self, clock: &dyn TimeProvider) -> Arc<CertifiedKey> {
        let current = self.staple.as_ref().and_then(|staple| {
            let now = clock.current_time()?;
            staple.current(now)
        });
        let Some(response) = current.as_ref().and_then(|guard| guard.as_ref()) else {
            return self.plain.clone();
        };
        if let Some(stapled) = &*self.stapled.load()
            && Arc::ptr_eq(&stapled.response, response)
        {
            return stapled.certified.clone();
        }
        let mut certified = CertifiedKey::clone(&self.plain);
        certified.ocsp = Some(response.bytes.clone());
        let certified = Arc::new(certified);
        self.stapled.store(Some(Arc::new(Stapled {
            response: response.clone(),
            certified: certified.clone(),
        })));
        certified
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls_pki_types::{PrivateKeyDer, UnixTime};

    use super::*;
    use crate::Staples;
    use crate::specimen::{NOW, Says, Specimen};

    #[derive(Debug)]
    struct Clock(Option<u64>);

    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            self.0.map(at)
        }
    }

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn clients_get_the_newest_good_response_until_it_expires() {
        let specimen = Specimen::new("authority");
        let chain = specimen.chain();
        let key = PrivateKeyDer::try_from(specimen.key.serialize_der()).unwrap();
        let plain = CertifiedKey::from_der(chain.clone(), key, &default_provider()).unwrap();
        let mut staples = Staples::default();
        let staple = staples.get("a.pem", &chain, &Staples::default()).unwrap();
        let certificate = ServedCertificate::new(plain, Some(staple.clone()));
        let shown = |now| certificate.certified(&Clock(Some(now))).ocsp.clone();
        assert_eq!(shown(NOW), None);

        let until = |until, status| {
            specimen.response(&Says {
                until: Some(until),
                status,
                ..specimen.says()
            })
        };
        let first = until(NOW + 100, 0);
        staple.offer(first.clone(), at(NOW)).unwrap();
        assert_eq!(shown(NOW + 99), Some(first.clone()));
        assert_eq!(shown(NOW + 100), None, "it has expired");
        assert_eq!(shown(NOW), Some(first.clone()), "the clock was set back");
        assert_eq!(certificate.certified(&Clock(None)).ocsp, None, "there is no clock");
        let [one, other] = [1, 2].map(|_| certificate.certified(&Clock(Some(NOW))));
        assert!(Arc::ptr_eq(&one, &other), "it is made once");

        // What is not good does not replace what is.
        for bad in [until(NOW - 1, 0), until(NOW + 100, 2), b"garbage".to_vec()] {
            assert!(staple.offer(bad, at(NOW)).is_err());
            assert_eq!(shown(NOW), Some(first.clone()));
            assert!(!staple.is_current());
        }
        // After a reload, the same certificate has the same response.
        let mut next = Staples::default();
        let again = next.get("a.pem", &chain, &staples).unwrap();
        assert!(Arc::ptr_eq(&again, &staple));
        let other = Specimen::new("authority").chain();
        let other = next.get("a.pem", &other, &staples).unwrap();
        assert!(other.last().is_none());

        let revoked = until(NOW + 200, 1);
        staple.offer(revoked.clone(), at(NOW)).unwrap();
        assert!(staple.is_current() && staple.last().unwrap().revoked);
        assert_eq!(shown(NOW + 150), Some(revoked));
    }
}
