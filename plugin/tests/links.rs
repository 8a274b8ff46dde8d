//! Every link of the README and the book leads to a file of the repository and to a heading in it, the links of the book lead
//! to its pages, and the summary of the book lists every page. Addresses on the network are not followed.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows tests by their attribute, and these helpers have none"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn workspace() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    workspace.canonicalize().expect("the folder of the workspace")
}

fn book() -> PathBuf {
    workspace().join("docs/src")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The pages of the book.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(folder) {
        if path.is_dir() {
            found.extend(pages(&path));
        } else if is_markdown(&path) {
            found.push(path);
        }
    }
    found
}

/// The text without the blocks of code between fences.
fn without_blocks(text: &str) -> String {
    let mut prose = String::new();
    let mut fence = None;
    for line in text.lines() {
        let start = line.trim_start();
        let of_line = ["```", "~~~"]
            .into_iter()
            .find(|marker| start.starts_with(marker));
        match (fence, of_line) {
            (None, None) => {
                prose += line;
                prose.push('\n');
            }
            (None, Some(_)) => fence = of_line,
            (Some(_), _) if fence == of_line => fence = None,
            (Some(_), _) => {}
        }
    }
    prose
}

/// The text without code between backticks. A span ends at as many backticks as it begins with.
fn without_code(text: &str) -> String {
    let mut prose = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('`') {
        let more = after.len() - after.trim_start_matches('`').len();
        let ticks = "`".repeat(more + 1);
        let code = after.trim_start_matches('`');
        prose += before;
        rest = code.split_once(&ticks).map_or(code, |(_, after)| after);
    }
    prose + rest
}

/// The targets of all links and of all definitions of links.
fn links(text: &str) -> Vec<String> {
    let prose = without_code(&without_blocks(text));
    let mut links = Vec::new();
    for rest in prose.split("](").skip(1) {
        let target = rest.split(')').next().unwrap_or_default();
        links.extend(target.split_whitespace().next().map(str::to_owned));
    }
    for line in prose.lines().filter(|line| line.starts_with('[')) {
        let definition = line.split_once("]: ").map(|(_, target)| target.trim().to_owned());
        links.extend(definition);
    }
    links
}

/// The anchors of all headings, as mdBook and GitHub derive them: a repeated one gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in without_blocks(text).lines() {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let anchor = anchor(title.trim());
        let before = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *before == 0 {
            anchor
        } else {
            format!("{anchor}-{before}")
        });
        *before += 1;
    }
    anchors
}

fn anchor(title: &str) -> String {
    let mut text = String::new();
    let mut rest = title;
    // Of a link, only its text counts.
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text += rest;
    let characters = text.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ if character.is_alphanumeric() => Some(character),
        _ => None,
    });
    characters.collect::<String>().to_lowercase()
}

/// Whether a link is an address on the network.
fn is_address(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// The file to which a link of a page leads, which may not exist, and the anchor in it.
fn target<'l>(page: &Path, link: &'l str) -> (PathBuf, Option<&'l str>) {
    let (file, anchor) = match link.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (link, None),
    };
    let path = if file.is_empty() {
        page.to_owned()
    } else {
        page.parent().expect("a folder").join(file)
    };
    (path, anchor)
}

/// Whether a link of a page leads to a file that is not part of the book.
fn leaves_book(page: &Path, link: &str) -> bool {
    let (path, _) = target(page, link);
    path.canonicalize().is_ok_and(|path| !path.starts_with(book()))
}

/// Why a link of a page leads nowhere; `None` if it leads somewhere.
fn fault(page: &Path, link: &str) -> Option<String> {
    let (path, anchor) = target(page, link);
    let Ok(target) = path.canonicalize() else {
        return Some("does not exist".to_owned());
    };
    if !target.starts_with(workspace()) {
        return Some("is outside the repository".to_owned());
    }
    let anchor = anchor?;
    let has_anchor = is_markdown(&target) && anchors(&read(&target)).contains(anchor);
    (!has_anchor).then(|| format!("has no heading with the anchor {anchor}"))
}

#[test]
fn every_link_leads_somewhere() {
    let mut texts = pages(&book());
    texts.extend(entries(&workspace()).into_iter().filter(|path| is_markdown(path)));
    texts.push(workspace().join("tests/README.md"));
    let (mut followed, mut faults) = (0, Vec::new());
    for page in &texts {
        for link in links(&read(page)) {
            if is_address(&link) {
                continue;
            }
            followed += 1;
            let name = page.strip_prefix(workspace()).expect("a page of the workspace");
            faults.extend(fault(page, &link).map(|why| format!("{}: {link} {why}", name.display())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(followed > 200, "only {followed} links were found");
}

/// mdBook publishes only the pages of the book: a link to another file of the repository leads nowhere there.
#[test]
fn no_link_leaves_the_book() {
    let mut leaving = Vec::new();
    for page in pages(&book()) {
        for link in links(&read(&page)) {
            if !is_address(&link) && leaves_book(&page, &link) {
                let name = page.strip_prefix(book()).expect("a page of the book");
                leaving.push(format!("{}: {link}", name.display()));
            }
        }
    }
    assert!(leaving.is_empty(), "{}", leaving.join("\n"));
}

#[test]
fn the_summary_lists_every_page_once() {
    let summary = book().join("SUMMARY.md");
    let mut listed: Vec<PathBuf> = links(&read(&summary))
        .iter()
        .map(|link| book().join(link))
        .collect();
    listed.sort();
    let mut expected = pages(&book());
    expected.retain(|page| *page != summary);
    expected.sort();
    assert_eq!(listed, expected);
}

/// The text and the target of each link to a whole page. The text is without code.
fn named_pages(text: &str) -> Vec<(String, String)> {
    let prose = without_code(&without_blocks(text));
    let mut found = Vec::new();
    let mut before = "";
    for rest in prose.split("](") {
        let target = rest.split(')').next().unwrap_or_default();
        if is_markdown(Path::new(target)) && !is_address(target) {
            let name = before.rsplit('[').next().unwrap_or_default();
            let name: Vec<&str> = name.split_whitespace().collect();
            found.push((name.join(" "), target.to_owned()));
        }
        before = rest;
    }
    found
}

/// The title of each page of the book, as the summary shows it.
fn titles() -> BTreeMap<PathBuf, String> {
    let summary = named_pages(&read(&book().join("SUMMARY.md")));
    summary
        .into_iter()
        .map(|(title, page)| (book().join(page), title))
        .collect()
}

#[test]
fn a_page_has_the_title_that_the_summary_shows() {
    let mut faults = Vec::new();
    for (page, title) in titles() {
        let first = read(&page).lines().next().unwrap_or_default().replace('`', "");
        if first != format!("# {title}") {
            faults.push(format!("{}: {first}, in the summary {title}", page.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A reader looks for the text of a link in the summary. A text that begins with a lower-case letter is part of a sentence, and a
/// kind such as `AdmissionConfiguration` is no title.
#[test]
fn a_link_to_a_page_shows_its_title() {
    let titles = titles();
    let is_kind = |text: &str| !text.contains(' ') && text.chars().skip(1).any(char::is_uppercase);
    let mut texts = pages(&book());
    texts.push(workspace().join("README.md"));
    let mut faults = Vec::new();
    for page in texts {
        for (text, link) in named_pages(&read(&page)) {
            let (path, _) = target(&page, &link);
            let title = path.canonicalize().ok().and_then(|path| titles.get(&path));
            let is_title = text.starts_with(char::is_uppercase) && !is_kind(&text);
            if let Some(title) = title.filter(|title| is_title && **title != text) {
                faults.push(format!("{}: {text}, but the title is {title}", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A record says when it was made, whether it still holds, and what was measured.
#[test]
fn a_decision_has_a_date_a_status_and_a_measurement() {
    for page in entries(&book().join("decisions")) {
        if page.ends_with("index.md") {
            continue;
        }
        let text = read(&page);
        let head = text.split("\n\n").nth(1).unwrap_or_default().replace('\n', " ");
        let name = page.display();
        let date = head
            .strip_prefix("**Recorded.** ")
            .and_then(|rest| rest.get(..12));
        let date = date.unwrap_or_else(|| panic!("{name}: no date: {head}"));
        let is_date = date.ends_with(". ") && date.bytes().filter(u8::is_ascii_digit).count() == 8;
        assert!(is_date, "{name}: {date}");
        assert!(head.contains("**Status.** Accepted"), "{name}: {head}");
        let measurement = head.split("**Measurement.** ").nth(1).unwrap_or_default();
        assert!(measurement.len() > 4, "{name}: {head}");
    }
}

/// Few people read a longer README to its end.
#[test]
fn the_readme_is_short() {
    let lines = read(&workspace().join("README.md")).lines().count();
    assert!(lines <= 120, "{lines} lines; move some of them into the book");
}

#[test]
fn the_anchor_of_each_rule_and_check_is_its_id() {
    let anchors_of = |page: &str| anchors(&read(&book().join("reference").join(page)));
    let rules = anchors_of("rules.md");
    for rule in kcp_rules::topics::rules() {
        assert!(rules.contains(rule.id), "{}", rule.id);
    }
    let checks = anchors_of("checks.md");
    for check in kcp_control_plane::checks::all() {
        assert!(checks.contains(check.id), "{}", check.id);
    }
}

#[test]
fn links_are_found_outside_code() {
    for (text, expected) in [
        ("see [a](b.md) and [c\nd](e.md#f)", &["b.md", "e.md#f"][..]),
        ("[`a`](b.md \"a title\")", &["b.md"]),
        ("`[a](b.md)` ``c ` [d](e.md)`` [f](g.md)", &["g.md"]),
        ("```console\n[a](b.md)\n```\n[c](d.md)", &["d.md"]),
        ("~~~\n```\n[a](b.md)\n~~~\n[c](d.md)", &["d.md"]),
        ("[a]: b.md\n[c](d.md)", &["d.md", "b.md"]),
        ("an array[0] (b.md)", &[]),
    ] {
        assert_eq!(links(text), expected, "{text}");
    }
}

#[test]
fn a_link_to_a_whole_page_is_found_with_its_text() {
    for (text, expected) in [
        (
            "see [A\nb](c.md), [d](e.md#f) and ![g](h.svg)",
            &[("A b", "c.md")][..],
        ),
        ("[`a`](b.md) [C](https://d/e.md)", &[("", "b.md")]),
    ] {
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(text, target)| ((*text).to_owned(), (*target).to_owned()))
            .collect();
        assert_eq!(named_pages(text), expected, "{text}");
    }
}

#[test]
fn anchors_follow_the_headings() {
    for (text, expected) in [
        ("# One", &["one"][..]),
        ("## -w into a pipe", &["-w-into-a-pipe"]),
        ("## If etcd has lost its quorum", &["if-etcd-has-lost-its-quorum"]),
        ("### replicas-even\n#no heading\n####### none", &["replicas-even"]),
        ("# A\n## A\n# B's `c`, d", &["a", "a-1", "bs-c-d"]),
        ("## See [this page](a.md#b) now", &["see-this-page-now"]),
        ("```\n# a comment\n```", &[]),
    ] {
        let expected: BTreeSet<String> = expected.iter().map(|anchor| (*anchor).to_owned()).collect();
        assert_eq!(anchors(text), expected, "{text}");
    }
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = book().join("introduction.md");
    for (link, expected) in [
        ("quick-start.md", None),
        ("#the-design-documents", None),
        ("reference/rules.md#replicas-even", None),
        ("../../tests", None),
        ("absent.md", Some("does not exist")),
        ("#absent", Some("has no heading with the anchor absent")),
        (
            "../../Cargo.toml#package",
            Some("has no heading with the anchor package"),
        ),
        ("../../../", Some("is outside the repository")),
    ] {
        assert_eq!(fault(&page, link).as_deref(), expected, "{link}");
    }
}

#[test]
fn a_link_that_leaves_the_book_is_found() {
    let page = book().join("introduction.md");
    for (link, expected) in [
        ("quick-start.md", false),
        ("#the-design-documents", false),
        ("../src/reference/rules.md#replicas-even", false),
        ("absent.md", false),
        ("../../CONTRIBUTING.md#house-rules", true),
        ("../book.toml", true),
        ("../../tests", true),
    ] {
        assert_eq!(leaves_book(&page, link), expected, "{link}");
    }
}

#[test]
fn each_picture_is_on_a_page() {
    let texts: String = pages(&book()).iter().map(|page| read(page)).collect();
    let pictures = entries(&book().join("pictures"));
    assert!(pictures.len() >= 12, "only {} pictures", pictures.len());
    for picture in pictures {
        let name = picture.file_name().expect("a name").display().to_string();
        assert!(
            texts.contains(&format!("pictures/{name})")),
            "no page shows {name}"
        );
    }
}

/// `make pictures` draws them.
#[test]
fn each_picture_shows_the_labels_of_its_text() {
    let mut sources = entries(&workspace().join("docs/pictures"));
    sources.retain(|source| source.extension().is_some_and(|extension| extension == "d2"));
    for source in sources.iter().filter(|source| !source.ends_with("classes.d2")) {
        let name = source.file_stem().expect("a name");
        let picture = read(&book().join("pictures").join(name).with_extension("svg"));
        let text = read(source);
        let labels = text
            .split('"')
            .skip(1)
            .step_by(2)
            .flat_map(|label| label.split("\\n"));
        for label in labels {
            let label = label.replace('&', "&amp;").replace('\'', "&#39;");
            assert!(picture.contains(&label), "{}: {label}", source.display());
        }
    }
}
