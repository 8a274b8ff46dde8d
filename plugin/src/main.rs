//! The `kubectl-kcp` binary: run as `kubectl kcp`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_kcp::main(std::env::args_os())
}
