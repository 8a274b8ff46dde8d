//! Lays out tables like kubectl's, without borders. If a table is too wide, first the gaps between columns shrink, then
//! columns are left out, and then each row continues on further lines. Cells are never cut or broken inside a word, so that
//! users can paste names.

use std::fmt::Write as _;

use owo_colors::{OwoColorize as _, Style};

use crate::terminal::{
    escape,
    style::HEADING,
    width::{width, wrap, wrap_hint},
};

const GAP: usize = 3;
const NARROW_GAP: usize = 2;
/// The indentation of lines that continue a row, in terminal cells.
const CONTINUATION_INDENT: usize = 2;
/// The minimum width of a cell that wraps, in terminal cells.
const MIN_WRAPPED_WIDTH: usize = 20;

/// How wide and how detailed text may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The terminal's width in cells; `None` if stdout is not a terminal.
    pub width: Option<usize>,
    /// Whether to show all columns, even if lines exceed the terminal's width.
    pub is_wide: bool,
    /// Whether to leave out the header lines of tables.
    pub no_headers: bool,
}

impl Layout {
    /// The maximum width of a line in terminal cells; `None` means no limit.
    pub const fn limit(self) -> Option<usize> {
        if self.is_wide { None } else { self.width }
    }

    /// Escapes a paragraph and wraps it at spaces. The first line is indented by two spaces, the others by four. Names and
    /// commands are never broken, so that users can paste them.
    pub fn wrap_paragraph(self, text: &str) -> String {
        const INDENT: &str = "  ";
        let text = escape(text);
        let lines = match self.limit() {
            Some(limit) => wrap_hint(&text, limit.saturating_sub(2 * INDENT.len())),
            None => vec![text.into_owned()],
        };
        format!("{INDENT}{}\n", lines.join(&format!("\n{INDENT}{INDENT}")))
    }

    /// The lines of a hint that follows a paragraph, without their indentation of ten spaces.
    pub fn wrap_hint(self, text: &str) -> Vec<String> {
        let text = escape(text);
        match self.limit() {
            Some(limit) => wrap_hint(&text, limit.saturating_sub(10)),
            None => vec![text.into_owned()],
        }
    }

    /// Appends each paragraph to `text`, wrapped and escaped.
    pub fn append_paragraphs(self, mut text: String, paragraphs: &[String]) -> String {
        text.extend(paragraphs.iter().map(|line| self.wrap_paragraph(line)));
        text
    }

    /// Escapes text, wraps it, and gives each line this style.
    pub fn styled_lines(self, text: &str, style: Style) -> String {
        let mut styled = String::new();
        for line in self.wrap_lines(text, 0) {
            // Writing to a String cannot fail.
            let _ = writeln!(styled, "{}", line.style(style));
        }
        styled
    }

    /// Escapes text and wraps it into lines. `reserved` cells of each line stay free.
    pub fn wrap_lines(self, text: &str, reserved: usize) -> Vec<String> {
        let text = escape(text);
        match self.limit() {
            Some(limit) => wrap(&text, limit.saturating_sub(reserved)),
            None => vec![text.into_owned()],
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    /// The order in which columns are left out of a table that is too wide, the highest number first. `None`
    /// means that the column is never left out.
    expendable: Option<u8>,
    is_wide: bool,
    stays_blank: bool,
}

impl Column {
    /// A column that is left out only if all of its cells are empty.
    pub const fn new(title: &'static str) -> Self {
        Self {
            title,
            expendable: None,
            is_wide: false,
            stays_blank: false,
        }
    }

    /// Allows the column to be left out of a table that is too wide. The column with the highest `order` is
    /// left out first.
    pub const fn expendable(mut self, order: u8) -> Self {
        self.expendable = Some(order);
        self
    }

    /// Shows the column only in wide output.
    pub const fn wide(mut self) -> Self {
        self.is_wide = true;
        self
    }
}

#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
    extent: Extent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Column,
    /// The cell extends to the end of the line, and wraps.
    Rest,
}

impl Cell {
    pub fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self {
            text: escape(text.as_ref()).into_owned(),
            style,
            extent: Extent::Column,
        }
    }

    /// Makes this cell the last of its row. It extends to the end of the line, and wraps.
    pub fn extend_to_line_end(mut self) -> Self {
        self.extent = Extent::Rest;
        self
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// A table of text. If a row has fewer cells than the table has columns, the others are empty.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    indent: usize,
}

struct Shown {
    index: usize,
    width: usize,
    expendable: Option<u8>,
    /// Whether each row continues on a further line with this column.
    starts_line: bool,
}

impl Table {
    /// A table whose columns are never left out.
    pub fn new(header: &[&'static str]) -> Self {
        let columns = header.iter().map(|title| Column {
            stays_blank: true,
            ..Column::new(title)
        });
        Self::with_columns(columns)
    }

    pub fn with_columns(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            indent: 0,
        }
    }

    /// Indents the table by this number of spaces.
    pub fn indented(mut self, blanks: usize) -> Self {
        self.indent = blanks;
        self
    }

    pub fn add_row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text for this layout.
    pub fn render(&self, layout: Layout) -> String {
        let limit = layout.limit();
        let mut shown = self.shown(layout);
        let room = limit.map(|limit| limit.saturating_sub(self.indent));
        let gap = room.map_or(GAP, |room| fit(&mut shown, room));
        let titles = self.columns.iter();
        let header: Vec<Cell> = titles.map(|column| Cell::styled(column.title, HEADING)).collect();
        let mut text = String::new();
        let header = (!layout.no_headers).then_some(&header);
        for row in header.into_iter().chain(&self.rows) {
            for line in lines(row, &shown, gap, room) {
                if !line.is_empty() {
                    text.push_str(&" ".repeat(self.indent));
                    text.push_str(&line);
                }
                text.push('\n');
            }
        }
        text
    }

    /// Whether each row fits on one line, without the expendable columns if necessary.
    pub fn fits(&self, layout: Layout) -> bool {
        let mut shown = self.shown(layout);
        shown.retain(|column| column.expendable.is_none());
        let needed = self.indent + total(&shown, NARROW_GAP);
        layout.limit().is_none_or(|limit| needed <= limit)
    }

    fn shown(&self, layout: Layout) -> Vec<Shown> {
        let title = |column: &Column| {
            if layout.no_headers { 0 } else { width(column.title) }
        };
        let columns = self.columns.iter().enumerate();
        let wanted = columns.filter(|(_, column)| layout.is_wide || !column.is_wide);
        let shown = wanted.filter_map(|(index, column)| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(index));
            let is_blank = !column.stays_blank && cells.clone().all(|cell| cell.text.is_empty());
            let is_last = index + 1 == self.columns.len();
            let widths = cells.by_ref().map(|cell| match cell.extent {
                Extent::Column => width(&cell.text),
                Extent::Rest if is_last => min_wrapped_width(&cell.text),
                Extent::Rest => 0,
            });
            let widest = widths.max();
            (!is_blank).then(|| Shown {
                index,
                width: title(column).max(widest.unwrap_or(0)),
                expendable: column.expendable,
                starts_line: false,
            })
        });
        shown.collect()
    }
}

/// The minimum width of a cell whose text wraps between its words.
fn min_wrapped_width(text: &str) -> usize {
    let widest = text.split(' ').map(width).max().unwrap_or(0);
    width(text).min(MIN_WRAPPED_WIDTH.max(widest + CONTINUATION_INDENT))
}

fn total(shown: &[Shown], gap: usize) -> usize {
    let widths: usize = shown.iter().map(|column| column.width).sum();
    widths + gap * shown.len().saturating_sub(1)
}

/// Makes the columns fit into the width as far as possible, and returns the gap between columns.
fn fit(shown: &mut Vec<Shown>, room: usize) -> usize {
    if total(shown, GAP) <= room {
        return GAP;
    }
    while total(shown, NARROW_GAP) > room {
        let Some(expendable) = shown.iter().filter_map(|column| column.expendable).max() else {
            start_lines(shown, room);
            break;
        };
        shown.retain(|column| column.expendable != Some(expendable));
    }
    NARROW_GAP
}

/// Lets a column continue the row on a further line if it does not fit on the line.
fn start_lines(shown: &mut [Shown], room: usize) {
    let mut end = 0;
    for (index, column) in shown.iter_mut().enumerate() {
        let gap = if index == 0 { 0 } else { NARROW_GAP };
        column.starts_line = index > 0 && end + gap + column.width > room;
        end = if column.starts_line {
            CONTINUATION_INDENT + column.width
        } else {
            end + gap + column.width
        };
    }
}

fn lines(row: &[Cell], shown: &[Shown], gap: usize, room: Option<usize>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut continuations = Vec::new();
    // Write the padding after a cell only together with the next cell, so that no line ends in spaces.
    let mut pending = 0;
    let mut start = 0;
    for column in shown {
        let Some(cell) = row.get(column.index) else {
            break;
        };
        if column.starts_line {
            lines.push(std::mem::take(&mut line));
            pending = CONTINUATION_INDENT;
            start = CONTINUATION_INDENT;
        }
        let rest = room.map(|room| room.saturating_sub(start).max(MIN_WRAPPED_WIDTH));
        let mut text = cell.text.clone();
        if cell.extent == Extent::Rest
            && let Some(rest) = rest.filter(|rest| width(&cell.text) > *rest)
        {
            let mut wrapped = wrap(&cell.text, rest.saturating_sub(CONTINUATION_INDENT)).into_iter();
            text = wrapped.next().unwrap_or_default();
            let indented = |line: String| {
                format!(
                    "{}{}",
                    " ".repeat(start + CONTINUATION_INDENT),
                    line.style(cell.style)
                )
            };
            continuations.extend(wrapped.map(indented));
        }
        if !text.is_empty() {
            line.push_str(&" ".repeat(pending));
            pending = 0;
            // Writing to a String cannot fail.
            let _ = write!(line, "{}", text.style(cell.style));
        }
        if cell.extent == Extent::Rest {
            break;
        }
        pending += column.width.saturating_sub(width(&text)) + gap;
        start += column.width + gap;
    }
    lines.push(line);
    // A row whose cells take several lines needs no blank line.
    if lines.iter().any(|line| !line.is_empty()) {
        lines.retain(|line| !line.is_empty());
    }
    lines.extend(continuations);
    lines
}

/// A number of bytes with three digits and a binary unit, such as `5.2 MiB`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn format_size(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1000.0 {
            let digits = usize::from(size < 10.0 && unit != "B");
            return format!("{size:.digits$} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

/// How much of the whole a part is, such as `75%`.
pub fn format_percentage(part: u64, whole: u64) -> String {
    let percent = u128::from(part) * 100;
    percent
        .checked_div(u128::from(whole))
        .map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
}

#[cfg(test)]
mod tests {
    use super::{Cell, Column, Layout, Table, format_percentage, format_size};

    #[test]
    fn a_percentage_of_zero_is_unknown() {
        assert_eq!(format_percentage(1, 0), "-");
        assert_eq!(format_percentage(3, 4), "75%");
        assert_eq!(format_percentage(u64::MAX, u64::MAX), "100%");
    }
    use crate::terminal::{plain, style};

    #[test]
    fn pads_columns_without_trailing_spaces() {
        let mut table = Table::new(&["NAME", "READY", "NODE"]);
        table.add_row([
            "a-long-name".into(),
            Cell::styled("True", style::GOOD),
            "n1".into(),
        ]);
        table.add_row(["b".into(), "".into(), "n2".into()]);
        table.add_row(["c".into(), "True".into(), "".into()]);
        let expected = "\
NAME          READY   NODE
a-long-name   True    n1
b                     n2
c             True
";
        assert_eq!(plain(&table.render(Layout::default())), expected);
    }

    #[test]
    fn escapes_the_cells() {
        let mut table = Table::new(&["NAME"]).indented(2);
        table.add_row([Cell::from("a\u{1b}[2Jb")]);
        assert_eq!(
            plain(&table.render(Layout::default())),
            "  NAME\n  a\\u{1b}[2Jb\n"
        );
    }

    fn within(width: Option<usize>) -> Layout {
        Layout {
            width,
            ..Layout::default()
        }
    }

    fn machines() -> Table {
        let mut table = Table::with_columns([
            Column::new("MACHINE"),
            Column::new("READY"),
            Column::new("DOMAIN"),
            Column::new("AGE").expendable(1),
            Column::new("PHASE").expendable(2),
            Column::new("IMAGE").wide(),
        ]);
        table.add_row(["edge-control-plane-x7k2p", "yes", "", "12d", "Running", "i1"].map(Cell::from));
        table.add_row([
            Cell::from("edge-b"),
            Cell::from("not since the node went away").extend_to_line_end(),
        ]);
        table
    }

    #[test]
    fn a_narrow_table_leaves_out_columns_or_wraps() {
        for (limit, expected) in [
            (
                Some(50),
                "\
MACHINE                    READY   AGE   PHASE
edge-control-plane-x7k2p   yes     12d   Running
edge-b                     not since the node
                             went away
",
            ),
            (
                Some(36),
                "\
MACHINE                   READY  AGE
edge-control-plane-x7k2p  yes    12d
edge-b                    not since the node
                            went away
",
            ),
            (
                Some(24),
                "\
MACHINE
  READY
edge-control-plane-x7k2p
  yes
edge-b
  not since the node
    went away
",
            ),
        ] {
            assert_eq!(plain(&machines().render(within(limit))), expected, "{limit:?}");
        }
    }

    #[test]
    fn without_a_header_titles_take_no_width() {
        let mut table = Table::new(&["NAMESPACE", "NAME"]);
        table.add_row(["d", "c1-cp"].map(Cell::from));
        let layout = Layout {
            no_headers: true,
            ..Layout::default()
        };
        assert_eq!(plain(&table.render(layout)), "d   c1-cp\n");
    }

    #[test]
    fn a_wide_table_has_every_column() {
        let wide = Layout {
            is_wide: true,
            ..Layout::default()
        };
        let expected = "\
MACHINE                    READY   AGE   PHASE     IMAGE
edge-control-plane-x7k2p   yes     12d   Running   i1
edge-b                     not since the node went away
";
        assert_eq!(plain(&machines().render(wide)), expected);
    }

    #[test]
    fn names_are_never_cut() {
        const MACHINE: &str = "production-eu-central-control-plane-x7k2p";
        const NODE: &str = "ip-10-0-12-4.eu-central-1.compute.internal";
        let mut table = Table::with_columns([
            Column::new("MACHINE"),
            Column::new("NODE"),
            Column::new("VERSION"),
            Column::new("READY"),
            Column::new("FINDINGS"),
        ]);
        table.add_row([
            Cell::from(MACHINE),
            Cell::from(NODE),
            Cell::from("v1.34.2"),
            Cell::from("yes"),
            Cell::from("etcd-voters-unhealthy, etcd-members-unresponsive").extend_to_line_end(),
        ]);
        table.add_row([Cell::from("new"), Cell::from(""), Cell::from("v1.34.2")]);
        let expected = "\
MACHINE
  NODE                                        VERSION  READY
  FINDINGS
production-eu-central-control-plane-x7k2p
  ip-10-0-12-4.eu-central-1.compute.internal  v1.34.2  yes
  etcd-voters-unhealthy, etcd-members-unresponsive
new
                                              v1.34.2
";
        assert_eq!(plain(&table.render(within(Some(80)))), expected);
        for limit in 1..120 {
            let text = plain(&table.render(within(Some(limit))));
            for name in [
                MACHINE,
                NODE,
                "etcd-voters-unhealthy",
                "etcd-members-unresponsive",
            ] {
                assert!(text.contains(name), "{limit}: {text}");
            }
        }
    }

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (20_480, "20 KiB"),
            (5_500_000, "5.2 MiB"),
            (2_147_483_648, "2.0 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(format_size(bytes), shown);
        }
    }
}
