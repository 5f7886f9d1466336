//! What an operator asks for during a proof, on the page of this process.

use std::process;
use std::time::Duration;

use widelane_status::{Facts, NAME, Page};
use widelane_status_tool::proof::{End, Plan, World, run};
use widelane_status_tool::{Asked, InProof, Living, Server, StatusError, now};
use widelane_threads::{Mapping, Memory};

/// Proves this process, whose switch holds `was`. `during` is called at each wait of the proof, with its number and
/// whether lanes are on; it returns whether the user wants an end. Waits take no time.
fn proved(page: &Page, was: Asked, mut during: impl FnMut(usize, bool) -> bool) -> (usize, End<StatusError>) {
    page.switch().ask(was);
    let server = Server::of(process::id()).unwrap();
    server.can_be_proved().unwrap();
    let mut waits = 0;
    let ended_before = |_| {
        waits += 1;
        during(waits, !page.switch().is_off(now))
    };
    let mut living = Living { server, ended_before };
    let plan = Plan::new(Duration::from_secs(60), 0.5).unwrap();
    let (pairs, end) = run(&mut living, &plan, || true, |_| {});
    (pairs.len(), end)
}

#[test]
fn the_word_of_an_operator_outlives_a_proof() {
    let page = widelane_status::map().unwrap();
    let facts = Facts {
        backend: "avx512ifma".to_owned(),
        ..Facts::default()
    };
    page.begin(process::id(), &facts);
    let words = || page.switch().words();
    let only = |asked: Asked| [asked.to_word(), 0];
    let operator = |asked: Asked| Server::of(process::id()).unwrap().ask(asked).unwrap();
    let is_overruled = |end| matches!(end, End::Failed(StatusError::Overruled { .. }));

    for was in [Asked::On, Asked::Off] {
        let (pairs, end) = proved(page, was, |_, _| false);
        assert!(matches!(end, End::Done), "{end:?}");
        assert_eq!((pairs, words()), (15, only(was)), "as it was before");

        // A signal of the user.
        let (_, end) = proved(page, was, |wait, _| wait == 7);
        assert!(matches!(end, End::Asked), "{end:?}");
        assert_eq!(words(), only(was));

        // An operator's word in any block, also the one from before and the one that the proof has asked for.
        for asked in [Asked::On, Asked::Off] {
            for at in [1, 2, 3, 4, 5, 6, 59, 60] {
                let (pairs, end) = proved(page, was, |wait, _| {
                    if wait == at {
                        operator(asked);
                    }
                    false
                });
                assert!(is_overruled(end), "{asked:?} at {at}");
                assert_eq!((pairs, words()), ((at - 1) / 4, only(asked)));
            }
        }

        // A signal after it.
        let (_, end) = proved(page, was, |wait, is_on| {
            if wait == 2 && !is_on {
                operator(Asked::On);
            }
            wait == 2
        });
        assert!(matches!(end, End::Asked), "{end:?}");
        assert_eq!(words(), only(Asked::On));
    }

    // A page that cannot be read any more: the proof's word goes all the same.
    let memory = Memory::of(process::id()).unwrap().to_write();
    let is_page = |mapping: &&Mapping| {
        let path = mapping.path.as_ref().and_then(|path| path.to_str());
        path.is_some_and(|path| path.starts_with(&format!("/memfd:{NAME} ")))
    };
    let mapping = memory.mappings.iter().find(is_page).unwrap();
    for was in [Asked::On, Asked::Off] {
        for at in [1, 2, 3, 60] {
            let (_, end) = proved(page, was, |wait, _| {
                if wait == at {
                    memory.write(mapping, 0, 0).unwrap();
                }
                false
            });
            assert!(matches!(end, End::Failed(StatusError::NoSwitch { .. })), "{end:?}");
            assert_eq!(words(), only(was), "at {at}");
            page.begin(process::id(), &facts);
            Server::of(process::id()).unwrap().can_be_proved().unwrap();
        }
    }
    page.switch().ask(Asked::On);

    // An operator's word between the last look of a proof and its write, which takes the proof's word back.
    for asked in [Asked::On, Asked::Off] {
        page.switch().ask(Asked::On);
        let mut living = Living {
            server: Server::of(process::id()).unwrap(),
            ended_before: |_| false,
        };
        let in_proof = InProof {
            asked: Asked::On,
            until: now() + Duration::from_secs(300),
        };
        living.ask(in_proof).unwrap();
        let lost = words()[1];
        operator(asked);
        page.switch().set_words([words()[0], lost]);
        let overruled = living.look().is_err();
        assert_eq!(overruled, asked == Asked::Off, "the same word is no other");
        living.restore();
        assert_eq!(words(), only(asked));
    }

    // A daemon that has done nothing has the page of the process that has started it, which has ended. An operator can
    // ask it: what it forks heeds the same page.
    page.begin(u32::MAX, &facts);
    let heir = Server::of(process::id()).unwrap();
    assert_eq!(heir.processes().0, [process::id()]);
    for asked in [Asked::Off, Asked::On] {
        heir.ask(asked).unwrap();
        assert_eq!(words(), only(asked));
    }
    let error = heir.can_be_proved().unwrap_err().to_string();
    assert!(error.contains("has done nothing yet"), "{error}");
    page.begin(process::id(), &facts);

    // Two proofs that have begun at once: the second one ends, and takes nothing from the first.
    page.switch().ask(Asked::On);
    let [mut first, mut second] = [(); 2].map(|()| Living {
        server: Server::of(process::id()).unwrap(),
        ended_before: |_| false,
    });
    let in_proof = |asked| InProof {
        asked,
        until: now() + Duration::from_secs(300),
    };
    first.ask(in_proof(Asked::Off)).unwrap();
    assert!(second.ask(in_proof(Asked::On)).is_err());
    second.restore();
    assert!(page.switch().is_off(now) && first.look().is_ok());
    first.restore();
    assert_eq!(words(), only(Asked::On));
}
