//! Repetitions in, three numbers out.

/// What repetitions of the same measurement say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The least disturbed repetition.
    pub min: f64,
    /// The typical one.
    pub median: f64,
    /// How far they lie apart: `(max - min) / min`.
    pub spread: f64,
}

impl Summary {
    /// Summarises `values`; `None` when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Some(Summary { min, median, spread: (max - min) / min })
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn median_of_an_even_number_is_between_the_two() {
        let summary = Summary::of([4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(summary, Summary { min: 1.0, median: 2.5, spread: 3.0 });
    }

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::of([]), None);
    }
}
