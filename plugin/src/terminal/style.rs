//! The few colours we use. Nothing is said by colour alone.

use owo_colors::Style;

/// As it should be.
pub const GOOD: Style = Style::new().green();
/// Not as it should be.
pub const BAD: Style = Style::new().red();
/// Under way, or worth a look.
pub const WARN: Style = Style::new().yellow();
/// Headings.
pub const HEADING: Style = Style::new().bold();
/// Less important.
pub const FAINT: Style = Style::new().dimmed();
