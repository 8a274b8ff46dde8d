//! Modules do not depend on each other in cycles: the top-level ones follow the order in lib.rs, and the modules of a folder
//! use only each other, without cycles, and never the parent.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

use std::{
    collections::BTreeSet,
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

/// The paths after each `prefix` in a source, with those of groups.
fn used(source: &str, prefix: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap();
    let mut used: Vec<String> = code
        .split(prefix)
        .skip(1)
        .flat_map(|after| expand("", after))
        .collect();
    used.retain(|path| !path.is_empty() && !path.ends_with("::"));
    used
}

/// The paths at the start of a text: one, or those of a group.
fn expand(parent: &str, text: &str) -> Vec<String> {
    let is_path = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | ':');
    let end = text.find(|character| !is_path(character)).unwrap_or(text.len());
    let path = format!("{parent}{}", &text[..end]);
    match text[end..].strip_prefix('{') {
        Some(group) if path.is_empty() || path.ends_with("::") => items(group)
            .into_iter()
            .flat_map(|item| expand(&path, item.trim()))
            .collect(),
        _ => vec![path],
    }
}

/// The items of a group, whose opening brace is already read.
fn items(group: &str) -> Vec<&str> {
    let (mut items, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                items.push(&group[start..at]);
                start = at + 1;
                if character == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    items
}

fn first_name(path: &str) -> &str {
    path.split("::").next().unwrap()
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
    for (at, module) in listed.iter().enumerate() {
        for file in files(module) {
            for name in used(&fs::read_to_string(&file).unwrap(), "crate::") {
                if place(first_name(&name)).is_some_and(|other| other < at) {
                    upward.push(format!("{module} uses {name}"));
                }
            }
        }
    }
    assert_eq!(upward, [""; 0]);
}

/// Each folder of `src`, and the modules in it: files and folders.
fn folders() -> Vec<(PathBuf, BTreeSet<String>)> {
    let mut waiting = vec![PathBuf::from(SOURCES)];
    let mut found = Vec::new();
    while let Some(folder) = waiting.pop() {
        let paths: Vec<PathBuf> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                !["tests", "tests.rs", "snapshots"]
                    .iter()
                    .any(|name| path.ends_with(name))
            })
            .collect();
        waiting.extend(paths.iter().filter(|path| path.is_dir()).cloned());
        if folder != Path::new(SOURCES) {
            let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
            found.push((folder, paths.iter().map(name).collect()));
        }
    }
    found
}

/// What a module of `folder` uses from this folder: with `super` in its own file, and by the whole path in all its files.
fn used_beside(folder: &Path, module: &str) -> Vec<String> {
    let relative = folder.strip_prefix(SOURCES).unwrap().join("");
    let prefix = relative.to_str().unwrap().replace('/', "::");
    let own = folder.join(module).with_extension("rs");
    let mut found = Vec::new();
    for file in files(relative.join(module).to_str().unwrap()) {
        let source = fs::read_to_string(&file).unwrap();
        let whole = used(&source, "crate::");
        found.extend(
            whole
                .iter()
                .filter_map(|path| path.strip_prefix(&prefix).map(str::to_owned)),
        );
        if file == own {
            found.extend(used(&source, "super::"));
        }
    }
    found
}

#[test]
fn modules_of_a_folder_use_neither_their_parent_nor_each_other_in_cycles() {
    let mut faults = Vec::new();
    for (folder, names) in folders() {
        let mut graph: Vec<(&String, Vec<String>)> = Vec::new();
        for name in &names {
            let beside = used_beside(&folder, name);
            let first: Vec<String> = beside.iter().map(|path| first_name(path).to_owned()).collect();
            let of_parent = first.iter().filter(|item| !names.contains(*item));
            faults.extend(
                of_parent.map(|item| format!("{name} uses {item} of its parent {}", folder.display())),
            );
            graph.push((name, first));
        }
        // Remove the modules that use no remaining one, until only cycles remain.
        loop {
            let remaining: Vec<&String> = graph.iter().map(|(name, _)| *name).collect();
            let before = graph.len();
            graph.retain(|(name, used)| used.iter().any(|used| used != *name && remaining.contains(&used)));
            if graph.len() == before {
                break;
            }
        }
        let in_cycles = graph
            .iter()
            .map(|(name, used)| format!("{name} is in a cycle: it uses {used:?}"));
        faults.extend(in_cycles);
    }
    assert_eq!(faults, [""; 0]);
}

#[test]
fn reads_use_groups_to_their_end() {
    let source =
        "use crate::{\n    a::{B, c::D},\n    e,\n};\nfn f() { crate::g::h() }\n#[cfg(test)]\nuse crate::x;";
    assert_eq!(used(source, "crate::"), ["a::B", "a::c::D", "e", "g::h"]);
}
