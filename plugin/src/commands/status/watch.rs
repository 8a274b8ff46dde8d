//! Prints the output of `status --watch`: the screen to draw, and the changes since the last poll.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::commands::status::{
    report::{Inspected, Subject},
    screen::{Layout, changes::changes},
};
use crate::{terminal::Size, verdict::Verdict, watch::Observation};

impl Observation for Subject {
    fn changes(before: Option<&Self>, after: &Self) -> Vec<String> {
        lines(before, after)
    }

    fn verdict(&self) -> Verdict {
        Self::verdict(self)
    }
}

/// The parts of the screen that fit on the terminal below the heading.
pub(super) fn render(subject: &Subject, now: Timestamp, size: Size, layout: Layout) -> String {
    let screen = subject.screen(now, layout);
    screen.fit(size.lines().saturating_sub(1))
}

/// The changes since the last poll, one line each. With several control planes, each line begins with a name.
fn lines(before: Option<&Subject>, after: &Subject) -> Vec<String> {
    let old = before.map_or(&[][..], Subject::inspected);
    let new = after.inspected();
    let is_several = matches!(after, Subject::Several { .. });
    let mut lines = Vec::new();
    for inspected in new {
        let same = old.iter().find(|old| name(old) == name(inspected));
        let changes = changes(
            same.map(|same| (&same.observed, &same.inspection)),
            (&inspected.observed, &inspected.inspection),
        );
        let prefix = if is_several {
            format!("{}: ", name(inspected))
        } else {
            String::new()
        };
        lines.extend(changes.into_iter().map(|change| format!("{prefix}{change}")));
    }
    let unread = |subject: &Subject| subject.unread_contexts().to_vec();
    let (unread_before, unread_after) = (before.map(unread).unwrap_or_default(), unread(after));
    let is_unread =
        |context: Option<&String>| unread_after.iter().any(|unread| Some(&unread.context) == context);
    lines.extend(
        unread_after
            .iter()
            .filter(|unread| !unread_before.contains(unread))
            .map(|unread| format!("{}: not read: {}", unread.context, unread.error)),
    );
    // The control planes of a context that cannot be read now may still exist.
    let gone = old
        .iter()
        .filter(|old| !new.iter().any(|new| name(new) == name(old)))
        .filter(|old| !is_unread(old.context.as_ref()));
    lines.extend(gone.map(|old| format!("{}: gone", name(old))));
    lines
}

fn name(inspected: &Inspected) -> String {
    let control_plane = &inspected.observed.control_plane;
    let name = format!("{}/{}", control_plane.namespace(), control_plane.name());
    match &inspected.context {
        Some(context) => format!("{context} {name}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Subject, lines, render};
    use crate::{
        commands::status::{
            report::Inspected,
            screen::example::{Example, healthy, member_dead},
        },
        fleet::UnreadContext,
        terminal::{Size, plain},
        watch::add_heading,
    };
    use kcp_control_plane::{checks::finding::CheckOutcome, testing::objects::now};

    fn inspected(example: Example) -> Inspected {
        Inspected {
            context: None,
            observed: example.observed,
            inspection: example.inspection,
        }
    }

    fn several(inspected: Vec<Inspected>) -> Subject {
        Subject::Several {
            namespace: None,
            inspected,
            unread: Vec::new(),
        }
    }

    #[test]
    fn each_line_names_its_control_plane_if_there_are_several() {
        let mut other = inspected(healthy());
        other.observed.control_plane.metadata.name = Some("other".to_owned());
        let before = several(vec![inspected(healthy()), other]);
        assert_eq!(lines(None, &before), ["d/c1-cp: Healthy", "d/other: Healthy"]);
        assert_eq!(lines(Some(&before), &before), Vec::<String>::new());
        let after = several(vec![inspected(healthy())]);
        assert_eq!(lines(Some(&before), &after), ["d/other: gone"]);
    }

    #[test]
    fn a_context_that_cannot_be_read_is_one_line_and_loses_nothing() {
        let in_context = |context: &str| Inspected {
            context: Some(context.to_owned()),
            ..inspected(healthy())
        };
        let before = several(vec![in_context("east"), in_context("west")]);
        assert_eq!(
            lines(None, &before),
            ["east d/c1-cp: Healthy", "west d/c1-cp: Healthy"]
        );
        let after = Subject::Several {
            namespace: None,
            inspected: vec![in_context("east")],
            unread: vec![UnreadContext {
                context: "west".to_owned(),
                error: "no connection".to_owned(),
            }],
        };
        assert_eq!(lines(Some(&before), &after), ["west: not read: no connection"]);
        assert_eq!(lines(Some(&after), &after), Vec::<String>::new());
    }

    #[test]
    fn one_control_plane_needs_no_name() {
        let before = Subject::One(Box::new(inspected(healthy())));
        let after = Subject::One(Box::new(inspected(member_dead())));
        let lines = lines(Some(&before), &after);
        assert_eq!(
            lines.first().map(String::as_str),
            Some("Healthy -> Degraded: 2 problems")
        );
    }

    #[test]
    fn a_finding_that_gets_worse_is_printed_again() {
        let before = inspected(member_dead());
        let mut after = before.clone();
        let findings = after
            .inspection
            .checks
            .iter_mut()
            .flat_map(|checked| &mut checked.findings);
        let finding = findings.last().expect("a finding");
        finding.outcome = CheckOutcome::Warn;
        let (objects, message) = (finding.objects.join(", "), finding.message.clone());
        let printed = lines(
            Some(&Subject::One(Box::new(before))),
            &Subject::One(Box::new(after)),
        );
        let line = format!("warn: {objects}: {message} (");
        assert!(
            matches!(&printed[..], [only] if only.starts_with(&line)),
            "{printed:?}"
        );
    }

    #[test]
    fn a_frame_has_no_more_lines_than_the_terminal() {
        let subject = Subject::One(Box::new(inspected(member_dead())));
        for height in 3..60 {
            let size = Size { width: 80, height };
            let layout = Layout {
                width: Some(size.width),
                ..Layout::default()
            };
            let screen = render(&subject, now(), size, layout);
            let text = plain(&add_heading(now(), Some("no\u{1b} connection"), &screen));
            assert!(text.lines().count() < height, "{height}:\n{text}");
            let heading = text.lines().next().unwrap_or_default();
            assert!(
                heading.ends_with("  cannot refresh: no\\u{1b} connection"),
                "{heading}"
            );
        }
    }
}
