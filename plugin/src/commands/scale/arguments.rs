//! Arguments of `kubectl kcp scale`.

use std::time::Duration;

use clap::Args;

use crate::{arguments::parse_control_plane, change::arguments::WriteArguments};
use kcp_control_plane::duration::parse_duration;

/// Change the number of Machines of a control plane.
#[derive(Debug, Args)]
pub struct ScaleArguments {
    /// Control plane to scale, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Number of Machines to have
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_replicas)]
    pub replicas: i64,

    /// Go on only if the spec asks for this number now
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_replicas)]
    pub current_replicas: Option<i64>,

    /// Ask for it though the controller could not begin now; the rules and etcd's quorum still hold
    #[arg(long)]
    pub force: bool,

    /// Follow until it is done, at most this long [default when given without a value: 15m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "15m", conflicts_with_all = ["dry_run", "output"])]
    pub wait: Option<Duration>,

    /// How it is written.
    #[command(flatten)]
    pub write: WriteArguments,
}

/// Whether the number makes sense is for the rules to say.
pub(crate) fn parse_replicas(text: &str) -> Result<i64, String> {
    // The API's type has 32 bits.
    match text.parse::<i32>() {
        Ok(replicas) if replicas >= 0 => Ok(replicas.into()),
        _ => Err(format!(
            "expected a whole number of Machines, from 0 to {}",
            i32::MAX
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_replicas;

    #[test]
    fn accepts_numbers_that_the_api_can_hold() {
        for (text, replicas) in [("0", 0), ("3", 3), ("2147483647", 2_147_483_647)] {
            assert_eq!(parse_replicas(text), Ok(replicas), "{text}");
        }
    }

    #[test]
    fn rejects_anything_else() {
        let error = "expected a whole number of Machines, from 0 to 2147483647".to_owned();
        for text in ["-1", "2147483648", "99999999999999999999", "1.5", "abc", ""] {
            assert_eq!(parse_replicas(text), Err(error.clone()), "{text}");
        }
    }
}
