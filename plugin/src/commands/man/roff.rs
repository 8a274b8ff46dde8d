//! Writes text with the macros of man(7), so that neither `mandoc -T lint` nor `groff -ww` warns.

use std::fmt::Write as _;

/// The maximum length of a line of running text in bytes. mandoc warns about longer ones.
const MAX_LINE: usize = 80;

/// A manual page in the making.
#[derive(Debug, Default)]
pub(super) struct Roff {
    text: String,
    /// Whether the last macro already begins a paragraph.
    is_paragraph_open: bool,
}

impl Roff {
    /// Begins a page with its title, section 1, date, program, and manual. The date may be empty.
    pub(super) fn new(title: &str, date: &str, program: &str, manual: &str) -> Self {
        let mut page = Self::default();
        let (title, date) = (
            escape(&title.to_uppercase()),
            if date.is_empty() { "\"\"" } else { date },
        );
        page.line(&format!(
            ".TH {title} 1 {date} \"{}\" \"{}\"",
            escape(program),
            escape(manual)
        ));
        page
    }

    pub(super) fn section(&mut self, title: &str) {
        self.line(&format!(".SH {title}"));
        self.is_paragraph_open = true;
    }

    /// Adds a paragraph of running text, which contains markup.
    pub(super) fn paragraph(&mut self, text: &str) {
        if !self.is_paragraph_open {
            self.line(".PP");
        }
        self.fill(text);
    }

    /// Adds an item of a list. Both texts contain markup.
    pub(super) fn item(&mut self, tag: &str, text: &str) {
        self.line(".TP");
        self.line(&guarded(tag));
        self.fill(text);
    }

    /// Adds items below the last item.
    pub(super) fn indented(&mut self, add: impl FnOnce(&mut Self)) {
        self.line(".RS");
        self.is_paragraph_open = true;
        add(self);
        self.line(".RE");
        self.is_paragraph_open = false;
    }

    /// Adds lines that are not filled. They contain no markup.
    pub(super) fn verbatim<'l>(&mut self, lines: impl IntoIterator<Item = &'l str>) {
        if !self.is_paragraph_open {
            self.line(".PP");
        }
        self.line(".nf");
        for line in lines {
            self.line(&guarded(&escape(line)));
        }
        self.line(".fi");
        self.is_paragraph_open = false;
    }

    /// Adds references to other pages.
    pub(super) fn references(&mut self, pages: &[String]) {
        for (index, page) in pages.iter().enumerate() {
            let comma = if index + 1 < pages.len() { "," } else { "" };
            self.line(&format!(".BR {} (1){comma}", escape(page)));
        }
        self.is_paragraph_open = false;
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// Adds words in lines of at most [`MAX_LINE`] bytes, unless a word is longer.
    fn fill(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && guarded(&line).len() + 1 + word.len() > MAX_LINE {
                self.line(&guarded(&line));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if !line.is_empty() {
            self.line(&guarded(&line));
        }
        self.is_paragraph_open = false;
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// A text line that is not read as a macro.
fn guarded(line: &str) -> String {
    if line.starts_with('.') {
        format!("\\&{line}")
    } else {
        line.to_owned()
    }
}

pub(super) fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escape(text))
}

pub(super) fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escape(text))
}

/// Escapes the characters that roff interprets, or prints as others: a hyphen and quotes remain those of ASCII, so that commands
/// can be copied.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            '"' => escaped.push_str("\\(dq"),
            c if c.is_ascii() => escaped.push(c),
            c => {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\[u{:04X}]", u32::from(c));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINE, Roff, bold, escape, italic};

    #[test]
    fn text_is_printed_as_it_is() {
        for (text, expected) in [
            ("--as a.b", "\\-\\-as a.b"),
            (r"a\b", r"a\eb"),
            ("`'\"^~", "\\(ga\\(aq\\(dq\\(ha\\(ti"),
            ("a…", "a\\[u2026]"),
        ] {
            assert_eq!(escape(text), expected, "{text}");
        }
        assert_eq!(bold("-n") + &italic("NAME"), "\\fB\\-n\\fR\\fINAME\\fR");
    }

    #[test]
    fn a_page_has_its_macros_once() {
        let mut page = Roff::new("kubectl-kcp", "2026-11-25", "kubectl-kcp 0.1.0", "kcp");
        page.section("DESCRIPTION");
        page.paragraph("One.");
        page.paragraph(".kube is no macro.");
        page.verbatim(["kubectl kcp status", ".x"]);
        page.section("OPTIONS");
        page.item(&bold("-o"), "Format.");
        page.indented(|page| page.item("a", "b"));
        page.item(&bold("-x"), "");
        page.paragraph("More.");
        page.section("SEE ALSO");
        page.references(&["a-b".to_owned(), "c".to_owned()]);
        let expected = "\
.TH KUBECTL\\-KCP 1 2026-11-25 \"kubectl\\-kcp 0.1.0\" \"kcp\"
.SH DESCRIPTION
One.
.PP
\\&.kube is no macro.
.PP
.nf
kubectl kcp status
\\&.x
.fi
.SH OPTIONS
.TP
\\fB\\-o\\fR
Format.
.RS
.TP
a
b
.RE
.TP
\\fB\\-x\\fR
.PP
More.
.SH SEE ALSO
.BR a\\-b (1),
.BR c (1)
";
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn running_text_is_broken_between_words() {
        let mut page = Roff::default();
        page.fill(&"word ".repeat(40));
        let text = page.finish();
        assert!(text.lines().all(|line| line.len() <= MAX_LINE), "{text}");
        assert_eq!(text.split_whitespace().count(), 40);
        assert_eq!(text.lines().count(), 3);
    }
}
