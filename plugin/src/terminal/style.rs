//! Defines the colours of text. No information is conveyed by colour alone.

use owo_colors::Style;

pub const GOOD: Style = Style::new().green();
/// The style of problems.
pub const BAD: Style = Style::new().red();
pub const WARN: Style = Style::new().yellow();
pub const HEADING: Style = Style::new().bold();
pub const FAINT: Style = Style::new().dimmed();
