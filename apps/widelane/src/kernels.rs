//! `widelane kernels`: instruction counts and proofs of the kernels.

use crate::object::object;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_lanes::{ArraySpec, Definition, Kernel, Proof, Target};
use widelane_text::{columns, json_line};

/// Print the vector kernels: instruction mix, licence level, port bounds and proof
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print the assembly of a kernel, like amm52x20_mb8; without the last part, for all targets
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    assembly: Option<String>,

    /// Measure the methods of exponentiation on this CPU: time, share of what the multipliers can
    /// do, and which method is used
    #[arg(long, conflicts_with = "assembly")]
    measure: bool,

    /// Print one JSON object on each line
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if let Some(name) = args.assembly {
        return output::print(&assembly(&name)?);
    }
    if args.measure {
        return measure(args.json);
    }
    let every = Kernel::all()
        .into_iter()
        .flat_map(|kernel| targets_of(kernel).map(move |target| (kernel, target)));
    let proved = every.map(|(kernel, target)| match kernel.prove(target) {
        Ok(proof) => Ok((kernel, target, proof)),
        Err(error) => Err(Failure::Failed(format!(
            "{} is not proved: {error}",
            kernel.symbol(target)
        ))),
    });
    let proved = proved.collect::<Result<Vec<_>, _>>()?;
    output::print(&match args.json {
        true => proved.iter().map(line).collect(),
        false => table(&proved),
    })
}

fn measure(json: bool) -> Result<(), Failure> {
    let speeds = widelane_speed::method_speeds();
    let speeds = speeds.map_err(|error| Failure::Usage(error.to_string()))?;
    if speeds.is_empty() {
        let why = widelane_cpu::lanes();
        return Err(Failure::Failed(format!("there is nothing to measure: {why}")));
    }
    if json {
        let lines = speeds.iter().map(json_line);
        return output::print(&lines.collect::<String>());
    }
    let mut text = format!(
        "{:>4} {:<14} {:<16} {:>12} {:>12}  {}\n",
        "bits", "target", "method", "microseconds", "of the limit", "used"
    );
    for speed in speeds {
        let _ = writeln!(
            text,
            "{:>4} {:<14} {:<16} {:>12.1} {:>10.1} %  {}",
            speed.bits,
            speed.backend,
            speed.method,
            speed.microseconds,
            100.0 * speed.share_of_port_limit,
            if speed.used { "yes" } else { "" }
        );
    }
    text.push_str(MEASURED);
    let caveats = widelane_cpu::caveats(&text);
    text += &caveats;
    output::print(&text)
}

/// One kernel at one target, for programs.
fn line((kernel, target, proof): &(Kernel, Target, Proof)) -> String {
    let report = kernel.report(*target);
    let array = |spec: &ArraySpec| {
        object! {
            name: spec.name,
            vectors: spec.len,
            holds: spec.holds.to_string(),
            written: spec.written,
            shared: spec.shared,
            secret: spec.secret,
        }
    };
    json_line(&object! {
        kernel: kernel.name(),
        target: target.name(),
        caveat: target.caveat(),
        symbol: kernel.symbol(*target),
        formula: kernel.formula(),
        reference: kernel.reference(),
        arrays: kernel.arrays(target.lanes()).iter().map(array).collect::<Vec<_>>(),
        lanes: target.lanes(),
        instructions: report.instructions,
        multiply_adds: report.multiply_adds,
        multiplies: report.multiplies,
        simple: report.simple,
        loads: report.loads,
        stores: report.stores,
        moves: report.moves,
        spills: report.spills,
        spill_slots: report.slots,
        licence: report.licence.to_string(),
        multiply_bound_cycles: report.multiply_bound_cycles(),
        shared_bound_cycles: report.shared_bound_cycles(),
        widest_bits: proof.widest_bits,
        claims: proof.claims.iter().map(|&(bits, why)| object! { bits, why }).collect::<Vec<_>>(),
    })
}

fn table(proved: &[(Kernel, Target, Proof)]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    let mut claims = BTreeMap::<(&str, u32), Vec<String>>::new();
    for (kernel, target, proof) in proved {
        let report = kernel.report(*target);
        let counts = [
            report.instructions,
            report.multiply_adds,
            report.multiplies,
            report.simple,
            report.loads,
            report.stores,
            report.moves,
            report.spills,
        ];
        let bounds = [report.multiply_bound_cycles(), report.shared_bound_cycles()];
        let mut row = vec![kernel.name(), target.name().to_owned()];
        row.extend(counts.map(|count| count.to_string()));
        row.push(report.licence.to_string());
        row.extend(bounds.map(|cycles| cycles.to_string()));
        row.push(proof.widest_bits.to_string());
        rows.push(row);
        for &(bits, why) in &proof.claims {
            let kernels = claims.entry((why, bits)).or_default();
            if !kernels.contains(&kernel.name()) {
                kernels.push(kernel.name());
            }
        }
    }
    let left: Vec<bool> = (0..HEAD.len()).map(|column| column < 2).collect();
    let mut text = columns(&rows, &left) + "\n";
    for target in Target::ALL.into_iter().rev() {
        let _ = write!(text, "{target}: {}, {} lanes", target.needs(), target.lanes());
        let caveat = target.caveat().map(|caveat| format!("; {caveat}"));
        let _ = writeln!(text, "{}", caveat.unwrap_or_default());
    }
    text.push_str(LEGEND);
    for ((why, bits), kernels) in claims {
        let _ = writeln!(text, "  below 2^{bits}: {why}\n    {}", kernels.join(" "));
    }
    text
}

fn assembly(name: &str) -> Result<String, Failure> {
    let bare = name.strip_prefix("widelane_").unwrap_or(name);
    let mut text = String::new();
    for kernel in Kernel::all() {
        for target in targets_of(kernel) {
            let symbol = kernel.symbol(target);
            let named = symbol.strip_prefix("widelane_").unwrap_or(&symbol);
            if bare == named || bare == kernel.name() {
                text.push_str(&kernel.assembly(target));
            }
        }
    }
    if text.is_empty() {
        let names: Vec<_> = Kernel::all().into_iter().map(Kernel::name).collect();
        return Err(Failure::Usage(format!(
            "there is no kernel `{}`; the kernels are {}",
            name.escape_debug(),
            names.join(", ")
        )));
    }
    Ok(text)
}

/// Every target for which there is the kernel, the preferred one first.
fn targets_of(kernel: Kernel) -> impl Iterator<Item = Target> {
    let all = Target::ALL.into_iter().rev();
    all.filter(move |&target| kernel.is_for(target))
}

const HEAD: [&str; 14] = [
    "kernel", "target", "instr", "madds", "muls", "simple", "loads", "stores", "moves", "spills", "licence",
    "cycles/a", "cycles/b", "widest",
];
const LEGEND: &str = "\
madds: 52-bit multiply-adds; muls: other multiplications. cycles/a: the least cycles on a core that
starts two of these in a cycle and has separate ports for other arithmetic; cycles/b: on a core
where all vector arithmetic shares two ports. widest: bits of the widest value that a lane ever
holds.
Proved on intervals: no lane overflows unless it is meant to, every multiplicand is a 52-bit digit,
every array keeps its bound. The proofs also use these facts, which the sources state and intervals
cannot show; the portable model checks them whenever it runs:
";

const EXAMPLES: &str = "\
Examples:
  widelane kernels
  widelane kernels --assembly amm52x20_mb8
  widelane kernels --json
  widelane kernels --measure
  WIDELANE_KERNELS=small-code widelane kernels --measure

WIDELANE_KERNELS forces the method of exponentiation of all RSA passes: two-multipliers,
one-multiplier (which lanes of avx2 lack) or small-code. Without it, servers measure at their first start and keep the order
of the methods in their calibration file.";

const MEASURED: &str = "
of the limit: multiply-adds, as a share of what the ports could do in that time. The methods differ
in their number of multiply-adds, so the fastest need not have the largest share.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_by_name_by_symbol_and_by_width() {
        let both = assembly("ams52x20").unwrap();
        assert!(both.contains("widelane_ams52x20_mb8:") && both.contains("widelane_ams52x20_mb4:"));
        let one = assembly("widelane_ams52x20_mb4").unwrap();
        assert!(one.contains("ymm") && !one.contains("zmm"));
        assert_eq!(assembly("ams52x20_mb4").unwrap(), one);
    }

    #[test]
    fn an_unknown_kernel_is_refused_with_the_choices() {
        let Err(Failure::Usage(message)) = assembly("ams52x21") else {
            panic!("there is no such kernel");
        };
        assert!(message.contains("ams52x20, "), "{message}");
    }

    #[test]
    fn a_row_states_bounds_and_secrets_of_the_arrays() {
        let is_wanted = |kernel: &Kernel| kernel.name() == "base25519add";
        let kernel = Kernel::all().into_iter().find(is_wanted).unwrap();
        let proof = kernel.prove(Target::Avx512Ifma256).unwrap();
        let line = line(&(kernel, Target::Avx512Ifma256, proof));
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let array = |name, vectors, holds, [written, shared, secret]: [bool; 3]| {
            serde_json::json!({
                "name": name, "vectors": vectors, "holds": holds,
                "written": written, "shared": shared, "secret": secret,
            })
        };
        let expected = [
            array("point", 20, "numbers below 2^52", [true, false, true]),
            array("table", 60, "numbers below 2^52", [false, true, false]),
            array("digit", 1, "numbers below 2^5", [false, false, true]),
        ];
        assert_eq!(line["arrays"], serde_json::json!(expected));
        assert!(line["reference"].as_str().unwrap().contains("ASIACRYPT 2008"));
    }
}
