//! `kcp-webhook`: parses the arguments, runs the command, and returns its exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use jiff::Timestamp;
use kcp_webhook::{
    arguments::{Arguments, CertsCommand, Command},
    configuration,
    manager::{anchor, api_proxy, certs, manage, node_probe},
    serve,
};

/// The exit code for invalid arguments, files or addresses.
const EXIT_FAILED: u8 = 2;

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments).map_err(|error| error.to_string()),
        Command::Manage(arguments) => manage::run(&arguments).map_err(|error| error.to_string()),
        Command::Anchor(arguments) => anchor::run(&arguments).map_err(|error| error.to_string()),
        Command::ApiProxy(arguments) => api_proxy::run(&arguments).map_err(|error| error.to_string()),
        Command::CheckConfiguration(arguments) => {
            configuration::check(&arguments.file, Timestamp::now(), &mut io::stdout())
                .map(|has_no_problems| {
                    if has_no_problems {
                        ExitCode::SUCCESS
                    } else {
                        ExitCode::FAILURE
                    }
                })
                .map_err(|error| error.to_string())
        }
        Command::Probe(arguments) => {
            node_probe::run(&arguments, &mut io::stdout()).map_err(|error| error.to_string())
        }
        Command::Certs(CertsCommand::Issue(arguments)) => certs::issue(&arguments, &mut io::stdout())
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
    };
    result.unwrap_or_else(|message| {
        // If this write fails too, there is no other place to report the error.
        _ = writeln!(io::stderr(), "error: {message}");
        ExitCode::from(EXIT_FAILED)
    })
}
