//! Candidates side by side: the figures of each, at several values of one quantity.
//!
//! The first figure is the one that is compared: minimum and median of the repetitions. The others stand
//! beside it, as medians.

use std::io;

use crate::candidate::{Candidate, Kind};
use crate::interleave::Series;
use crate::options::Options;
use crate::plot::{Chart, Figure, Line, Scale};
use crate::statistics::Summary;
use crate::table::Table;

/// One of the figures that every repetition yields.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading, with the unit.
    pub heading: &'static str,
    /// Digits behind the point.
    pub decimals: usize,
}

/// What was measured of all candidates.
pub struct Comparison<'a> {
    /// The quantity that varies, such as `connections`.
    varies: String,
    columns: &'a [Column],
    rows: Vec<Row<'a>>,
}

/// All repetitions of one candidate at one value.
struct Row<'a> {
    candidate: &'a Candidate,
    value: u32,
    series: Series<Vec<f64>>,
}

/// A candidate that was measured no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its name.
    pub name: &'static str,
    /// What was wrong.
    pub why: String,
}

impl<'a> Comparison<'a> {
    /// A comparison in which `varies` varies, and each repetition yields a figure for each of `columns`.
    pub fn new(varies: impl Into<String>, columns: &'a [Column]) -> Comparison<'a> {
        Comparison { varies: varies.into(), columns, rows: Vec::new() }
    }

    /// Measures `candidates`, in turns, at one value of the quantity.
    ///
    /// # Errors
    /// The first error of `measure`, with the name of its candidate.
    ///
    /// # Panics
    /// When a repetition has not as many figures as there are columns.
    pub fn measure(
        &mut self,
        options: &Options,
        value: u32,
        candidates: &[&'a Candidate],
        mut measure: impl FnMut(&Candidate) -> io::Result<Vec<f64>>,
    ) -> io::Result<()> {
        let all = options.repetitions().run(candidates, |candidate| {
            let figures = measure(candidate)
                .map_err(|error| io::Error::other(format!("{}: {error}", candidate.name)))?;
            assert_eq!(figures.len(), self.columns.len(), "there is a figure for each column");
            Ok(figures)
        })?;
        let rows = candidates.iter().zip(all);
        self.rows.extend(rows.map(|(candidate, series)| Row { candidate, value, series }));
        Ok(())
    }

    /// The same, but goes on without those that fail: what was measured of them before is kept.
    ///
    /// Returns who failed, and why.
    ///
    /// # Errors
    /// When it cannot be told what else ran.
    ///
    /// # Panics
    /// Likewise.
    pub fn measure_while_they_serve(
        &mut self,
        options: &Options,
        value: u32,
        candidates: &[&'a Candidate],
        mut measure: impl FnMut(&Candidate) -> io::Result<Vec<f64>>,
    ) -> io::Result<Vec<Failed>> {
        let mut failed: Vec<Failed> = Vec::new();
        let all = options.repetitions().run(candidates, |candidate| {
            if failed.iter().any(|it| it.name == candidate.name) {
                return Ok(None);
            }
            match measure(candidate) {
                Ok(figures) => {
                    assert_eq!(figures.len(), self.columns.len(), "a figure for each column");
                    Ok(Some(figures))
                }
                Err(why) => {
                    failed.push(Failed { name: candidate.name, why: why.to_string() });
                    Ok(None)
                }
            }
        })?;
        for (&candidate, series) in candidates.iter().zip(all) {
            let Series { kept, noisy } = series;
            let kept: Vec<Vec<f64>> = kept.into_iter().flatten().collect();
            if !kept.is_empty() {
                self.rows.push(Row { candidate, value, series: Series { kept, noisy } });
            }
        }
        Ok(failed)
    }

    /// A row for each candidate, a column for each value; in them, the first figure.
    pub fn overview(&self) -> String {
        let values = self.values();
        let headings = values.iter().map(u32::to_string);
        let mut table = Table::new(&[vec![self.varies.clone()], headings.collect()].concat());
        for name in self.names() {
            let mut cells = vec![name.to_owned()];
            for &value in &values {
                let row = self.rows.iter().find(|row| row.is(name, value));
                cells.push(row.and_then(|row| row.summary(0)).map_or("–".into(), |summary| {
                    let digits = self.columns[0].decimals;
                    format!("{:.digits$} / {:.digits$}", summary.min, summary.median)
                }));
            }
            table.row(&cells);
        }
        table.markdown()
    }

    /// A row for each candidate, at one value; in it, all figures.
    pub fn details(&self, value: u32) -> String {
        let (first, others) = self.columns.split_first().expect("there is a figure to compare");
        let min = format!("{} min", first.heading);
        let mut headings = vec!["", "kind", &min, "median", "spread"];
        headings.extend(others.iter().map(|column| column.heading));
        headings.push("repetitions");
        let mut table = Table::new(&headings);
        for row in self.rows.iter().filter(|row| row.value == value) {
            let Some(figure) = row.summary(0) else { continue };
            let digits = first.decimals;
            let mut cells = vec![
                row.candidate.name.to_owned(),
                row.candidate.kind.name().to_owned(),
                format!("{:.digits$}", figure.min),
                format!("{:.digits$}", figure.median),
                format!("{:.0} %", figure.spread * 100.0),
            ];
            cells.extend(others.iter().zip(1..).map(|(column, index)| {
                let median = row.summary(index).map_or(f64::NAN, |summary| summary.median);
                format!("{median:.digits$}", digits = column.decimals)
            }));
            cells.push(row.series.kept.len().to_string());
            table.row(&cells);
        }
        table.markdown()
    }

    /// What is to be said about the repetitions at one value.
    pub fn remarks(&self, value: u32, keep_noisy: bool) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| row.value == value);
        let remark = |row: &Row<'_>| {
            Some(format!("{}: {}", row.candidate.name, row.series.remark(keep_noisy)?))
        };
        rows.filter_map(remark).collect()
    }

    /// One figure of one candidate.
    pub fn summary(&self, name: &str, value: u32, column: usize) -> Option<Summary> {
        self.rows.iter().find(|row| row.is(name, value))?.summary(column)
    }

    /// Its median.
    pub fn median(&self, name: &str, value: u32, column: usize) -> Option<f64> {
        Some(self.summary(name, value, column)?.median)
    }

    /// A chart for each of `columns`: its minima, over the quantity that varies.
    pub fn figure(&self, title: &str, columns: &[(usize, Scale)]) -> Figure {
        let chart = |&(column, y_scale): &(usize, Scale)| Chart {
            title: format!("{} (minimum)", self.columns[column].heading),
            x_label: self.varies.clone(),
            y_scale,
            lines: self.names().into_iter().map(|name| self.line(name, column)).collect(),
        };
        Figure { title: title.into(), charts: columns.iter().map(chart).collect() }
    }

    fn line(&self, name: &str, column: usize) -> Line {
        let rows = || self.rows.iter().filter(|row| row.candidate.name == name);
        let point = |row: &Row<'_>| Some((f64::from(row.value), row.summary(column)?.min));
        Line {
            name: name.into(),
            dashed: rows().any(|row| row.candidate.kind == Kind::Limit),
            points: rows().filter_map(point).collect(),
        }
    }

    /// The quantity that varies.
    pub fn varies(&self) -> &str {
        &self.varies
    }

    /// Every value at which something was measured, once.
    pub fn values(&self) -> Vec<u32> {
        once(self.rows.iter().map(|row| row.value))
    }

    /// Every candidate that was measured, once.
    pub fn names(&self) -> Vec<&'a str> {
        once(self.rows.iter().map(|row| row.candidate.name))
    }
}

impl Row<'_> {
    fn is(&self, name: &str, value: u32) -> bool {
        self.candidate.name == name && self.value == value
    }

    fn summary(&self, column: usize) -> Option<Summary> {
        Summary::of(self.series.kept.iter().map(|figures| figures[column]))
    }
}

/// In the order of appearance.
fn once<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut all, item| {
        if !all.contains(&item) {
            all.push(item);
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::Kind;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn who_cannot_serve_is_named_and_the_others_go_on() {
        let line = Line::parse_from(["bench", "--keep-noisy", "--repetitions", "3"]);
        let candidates = ["able", "tired", "unable"]
            .map(|name| Candidate::new(name, Kind::Peer, Default::default()));
        let all: Vec<&Candidate> = candidates.iter().collect();
        let column = [Column { heading: "times", decimals: 0 }];
        let (mut measured, mut asked) = (Comparison::new("connections", &column), Vec::new());
        let failed = measured.measure_while_they_serve(&line.options, 7, &all, |candidate| {
            asked.push(candidate.name);
            let times = asked.iter().filter(|name| **name == candidate.name).count();
            match (candidate.name, times) {
                ("unable", _) | ("tired", 2) => Err(io::Error::other("not served")),
                _ => Ok(vec![times as f64]),
            }
        });
        let why = || "not served".to_owned();
        let expected =
            [Failed { name: "unable", why: why() }, Failed { name: "tired", why: why() }];
        assert_eq!(failed.unwrap(), expected);
        assert_eq!(measured.median("able", 7, 0), Some(2.0));
        assert_eq!(measured.median("tired", 7, 0), Some(1.0));
        assert_eq!(measured.names(), ["able", "tired"]);
        assert_eq!(asked.iter().filter(|name| **name == "unable").count(), 1);
    }
}
