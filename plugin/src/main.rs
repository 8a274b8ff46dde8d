//! The binary `kubectl-kcp`, which kubectl runs as `kubectl kcp`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_kcp::main(std::env::args_os())
}
