//! The `quarry` program.

use std::process::ExitCode;

use quarry::cli::{self, Exit};

/// A call allocates some dozens of times, on one thread and on the next: with this allocator a counter call takes a fifth less time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(cli::main(std::env::args_os()));
    // Not dropped: that would wait for a read of standard input, which may never end.
    runtime.shutdown_background();
    exit.into()
}
