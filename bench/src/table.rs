//! A table in plain text, its columns as wide as they must be.

pub struct Table {
    rows: Vec<Vec<String>>,
    columns: usize,
}

impl Table {
    pub fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&text| text.to_owned()).collect()],
            columns: head.len(),
        }
    }

    pub fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.columns, String::new());
        self.rows.push(cells);
    }

    pub fn text(&self) -> String {
        let width = |column: usize| {
            let widths = self.rows.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            line(&mut text, row, &widths);
            if number == 0 {
                let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
                line(&mut text, &rules, &widths);
            }
        }
        text
    }
}

fn line(text: &mut String, cells: &[String], widths: &[usize]) {
    for (cell, &width) in cells.iter().zip(widths) {
        text.push_str("| ");
        text.push_str(cell);
        let missing = width - cell.chars().count();
        text.extend(std::iter::repeat_n(' ', missing + 1));
    }
    text.push_str("|\n");
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up_and_missing_cells_are_empty() {
        let mut table = Table::new(&["a", "µ"]);
        table.row(vec!["long".to_owned()]);
        assert_eq!(table.text(), "| a    | µ |\n| ---- | - |\n| long |   |\n");
    }
}
