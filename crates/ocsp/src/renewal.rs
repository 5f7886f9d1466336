//! Renews responses before they expire, beside the workers: no handshake ever waits for a responder.
//!
//! A response is asked for again when about half of its life is over, and after a failure less and less
//! often. Chance moves each moment a little, so that the machines of a fleet do not all ask at once.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls_pki_types::UnixTime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::check::Verdict;
use super::fetch::{Failure, Fetch};
use super::staple::{Offered, Response, Staple};
use super::status::report_unmet_demand;
use super::store::Store;

/// A staple whose response is to be renewed, or only watched.
#[derive(Clone, Debug)]
pub struct Renewable {
    /// Where the response goes.
    pub staple: Arc<Staple>,
    /// The responder that is asked. `None`: the response comes from a file.
    pub responder: Option<String>,
    /// Whether the certificate demands a response.
    pub must_staple: bool,
}

/// Orders for the work that renews, if there has been something for it to do. The work ends when this is dropped; what it
/// asks for at that moment takes some seconds more, and changes nothing.
#[derive(Debug, Default)]
pub struct Renewal(Option<UnboundedSender<Vec<Renewable>>>);

/// The work that renews, to be run on a runtime of tokio with timers. It never blocks its thread.
#[derive(Debug)]
pub struct RenewalWork {
    orders: UnboundedReceiver<Vec<Renewable>>,
    store: Option<Store>,
    /// The last order, until it is carried out.
    wanted: Option<Vec<Renewable>>,
    plans: Vec<Plan>,
}

impl Renewal {
    /// Takes care of these from now on, and of no others. Returns the work if there is some and none runs, also because
    /// it was dropped.
    #[must_use]
    pub fn follow(&mut self, wanted: Vec<Renewable>, store: Option<&Store>) -> Option<RenewalWork> {
        let wanted = match &self.0 {
            None => wanted,
            Some(orders) => orders.send(wanted).err()?.0,
        };
        if wanted.is_empty() {
            return None;
        }
        let (send, orders) = unbounded_channel();
        let _ = send.send(wanted);
        self.0 = Some(send);
        Some(RenewalWork {
            orders,
            store: store.cloned(),
            wanted: None,
            plans: Vec::new(),
        })
    }
}

impl RenewalWork {
    /// Renews, until [`Renewal`] is dropped. Where a call has ended early, as by a panic, another one goes on.
    pub async fn run(&mut self) {
        if let Some(store) = self.store.clone() {
            let _ = apart(move || store.clean()).await;
        }
        let fetch = Arc::new(Fetch::new());
        let ask = async |responder: String, request: Vec<u8>| {
            let fetch = fetch.clone();
            let answer = apart(move || fetch.ask(&responder, &request)).await;
            answer.unwrap_or_else(|error| Err(Failure::Silent(format!("it cannot be asked: {error}"))))
        };
        if self.wanted.is_some() {
            // The last call has panicked over this order, and so may this one: what is planned has its turn before.
            round(&mut self.plans, self.store.as_ref(), UnixTime::now, &ask, chance).await;
        }
        loop {
            let now = UnixTime::now().as_secs();
            let due = match &self.wanted {
                Some(_) => Some(now),
                None => self.plans.iter().map(|plan| plan.due).min(),
            };
            let wait = due.map_or(LOOK, |due| due.saturating_sub(now)).min(LOOK);
            match timeout(Duration::from_secs(wait), self.orders.recv()).await {
                Ok(Some(wanted)) => self.wanted = Some(wanted),
                Err(_) => {}
                Ok(None) => return,
            }
            self.carry_out(UnixTime::now(), chance);
            round(&mut self.plans, self.store.as_ref(), UnixTime::now, &ask, chance).await;
        }
    }

    /// Carries the last order out, which stays if that panics.
    fn carry_out(&mut self, now: UnixTime, chance: fn() -> f64) {
        if let Some(wanted) = &self.wanted {
            follow(&mut self.plans, wanted, now, chance);
            self.wanted = None;
        }
    }
}

/// Does something on a thread of its own: a responder is waited for, and a disk. The end of this process does not wait for
/// the thread.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (send, done) = oneshot::channel();
    let thread = thread::Builder::new().name("widelane-ocsp".into());
    thread.spawn(move || drop(send.send(work())))?;
    done.await.map_err(|_| io::Error::other("the thread for it has failed"))
}

/// When a response is asked for, and what was said about it.
#[derive(Debug)]
struct Plan {
    wanted: Renewable,
    /// In seconds since 1970.
    due: u64,
    failures: u32,
    has_expired: bool,
}

/// Makes these the plans for what is wanted: adds new ones, and drops those for what is not wanted any more. Changes
/// nothing if it panics.
fn follow(plans: &mut Vec<Plan>, wanted: &[Renewable], now: UnixTime, chance: fn() -> f64) {
    let mut lacking: HashMap<_, _> = wanted.iter().map(|wanted| (wanted.key(), wanted)).collect();
    let is_wanted: Vec<bool> = plans
        .iter()
        .map(|plan| lacking.remove(&plan.wanted.key()).is_some())
        .collect();
    // In the order of the configuration.
    let lacking = wanted.iter().filter(|wanted| lacking.remove(&wanted.key()).is_some());
    let new: Vec<_> = lacking.map(|wanted| Plan::new(wanted.clone(), now, chance)).collect();
    let mut is_wanted = is_wanted.into_iter();
    plans.retain(|_| is_wanted.next().unwrap_or_default());
    plans.extend(new);
}

/// Asks for all that is due, and says what has expired.
async fn round(
    plans: &mut [Plan],
    store: Option<&Store>,
    clock: impl Fn() -> UnixTime,
    ask: &impl AsyncFn(String, Vec<u8>) -> Result<Vec<u8>, Failure>,
    chance: fn() -> f64,
) {
    // A responder that does not answer is asked once, and does not keep the others waiting. One that answers
    // with an error is asked for each certificate: the error may be about one of them.
    let mut silent = HashSet::new();
    for plan in plans {
        if let Some(responder) = plan.wanted.responder.clone()
            && plan.is_due(clock())
        {
            // Until there is an answer: a panic on the way to it counts as a failure, and others have their turn.
            plan.fail(clock(), chance);
            let answer = match silent.contains(&responder) {
                true => Err(Failure::Silent("it has just not answered another question".to_owned())),
                false => match plan.wanted.staple.request() {
                    Ok(request) => ask(responder.clone(), request).await,
                    Err(error) => Err(Failure::Answered(error.to_string())),
                },
            };
            let is_silent = matches!(answer, Err(Failure::Silent(_)));
            if let Some(new) = plan.take(answer.map_err(Failure::problem), clock(), chance) {
                keep(&plan.wanted.staple, store, new).await;
            }
            if is_silent {
                silent.insert(responder);
            }
        }
        plan.watch(clock());
    }
}

impl Renewable {
    /// What makes it the same as another one: from one configuration to the next, its plan stays.
    fn key(&self) -> (*const Staple, Option<&str>) {
        (Arc::as_ptr(&self.staple), self.responder.as_deref())
    }
}

impl Plan {
    fn new(wanted: Renewable, now: UnixTime, chance: fn() -> f64) -> Self {
        // Also what was kept on disk is renewed at its time.
        let current = wanted.staple.current(now).is_some();
        let last = wanted.staple.last().filter(|_| current);
        Self {
            due: match &wanted.responder {
                None => u64::MAX,
                Some(_) => last.map_or(0, |last| half(&last, chance())),
            },
            wanted,
            failures: 0,
            has_expired: false,
        }
    }

    fn is_due(&self, now: UnixTime) -> bool {
        // Nothing is put off so far, unless the clock was wrong and has been set back.
        let never_so_late = now.as_secs() + 2 * LONGEST_WAIT;
        let lacks = self.wanted.staple.current(now).is_none();
        self.due <= now.as_secs() || (self.due > never_so_late && lacks)
    }

    /// Counts a failure, and puts the next question off.
    fn fail(&mut self, now: UnixTime, chance: fn() -> f64) {
        self.failures = self.failures.saturating_add(1);
        self.due = now.as_secs() + wait_after(self.failures, chance());
    }

    /// Takes the answer to a question that has counted as a failure so far, and plans the next question. Returns a
    /// response that is new.
    fn take(&mut self, answer: Result<Vec<u8>, String>, now: UnixTime, chance: fn() -> f64) -> Option<Arc<Response>> {
        let staple = &self.wanted.staple;
        let (certificate, responder) = (staple.file(), self.wanted.responder.as_deref());
        let taken = answer.and_then(|answer| {
            let offered = staple.offer_fetched(answer, now);
            offered.map_err(|refusal| format!("its answer is not taken: {refusal}"))
        });
        match taken {
            Ok(Offered { response, is_new }) => {
                if is_new {
                    tracing::info!(certificate, responder, "has a new OCSP response");
                }
                self.failures = 0;
                self.due = next(&response.verdict, now, chance());
                is_new.then_some(response)
            }
            Err(problem) => {
                staple.fetch_failed();
                self.due = now.as_secs() + wait_after(self.failures, chance());
                // The first time. What it may lead to is said when the response expires.
                if self.failures == 1 {
                    tracing::warn!(
                        certificate,
                        responder,
                        "no new OCSP response, and trying again: {problem}"
                    );
                    // At the start, no responder had been asked yet.
                    if self.wanted.must_staple && staple.current(now).is_none() {
                        report_unmet_demand(certificate);
                    }
                } else {
                    tracing::debug!(certificate, responder, "no new OCSP response: {problem}");
                }
                None
            }
        }
    }

    /// Says once that a response has expired.
    fn watch(&mut self, now: UnixTime) {
        let staple = &self.wanted.staple;
        let has_expired = staple.last().is_some() && staple.current(now).is_none();
        if has_expired && !self.has_expired {
            tracing::error!(
                certificate = staple.file(),
                "the OCSP response has expired; clients get none until there is a new one"
            );
        }
        self.has_expired = has_expired;
    }
}

async fn keep(staple: &Staple, store: Option<&Store>, response: Arc<Response>) {
    let Some(store) = store.cloned() else {
        return;
    };
    let fingerprint = staple.fingerprint().to_owned();
    let kept = apart(move || store.keep(&fingerprint, &response.bytes)).await;
    if let Err(error) = kept.and_then(|kept| kept) {
        let certificate = staple.file();
        tracing::warn!(certificate, %error, "the OCSP response is not kept for the next start");
    }
}

/// When half of a response's life is over, or a tenth more.
fn half(verdict: &Verdict, chance: f64) -> u64 {
    let life = verdict.next_update.saturating_sub(verdict.this_update);
    verdict.this_update + (life as f64 * (0.5 + chance / 10.0)) as u64
}

/// When to ask again after a good answer. Responders give out one response for a while: it may be old
/// already, and the next one may not be made yet.
fn next(verdict: &Verdict, now: UnixTime, chance: f64) -> u64 {
    let now = now.as_secs();
    let left = verdict.next_update.saturating_sub(now);
    let wait = (left / 4).clamp(LEAST_WAIT, LONGEST_WAIT);
    // Never only when it has expired, however short its life is.
    half(verdict, chance).max(now + wait.min((left / 2).max(SHORTEST_WAIT)))
}

/// How long to wait after so many failures.
fn wait_after(failures: u32, chance: f64) -> u64 {
    let doubled = LEAST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(10));
    (doubled.min(LONGEST_WAIT) as f64 * (0.75 + chance / 2.0)) as u64
}

/// From 0 to 1, another one each time.
fn chance() -> f64 {
    f64::from(RandomState::new().hash_one(0) as u32) / f64::from(u32::MAX)
}

/// In seconds, as all times here.
const SHORTEST_WAIT: u64 = 5;
const LEAST_WAIT: u64 = 60;
const LONGEST_WAIT: u64 = 3600;
/// How often clocks that were set and responses that have expired are noticed.
const LOOK: u64 = 30;

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::slice;

    use super::*;
    use crate::Staples;
    use crate::specimen::{NOW, Says, Specimen};

    const DAY: u64 = 86_400;

    type Answering<'a> = &'a mut dyn FnMut(&str, &[u8]) -> Result<Vec<u8>, Failure>;

    /// A round in which `ask` answers at once.
    fn round(
        plans: &mut [Plan],
        store: Option<&Store>,
        clock: impl Fn() -> UnixTime,
        ask: Answering<'_>,
        chance: fn() -> f64,
    ) {
        let ask = RefCell::new(ask);
        let ask = async |responder: String, request: Vec<u8>| ask.borrow_mut()(&responder, &request);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(super::round(plans, store, clock, &ask, chance));
    }

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    fn wanted(specimen: &Specimen, responder: Option<&str>) -> Renewable {
        let chain = specimen.chain();
        let file = "a.pem";
        Renewable {
            staple: Staples::default().get(file, &chain, &Staples::default()).unwrap(),
            responder: responder.map(str::to_owned),
            must_staple: false,
        }
    }

    fn never() -> f64 {
        0.0
    }

    fn planned(wanted: &[Renewable], now: u64) -> Vec<Plan> {
        let mut plans = Vec::new();
        follow(&mut plans, wanted, at(now), never);
        plans
    }

    #[test]
    fn responses_are_renewed_at_half_of_their_life_and_kept_when_that_fails() {
        let specimen = Specimen::new("authority");
        let root = tempfile::TempDir::new().unwrap();
        let store = Store::new(root.path().join("ocsp"));
        store.prepare(None).unwrap();
        let wanted = wanted(&specimen, Some("http://a"));
        let staple = wanted.staple.clone();
        let response = |from: u64, status| {
            specimen.response(&Says {
                from,
                until: Some(from + 6 * DAY),
                status,
                ..specimen.says()
            })
        };
        let now = Cell::new(NOW);
        let mut plans = planned(&[wanted], NOW);
        let mut turn = |seconds: u64, answer: Result<Vec<u8>, Failure>| {
            now.set(seconds);
            let mut asked = 0;
            let mut ask = |responder: &str, request: &[u8]| {
                assert_eq!(responder, "http://a");
                assert!(!request.is_empty());
                asked += 1;
                answer.clone()
            };
            round(&mut plans, Some(&store), || at(now.get()), &mut ask, never);
            (asked, plans[0].due)
        };
        let silence = || Err(Failure::Silent("silence".to_owned()));
        assert_eq!(turn(NOW, silence()), (1, NOW + 45));
        assert_eq!(turn(NOW + 44, silence()), (0, NOW + 45));
        assert_eq!(turn(NOW + 45, silence()), (1, NOW + 45 + 90));
        let first = response(NOW, 0);
        let half = NOW + 3 * DAY;
        assert_eq!(turn(NOW + 200, Ok(first.clone())), (1, half));
        assert_eq!(store.read(staple.fingerprint()), Some(first.clone()));
        assert!(staple.is_current());
        // The same one once more, then an older one, an unknown one and silence: the first stays.
        assert_eq!(turn(half, Ok(first.clone())), (1, half + 3600));
        assert!(staple.is_current());
        let (asked, mut due) = turn(half + 3600, Ok(response(NOW - DAY, 0)));
        assert_eq!((asked, staple.is_current()), (1, true));
        for bad in [Ok(response(half, 2)), Ok(b"<html>".to_vec()), silence()] {
            let moment = due;
            let asked;
            (asked, due) = turn(moment, bad);
            assert_eq!((asked, staple.is_current()), (1, false));
            assert_eq!(staple.last().unwrap().this_update, NOW);
        }
        assert_eq!(staple.fetches(), [3, 5]);
        assert_eq!(store.read(staple.fingerprint()), Some(first));
        // The next start has it, and asks at its time.
        let mut again = Staples::default();
        let chain = specimen.chain();
        let again = again.get("a.pem", &chain, &Staples::default()).unwrap();
        let kept = store.read(again.fingerprint()).unwrap();
        again.offer_fetched(kept, at(half - 9)).unwrap();
        let wanted = Renewable {
            staple: again,
            responder: Some("http://a".into()),
            must_staple: false,
        };
        let plans = planned(&[wanted], half - 9);
        assert_eq!(plans[0].due, half);
    }

    #[test]
    fn a_silent_responder_is_asked_once_for_all_its_certificates() {
        let specimens = [1, 2, 3].map(|_| Specimen::new("authority"));
        let [one, two, three] = &specimens;
        let all = [
            wanted(one, Some("http://silent")),
            wanted(two, Some("http://silent")),
            wanted(three, Some("http://a")),
        ];
        let mut plans = planned(&all, NOW);
        let mut asked = Vec::new();
        let mut ask = |responder: &str, _: &[u8]| {
            asked.push(responder.to_owned());
            match responder {
                "http://a" => Ok(three.response(&three.says())),
                _ => Err(Failure::Silent("silence".to_owned())),
            }
        };
        round(&mut plans, None, || at(NOW), &mut ask, never);
        assert_eq!(asked, ["http://silent", "http://a"]);
        assert!(plans[..2].iter().all(|plan| plan.due == NOW + 45));
        assert!(plans[2].wanted.staple.current(at(NOW)).is_some());
    }

    /// The work goes on after a panic, and comes to the others.
    #[test]
    fn a_panic_about_one_certificate_counts_as_its_failure_and_the_others_are_asked_for() {
        let specimens = [1, 2].map(|_| Specimen::new("authority"));
        let all = [
            wanted(&specimens[0], Some("http://panics")),
            wanted(&specimens[1], Some("http://a")),
        ];
        let mut plans = planned(&all, NOW);
        let mut asked = Vec::new();
        let mut ask = |responder: &str, _: &[u8]| {
            asked.push(responder.to_owned());
            assert_eq!(responder, "http://a", "a fault of the program");
            Ok(specimens[1].response(&specimens[1].says()))
        };
        let first = catch_unwind(AssertUnwindSafe(|| {
            round(&mut plans, None, || at(NOW), &mut ask, never);
        }));
        assert!(first.is_err());
        round(&mut plans, None, || at(NOW + 1), &mut ask, never);
        assert_eq!(asked, ["http://panics", "http://a"]);
        assert_eq!((plans[0].failures, plans[0].due), (1, NOW + 45));
        assert!(plans[1].wanted.staple.current(at(NOW)).is_some());
    }

    #[test]
    fn an_error_about_one_certificate_does_not_keep_back_the_others() {
        let specimens = [1, 2].map(|_| Specimen::new("authority"));
        let [one, two] = &specimens;
        let all = [one, two].map(|specimen| wanted(specimen, Some("http://a")));
        let mut plans = planned(&all, NOW);
        let mut answers = vec![
            Ok(two.response(&two.says())),
            Err(Failure::Answered("it answers with HTTP status 404".into())),
        ];
        let mut ask = |_: &str, _: &[u8]| answers.pop().unwrap();
        round(&mut plans, None, || at(NOW), &mut ask, never);
        let taken = plans.iter().map(|plan| plan.wanted.staple.fetches());
        assert_eq!(taken.collect::<Vec<_>>(), [[0, 1], [1, 0]]);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_put_off_questions() {
        let specimen = Specimen::new("authority");
        let wanted = wanted(&specimen, Some("http://a"));
        let mut plans = planned(&[wanted], NOW);
        let mut asked = 0;
        for now in [NOW + 1000 * DAY, NOW, NOW + 1] {
            let mut ask = |_: &str, _: &[u8]| {
                asked += 1;
                Ok(specimen.response(&specimen.says()))
            };
            round(&mut plans, None, || at(now), &mut ask, never);
        }
        assert_eq!(asked, 2);
        assert!(plans[0].wanted.staple.is_current());
    }

    #[test]
    fn plans_outlive_reloads_and_files_are_never_asked_for() {
        let specimen = Specimen::new("authority");
        let fetched = wanted(&specimen, Some("http://a"));
        let from_file = wanted(&specimen, None);
        let all = [fetched.clone(), from_file];
        let mut plans = planned(&all, NOW);
        let dues: Vec<u64> = plans.iter().map(|plan| plan.due).collect();
        assert_eq!(dues, [0, u64::MAX]);
        (plans[0].due, plans[0].failures) = (NOW + 7, 3);
        follow(&mut plans, slice::from_ref(&fetched), at(NOW), never);
        assert_eq!((plans.len(), plans[0].due), (1, NOW + 7));
        let other = Renewable {
            responder: Some("http://b".into()),
            ..fetched
        };
        follow(&mut plans, &[other], at(NOW), never);
        assert_eq!((plans[0].due, plans[0].failures), (0, 0));
    }

    /// A certificate may be used in several places.
    #[test]
    fn what_is_wanted_twice_has_one_plan() {
        let specimens = [1, 2].map(|_| Specimen::new("authority"));
        let [one, other] = [0, 1].map(|at| wanted(&specimens[at], Some("http://a")));
        let mut plans = planned(&[one.clone(), other.clone(), one.clone()], NOW);
        let keys = |plans: &[Plan]| plans.iter().map(|plan| plan.wanted.clone()).collect::<Vec<_>>();
        let is_so = |plans: &[Plan], expected: &[&Renewable]| {
            let keys = keys(plans);
            keys.iter().map(Renewable::key).eq(expected.iter().map(|one| one.key()))
        };
        assert!(is_so(&plans, &[&one, &other]));
        follow(&mut plans, &[other.clone(), other.clone()], at(NOW), never);
        assert!(is_so(&plans, &[&other]));
    }

    #[test]
    fn a_panic_over_an_order_loses_neither_plans_nor_the_order() {
        let specimens = [1, 2].map(|_| Specimen::new("authority"));
        let [before, new] = [0, 1].map(|at| wanted(&specimens[at], Some("http://a")));
        // So that a moment in its life is drawn.
        let response = specimens[1].response(&specimens[1].says());
        new.staple.offer_fetched(response, at(NOW)).unwrap();
        let mut work = Renewal::default().follow(vec![before], None).unwrap();
        work.wanted = work.orders.try_recv().ok();
        work.carry_out(at(NOW), never);
        (work.plans[0].due, work.plans[0].failures) = (NOW + 7, 3);

        work.wanted = Some(vec![new]);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            work.carry_out(at(NOW), || panic!("a fault of the program"));
        }));
        assert!(panicked.is_err());
        assert_eq!(
            (work.plans.len(), work.plans[0].due, work.plans[0].failures),
            (1, NOW + 7, 3)
        );
        work.carry_out(at(NOW), never);
        assert!(
            work.plans.len() == 1 && work.plans[0].due > NOW + 7,
            "the order is carried out"
        );
        assert!(work.wanted.is_none());
    }

    #[test]
    fn work_that_was_dropped_is_replaced_by_the_next_reload() {
        let specimen = Specimen::new("authority");
        let wanted = vec![wanted(&specimen, None)];
        let mut renewal = Renewal::default();
        assert!(renewal.follow(Vec::new(), None).is_none(), "there is nothing to do");
        let work = renewal.follow(wanted.clone(), None).expect("the first");
        assert!(renewal.follow(wanted.clone(), None).is_none(), "it takes them");
        drop(work);
        assert!(renewal.follow(wanted, None).is_some(), "another one");
    }

    #[test]
    fn waits_grow_to_an_hour_and_chance_moves_them() {
        let waits: Vec<u64> = (1..=8).map(|failures| wait_after(failures, 0.5)).collect();
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
        assert_eq!(wait_after(u32::MAX, 1.0), 4500);
        let verdict = Verdict {
            this_update: NOW,
            next_update: NOW + 1000,
            revoked: false,
        };
        assert_eq!([half(&verdict, 0.0), half(&verdict, 1.0)], [NOW + 500, NOW + 600]);
        for (now, expected) in [
            (NOW, NOW + 500),
            (NOW + 490, NOW + 490 + 127),
            (NOW + 900, NOW + 950),
            (NOW + 998, NOW + 1003),
        ] {
            assert_eq!(next(&verdict, at(now), 0.0), expected);
        }
        assert!((0..100).all(|_| (0.0..=1.0).contains(&chance())));
        let [one, other] = [chance(), chance()];
        assert!(one != other || chance() != one);
    }
}
