use super::*;
use crate::testing::Chunks;

fn lines(pieces: &[&str]) -> Lines<Chunks> {
    let pieces = pieces
        .iter()
        .map(|piece| Bytes::copy_from_slice(piece.as_bytes()));
    Lines::new(Chunks(pieces.collect()))
}

async fn all(mut lines: Lines<Chunks>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(line) = lines.next().await.unwrap() {
        all.push(String::from_utf8(line.to_vec()).unwrap());
    }
    all
}

#[tokio::test]
async fn joins_lines_from_pieces() {
    for pieces in [
        &["one\ntwo\n"][..],
        &["o", "ne\nt", "w", "o", "\n"],
        &["one\n", "two\n"],
    ] {
        assert_eq!(all(lines(pieces)).await, ["one", "two"], "{pieces:?}");
    }
}

#[tokio::test]
async fn drops_an_incomplete_last_line() {
    assert_eq!(all(lines(&["one\ntw"])).await, ["one"]);
    assert_eq!(all(lines(&[])).await, [""; 0]);
}

#[tokio::test]
async fn rejects_a_line_that_is_too_long() {
    let mut lines = lines(&[&"x".repeat(MAX_RESPONSE_BYTES + 1)]);
    assert!(matches!(lines.next().await, Err(ReadError::TooLarge)));
}

#[test]
fn decodes_events_by_type() {
    let event = |kind: &str| format!(r#"{{"type":"{kind}","object":{{"a":1}}}}"#);
    for (kind, expected) in [
        ("ADDED", Event::Put(r#"{"a":1}"#)),
        ("MODIFIED", Event::Put(r#"{"a":1}"#)),
        ("DELETED", Event::Removed(r#"{"a":1}"#)),
        ("BOOKMARK", Event::Bookmark(r#"{"a":1}"#)),
    ] {
        assert_eq!(Event::decode(event(kind).as_bytes()).unwrap(), expected);
    }
    for (line, error) in [
        (event("NEW"), "cannot use the API server's response: unknown event type \"NEW\"; correct the object first"),
        (
            r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}"#
                .to_owned(),
            "the API server responded with 410: too old; try again",
        ),
    ] {
        assert_eq!(Event::decode(line.as_bytes()).unwrap_err().to_string(), error);
    }
}
