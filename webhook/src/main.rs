//! `kcp-webhook`: arguments in, exit code out.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use kcp_webhook::{
    arguments::{Arguments, CertsCommand, Command},
    certs, serve,
};

/// The command could not do its work: bad input, files or addresses.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments).map_err(|error| error.to_string()),
        Command::Certs(CertsCommand::Issue(arguments)) => certs::issue(&arguments, &mut io::stdout())
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
    };
    outcome.unwrap_or_else(|message| {
        // Nobody is left to tell when this write fails too.
        _ = writeln!(io::stderr(), "error: {message}");
        ExitCode::from(FAILED)
    })
}
