//! The files of a bundle, and their maximum sizes.

use serde_json::json;

use crate::{
    bundle::{
        redaction::Redacted,
        secret_text::{without_cut_pem, without_secrets},
    },
    snapshot::Failure,
};

/// The maximum number of objects in a file. A person reads no more, and no control plane has more Machines.
pub const MAX_OBJECTS: usize = 500;

/// The maximum size of the objects in a file, in bytes. It is enough for 500 Nodes.
const MAX_FILE_BYTES: usize = 4 << 20;

/// The maximum size of all files together, in bytes. Mail and issue trackers accept attachments of this size.
const MAX_BUNDLE_BYTES: usize = 16 << 20;

/// What each audit event contains in its `apiVersion`. An API server logs them with `--audit-log-path=-`.
const AUDIT_GROUP: &str = "audit.k8s.io/";

/// One file of a bundle.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The path of the file in the bundle, such as `management/machines.json`.
    pub file: String,
    /// The content: JSON, or a log. `None` if nothing could be read; the bundle then does not contain the file.
    pub text: Option<String>,
    /// The number of objects in the file. `None` if the file is one document.
    pub objects: Option<usize>,
    /// The number of objects that were read, but exceed the limits of a file.
    pub left_out: usize,
    /// What could not be read.
    pub unread: Vec<Unread>,
}

/// Something that could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// On one line and without secrets.
    pub message: String,
    pub hint: Option<String>,
}

impl Unread {
    /// `message` is an error on one line. It may quote a server, so it loses tokens and keys.
    pub fn new(message: &str, hint: Option<String>) -> Self {
        Self {
            message: without_secrets(message).into_owned(),
            hint,
        }
    }
}

impl From<&Failure> for Unread {
    fn from(failure: &Failure) -> Self {
        Self::new(&failure.text(), failure.hint.clone())
    }
}

impl Part {
    pub fn document(file: &str, document: &Redacted) -> Self {
        Self {
            text: Some(text(document.value())),
            ..Self::unread(file, Vec::new())
        }
    }

    /// A list of objects, as kubectl reads it. Objects beyond the limits of a file are left out: the last ones, and those that
    /// are too large.
    pub fn objects(file: &str, objects: &[Redacted], unread: Vec<Unread>) -> Self {
        let mut documents = Vec::new();
        let mut bytes = 0;
        for object in objects {
            let size = text(object.value()).len();
            if documents.len() < MAX_OBJECTS && bytes + size <= MAX_FILE_BYTES {
                bytes += size;
                documents.push(object.value());
            }
        }
        // An empty list would say that there are no objects. If they could not be read, the bundle leaves out the file.
        let is_read = unread.is_empty() || !documents.is_empty();
        Self {
            text: is_read.then(|| text(&json!({"apiVersion": "v1", "kind": "List", "items": documents}))),
            objects: is_read.then_some(documents.len()),
            left_out: objects.len() - documents.len(),
            ..Self::unread(file, unread)
        }
    }

    /// A log. It may quote a request or a file, so it loses tokens and keys, and audit events, which contain whole objects. If it
    /// is too large, only its last lines stay.
    pub fn log(file: &str, text: &str) -> Self {
        let is_audit_event = |line: &&str| line.contains(AUDIT_GROUP);
        let audit_events = text.lines().filter(is_audit_event).count();
        let lines = text.split_inclusive('\n').filter(|line| !is_audit_event(line));
        let lines: String = lines.collect();
        let text = without_cut_pem(&lines);
        let text = without_secrets(&text);
        let excess = text.len().saturating_sub(MAX_FILE_BYTES);
        let line_end = text.bytes().skip(excess).position(|byte| byte == b'\n');
        let start = match (excess, line_end) {
            (0, _) => 0,
            (_, Some(line_end)) => excess + line_end + 1,
            (_, None) => text.len(),
        };
        let mut unread = Vec::new();
        if start > 0 {
            let limit = MAX_FILE_BYTES >> 20;
            let message = format!("the log is larger than {limit} MiB, so its beginning is left out");
            unread.push(Unread::new(&message, None));
        }
        if audit_events > 0 {
            let message = format!("{audit_events} lines with audit events are left out");
            unread.push(Unread::new(&message, None));
        }
        Self {
            text: text.get(start..).map(str::to_owned),
            ..Self::unread(file, unread)
        }
    }

    /// A file that the bundle does not contain.
    pub fn unread(file: &str, unread: Vec<Unread>) -> Self {
        Self {
            file: file.to_owned(),
            text: None,
            objects: None,
            left_out: 0,
            unread,
        }
    }
}

/// Removes the files that would make the bundle too large, and says so in their parts. The first files stay.
pub fn limit_size(parts: Vec<Part>) -> Vec<Part> {
    let mut bytes = 0;
    let limited = parts.into_iter().map(|mut part| {
        let size = part.text.as_ref().map_or(0, String::len);
        if bytes + size <= MAX_BUNDLE_BYTES {
            bytes += size;
            return part;
        }
        let limit = MAX_BUNDLE_BYTES >> 20;
        let message = format!("left out, because the bundle would be larger than {limit} MiB");
        part.unread.push(Unread::new(&message, None));
        Part {
            left_out: part.left_out + part.objects.unwrap_or_default(),
            text: None,
            objects: None,
            ..part
        }
    });
    limited.collect()
}

/// JSON with indentation, for people.
fn text(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{MAX_BUNDLE_BYTES, MAX_FILE_BYTES, MAX_OBJECTS, Part, Unread, limit_size};
    use crate::bundle::Redacted;

    fn objects(count: usize, name: &str) -> Vec<Redacted> {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        vec![Redacted::object(object); count]
    }

    #[test]
    fn a_file_has_at_most_so_many_objects_and_bytes() {
        let few = Part::objects("a.json", &objects(2, "n"), Vec::new());
        let list: Value = serde_json::from_str(&few.text.expect("a file")).expect("JSON");
        assert_eq!(
            list,
            json!({"apiVersion": "v1", "kind": "List", "items": [
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
            ]})
        );
        assert_eq!((few.objects, few.left_out), (Some(2), 0));

        let many = Part::objects("a.json", &objects(MAX_OBJECTS + 3, "n"), Vec::new());
        assert_eq!((many.objects, many.left_out), (Some(MAX_OBJECTS), 3));

        let mut large = objects(1, &"n".repeat(MAX_FILE_BYTES));
        large.extend(objects(1, "n"));
        let large = Part::objects("a.json", &large, Vec::new());
        assert_eq!((large.objects, large.left_out), (Some(1), 1));
        assert!(large.text.is_some_and(|text| text.len() < 1000));
    }

    #[test]
    fn an_empty_list_differs_from_no_list() {
        let empty = Part::objects("a.json", &[], Vec::new());
        assert!(empty.text.is_some());
        assert_eq!(empty.objects, Some(0));
        let why = Unread::new("forbidden", None);
        let unread = Part::objects("a.json", &[], vec![why.clone()]);
        assert_eq!(unread, Part::unread("a.json", vec![why.clone()]));
        let in_part = Part::objects("a.json", &objects(1, "n"), vec![why.clone()]);
        assert_eq!((in_part.objects, in_part.unread), (Some(1), vec![why]));
    }

    #[test]
    fn a_log_loses_audit_events_and_its_beginning() {
        let event =
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","requestObject":{"data":{"a":"c2VjcmV0"}}}"#;
        let log = Part::log("a.log", &format!("first line\n{event}\nlast line\n"));
        assert_eq!(log.text.as_deref(), Some("first line\nlast line\n"));
        let left_out = Unread::new("1 lines with audit events are left out", None);
        assert_eq!(log.unread, [left_out]);

        let line = "a line of a log\n";
        let log = Part::log("a.log", &line.repeat(MAX_FILE_BYTES / line.len() + 2));
        let text = log.text.expect("a file");
        assert!(text.starts_with(line) && text.len() <= MAX_FILE_BYTES);
        let cut = "the log is larger than 4 MiB, so its beginning is left out";
        assert_eq!(log.unread, [Unread::new(cut, None)]);
    }

    #[test]
    fn a_bundle_has_at_most_so_many_bytes() {
        let part = |size: usize| Part {
            text: Some("x".repeat(size)),
            objects: Some(2),
            left_out: 1,
            ..Part::unread("a.json", Vec::new())
        };
        let limited = limit_size(vec![part(MAX_BUNDLE_BYTES - 1), part(2), part(1)]);
        let [first, second, third] = limited.as_slice() else {
            panic!("{} parts", limited.len());
        };
        assert!(first.text.is_some() && third.text.is_some());
        assert_eq!(
            second,
            &Part {
                left_out: 3,
                ..Part::unread(
                    "a.json",
                    vec![Unread::new(
                        "left out, because the bundle would be larger than 16 MiB",
                        None
                    )]
                )
            }
        );
    }
}
