//! The program. What it does is in the library beside it.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    widelane_program::main()
}
