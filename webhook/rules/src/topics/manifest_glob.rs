//! The glob that selects the installer's manifests to patch, in the syntax of Go's `filepath.Match`.

use crate::{
    api::ClusterDeploymentCustomization,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "manifest-glob",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "glob-malformed",
        summary: "a glob must be well formed",
        why: "A malformed glob matches no manifest, so the patch has no effect or makes the installation fail.",
        scope: Scope::Object,
        source: "Go, path/filepath Match: ErrBadPattern",
        check: Check::Customization(glob_malformed),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
    Rule {
        id: "glob-outside",
        summary: "a glob must not select files outside the installer's directory",
        why: "The installer's manifests are in one directory. A glob that leaves this directory can change \
              other files of the installer.",
        scope: Scope::Object,
        source: "Hive, ManifestSelector: a glob is relative to the installer's directory",
        check: Check::Customization(glob_leaves_directory),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
];

/// All globs of a customization, each with its field path.
fn globs<'c>(
    customization: &'c ClusterDeploymentCustomization<'_>,
) -> impl Iterator<Item = (String, &'c str)> {
    let patches = customization.spec.installer_manifest_patches.iter().flatten();
    patches.enumerate().map(|(index, patch)| {
        let field = format!("spec.installerManifestPatches[{index}].manifestSelector.glob");
        (field, patch.manifest_selector.glob.as_str())
    })
}

fn glob_malformed(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    for (field, glob) in globs(change.new) {
        if glob.is_empty() {
            faults.push(Fault {
                field: field.into(),
                reason: CauseReason::Required,
                value: None,
                detail: "an empty glob matches no manifest".into(),
                remedy: "write a glob relative to the installer's directory, such as manifests/*.yaml".into(),
            });
        } else if let Err((detail, remedy)) = check_glob(glob) {
            faults.push_redacted(
                glob,
                Fault {
                    field: field.into(),
                    reason: CauseReason::Invalid,
                    value: Some(HIDDEN.to_owned()),
                    detail: detail.into(),
                    remedy: remedy.into(),
                },
            );
        }
    }
}

fn glob_leaves_directory(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    for (field, glob) in globs(change.new) {
        let (detail, remedy) = if glob.starts_with('/') {
            (
                "a glob is relative to the installer's directory, but this one begins at the root",
                "remove the leading slash",
            )
        } else if leaves_directory(glob) {
            (
                "the .. in this glob leaves the installer's directory",
                "select manifests below the installer's directory, such as manifests/*.yaml",
            )
        } else {
            continue;
        };
        faults.push_redacted(
            glob,
            Fault {
                field: field.into(),
                reason: CauseReason::Forbidden,
                value: Some(HIDDEN.to_owned()),
                detail: detail.into(),
                remedy: remedy.into(),
            },
        );
    }
}

/// Whether a relative glob leaves the installer's directory at any step, as in `a/../../b`. A wildcard never
/// matches `..`, so each wildcard leads one level down.
fn leaves_directory(path: &str) -> bool {
    let mut depth = 0_usize;
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => match depth.checked_sub(1) {
                Some(parent_depth) => depth = parent_depth,
                None => return true,
            },
            _ => depth += 1,
        }
    }
    false
}

type Malformed = (&'static str, &'static str);

const UNCLOSED_SET: Malformed = (
    "[ opens a set of characters, but no ] closes it",
    "add a ], or write \\[ to match the character [",
);
const EMPTY_SET: Malformed = (
    "the pattern has an empty character class, []",
    "put a character between [ and ], such as \\] for a bracket",
);
const INCOMPLETE_RANGE: Malformed = (
    "a range in [ ] has only one end",
    "write both ends, such as [a-z], or \\- to match a hyphen",
);
const TRAILING_BACKSLASH: Malformed = (
    "the \\ at the end escapes nothing",
    "write \\\\ to match a backslash, or remove the backslash",
);

/// Rejects the globs that Go's `filepath.Match` rejects. `*` and `?` are always valid.
fn check_glob(glob: &str) -> Result<(), Malformed> {
    let mut rest = glob.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                rest.next().ok_or(TRAILING_BACKSLASH)?;
            }
            '[' => check_set(&mut rest)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks a character set. `rest` starts after the `[`, and is moved to the text after the `]`.
fn check_set(rest: &mut std::str::Chars<'_>) -> Result<(), Malformed> {
    if rest.as_str().starts_with('^') {
        rest.next();
    }
    let mut is_empty = true;
    loop {
        match rest.next().ok_or(UNCLOSED_SET)? {
            ']' if is_empty => return Err(EMPTY_SET),
            ']' => return Ok(()),
            '-' => return Err(INCOMPLETE_RANGE),
            '\\' => {
                rest.next().ok_or(UNCLOSED_SET)?;
            }
            _ => {}
        }
        is_empty = false;
        if rest.as_str().starts_with('-') {
            rest.next();
            match rest.next().ok_or(UNCLOSED_SET)? {
                '-' | ']' => return Err(INCOMPLETE_RANGE),
                '\\' => {
                    rest.next().ok_or(UNCLOSED_SET)?;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check_glob;

    /// Expected results of `path.Match(glob, "")` in Go 1.26, which reads a glob to its end. The results were also
    /// compared for every glob of up to six of the characters `a[]^-\*/`.
    #[test]
    fn same_results_as_go() {
        for glob in [
            "*", "?", "**", "]", "a]", "-", "^", "[a]", "[^a]", "[a-b]", "[b-a]", "[[]", "[*]", "[?]",
            "[^^]", "[\\]]", "[a\\-z]", "\\[", "\\*", "\\\\", "[ä-ü]", "[,-.]", "[/]",
        ] {
            assert!(check_glob(glob).is_ok(), "{glob}");
        }
        for glob in [
            "[", "[]", "[^]", "[]a]", "[^]a]", "[a", "[^", "[-]", "[-a]", "[a-]", "[a--]", "[\\", "[a\\",
            "[a-\\", "\\", "a\\", "[a]b[", "[a-b-]", "[a-b-c]", "[]-a]",
        ] {
            assert!(check_glob(glob).is_err(), "{glob}");
        }
    }
}
