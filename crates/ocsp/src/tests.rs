//! Which responses are refused, and why.

use std::time::Duration;

use der::Encode;
use rcgen::{ExtendedKeyUsagePurpose, KeyPair};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::check::{LONGEST, Refusal, Verdict, check, is_demanded};
use super::message::{Response, Status};
use super::specimen::{NOW, Says, Specimen};
use super::staple::Staples;
use super::status::{Demand, StapleStatus};
use super::subject::{NoIssuer, Subject};

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn verdict(specimen: &Specimen, says: &Says<'_>) -> Result<Verdict, Refusal> {
    check(&specimen.subject, &specimen.response(says), at(NOW))
}

#[test]
fn good_and_revoked_are_taken_and_unknown_is_not() {
    let specimen = Specimen::new("authority");
    let mut says = specimen.says();
    let expected = Verdict {
        this_update: NOW - 86_400,
        next_update: NOW + 6 * 86_400,
        revoked: false,
    };
    assert_eq!(verdict(&specimen, &says), Ok(expected));
    says.by_key = true;
    assert_eq!(verdict(&specimen, &says), Ok(expected));
    says.status = 1;
    let revoked = Verdict {
        revoked: true,
        ..expected
    };
    assert_eq!(verdict(&specimen, &says), Ok(revoked));
    for unknown in [2, 3] {
        says.status = unknown;
        assert_eq!(verdict(&specimen, &says), Err(Refusal::Unknown));
    }
}

#[test]
fn a_response_is_good_from_its_first_second_to_the_one_before_its_last() {
    let specimen = Specimen::new("authority");
    let mut says = specimen.says();
    for (from, until, expected) in [
        (NOW, Some(NOW + 1), None),
        (NOW, Some(NOW), Some(Refusal::Expired)),
        (NOW - 9, Some(NOW - 1), Some(Refusal::Expired)),
        (NOW + 300, Some(NOW + 301), None),
        (NOW + 301, Some(NOW + 400), Some(Refusal::Early)),
        (NOW + 200, Some(NOW + 100), Some(Refusal::Expired)),
        (NOW, None, Some(Refusal::Endless)),
    ] {
        (says.from, says.until) = (from, until);
        assert_eq!(verdict(&specimen, &says).err(), expected, "{from} {until:?}");
    }
}

#[test]
fn only_the_issuer_and_those_it_has_authorised_may_sign() {
    let specimen = Specimen::new("authority");
    let signer = KeyPair::generate().unwrap();
    let delegated = |usage, until| {
        let certificate = specimen.delegate(&signer, usage, until);
        Says {
            signer: &signer,
            responder: certificate.clone(),
            certificates: vec![specimen.leaf.clone(), certificate],
            ..specimen.says()
        }
    };
    let mut says = delegated(ExtendedKeyUsagePurpose::OcspSigning, NOW + 1);
    assert_eq!(verdict(&specimen, &says).map(drop), Ok(()));
    says.by_key = true;
    assert_eq!(verdict(&specimen, &says).map(drop), Ok(()));
    says.certificates.pop();
    assert_eq!(verdict(&specimen, &says), Err(Refusal::Unsigned));

    let unauthorised = |says: &Says<'_>| match verdict(&specimen, says) {
        Err(Refusal::Unauthorised(_)) => {}
        other => panic!("{other:?}"),
    };
    unauthorised(&delegated(ExtendedKeyUsagePurpose::ServerAuth, NOW + 1));
    unauthorised(&delegated(ExtendedKeyUsagePurpose::OcspSigning, NOW - 1));
    // By another authority of the same name.
    let other = Specimen::new("authority");
    let usage = ExtendedKeyUsagePurpose::OcspSigning;
    let certificate = other.delegate(&signer, usage, NOW + 1);
    let says = Says {
        signer: &signer,
        responder: certificate.clone(),
        certificates: vec![certificate],
        ..specimen.says()
    };
    unauthorised(&says);
    // Another key, under the name of the issuer.
    let says = Says {
        signer: &signer,
        ..specimen.says()
    };
    assert_eq!(verdict(&specimen, &says), Err(Refusal::Signature));
    // The certificate itself, whose key the server has.
    let says = Says {
        signer: &specimen.key,
        responder: specimen.leaf.clone(),
        certificates: vec![specimen.leaf.clone()],
        ..specimen.says()
    };
    unauthorised(&says);
}

#[test]
fn answers_about_others_or_several_or_with_unknown_demands_are_refused() {
    let specimen = Specimen::new("authority");
    for other in [Specimen::new("authority"), Specimen::new("another")] {
        let response = other.response(&other.says());
        let refused = check(&specimen.subject, &response, at(NOW));
        assert_eq!(refused, Err(Refusal::OtherCertificate));
    }
    for (answers, critical, expected) in [
        (0, false, Refusal::OtherCertificate),
        (2, false, Refusal::Several),
        (1, true, Refusal::CriticalExtension),
    ] {
        let says = Says {
            answers,
            critical,
            ..specimen.says()
        };
        assert_eq!(verdict(&specimen, &says), Err(expected));
    }
}

#[test]
fn what_was_good_before_a_revocation_does_not_come_back() {
    let specimen = Specimen::new("authority");
    // Signed by a delegate that ends with the response.
    let signer = KeyPair::generate().unwrap();
    let delegate = specimen.delegate(&signer, ExtendedKeyUsagePurpose::OcspSigning, NOW + 100);
    let revoked = specimen.response(&Says {
        status: 1,
        from: NOW,
        until: Some(NOW + 100),
        signer: &signer,
        responder: delegate.clone(),
        certificates: vec![delegate],
        ..specimen.says()
    });
    let good = |from| {
        specimen.response(&Says {
            from,
            ..specimen.says()
        })
    };
    let staple = || {
        let none = Staples::default();
        let staple = Staples::default().get("a.pem", &specimen.chain(), &none);
        staple.unwrap()
    };
    let [running, restarted, late] = [(); 3].map(|()| staple());
    running.offer_fetched(revoked.clone(), at(NOW)).unwrap();
    // As long as the newer one is valid, an older one is no failure, and changes nothing.
    let older = running.offer_fetched(good(NOW - 1), at(NOW + 1)).unwrap();
    assert!(!older.is_new && older.response.verdict.revoked);
    restarted.offer_kept(revoked.clone(), at(NOW + 1));
    late.offer_kept(revoked, at(NOW + 101));
    assert!(late.last().is_none());
    for staple in [running, restarted, late] {
        let older = staple.offer_fetched(good(NOW - 1), at(NOW + 101));
        assert_eq!(older.err(), Some(Refusal::Older));
        assert!(staple.current(at(NOW + 101)).is_none());
        let newer = staple.offer_fetched(good(NOW + 1), at(NOW + 101));
        assert!(newer.unwrap().is_new);
    }
    // What is kept without a signature that holds keeps back nothing.
    let fresh = staple();
    let other = Specimen::new("authority");
    fresh.offer_kept(other.response(&other.says()), at(NOW));
    let mut damaged = good(NOW);
    *damaged.last_mut().unwrap() ^= 1;
    fresh.offer_kept(damaged, at(NOW));
    assert!(fresh.offer_fetched(good(NOW - 1), at(NOW)).is_ok());
}

#[test]
fn what_is_damaged_is_refused_at_every_byte() {
    let specimen = Specimen::new("authority");
    let response = specimen.response(&specimen.says());
    let check = |bytes: &[u8]| check(&specimen.subject, bytes, at(NOW));
    assert!(check(&response).is_ok());
    for place in 0..response.len() {
        let mut damaged = response.clone();
        damaged[place] ^= 1;
        assert!(check(&damaged).is_err(), "byte {place}");
        assert!(check(&response[..place]).is_err(), "the first {place}");
    }
    let mut longer = response.clone();
    longer.push(0);
    assert!(matches!(check(&longer), Err(Refusal::Malformed(_))));
    longer.resize(LONGEST + 1, 0);
    assert_eq!(check(&longer), Err(Refusal::TooLong));
}

#[test]
fn what_is_not_signed_is_certificates_and_not_many() {
    let specimen = Specimen::new("authority");
    let with = |certificates: Vec<CertificateDer<'static>>| {
        let says = Says {
            certificates,
            ..specimen.says()
        };
        verdict(&specimen, &says).map(drop)
    };
    let leaf = specimen.leaf.clone();
    assert_eq!(with(vec![leaf.clone(); 8]), Ok(()));
    assert_eq!(with(vec![leaf.clone(); 9]), Err(Refusal::Certificates));
    let nothing = CertificateDer::from(b"\x30\x00".to_vec());
    assert_eq!(with(vec![leaf, nothing]), Err(Refusal::Certificates));
}

#[test]
fn errors_of_responders_are_named() {
    let specimen = Specimen::new("authority");
    for status in [Status::TryLater, Status::Unauthorized] {
        let response = Response { status, content: None };
        let refused = check(&specimen.subject, &response.to_der().unwrap(), at(NOW));
        assert_eq!(refused, Err(Refusal::Unsuccessful(status.told())));
    }
    let text = b"-----BEGIN OCSP RESPONSE-----\nMAMKAQE=\n-----END OCSP RESPONSE-----\n";
    let refused = check(&specimen.subject, text, at(NOW)).unwrap_err();
    assert!(refused.to_string().contains("not DER"), "{refused}");
    let nothing = Response {
        status: Status::Successful,
        content: None,
    };
    let refused = check(&specimen.subject, &nothing.to_der().unwrap(), at(NOW));
    assert_eq!(refused, Err(Refusal::UnknownKind));
}

#[test]
fn a_demand_is_awaited_until_the_responder_was_asked_once() {
    let specimen = Specimen::new("authority");
    let none = Staples::default();
    let staple = Staples::default().get("a.pem", &specimen.chain(), &none);
    let staple = staple.unwrap();
    let demand = |must, fetched| {
        let note = StapleStatus {
            file: "a.pem".into(),
            must,
            fetched,
            staple: Some(staple.clone()),
        };
        note.demand(at(NOW))
    };
    assert_eq!(demand(true, true), Demand::Awaited);
    assert_eq!(demand(true, false), Demand::Unmet, "from a file");
    assert_eq!(demand(false, true), Demand::Met);
    staple.fetch_failed();
    assert_eq!(demand(true, true), Demand::Unmet);
    let response = specimen.response(&specimen.says());
    staple.offer_fetched(response, at(NOW)).unwrap();
    assert_eq!(demand(true, true), Demand::Met);
}

#[test]
fn the_issuer_must_be_in_the_chain() {
    let specimen = Specimen::new("authority");
    let stranger = Specimen::new("another");
    let without = vec![specimen.leaf.clone()];
    assert_eq!(Subject::of(&without).err(), Some(NoIssuer));
    let mut other = without.clone();
    other.push(stranger.authority.der().clone());
    assert_eq!(Subject::of(&other).err(), Some(NoIssuer));
    other.push(specimen.authority.der().clone());
    assert!(Subject::of(&other).is_ok(), "in whatever order");
    assert_eq!(Subject::of(&[]).err(), Some(NoIssuer));
}

#[test]
fn a_certificate_demands_a_response_by_the_number_of_the_extension() {
    for (features, expected) in [
        (&b"\x30\x03\x02\x01\x05"[..], true),
        (b"\x30\x06\x02\x01\x11\x02\x01\x05", true),
        (b"\x30\x03\x02\x01\x11", false),
        (b"\x30\x03\x02\x01\x05\x00", false),
        (b"\x30\x00", false),
        (b"", false),
    ] {
        assert_eq!(is_demanded(features), expected, "{features:02x?}");
    }
}
