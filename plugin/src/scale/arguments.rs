//! Arguments of `kubectl kcp scale`.

use std::time::Duration;

use clap::{Args, value_parser};

use crate::arguments::{DryRun, parse_control_plane, parse_duration};

/// Change the number of Machines of a control plane.
#[derive(Debug, Args)]
pub struct ScaleArguments {
    /// Control plane to scale, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Number of Machines to have
    // The API's type is a 32 bit integer; whether the number makes sense is for the rules to say.
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = value_parser!(i64).range(i64::from(i32::MIN)..=i64::from(i32::MAX)))]
    pub replicas: i64,

    /// Follow until it is done, at most this long [default when given without a value: 15m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "15m", conflicts_with = "dry_run")]
    pub wait: Option<Duration>,

    /// Change nothing: judge here (client), or also let the server judge (server)
    #[arg(long, value_name = "WHERE", value_enum)]
    pub dry_run: Option<DryRun>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}
