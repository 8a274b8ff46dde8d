//! Recognizes the placeholders of templates in text.

/// What only Helm charts contain.
const CHART: [&str; 9] = [
    "{{-",
    ".Values",
    ".Release.",
    "{{ include ",
    "{{ template ",
    "{{ if ",
    "{{ range ",
    "{{ with ",
    "{{ end ",
];

/// What actions of Go templates and Jinja begin with. Elsewhere, they may belong to cloud-init or to the names of Machines.
const ACTIONS: [&str; 4] = ["{{ .", "{{.", "{{ $", "{%"];

/// Whether text that is not YAML is a template. `line` is the line of the syntax error.
pub(super) fn is_template(text: &[u8], line: Option<u64>) -> bool {
    let text = String::from_utf8_lossy(text);
    let index = line.and_then(|line| usize::try_from(line.checked_sub(1)?).ok());
    let faulty = index.and_then(|index| text.lines().nth(index));
    let is_faulty = |line: &str| has_variable(line) || ACTIONS.iter().any(|action| line.contains(action));
    CHART.iter().any(|part| text.contains(part)) || faulty.is_some_and(is_faulty)
}

/// Whether a value is a placeholder or contains one.
pub(super) fn is_placeholder(text: &str) -> bool {
    has_variable(text) || text.contains("{{")
}

/// Whether text has a variable of clusterctl, such as `${NAME}`.
fn has_variable(text: &str) -> bool {
    let name = text.split_once("${").map(|(_, rest)| rest.trim_start());
    name.is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}
