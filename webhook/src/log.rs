//! The log on stderr.

use std::io::{self, IsTerminal};

use tracing_subscriber::{fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::arguments::{LogArguments, LogFormat};

/// Starts logging for the rest of the process.
///
/// Uses `Targets` instead of `EnvFilter`, whose regular expressions take a megabyte.
pub fn init(arguments: &LogArguments) {
    let registry = tracing_subscriber::registry().with(arguments.log_level.clone());
    // Fails only if logging was started before.
    _ = match arguments.log_format {
        LogFormat::Text => registry
            .with(
                fmt::layer()
                    .with_writer(io::stderr)
                    .with_ansi(io::stderr().is_terminal()),
            )
            .try_init(),
        LogFormat::Json => registry
            .with(
                fmt::layer()
                    .json()
                    .flatten_event(true)
                    .with_current_span(false)
                    .with_span_list(false)
                    .with_writer(io::stderr),
            )
            .try_init(),
    };
}
