//! One figure per round, and what a reader wants to know of them: the median and the spread.

#[derive(Debug, Clone, Default)]
pub struct Series(Vec<f64>);

impl Series {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn rounds(&self) -> &[f64] {
        &self.0
    }

    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match (sorted.get(middle), sorted.len() % 2) {
            (None, _) => f64::NAN,
            (Some(upper), 1) => *upper,
            (Some(upper), _) => f64::midpoint(sorted[middle - 1], *upper),
        }
    }

    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Round by round, because only figures of the same minute compare on a shared machine.
    pub fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }

    pub fn plus(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a + b).collect())
    }

    pub fn times(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|value| value * factor).collect())
    }
}

/// Counts stay far below 2^53 here.
#[allow(clippy::cast_precision_loss)]
pub fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::Series;

    #[test]
    fn the_median_ignores_an_outlier_and_ratios_are_paired() {
        let mut a = Series::default();
        let mut b = Series::default();
        for (x, y) in [(10.0, 5.0), (900.0, 300.0), (12.0, 4.0)] {
            a.push(x);
            b.push(y);
        }
        assert!((a.median() - 12.0).abs() < 1e-9);
        assert!((a.over(&b).median() - 3.0).abs() < 1e-9);
        assert!((a.over(&b).min() - 2.0).abs() < 1e-9);
        b.push(6.0);
        assert!((b.median() - 5.5).abs() < 1e-9);
    }
}
