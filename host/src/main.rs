//! The `quarry` program.

use std::process::ExitCode;

use quarry::cli::{self, Exit};

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
    runtime.block_on(cli::main(std::env::args_os())).into()
}
