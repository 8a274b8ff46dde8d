//! kubectl-style tables: columns padded with blanks, three between them, no borders.

use std::fmt::Write as _;

use owo_colors::{OwoColorize as _, Style};

use super::escape;

const GAP: usize = 3;

/// One cell. Its text is escaped.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell with a colour.
    pub fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self {
            text: escape(text.as_ref()).into_owned(),
            style,
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// A table, row by row. A row shorter than the header leaves its last columns blank.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<Cell>>,
    indent: usize,
}

impl Table {
    /// A table with a header.
    pub fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(Cell::from).collect()],
            indent: 0,
        }
    }

    /// The same table, moved to the right by a number of blanks.
    pub fn indented(mut self, blanks: usize) -> Self {
        self.indent = blanks;
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text, a line break after every row.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            // Blanks owed to the columns so far; paid by the next cell, so that no line ends in blanks.
            let mut pending = 0;
            for (cell, width) in row.iter().zip(&widths) {
                if !cell.text.is_empty() {
                    line.push_str(&" ".repeat(pending));
                    pending = 0;
                    // Writing to a String cannot fail.
                    let _ = write!(line, "{}", cell.text.style(cell.style));
                }
                pending += width - cell.text.chars().count() + GAP;
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Table};
    use crate::terminal::{plain, style};

    #[test]
    fn pads_columns_and_leaves_no_blanks_at_the_end() {
        let mut table = Table::new(&["NAME", "READY", "NODE"]);
        table.row([
            "a-long-name".into(),
            Cell::styled("True", style::GOOD),
            "n1".into(),
        ]);
        table.row(["b".into(), "".into(), "n2".into()]);
        table.row(["c".into(), "True".into(), "".into()]);
        let expected = "\
NAME          READY   NODE
a-long-name   True    n1
b                     n2
c             True
";
        assert_eq!(plain(&table.render()), expected);
    }

    #[test]
    fn escapes_its_cells() {
        let mut table = Table::new(&["NAME"]).indented(2);
        table.row([Cell::from("a\u{1b}[2Jb")]);
        assert_eq!(plain(&table.render()), "  NAME\n  a\\u{1b}[2Jb\n");
    }
}
