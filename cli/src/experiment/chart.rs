//! Strip plots as SVG: one row per setting, one dot per cell, on a logarithmic axis with a separate place for zero.
//! Writing to a String cannot fail.

use std::fmt::Write;

use profile::ui::standalone::escape_html as escape;

/// One dot.
#[derive(Clone, Debug)]
pub struct Dot {
    /// Index of its group in [`Chart::groups`], shown by colour and by height within the row.
    pub group: usize,
    /// Value, not negative.
    pub value: f64,
    /// Text of the tooltip.
    pub hover: String,
}

/// Data of a plot.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// Title, with the unit of the values.
    pub title: &'a str,
    /// Names of groups of dots, at most four.
    pub groups: &'a [String],
    /// Label and dots of each row, from the top.
    pub rows: Vec<(String, Vec<Dot>)>,
    /// Formats a value for the axis.
    pub text: fn(f64) -> String,
}

const WIDTH: f64 = 960.0;
/// Space for labels of rows.
const LEFT: f64 = 320.0;
const TOP: f64 = 64.0;
const ROW: f64 = 40.0;
const RIGHT: f64 = 24.0;
/// Space between the place for zero and the start of the logarithmic axis.
const ZERO: f64 = 50.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1d2430}.axis{fill:#5a6472;font-size:12px}\
.title{font-weight:600;font-size:15px}.grid{stroke:#d8dde4}.band{fill:#f3f5f8}.back{fill:#fff}\
.g0{fill:#0b63c5}.g1{fill:#b3541e}.g2{fill:#2a8a4a}.g3{fill:#8a3fb0}circle{fill-opacity:.75}\
@media(prefers-color-scheme:dark){text{fill:#e4e8ee}.axis{fill:#9aa5b4}.grid{stroke:#333c48}.band{fill:#1b222b}\
.back{fill:#12171e}.g0{fill:#6db3ff}.g1{fill:#ff9d5c}.g2{fill:#6fd08c}.g3{fill:#d59af0}}";

impl Chart<'_> {
    /// Returns the plot as one self-contained SVG element.
    pub fn svg(&self) -> String {
        let height = TOP + ROW * self.rows.len() as f64 + 40.0;
        let axis = Axis::over(self.rows.iter().flat_map(|(_, dots)| dots).map(|dot| dot.value));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{}\"><style>{STYLE}</style><rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>\
             <text class=\"title\" x=\"12\" y=\"24\">{0}</text>",
            escape(self.title)
        );
        self.draw_legend(&mut svg);
        self.draw_axis(&mut svg, &axis, height);
        for (index, (label, dots)) in self.rows.iter().enumerate() {
            let top = TOP + ROW * index as f64;
            let middle = top + ROW / 2.0 + 4.0;
            let _ = write!(svg, "<text x=\"12\" y=\"{middle}\">{}</text>", escape(label));
            let lane = (ROW - 10.0) / self.groups.len().max(1) as f64;
            for dot in dots {
                let x = axis.place(dot.value);
                let y = top + 5.0 + lane * (dot.group as f64 + 0.5);
                let _ = write!(
                    svg,
                    "<circle class=\"g{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
                    dot.group,
                    escape(&dot.hover)
                );
            }
        }
        svg + "</svg>"
    }

    fn draw_legend(&self, svg: &mut String) {
        for (index, group) in self.groups.iter().enumerate() {
            let x = LEFT + 150.0 * index as f64;
            let _ = write!(
                svg,
                "<circle class=\"g{index}\" cx=\"{x}\" cy=\"44\" r=\"5\"/>\
                     <text x=\"{}\" y=\"48\">{}</text>",
                x + 10.0,
                escape(group)
            );
        }
    }

    fn draw_axis(&self, svg: &mut String, axis: &Axis, height: f64) {
        let bottom = height - 34.0;
        for index in (0..self.rows.len()).step_by(2) {
            let y = TOP + ROW * index as f64;
            let _ = write!(svg, "<rect class=\"band\" y=\"{y}\" width=\"{WIDTH}\" height=\"{ROW}\"/>");
        }
        for value in axis.marks() {
            let x = axis.place(value);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>\
                     <text class=\"axis\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                escape(&(self.text)(value))
            );
        }
    }
}

/// An axis with zero at the left, then decades.
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    /// Returns an axis whose decades cover all `values`.
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let positive: Vec<f64> = values.filter(|value| *value > 0.0).collect();
        let low = positive.iter().copied().fold(f64::INFINITY, f64::min);
        let high = positive.iter().copied().fold(0.0, f64::max);
        if positive.is_empty() {
            return Self { low: 0, high: 1 };
        }
        let low = low.log10().floor() as i32;
        Self { low, high: (high.log10().ceil() as i32).max(low + 1) }
    }

    fn place(&self, value: f64) -> f64 {
        if value <= 0.0 {
            return LEFT;
        }
        let share = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LEFT + ZERO + (WIDTH - LEFT - ZERO - RIGHT) * share
    }

    fn marks(&self) -> Vec<f64> {
        [0.0].into_iter().chain((self.low..=self.high).map(|decade| 10f64.powi(decade))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_zero_and_whole_decades() {
        let axis = Axis::over([0.0, 0.03, 4.0].into_iter());
        assert_eq!(axis.marks(), [0.0, 0.01, 0.1, 1.0, 10.0]);
        assert_eq!(axis.place(0.0), LEFT);
        assert!((axis.place(0.01) - LEFT - ZERO).abs() < 1e-6);
        assert!((axis.place(10.0) - (WIDTH - RIGHT)).abs() < 1e-6);
        assert_eq!(Axis::over([0.0].into_iter()).marks(), [0.0, 1.0, 10.0], "nothing but zeros");
    }

    #[test]
    fn every_dot_is_drawn_and_texts_are_escaped() {
        let dot = |value| Dot { group: 0, value, hover: "a<b".to_owned() };
        let chart = Chart {
            title: "t",
            groups: &["g".to_owned()],
            rows: vec![("r&s".to_owned(), vec![dot(0.0), dot(2.0)])],
            text: |value| value.to_string(),
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<title>a&lt;b</title>").count(), 2);
        assert!(svg.contains("r&amp;s") && svg.ends_with("</svg>"));
    }
}
