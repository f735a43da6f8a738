//! Parses the command line and maps errors to exit codes. Chooses the program's allocator.

mod allocator;

use std::process::ExitCode;

fn main() -> ExitCode {
    litequic::cli::main(allocator::release_thread_memory)
}
