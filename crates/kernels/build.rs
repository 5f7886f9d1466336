//! Traces every kernel into assembly, and writes the table by which the library finds them, and
//! tables of numbers.

use std::fmt::Write as _;
use std::path::Path;

use widelane_lanes::nist::{Curve, Nist};
use widelane_lanes::{Curve25519, Definition, Kernel, Target};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let mut assembly = String::from("    .text\n");
    let mut declarations = String::from("unsafe extern \"sysv64\" {\n");
    let mut rows = Vec::new();
    for target in Target::ALL {
        // The code of one target is one piece that begins a page. The kernels of an exponentiation
        // fill most of the instruction cache, in which each address has few places. Neighbouring
        // code uses the places evenly, and a fixed start makes that the same in every build.
        assembly.push_str("    .p2align 12\n");
        for kernel in Kernel::all_for(target) {
            // A kernel whose bounds are not proved must not reach a program.
            let symbol = kernel.symbol(target);
            if let Err(error) = kernel.prove(target) {
                panic!("{symbol} is not proved: {error}");
            }
            let (code, report) = kernel.code(target);
            assembly.push_str(&code);
            let _ = writeln!(declarations, "    fn {symbol}({PARAMETERS});");
            rows.push(format!(
                "    Row {{ symbol: \"{symbol}\", function: {symbol}, slots: {}, \
                 multiply_adds: {} }},\n",
                report.slots, report.multiply_adds
            ));
        }
    }
    declarations.push_str("}\n");
    // By symbol, for a binary search: a server looks a thousand kernels up when it starts. The
    // character after a symbol comes before all that a longer symbol has there.
    rows.sort_unstable();
    let (count, rows) = (rows.len(), rows.concat());
    let table = format!("{declarations}\nstatic TABLE: [Row; {count}] = [\n{rows}];\n");
    let write = |name: &str, text: &str| {
        std::fs::write(Path::new(&out).join(name), text).expect("OUT_DIR is writable");
    };
    write("kernels.s", &assembly);
    write("table.rs", &table);
    write("base25519.rs", &format!("{:?}", Curve25519::base_tables()));
    let mut words = String::new();
    for curve in Curve::ALL {
        let table = Nist::base_table(curve);
        let name = curve.to_string().to_uppercase();
        let _ = writeln!(words, "const {name}_WORDS: usize = {};", table.len());
        write(&format!("base_{curve}.rs"), &format!("{table:?}"));
    }
    write("base_words.rs", &words);
}

const PARAMETERS: &str = "_: *mut u64, _: *mut u64, _: *mut u64, _: *mut u64, _: *mut u64, _: *mut u64";
