//! Parses the command line and maps errors to exit codes. The program's allocator is chosen here: tests and the
//! laboratory keep the system's.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    litequic::cli::main()
}
