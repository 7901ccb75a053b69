//! Line charts as SVG, written by hand: small, labelled, readable in light and dark.
//!
//! ```text
//!  title
//!  ┌ chart ─────────┐ ┌ chart ─────────┐   two beside each other,
//!  │  y ▲           │ │                │   x always logarithmic,
//!  │    └──► log x  │ │                │   y linear from 0 or logarithmic
//!  └────────────────┘ └────────────────┘
//!  legend: one name and colour for all charts
//! ```

use std::fmt::Write as _;

const CHART_WIDTH: f64 = 460.0;
const CHART_HEIGHT: f64 = 300.0;
/// Room around a chart's plane for labels.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const TITLE_HEIGHT: f64 = 34.0;
const LEGEND_COLUMNS: usize = 4;
const LEGEND_ROW_HEIGHT: f64 = 20.0;
/// Colours that stand out on white and on black.
const COLOURS: [&str; 10] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#2a9d8f", "#d4a017", "#9c755f",
    "#ff7f9e", "#8c8c8c",
];
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:15px;font-weight:600}\
.name{font-weight:600}.paper{fill:#fff}.grid{stroke:#d8dee4}.line{fill:none;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}.grid{stroke:#30363d}}";

/// Charts that share a title and a legend.
pub struct Figure {
    /// What the figure shows.
    pub title: String,
    /// The charts, two in a row.
    pub charts: Vec<Chart>,
}

/// One plane with lines. The same name has the same colour in every chart of a figure.
pub struct Chart {
    /// What this chart shows, with the unit of y.
    pub title: String,
    /// What is on the x axis.
    pub x_label: String,
    /// How y grows.
    pub y_scale: Scale,
    /// The lines.
    pub lines: Vec<Line>,
}

/// How an axis grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero, in equal steps.
    Linear,
    /// By factors.
    Log,
}

/// The points of one candidate, by growing x.
pub struct Line {
    /// The candidate.
    pub name: String,
    /// Limits are dashed.
    pub dashed: bool,
    /// x and y, both above zero.
    pub points: Vec<(f64, f64)>,
}

impl Figure {
    /// The SVG document.
    pub fn svg(&self) -> String {
        let names = self.names();
        let columns = self.charts.len().clamp(1, 2);
        let rows = self.charts.len().div_ceil(columns);
        let width = columns as f64 * CHART_WIDTH;
        let charts_height = rows as f64 * CHART_HEIGHT;
        let legend_rows = names.len().div_ceil(LEGEND_COLUMNS) as f64;
        let height = TITLE_HEIGHT + charts_height + legend_rows * LEGEND_ROW_HEIGHT + 12.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             role=\"img\">\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"title\" x=\"12\" y=\"22\">{}</text>\n",
            escape(&self.title)
        );
        for (index, chart) in self.charts.iter().enumerate() {
            let x = (index % columns) as f64 * CHART_WIDTH;
            let y = TITLE_HEIGHT + (index / columns) as f64 * CHART_HEIGHT;
            writeln!(svg, "<g transform=\"translate({x} {y})\">\n{}</g>", chart.svg(&names))
                .expect("text grows");
        }
        svg.push_str(&legend(&names, width, TITLE_HEIGHT + charts_height));
        svg.push_str("</svg>\n");
        svg
    }

    /// Every name once, in the order of appearance, and whether it is dashed.
    fn names(&self) -> Vec<(&str, bool)> {
        let mut names: Vec<(&str, bool)> = Vec::new();
        for line in self.charts.iter().flat_map(|chart| &chart.lines) {
            if !names.iter().any(|(name, _)| *name == line.name) {
                names.push((&line.name, line.dashed));
            }
        }
        names
    }
}

impl Chart {
    fn svg(&self, names: &[(&str, bool)]) -> String {
        let x_axis = Axis::of(Scale::Log, self.points().map(|(x, _)| x), LEFT, CHART_WIDTH - RIGHT);
        let y_axis =
            Axis::of(self.y_scale, self.points().map(|(_, y)| y), CHART_HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<text class=\"name\" x=\"{LEFT}\" y=\"18\">{}</text>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            escape(&self.title),
            (LEFT + CHART_WIDTH - RIGHT) / 2.0,
            CHART_HEIGHT - 8.0,
            escape(&self.x_label)
        );
        for value in y_axis.ticks() {
            let (y, right) = (y_axis.at(value), CHART_WIDTH - RIGHT);
            writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                short(value)
            )
            .expect("text grows");
        }
        for value in self.x_values() {
            writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x_axis.at(value),
                CHART_HEIGHT - BOTTOM + 16.0,
                short(value)
            )
            .expect("text grows");
        }
        for line in &self.lines {
            let index = names.iter().position(|(name, _)| *name == line.name).unwrap_or(0);
            svg.push_str(&line.svg(COLOURS[index % COLOURS.len()], &x_axis, &y_axis));
        }
        svg
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }

    fn x_values(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.points().map(|(x, _)| x).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }
}

impl Line {
    fn svg(&self, colour: &str, x_axis: &Axis, y_axis: &Axis) -> String {
        let place = |&(x, y): &(f64, f64)| format!("{:.1},{:.1}", x_axis.at(x), y_axis.at(y));
        let places: Vec<String> = self.points.iter().map(place).collect();
        let mut svg = format!(
            "<polyline class=\"line\" stroke=\"{colour}\"{} points=\"{}\"/>\n",
            dash(self.dashed),
            places.join(" ")
        );
        for &(x, y) in &self.points {
            writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {}</title></circle>",
                x_axis.at(x),
                y_axis.at(y),
                escape(&self.name),
                short(y)
            )
            .expect("text grows");
        }
        svg
    }
}

/// Values on one side, places on the page on the other.
struct Axis {
    scale: Scale,
    /// The values at both ends.
    range: (f64, f64),
    /// The places of both ends.
    ends: (f64, f64),
}

impl Axis {
    fn of(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        // There is no zero on a logarithmic axis.
        let values = values.filter(|&value| scale == Scale::Linear || value > 0.0);
        let (least, most) =
            values.fold((f64::MAX, f64::MIN), |(least, most), v| (least.min(v), most.max(v)));
        let (least, most) = if least > most { (1.0, 2.0) } else { (least, most) };
        let range = match scale {
            Scale::Linear => (0.0, most * 1.05),
            Scale::Log => (least * 0.9, most * 1.1),
        };
        Axis { scale, range, ends: (from, to) }
    }

    fn at(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let share = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Log => (value.max(low) / low).ln() / (high / low).ln(),
        };
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.range;
        match self.scale {
            Scale::Linear => {
                let step = round_step(high / 5.0);
                (0..).map(|i| f64::from(i) * step).take_while(|v| *v <= high).collect()
            }
            Scale::Log => {
                let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
                let decade = |power: i32| [1.0, 2.0, 5.0].map(|first| first * 10f64.powi(power));
                decades.flat_map(decade).filter(|v| (low..=high).contains(v)).collect()
            }
        }
    }
}

/// The next of 1, 2, 5, 10, 20, 50 … above `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let first = [1.0, 2.0, 5.0].into_iter().find(|first| first * power >= step);
    first.unwrap_or(10.0) * power
}

fn legend(names: &[(&str, bool)], width: f64, top: f64) -> String {
    let mut svg = String::new();
    for (index, (name, dashed)) in names.iter().enumerate() {
        let column_width = (width - LEFT) / LEGEND_COLUMNS as f64;
        let x = LEFT / 2.0 + (index % LEGEND_COLUMNS) as f64 * column_width;
        let y = top + 10.0 + (index / LEGEND_COLUMNS) as f64 * LEGEND_ROW_HEIGHT;
        writeln!(
            svg,
            "<line class=\"line\" stroke=\"{}\"{} x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            COLOURS[index % COLOURS.len()],
            dash(*dashed),
            x + 22.0,
            x + 28.0,
            y + 4.0,
            escape(name)
        )
        .expect("text grows");
    }
    svg
}

fn dash(dashed: bool) -> &'static str {
    if dashed { " stroke-dasharray=\"6 4\"" } else { "" }
}

/// 1500 → `1.5k`.
fn short(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = if scaled >= 100.0 { 0 } else { 2 };
    let text = format!("{scaled:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::{Axis, Scale, round_step, short};

    #[test]
    fn zero_is_at_the_foot_of_a_logarithmic_axis() {
        let axis = Axis::of(Scale::Log, [0.0, 1.0, 100.0].into_iter(), 200.0, 0.0);
        assert_eq!(axis.at(0.0), 200.0);
        assert!(axis.ticks().len() < 10);
    }

    #[test]
    fn numbers_are_shortened() {
        assert_eq!(short(1024.0), "1.02k");
        assert_eq!(short(1_000_000.0), "1M");
        assert_eq!(short(0.5), "0.5");
        assert_eq!(short(500.0), "500");
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(round_step(1.3), 2.0);
        assert_eq!(round_step(0.07), 0.1);
        assert_eq!(round_step(60.0), 100.0);
    }
}
