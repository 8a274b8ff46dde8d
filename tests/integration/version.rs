//! The global flags of the real kubectl.

use std::collections::BTreeMap;

use crate::shared::with_management_cluster;

/// The flags in the output of `options`, by their long names, each with the short one.
fn flags(options: &str) -> BTreeMap<String, Option<String>> {
    let lines = options.lines().map(str::trim);
    let flag = |line: &str| {
        let (short, long) = if let Some(long) = line.strip_prefix("--") {
            (None, long)
        } else {
            let (short, long) = line.split_once(", --")?;
            (Some(short.to_owned()), long)
        };
        let is_of_name = |letter: &char| letter.is_alphanumeric() || *letter == '-';
        Some((long.chars().take_while(is_of_name).collect(), short))
    };
    lines
        .filter(|line| line.starts_with('-'))
        .filter_map(flag)
        .collect()
}

#[test]
fn every_global_flag_of_kubectl_is_a_flag_of_the_plugin() {
    with_management_cluster(async |management| {
        let kubectl = management.kubectl();
        let theirs = flags(&kubectl.succeed(["options"]).await.unwrap().stdout);
        let ours = flags(&kubectl.succeed(["kcp", "options"]).await.unwrap().stdout);
        assert!(theirs.len() > 20, "{theirs:?}");
        for (long, short) in &theirs {
            assert_eq!(ours.get(long), Some(short), "--{long}");
        }
    });
}
