//! Finds out from `argv[0]` whether the user started the program as `kubectl kcp` or directly.

use std::{ffi::OsStr, path::Path};

/// The name of the program in help texts, from `argv[0]`, because a user can install the plugin under another name. For
/// `kubectl a b-c`, kubectl runs the file `kubectl-a-b_c`.
pub fn name(argv0: Option<&OsStr>) -> String {
    let file = file_stem(argv0).unwrap_or("kubectl-kcp");
    match file.strip_prefix(PLUGIN) {
        Some(words) => format!("kubectl {}", words.replace('-', " ").replace('_', "-")),
        None => file.to_owned(),
    }
}

/// The prefix of the names of kubectl's plugins.
const PLUGIN: &str = "kubectl-";

/// The prefix of the names of the programs that complete the command lines of kubectl's plugins.
const COMPLETION: &str = "kubectl_complete-";

/// Whether kubectl started the program to complete a command line.
pub fn is_completion(argv0: Option<&OsStr>) -> bool {
    file_stem(argv0).is_some_and(|name| name.starts_with(COMPLETION))
}

/// The name of the program that kubectl runs to complete the command lines of a plugin, such as `kubectl_complete-kcp` for
/// `kubectl-kcp`. `None` if the name is not that of a plugin.
pub fn completion_name(plugin: &OsStr) -> Option<String> {
    let name = plugin.to_str()?.strip_prefix(PLUGIN)?;
    Some(format!("{COMPLETION}{name}"))
}

fn file_stem(argv0: Option<&OsStr>) -> Option<&str> {
    argv0.map(Path::new)?.file_stem()?.to_str()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{completion_name, is_completion, name};

    #[test]
    fn a_completion_has_the_name_of_its_plugin() {
        for (plugin, expected) in [
            ("kubectl-kcp", Some("kubectl_complete-kcp")),
            ("kubectl-capi_kcp", Some("kubectl_complete-capi_kcp")),
            ("kcp-plugin", None),
        ] {
            assert_eq!(
                completion_name(OsStr::new(plugin)).as_deref(),
                expected,
                "{plugin}"
            );
        }
        for (argv0, expected) in [
            (Some("/usr/bin/kubectl_complete-kcp"), true),
            (Some("kubectl_complete-capi_kcp"), true),
            (Some("/kubectl_complete-x/kubectl-kcp"), false),
            (None, false),
        ] {
            assert_eq!(is_completion(argv0.map(OsStr::new)), expected, "{argv0:?}");
        }
    }

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
