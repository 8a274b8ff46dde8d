//! Checks which crates each crate links, that the picture of the crates is true, that no two folders of a crate import each other,
//! that the lists of modules are true, and how variables are named.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy knows tests by their attribute, and these helpers have none"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Crates that parse a command line or draw on a terminal.
const TERMINAL_CRATES: [&str; 6] = [
    "anstream",
    "clap",
    "clap_builder",
    "indicatif",
    "owo-colors",
    "terminal_size",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names of the crates that a package links, up to a depth of dependencies.
fn linked(package: &str, depth: u8) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .current_dir(workspace())
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
        ])
        .args(["--package", package, "--depth", &depth.to_string()])
        .output()
        .expect("cargo runs");
    let text = String::from_utf8_lossy(&tree.stdout);
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn assert_links_none(package: &str, forbidden: &[&str]) {
    let linked = linked(package, u8::MAX);
    assert!(linked.contains(package), "{linked:?}");
    let found: Vec<_> = forbidden.iter().filter(|name| linked.contains(**name)).collect();
    assert!(found.is_empty(), "{package} links {found:?}");
}

#[test]
fn the_kinds_and_the_rules_link_no_client_and_no_runtime() {
    for package in ["kcp-api", "kcp-rules"] {
        assert_links_none(package, &["kube-client", "hyper", "tokio"]);
    }
}

#[test]
fn the_model_links_no_kubernetes_client_and_no_terminal() {
    assert_links_none("kcp-control-plane", &TERMINAL_CRATES);
    assert_links_none("kcp-control-plane", &["kube-client", "kube-runtime"]);
}

#[test]
fn the_client_and_the_pools_link_no_terminal() {
    assert_links_none("kcp-client", &TERMINAL_CRATES);
    assert_links_none("kcp-pool", &TERMINAL_CRATES);
    assert_links_none("kcp-storage", &TERMINAL_CRATES);
    assert_links_none("kcp-storage", &["kube-client"]);
}

/// A package and one that it uses outside its tests.
type Use = (String, String);

/// The packages in docs/pictures/crates.d2, and its arrows. The label of a crate begins with the name of its package.
fn drawn() -> (BTreeSet<String>, BTreeSet<Use>) {
    let text = fs::read_to_string(workspace().join("docs/pictures/crates.d2")).expect("a picture");
    let labels = text.lines().filter_map(|line| line.split_once(": \""));
    let packages: BTreeMap<&str, &str> = labels
        .filter_map(|(key, label)| Some((key, label.split_once("\\n")?.0)))
        .collect();
    let mut arrows = BTreeSet::new();
    for line in text.lines().filter(|line| line.contains(" -> ")) {
        let chain = line.split(':').next().unwrap_or_default();
        let chain: Vec<&str> = chain.split(" -> ").map(|key| packages[key]).collect();
        arrows.extend(
            chain
                .windows(2)
                .map(|pair| (pair[0].to_owned(), pair[1].to_owned())),
        );
    }
    (packages.into_values().map(str::to_owned).collect(), arrows)
}

/// Whether a package uses another, directly or through others.
fn leads(arrows: &BTreeSet<Use>, start: &str, end: &str) -> bool {
    arrows
        .iter()
        .any(|(user, used)| user == start && (used == end || leads(arrows, used, end)))
}

/// The picture may leave out an arrow between two crates that a chain of other arrows connects.
#[test]
fn the_picture_shows_which_crate_uses_which() {
    let (packages, arrows) = drawn();
    let mut uses = BTreeSet::new();
    for package in &packages {
        let mut dependencies = linked(package, 1);
        dependencies.retain(|name| name.starts_with("kcp-") && name != package);
        uses.extend(dependencies.into_iter().map(|used| (package.clone(), used)));
    }
    let wrong: Vec<_> = arrows.difference(&uses).collect();
    assert!(wrong.is_empty(), "no Cargo.toml has these arrows: {wrong:?}");
    let absent: Vec<_> = uses
        .iter()
        .filter(|(user, used)| !leads(&arrows, user, used))
        .collect();
    assert!(absent.is_empty(), "the picture lacks these arrows: {absent:?}");
}

/// A module's path in its crate, `["plan", "step"]`, and the production code of its file.
type Module = (Vec<String>, String);

fn modules(folder: &Path, at: &[String], found: &mut Vec<Module>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let is_test = ["tests", "testing", "snapshots"].contains(&name.as_str());
        if path.is_dir() && !is_test {
            modules(&path, &[at, &[name]].concat(), found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            let text = fs::read_to_string(&path).expect("a file");
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let is_root = ["mod", "lib", "main"].contains(&name.as_str());
            let module = if is_root {
                at.to_vec()
            } else {
                [at, &[name]].concat()
            };
            found.push((module, code.to_owned()));
        }
    }
}

/// The paths that a `use` names, `crate::a::{b, c::d}` as `crate::a::b` and `crate::a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.to_owned()];
    };
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let (mut depth, mut part, mut parts) = (0_usize, String::new(), Vec::new());
    for character in body.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(character);
    }
    parts.push(part);
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts
        .flat_map(|part| expand(&format!("{prefix}{part}")))
        .collect()
}

/// The modules that a module names, by `use` or in its code.
fn named(module: &[String], code: &str) -> BTreeSet<Vec<String>> {
    let code: Vec<&str> = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let uses = code
        .split("use ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next());
    let uses = uses.flat_map(|tree| expand(&tree.split_whitespace().collect::<String>()));
    let starts = ["crate::", "super::"]
        .into_iter()
        .flat_map(|prefix| code.match_indices(prefix));
    let is_start = |index: usize| {
        !code[..index].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$'))
    };
    let inline = starts.filter(|(index, _)| is_start(*index)).map(|(index, _)| {
        let rest = code.get(index..).unwrap_or_default();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        rest.get(..end.unwrap_or(rest.len()))
            .unwrap_or_default()
            .to_owned()
    });
    let resolve = |path: String| -> Option<Vec<String>> {
        let mut parts = path.split("::").map(str::to_owned).peekable();
        let mut base = match parts.next()?.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module.split_last()?.1.to_vec(),
            _ => return None,
        };
        while parts.next_if(|part| part == "super").is_some() {
            base.pop();
        }
        base.extend(parts);
        Some(base)
    };
    uses.chain(inline).filter_map(resolve).collect()
}

/// The imports between the modules of each folder. The key is a folder and one of its modules.
type Imports = BTreeMap<(Vec<String>, String), BTreeSet<String>>;

/// An import anywhere below a module counts as an import of that module.
fn imports(crate_folder: &str) -> Imports {
    let mut found = Vec::new();
    modules(&workspace().join(crate_folder).join("src"), &[], &mut found);
    let paths: BTreeSet<&Vec<String>> = found.iter().map(|(module, _)| module).collect();
    let mut imports = Imports::new();
    for (module, code) in &found {
        for target in named(module, code) {
            let depth = (0..=target.len())
                .rev()
                .find(|depth| paths.contains(&target[..*depth].to_vec()))
                .unwrap_or_default();
            let target = &target[..depth];
            let common = module.iter().zip(target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                let from = (module[..common].to_vec(), from.clone());
                imports.entry(from).or_default().insert(to.clone());
            }
        }
    }
    imports
}

/// Pairs of folders or files that import each other, directly or through others, in any folder of a crate.
fn cycles(crate_folder: &str) -> BTreeSet<String> {
    let imports = imports(crate_folder);
    let reaches = |parent: &Vec<String>, from: &str, to: &str| {
        let (mut todo, mut seen) = (vec![from.to_owned()], BTreeSet::new());
        while let Some(module) = todo.pop() {
            for next in imports.get(&(parent.clone(), module)).into_iter().flatten() {
                if next == to {
                    return true;
                }
                if seen.insert(next.clone()) {
                    todo.push(next.clone());
                }
            }
        }
        false
    };
    let mut cycles = BTreeSet::new();
    for ((parent, from), targets) in &imports {
        for to in targets {
            if reaches(parent, to, from) {
                let parent = parent.join("/");
                cycles.insert(format!("{crate_folder}/src/{parent}: {from} -> {to}"));
            }
        }
    }
    cycles
}

#[test]
fn no_folders_import_each_other() {
    let crates = [
        "plugin",
        "plugin/client",
        "plugin/etcd",
        "plugin/storage",
        "plugin/model",
        "plugin/pool",
        "webhook",
        "webhook/api",
        "webhook/rules",
    ];
    let found: BTreeSet<String> = crates.iter().flat_map(|folder| cycles(folder)).collect();
    assert_eq!(found, BTreeSet::new());
}

/// Crates whose lib.rs lists the modules from the top down: each uses only modules below it in the list.
const LAYERED: [&str; 6] = [
    "plugin",
    "plugin/client",
    "plugin/model",
    "plugin/pool",
    "webhook",
    "webhook/rules",
];

/// Other files that list their modules.
const LISTS: [&str; 2] = ["plugin/client/src/reads.rs", "webhook/api/src/lib.rs"];

/// The modules that a file declares, without those for tests.
fn declared(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().zip(text.lines().skip(1));
    lines
        .filter(|(before, _)| !before.starts_with("#[cfg("))
        .filter_map(|(_, line)| {
            line.trim_start_matches("pub ")
                .strip_prefix("mod ")?
                .strip_suffix(';')
        })
        .collect()
}

/// The modules in the list of a file, in its order.
fn listed(text: &str) -> Vec<&str> {
    let declared = declared(text);
    let lines = text
        .lines()
        .filter(|line| line.starts_with("//! - ") || line.starts_with("//!   "));
    let mut listed = Vec::new();
    for name in lines.flat_map(|line| line.split('`').skip(1).step_by(2)) {
        if declared.contains(name) && !listed.contains(&name) {
            listed.push(name);
        }
    }
    listed
}

#[test]
fn lists_name_every_module() {
    let roots = LAYERED.map(|folder| format!("{folder}/src/lib.rs"));
    let files = roots.iter().map(String::as_str).chain(LISTS);
    for file in files {
        let text = fs::read_to_string(workspace().join(file)).expect("a source file");
        assert_eq!(BTreeSet::from_iter(listed(&text)), declared(&text), "{file}");
    }
}

#[test]
fn modules_use_only_those_below_them() {
    let mut upward = Vec::new();
    for folder in LAYERED {
        let root = workspace().join(folder).join("src/lib.rs");
        let text = fs::read_to_string(root).expect("a source file");
        let listed = listed(&text);
        let place = |module: &str| listed.iter().position(|listed| *listed == module);
        for ((parent, module), targets) in imports(folder) {
            let is_above = |target: &&String| place(target) < place(&module) && place(target).is_some();
            if parent.is_empty() && place(&module).is_some() {
                let targets = targets.iter().filter(is_above);
                upward.extend(targets.map(|target| format!("{folder}: {module} uses {target}")));
            }
        }
    }
    assert_eq!(upward, [""; 0]);
}

/// Files that read the local clock. Ages and deadlines of objects follow the API server's `Date`, because the local clock may
/// be wrong.
const LOCAL_CLOCK: [&str; 13] = [
    // Until the server has responded. A pool then ends no lease.
    "plugin/client/src/connection.rs",
    "plugin/client/src/reads/leader_migration.rs",
    "plugin/pool/src/store.rs",
    // The validity of a client certificate that this command issues for itself.
    "plugin/client/src/reads/etcd/access.rs",
    // How long this command has waited.
    "plugin/pool/src/acquire/claim.rs",
    "plugin/pool/src/acquire/wait.rs",
    "plugin/src/commands/pool/exec.rs",
    "plugin/src/commands/pool/exec/claimed.rs",
    "plugin/src/commands/pool/exec/janitor.rs",
    "plugin/src/commands/pool/lease.rs",
    // Rules and their exemptions in files, without a server.
    "plugin/src/commands/lint.rs",
    "plugin/src/commands/rules.rs",
    // The heading of a screen that is drawn again.
    "plugin/src/watch.rs",
];

#[test]
fn ages_and_deadlines_do_not_follow_the_local_clock() {
    let found: BTreeSet<String> = sources(&workspace().join("plugin"))
        .into_iter()
        .filter(|file| {
            let text = fs::read_to_string(file).expect("a source file");
            let production = text.split("mod tests {").next().unwrap_or_default();
            ["Timestamp::now", "SystemTime::now"]
                .iter()
                .any(|now| production.contains(now))
        })
        .map(|file| {
            let file = file.strip_prefix(workspace()).expect("in the workspace");
            file.display().to_string()
        })
        .collect();
    assert_eq!(found, LOCAL_CLOCK.map(str::to_owned).into());
}

/// The source files of the crates in a folder, without tests and benchmarks.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let is_test = |part: &OsStr| {
        ["tests", "benches", "testing", "tests.rs"]
            .iter()
            .any(|name| part == *name)
    };
    let mut files = rust_files(folder);
    files.retain(|file| {
        let path = file.strip_prefix(folder).expect("in the folder");
        !path.iter().any(is_test)
    });
    files
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let files = paths.flat_map(|path| match path.extension() {
        Some(extension) if extension == "rs" => vec![path],
        _ if path.is_dir() && !path.ends_with("target") => rust_files(&path),
        _ => Vec::new(),
    });
    files.collect()
}

/// Words that do not say what a variable is.
const LOOSE_WORDS: [&str; 16] = [
    "about", "above", "at", "below", "beside", "beyond", "by", "nothing", "of", "on", "over", "tell",
    "under", "with", "within", "without",
];

/// Whether a line binds a variable with this name: with `let`, or as a parameter of a closure.
fn binds(line: &str, name: &str) -> bool {
    let starts = [" let ", " let mut ", " let (", "|", "|&", "|(", "|&("];
    starts.iter().any(|start| {
        let bound = format!("{start}{name}");
        let mut rests = line.split(&bound).skip(1);
        rests.any(|rest| rest.starts_with(['|', ':', ',', ' ']))
    })
}

#[test]
fn no_variable_has_a_loose_name() {
    let folders = ["plugin", "webhook", "tests"].map(|folder| workspace().join(folder));
    let mut found = BTreeSet::new();
    for file in folders.iter().flat_map(|folder| rust_files(folder)) {
        let code = fs::read_to_string(&file).expect("a source file");
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in lines {
            let loose = LOOSE_WORDS.iter().filter(|word| binds(line, word));
            found.extend(loose.map(|word| format!("{}: {word}", file.display())));
        }
    }
    assert_eq!(found, BTreeSet::new());
}
