//! Draws a screen over the previous screen, for `--watch`.

use crate::terminal::width::cut;

/// Moves the cursor to the first line. Does not clear the screen, to avoid flicker.
const HOME: &str = "\u{1b}[H";
const CLEAR_TO_END_OF_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";
const CLEAR_ALL: &str = "\u{1b}[2J";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub height: usize,
}

impl Size {
    /// The number of lines that a screen can use. The terminal's last line stays free for the cursor, so that nothing
    /// scrolls.
    pub const fn lines(self) -> usize {
        self.height.saturating_sub(1)
    }
}

/// The output that replaces the terminal's content with `text`. Clears the terminal first if `is_first` is
/// true. Cuts text that exceeds the terminal's size.
pub fn frame(text: &str, size: Size, is_first: bool) -> String {
    let mut bytes = String::new();
    if is_first {
        bytes.push_str(CLEAR_ALL);
    }
    bytes.push_str(HOME);
    for line in text.lines().take(size.lines()) {
        bytes.push_str(&cut(line, size.width));
        bytes.push_str(CLEAR_TO_END_OF_LINE);
        bytes.push('\n');
    }
    bytes.push_str(CLEAR_BELOW);
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Size, frame};

    #[test]
    fn draws_over_the_previous_screen() {
        let size = Size { width: 5, height: 3 };
        assert_eq!(
            frame("a\nb\n", size, false),
            "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\n\u{1b}[J"
        );
        assert_eq!(frame("", size, true), "\u{1b}[2J\u{1b}[H\u{1b}[J");
        assert_eq!(
            frame("abcdef\nb\nc\nd\n", size, false),
            "\u{1b}[Habcd…\u{1b}[K\nb\u{1b}[K\n\u{1b}[J"
        );
    }
}
