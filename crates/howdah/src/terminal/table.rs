//! Tables of text with aligned columns.

/// One line for each row; the first row has the columns' names. Columns are as wide as their widest cell. The columns of
/// `left_aligned` (their indexes) start on the left; the others, numbers, end on the right.
pub fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]], left_aligned: &[usize]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if left_aligned.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["name", "number", "text"], ["ü", "1234567", ""], ["longer", "-", "x y"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows, &[0, 2]), "name     number  text\nü       1234567\nlonger        -  x y\n");
    }
}
