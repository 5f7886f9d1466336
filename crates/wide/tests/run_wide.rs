//! Tests where closures run, what they return, and what they leave behind.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Mutex;
use std::thread::{self, ThreadId};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use proptest::prelude::*;
use rustix::thread::sched_getcpu;
use widelane::{Config, Cpus, Form, StartError, Wide};

#[test]
fn in_place_it_is_a_call() {
    let wide = Wide::new(Config::default()).expect("nothing to start");
    let mut borrowed = 1;
    let id = wide.run(|| {
        borrowed += 1;
        thread::current().id()
    });
    assert_eq!((id, borrowed), (thread::current().id(), 2));
}

#[test]
fn the_pool_runs_closures_on_its_cpu() {
    let Some((_, vector)) = two_cpus() else {
        return;
    };
    for spin in [Duration::ZERO, Duration::from_millis(1)] {
        let wide = pool_that_spins(vector, spin);
        let mut borrowed = vec![1, 2];
        for round in 0..50 {
            let (cpu, id) = wide.run(|| {
                borrowed.push(round);
                (sched_getcpu(), thread::current().id())
            });
            assert_eq!(cpu, vector);
            assert_ne!(id, thread::current().id());
        }
        assert_eq!(borrowed.len(), 52);
    }
}

#[test]
fn many_callers_get_their_own_values() {
    let Some((_, vector)) = two_cpus() else {
        return;
    };
    let wide = pool_that_spins(vector, Duration::from_micros(5));
    let call = |caller: u64| {
        for round in 0..300 {
            assert_eq!(wide.run(|| caller * 1000 + round), caller * 1000 + round);
        }
    };
    thread::scope(|scope| {
        for caller in 0..6 {
            scope.spawn(move || call(caller));
        }
    });
}

#[test]
fn a_panic_goes_on_in_the_caller_and_the_pool_stays() {
    let Some((_, vector)) = two_cpus() else {
        return;
    };
    for wide in [pool(vector), migrating(vector)] {
        let before = allowed();
        let caught = catch_unwind(AssertUnwindSafe(|| wide.run(|| panic_any("why".to_owned()))));
        let panic = caught.expect_err("it panicked");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("why"));
        assert_eq!(allowed(), before);
        assert_eq!(wide.run(sched_getcpu), vector);
        // Calls after a panic are not taken for calls within a call.
        assert_eq!(wide.try_run(sched_getcpu).expect("allowed"), vector);
    }
}

#[test]
fn errors_come_back_as_values() {
    let Some((_, vector)) = two_cpus() else {
        return;
    };
    let error = pool(vector).run(|| "x".parse::<u8>()).expect_err("no number");
    assert!(error.to_string().contains("invalid digit"));
}

#[test]
fn the_caller_comes_back_to_what_it_was_allowed() {
    let Some((scalar, vector)) = two_cpus() else {
        return;
    };
    let wide = migrating(vector);
    let before = allowed();
    // Also a thread that is pinned to a scalar core.
    for mask in [before, Cpus::from_iter([scalar])] {
        allow(&mask);
        let id = thread::current().id();
        let inside = wide.run(|| (allowed(), sched_getcpu(), thread::current().id()));
        assert_eq!(inside, (Cpus::from_iter([vector]), vector, id));
        assert_eq!(allowed(), mask);
    }
    allow(&before);
}

#[test]
fn an_affinity_that_is_newer_is_kept() {
    let Some((scalar, vector)) = two_cpus() else {
        return;
    };
    let before = allowed();
    let other = Cpus::from_iter([scalar]);
    migrating(vector).run(|| allow(&other));
    assert_eq!(allowed(), other);
    allow(&before);
}

#[test]
fn vector_threads_leave_signals_to_the_program() {
    let Some((_, vector)) = two_cpus() else {
        return;
    };
    let mask = || SigSet::thread_get_mask().expect("always there");
    let before = mask();
    let inside = pool(vector).run(mask);
    assert!(inside.contains(Signal::SIGTERM) && inside.contains(Signal::SIGCHLD));
    assert!(!inside.contains(Signal::SIGSEGV) && !inside.contains(Signal::SIGPROF));
    assert_eq!(mask(), before);
}

#[test]
fn the_threads_end_with_their_pool() {
    let Some((_, vector)) = two_cpus() else {
        return;
    };
    let named = format!("wide-{vector}");
    let name = || thread::current().name().map(str::to_owned);
    // A thread-local of the vector thread is destroyed when that ends.
    static ENDED: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
    struct Witness(ThreadId);
    impl Drop for Witness {
        fn drop(&mut self) {
            ENDED.lock().expect("no panic").push(self.0);
        }
    }
    thread_local! {
        static WITNESS: Cell<Option<Witness>> = const { Cell::new(None) };
    }
    let wide = pool(vector);
    assert_eq!(wide.run(name), Some(named));
    let id = wide.run(|| {
        let id = thread::current().id();
        WITNESS.set(Some(Witness(id)));
        id
    });
    drop(wide);
    assert!(ENDED.lock().expect("no panic").contains(&id));
}

#[test]
fn wrong_vector_cores_are_refused_by_number() {
    let refused = |form: Form| Wide::new(form.into()).expect_err("wrong");
    let forms: [fn(Cpus) -> Form; 2] = [|cpus| Form::Pool { cpus }, |cpus| Form::Migrate { cpus }];
    let here = allowed().iter().next().expect("we are somewhere");
    for form in forms {
        assert!(matches!(refused(form(Cpus::default())), StartError::NoCpus));
        let absent = Cpus::MOST - 1;
        let message = refused(form(Cpus::from_iter([here, absent]))).to_string();
        let named = format!("CPU {absent} cannot be a vector core");
        assert!(message.contains(&named) && message.contains("cpuset"), "{message}");
    }
}

#[test]
fn with_one_cpu_everything_runs_in_place() {
    let before = allowed();
    let only = before.iter().next().expect("we are somewhere");
    allow(&Cpus::from_iter([only]));
    let wide = pool(only);
    allow(&before);
    assert_eq!(wide.form(), &Form::Inline);
    let id = thread::current().id();
    assert_eq!(wide.run(|| thread::current().id()), id);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Calls within calls, of any forms, with and without panics: the outermost that is not in
    /// place decides where all inner ones run, values and panics come back through all of them, and
    /// afterwards the thread is as it was.
    #[test]
    fn calls_within_calls_run_in_place(
        forms in proptest::collection::vec(0_usize..4, 1..7),
        panics in any::<bool>(),
    ) {
        let Some((_, vector)) = two_cpus() else { return Ok(()) };
        let wides = [
            Wide::new(Config::default()).expect("nothing to start"),
            pool(vector),
            pool(vector),
            migrating(vector),
        ];
        let before = allowed();
        let caller = thread::current().id();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            nested(&wides, &forms, None, &|id| {
                if panics {
                    panic_any(id);
                }
                id
            })
        }));
        prop_assert_eq!(caught.is_err(), panics);
        let id = caught.unwrap_or_else(|panic| *panic.downcast().expect("the thread's id"));
        let in_pool = matches!(forms.iter().find(|form| **form != 0), Some(1 | 2));
        prop_assert_eq!(id != caller, in_pool);
        prop_assert_eq!(allowed(), before);
        prop_assert_eq!(wides[3].run(allowed), Cpus::from_iter([vector]));
    }
}

/// Calls the forms within one another. Below the first that is not in place, the thread stays the
/// same and so does its affinity.
fn nested(
    wides: &[Wide],
    forms: &[usize],
    wide: Option<(ThreadId, Cpus)>,
    innermost: &(dyn Fn(ThreadId) -> ThreadId + Sync),
) -> ThreadId {
    let here = (thread::current().id(), allowed());
    if let Some(outer) = &wide {
        assert_eq!(outer, &here);
    }
    let Some((&form, inner)) = forms.split_first() else {
        return innermost(here.0);
    };
    let value = wides[form].run(|| {
        let first = (form != 0).then(|| (thread::current().id(), allowed()));
        nested(wides, inner, wide.or(first), innermost)
    });
    assert_eq!((thread::current().id(), allowed()), here);
    value
}

fn pool(cpu: usize) -> Wide {
    let cpus = Cpus::from_iter([cpu]);
    Wide::new(Form::Pool { cpus }.into()).expect("the CPU is allowed")
}

fn pool_that_spins(cpu: usize, spin: Duration) -> Wide {
    let cpus = Cpus::from_iter([cpu]);
    let config = Config {
        form: Form::Pool { cpus },
        vector_spin: spin,
        caller_spin: spin,
    };
    Wide::new(config).expect("the CPU is allowed")
}

fn migrating(cpu: usize) -> Wide {
    let cpus = Cpus::from_iter([cpu]);
    Wide::new(Form::Migrate { cpus }.into()).expect("the CPU is allowed")
}

/// A CPU to call from and a vector core.
fn two_cpus() -> Option<(usize, usize)> {
    let cpus = allowed();
    match (cpus.iter().next(), cpus.iter().last()) {
        (Some(first), Some(last)) if first != last => Some((first, last)),
        _ => {
            println!("SKIP: this process may use one CPU only");
            None
        }
    }
}

fn allowed() -> Cpus {
    widelane_affinity::allowed(None).expect("always there")
}

fn allow(cpus: &Cpus) {
    widelane_affinity::allow(None, cpus).expect("they were allowed");
}
