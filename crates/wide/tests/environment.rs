//! A library takes nothing from the environment: that is up to the program.

use std::process::Command;
use std::thread;

use widelane::{FORM_VARIABLE, run_wide};

#[test]
fn the_environment_does_not_choose_the_form() {
    if std::env::var_os(FORM_VARIABLE).is_some() {
        let inside = run_wide(|| thread::current().id());
        assert_eq!(inside, thread::current().id());
        return;
    }
    let allowed = widelane_affinity::allowed(None).expect("always there");
    if allowed.count() < 2 {
        return println!("SKIP: this process may use one CPU only");
    }
    let last = allowed.iter().last().expect("we are somewhere");
    let form = format!("pool:{last}");
    let this = std::env::current_exe().expect("this program");
    let again = Command::new(this).env(FORM_VARIABLE, form).output();
    let again = again.expect("it runs");
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && said.contains("1 passed"), "{said}");
}
