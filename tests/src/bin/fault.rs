//! `fault TARGET FAULT` makes something wrong with a machine of `make demo KEEP=1`, or with the way into its cluster.
//!
//! The demo does it; this asks. Exit code 1: it could not be done, 2: nobody was asked.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::env;
use std::process::ExitCode;

use kcp_tests::fault_socket;
use kcp_tests::named_fault::NamedFault;

const USAGE: &str = "usage: fault TARGET FAULT, while make demo KEEP=1 is up

TARGET is the name of a Machine, or of a Cluster with its NAMESPACE/ where several have that name; KCP_TEST_RUN=ID in the environment picks one of several demos.
FAULT is one";

const UNASKED: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [help] if help == "--help" || help == "-h" => {
            print!("{USAGE} {}", NamedFault::list());
            ExitCode::SUCCESS
        }
        [target, name] => inflict(target, name).await,
        _ => {
            eprint!("{USAGE} {}", NamedFault::list());
            ExitCode::from(UNASKED)
        }
    }
}

async fn inflict(target: &str, name: &str) -> ExitCode {
    let fault: NamedFault = match name.parse() {
        Ok(fault) => fault,
        Err(error) => {
            eprint!("error: {error}\nhint: a fault is one {}", NamedFault::list());
            return ExitCode::from(UNASKED);
        }
    };
    let folder = match fault_socket::listening().await {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(UNASKED);
        }
    };
    match fault_socket::ask(&folder, target, fault).await {
        Ok(()) => {
            println!("{target}: {}", fault.effect());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {target} {fault}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
