//! Works measured inside this program: nanoseconds of operations, or bytes, by candidate and size (W6, W7).

use std::io;

use crate::affinity::pin_this_thread;
use crate::interleave::Series;
use crate::options::Options;
use crate::plot::{Chart, Figure, Line, Scale};
use crate::report::Report;
use crate::statistics::Summary;
use crate::table::Table;

/// An operation that is measured.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
}

/// A candidate: its name, and the measurement compiled for it. It gives a figure for each operation, or no number
/// if it has no such operation.
pub(crate) struct Candidate<const N: usize> {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(size: usize) -> [f64; N],
}

/// What is compared, and how that is told.
pub(crate) struct Work<'a, const N: usize> {
    /// Its file.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) introduction: &'static str,
    /// What there are so many of.
    pub(crate) sizes_of: &'static str,
    /// What the figures count, in short.
    pub(crate) unit: &'static str,
    pub(crate) decimals: usize,
    pub(crate) operations: &'a [Operation; N],
    pub(crate) candidates: &'a [Candidate<N>],
}

/// All candidates at one size.
type Measured<const N: usize> = (usize, Vec<Series<[f64; N]>>);

impl<const N: usize> Work<'_, N> {
    /// Measures all candidates at all sizes, and writes the report.
    ///
    /// # Errors
    /// When the core does not exist or the report cannot be written.
    pub(crate) fn run(&self, options: &Options, sizes: &[usize]) -> io::Result<()> {
        pin_this_thread(options.server_core)?;
        let mut measured = Vec::new();
        for &size in sizes {
            eprintln!("{}: {size} {}", self.name, self.sizes_of);
            let measure = |candidate: &Candidate<N>| Ok((candidate.measure)(size));
            measured.push((size, options.repetitions().run(self.candidates, measure)?));
        }

        let mut report = Report::new(self.name, self.title);
        report.add(self.introduction);
        for (index, operation) in self.operations.iter().enumerate() {
            report.heading(operation.name);
            report.add(operation.meaning);
            report.add(&self.table(&measured, index));
        }
        report.list(&self.remarks(options, &measured));
        if cfg!(not(feature = "coracle")) {
            report.list(&["coracle's own skipped: built without the feature `coracle`".into()]);
        }
        report.write(&options.out(), &self.figure(&measured))
    }

    fn table(&self, measured: &[Measured<N>], operation: usize) -> String {
        let sizes = measured.iter().map(|(size, _)| size.to_string());
        let mut table = Table::new(&[vec![self.sizes_of.into()], sizes.collect()].concat());
        for (index, candidate) in self.candidates.iter().enumerate() {
            let mut cells = vec![candidate.name.to_owned()];
            for (_, series) in measured {
                cells.push(summary(&series[index], operation).map_or("–".into(), |nanoseconds| {
                    let (min, median) = (nanoseconds.min, nanoseconds.median);
                    format!("{min:.*} / {median:.*}", self.decimals, self.decimals)
                }));
            }
            table.row(&cells);
        }
        table.markdown()
    }

    fn remarks(&self, options: &Options, measured: &[Measured<N>]) -> Vec<String> {
        let mut remarks = Vec::new();
        for (size, all) in measured {
            for (candidate, series) in self.candidates.iter().zip(all) {
                if let Some(remark) = series.remark(options.keep_noisy) {
                    remarks.push(format!("{}, {size} {}: {remark}", candidate.name, self.sizes_of));
                }
            }
        }
        remarks
    }

    fn figure(&self, measured: &[Measured<N>]) -> Figure {
        let line = |operation: usize, index: usize| Line {
            name: self.candidates[index].name.into(),
            dashed: false,
            points: measured
                .iter()
                .filter_map(|(size, all)| {
                    Some((*size as f64, summary(&all[index], operation)?.min))
                })
                .collect(),
        };
        let charts = self.operations.iter().enumerate().map(|(operation, description)| Chart {
            title: format!("{}, {} (minimum)", description.name, self.unit),
            x_label: self.sizes_of.into(),
            y_scale: Scale::Log,
            lines: (0..self.candidates.len()).map(|index| line(operation, index)).collect(),
        });
        Figure { title: self.title.into(), charts: charts.collect() }
    }
}

fn summary<const N: usize>(series: &Series<[f64; N]>, operation: usize) -> Option<Summary> {
    Summary::of(series.kept.iter().map(|times| times[operation]).filter(|time| !time.is_nan()))
}
