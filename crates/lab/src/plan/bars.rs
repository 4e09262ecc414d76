//! The bars of a lab: what it promises of its stacks.

use super::file::BarFile;
use super::load::LoadPlan;
use crate::statistics::bars::{Figure, Limit, Question};

/// A bar under one load.
#[derive(Clone, Debug, PartialEq)]
pub struct BarPlan {
    /// The question, with its limit.
    pub question: Question,
    /// Whether it may stay without a measurement.
    pub optional: bool,
}

/// Reads the bars: one for each load of each. `names` are those of the stacks.
///
/// # Errors
/// The message begins with the path of the wrong value.
pub fn read(files: &[BarFile], loads: &[LoadPlan], names: &[&str]) -> Result<Vec<BarPlan>, String> {
    let mut bars = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let place = |reason: String| format!("bars[{index}]/{reason}");
        let figure: Figure = file.figure.parse().map_err(|reason| place(format!("figure: {reason}")))?;
        let limit = match (file.at_least, file.at_most) {
            (Some(value), None) => Limit::AtLeast(value),
            (None, Some(value)) => Limit::AtMost(value),
            _ => return Err(place("at_least: write at_least or at_most".to_owned())),
        };
        let stacks = std::iter::once(&file.stack).chain(&file.than);
        if let Some(name) = stacks.into_iter().find(|name| !names.contains(&name.as_str())) {
            return Err(place(format!("stack: the lab has no stack {name:?}; it has {}", names.join(", "))));
        }
        if file.loads.is_empty() || (!file.than.is_empty() && file.than_load.is_some()) {
            return Err(place("loads: at least one; and than or than_load, not both".to_owned()));
        }
        for name in file.loads.iter().chain(&file.than_load) {
            if !loads.iter().any(|load| &load.name == name) {
                return Err(place(format!("loads: the lab has no load {name:?}")));
            }
        }
        bars.extend(file.loads.iter().map(|load| BarPlan {
            question: Question {
                load: load.clone(),
                stack: file.stack.clone(),
                figure: figure.clone(),
                than: file.than.clone(),
                than_load: file.than_load.clone(),
                limit,
                grain: file.grain,
            },
            optional: file.optional,
        }));
    }
    Ok(bars)
}

/// The bars that these stacks can meet or miss: without the other ones that were not chosen.
pub fn of_stacks(bars: Vec<BarPlan>, names: &[String]) -> Vec<BarPlan> {
    let keep = |mut bar: BarPlan| {
        let compares = !bar.question.than.is_empty();
        bar.question.than.retain(|name| names.contains(name));
        let has_other = !compares || !bar.question.than.is_empty();
        (has_other && names.contains(&bar.question.stack)).then_some(bar)
    };
    bars.into_iter().filter_map(keep).collect()
}
