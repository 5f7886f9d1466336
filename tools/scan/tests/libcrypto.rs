//! A stripped library that every distribution has.

use std::path::Path;
use widelane_scan::{Class, scan_file};

#[test]
fn what_rsa_runs_on_is_recognised_without_a_symbol() {
    let Some(path) = PLACES.map(Path::new).into_iter().find(|path| path.exists()) else {
        println!("SKIP: there is no libcrypto.so.3 in {PLACES:?}");
        return;
    };
    let image = scan_file(path).expect("a library");
    if image.symbols {
        println!("SKIP: this libcrypto has its symbols");
        return;
    }
    let for_rsa = |class: Class| {
        let mut functions = image.functions.iter().filter(|one| one.class() == class);
        functions.any(|function| {
            let mut names = function.used_by.iter();
            names.any(|name| name.starts_with("BN_mod_exp_mont_consttime"))
        })
    };
    assert!(for_rsa(Class::Heavy256), "{:#?}", image.functions);
}

const PLACES: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib64/libcrypto.so.3"];
