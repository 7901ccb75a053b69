//! Markdown tables.

use std::fmt::Write as _;

/// A table under construction; all cells are text.
pub struct Table {
    columns: usize,
    text: String,
}

impl Table {
    /// A table with these headings. Columns after the first are aligned to the right.
    pub fn new<T: AsRef<str>>(headings: &[T]) -> Table {
        let mut table = Table { columns: headings.len(), text: String::new() };
        table.row(headings);
        let rules = (0..headings.len()).map(|column| if column == 0 { "---" } else { "--:" });
        table.row(&rules.collect::<Vec<_>>());
        table
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has not as many cells as there are headings.
    pub fn row<T: AsRef<str>>(&mut self, cells: &[T]) {
        assert_eq!(cells.len(), self.columns, "a row has a cell per heading");
        for cell in cells {
            write!(self.text, "| {} ", cell.as_ref()).expect("text grows");
        }
        self.text.push_str("|\n");
    }

    /// The finished table.
    pub fn markdown(self) -> String {
        self.text
    }
}
