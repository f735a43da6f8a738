//! Parses the command line and maps errors to exit codes. The program's allocator is chosen here.

mod allocator;

use std::process::ExitCode;

fn main() -> ExitCode {
    litequic::cli::main(allocator::release_thread_memory)
}
