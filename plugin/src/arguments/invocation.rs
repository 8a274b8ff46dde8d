//! Finds out from `argv[0]` whether the user started the program as `kubectl kcp` or directly.

use std::{ffi::OsStr, path::Path};

/// The name of the program in help texts, from `argv[0]`, because a user can install the plugin under another name. For
/// `kubectl a b-c`, kubectl runs the file `kubectl-a-b_c`.
pub fn name(argv0: Option<&OsStr>) -> String {
    let file = argv0
        .map(Path::new)
        .and_then(Path::file_stem)
        .and_then(OsStr::to_str)
        .unwrap_or("kubectl-kcp");
    match file.strip_prefix("kubectl-") {
        Some(words) => format!("kubectl {}", words.replace('-', " ").replace('_', "-")),
        None => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::name;

    #[test]
    fn the_name_is_what_the_user_typed() {
        for (argv0, shown) in [
            ("kubectl-kcp", "kubectl kcp"),
            ("/usr/local/bin/kubectl-kcp", "kubectl kcp"),
            ("kubectl-capi_kcp", "kubectl capi-kcp"),
            ("/opt/kcp-plugin", "kcp-plugin"),
        ] {
            assert_eq!(name(Some(OsStr::new(argv0))), shown);
        }
        assert_eq!(name(None), "kubectl kcp");
    }
}
