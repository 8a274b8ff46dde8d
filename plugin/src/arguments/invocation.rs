//! How the user started us: `kubectl kcp`, or the binary itself.

use std::{ffi::OsStr, path::Path};

/// The words to show in help, from `argv[0]`. kubectl runs `kubectl-a-b_c` for `kubectl a b-c`, and a plugin can be
/// installed under another name, so we show whichever name it has.
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
    fn shows_the_words_that_were_typed() {
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
