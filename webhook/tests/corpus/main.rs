//! Replays the fuzzers' seeds, corpus and regressions against the properties that must hold for any bytes. `tests/fuzz` has
//! the fuzzers.
//!
//! `UPDATE_CORPUS=1` writes the seeds into the corpus, which `cargo fuzz cmin` then reduces, and writes the dictionary.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

use std::{
    env, fs,
    panic::{self, RefUnwindSafe},
    path::{Path, PathBuf},
};

mod costly;
mod dictionary;
#[path = "../../../tests/fuzz/oracles/mod.rs"]
mod oracles;
mod seeds;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Inputs that the fuzzers found. Fuzzers name and replace these files.
const CORPUS: &str = "corpus";
/// Inputs that once caused a failure, named after it.
const REGRESSIONS: &str = "regressions";

fn folder(what: &str, target: &str) -> PathBuf {
    Path::new(ROOT).join("tests/fuzz").join(what).join(target)
}

fn updates() -> bool {
    env::var_os("UPDATE_CORPUS").is_some()
}

/// Runs a target on its seeds and stored files.
fn replay(target: &str, holds: impl Fn(&[u8]) + RefUnwindSafe) {
    let check = |name: &str, content: &[u8]| {
        let held = panic::catch_unwind(|| holds(content));
        assert!(held.is_ok(), "the property does not hold for {name}");
    };
    let seeds = seeds::seeds().into_iter().filter(|seed| seed.target == target);
    let mut checked = 0;
    for seed in seeds {
        if updates() {
            let corpus = folder(CORPUS, target);
            fs::create_dir_all(&corpus).unwrap();
            fs::write(corpus.join(&seed.name), &seed.content).unwrap();
        }
        check(&seed.name, &seed.content);
        checked += 1;
    }
    let folders = [CORPUS, REGRESSIONS].map(|what| folder(what, target));
    // Not every target has regressions.
    for folder in folders.iter().filter(|folder| folder.exists()) {
        for entry in fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            check(&file.display().to_string(), &fs::read(&file).unwrap());
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn reviews() {
    replay("review", oracles::review::holds);
}

/// Prints the slowest input of the corpus, and of a few made to be slow. No test asserts a speed.
#[test]
fn reports_the_slowest_review_by_byte() {
    let mut costs: Vec<_> = seeds::seeds()
        .into_iter()
        .filter(|seed| seed.target == "review")
        .map(|seed| (oracles::cost::Cost::measure(&seed.content), seed.name))
        .collect();
    for entry in fs::read_dir(folder(CORPUS, "review")).unwrap() {
        let file = entry.unwrap().path();
        let cost = oracles::cost::Cost::measure(&fs::read(&file).unwrap());
        costs.push((cost, file.file_name().unwrap().to_string_lossy().into_owned()));
    }
    for (name, body) in costly::bodies() {
        costs.push((oracles::cost::Cost::measure(body.as_bytes()), name.to_owned()));
    }
    costs.sort_by_key(|(cost, _)| cost.per_byte());
    for (cost, name) in costs.iter().rev().take(5) {
        eprintln!(
            "{:?} a byte: {name}, {} bytes in {:?}",
            cost.per_byte(),
            cost.bytes,
            cost.cpu
        );
    }
    assert!(costs.len() > 20, "{}", costs.len());
}

#[test]
fn manifests() {
    replay("lint_yaml", oracles::lint_yaml::holds);
}

#[test]
fn patch_documents() {
    replay("patch", oracles::patch::holds);
}

#[test]
fn configurations() {
    replay("configuration", oracles::configuration::holds);
}

#[test]
fn leader_migrations() {
    replay("leader_migration", oracles::leader_migration::holds);
}

#[test]
fn the_dictionary_has_every_field() {
    let file = Path::new(ROOT).join("tests/fuzz/fields.dict");
    let text = dictionary::text(Path::new(ROOT));
    if updates() {
        fs::write(&file, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(file).unwrap(), text);
}
