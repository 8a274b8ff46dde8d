//! `fault TARGET FAULT` injects a fault into a machine of `make demo KEEP=1`, or into the access to its cluster.
//!
//! The demo injects the fault; this program sends the request. Exit code 1: the demo failed to inject it. 2: the demo
//! did not receive the request.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::env;
use std::process::ExitCode;

use kcp_tests::fault_socket;
use kcp_tests::named_fault::NamedFault;

const USAGE: &str = "usage: fault TARGET FAULT, while make demo KEEP=1 is up

TARGET is the name of a Machine or a Cluster, or NAMESPACE/NAME if several Clusters have that name.
KCP_TEST_RUN=ID in the environment, or $KUBECONFIG, selects one of several demos.
FAULT is one";

const NOT_SENT: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [help] if help == "--help" || help == "-h" => {
            print!("{USAGE} {}", NamedFault::list());
            ExitCode::SUCCESS
        }
        [target, name] => send(target, name).await,
        _ => {
            eprint!("{USAGE} {}", NamedFault::list());
            ExitCode::from(NOT_SENT)
        }
    }
}

async fn send(target: &str, name: &str) -> ExitCode {
    let fault: NamedFault = match name.parse() {
        Ok(fault) => fault,
        Err(error) => {
            eprint!("error: {error}\nhint: a fault is one {}", NamedFault::list());
            return ExitCode::from(NOT_SENT);
        }
    };
    let folder = match fault_socket::listening().await {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(NOT_SENT);
        }
    };
    match fault_socket::inflict(&folder, target, fault).await {
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
