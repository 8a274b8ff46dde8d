//! Global flags of kubectl that have no effect here. The plugin accepts them, because scripts and aliases pass kubectl's global
//! flags to plugins too. It rejects a flag that asks for something that the plugin cannot do.

use std::path::PathBuf;

use clap::Args;

/// The flags of kubectl without effect here.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Flags of kubectl without effect here")]
pub struct KubectlOnly {
    /// No effect: the plugin caches nothing
    #[arg(long, global = true, value_name = "FOLDER", hide = true)]
    pub cache_dir: Option<PathBuf>,

    /// No effect: the plugin never asks for compressed responses
    #[arg(long, global = true, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide = true)]
    pub disable_compression: Option<bool>,

    /// No effect: the preferences in this file are for the commands of kubectl
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub kuberc: Option<PathBuf>,

    /// No effect: the plugin writes each line of the log immediately
    #[arg(long, global = true, value_name = "DURATION", hide = true)]
    pub log_flush_frequency: Option<String>,

    /// No effect: the log has one level for all files
    #[arg(long, global = true, value_name = "PATTERN=N,...", hide = true)]
    pub vmodule: Option<String>,

    /// No effect: the plugin writes no profile
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub profile_output: Option<PathBuf>,

    /// Only none is accepted: the plugin writes no profile
    #[arg(long, global = true, value_name = "NAME", value_parser = parse_profile, hide = true)]
    pub profile: Option<String>,

    /// Only false is accepted: the plugin is not tied to a Kubernetes version; to compare versions, use the command
    /// `version`
    #[arg(long, global = true, value_name = "BOOL", value_parser = parse_false, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", hide = true)]
    pub match_server_version: Option<bool>,

    /// Only false is accepted: the plugin does not read the warnings of the API server
    #[arg(long, global = true, value_name = "BOOL", value_parser = parse_false, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", hide = true)]
    pub warnings_as_errors: Option<bool>,
}

fn parse_profile(text: &str) -> Result<String, String> {
    match text {
        "none" => Ok(text.to_owned()),
        _ => Err("the plugin writes no profile; only none is accepted".to_owned()),
    }
}

fn parse_false(text: &str) -> Result<bool, String> {
    match text {
        "false" => Ok(false),
        _ => Err("the plugin does not support this flag; only false is accepted".to_owned()),
    }
}
