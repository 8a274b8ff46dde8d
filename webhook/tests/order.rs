//! The top-level modules follow the order in lib.rs. `plugin/tests/structure.rs` looks for cycles in the folders.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// The modules in the list of lib.rs, from the top down.
fn listed(library: &str) -> Vec<String> {
    library
        .lines()
        .filter_map(|line| line.strip_prefix("//! - "))
        .filter_map(|item| item.split('`').nth(1))
        .map(str::to_owned)
        .collect()
}

/// The names after each `prefix` in a source, in `use` groups and elsewhere.
fn used(source: &str, prefix: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap();
    let mut used = Vec::new();
    for after in code.split(prefix).skip(1) {
        let Some(group) = after.strip_prefix('{') else {
            used.push(first_name(after));
            continue;
        };
        let mut depth = 0_usize;
        let mut start = 0;
        for (offset, character) in group.char_indices() {
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => {
                    used.push(first_name(&group[start..offset]));
                    break;
                }
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    used.push(first_name(&group[start..offset]));
                    start = offset + 1;
                }
                _ => {}
            }
        }
    }
    used.retain(|name| !name.is_empty());
    used
}

fn first_name(path: &str) -> String {
    path.trim_start()
        .chars()
        .take_while(|character| character.is_ascii_alphanumeric() || *character == '_')
        .collect()
}

/// The files of a module, without tests.
fn files(module: &str) -> Vec<PathBuf> {
    let folder = Path::new(SOURCES).join(module);
    let mut files = vec![folder.with_extension("rs")];
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("tests.rs")
            {
                files.push(path);
            }
        }
    }
    files.retain(|file| !file.components().any(|part| part.as_os_str() == "tests"));
    files
}

#[test]
fn each_module_uses_only_modules_below_it() {
    let library = fs::read_to_string(Path::new(SOURCES).join("lib.rs")).unwrap();
    let listed = listed(&library);
    let mut declared: Vec<&str> = library
        .lines()
        .filter_map(|line| {
            line.trim_start_matches("pub ")
                .strip_prefix("mod ")?
                .strip_suffix(';')
        })
        .filter(|module| *module != "testing")
        .collect();
    let mut sorted: Vec<&str> = listed.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    declared.sort_unstable();
    assert_eq!(sorted, declared, "lib.rs lists other modules than it declares");

    let place = |module: &str| listed.iter().position(|listed| listed == module);
    let mut upward = Vec::new();
    for (position, module) in listed.iter().enumerate() {
        for file in files(module) {
            for name in used(&fs::read_to_string(&file).unwrap(), "crate::") {
                if place(&name).is_some_and(|other| other < position) {
                    upward.push(format!("{module} uses {name}"));
                }
            }
        }
    }
    assert_eq!(upward, [""; 0]);
}

#[test]
fn reads_use_groups_to_their_end() {
    let source =
        "use crate::{\n    a::{B, c::D},\n    e,\n};\nfn f() { crate::g::h() }\n#[cfg(test)]\nuse crate::x;";
    assert_eq!(used(source, "crate::"), ["a", "e", "g"]);
}
