//! Ranges of HTTP statuses: `404`, `"200-399"`, or an array of these.

use std::ops::RangeInclusive;

use crate::error::{Error, quoted};
use crate::read::node::Node;

const ADVICE: &str = "write a status such as 404, or a range such as \"200-399\"";

/// Reads one or several; at least one.
pub(crate) fn ranges(node: &Node<'_>) -> Result<Vec<RangeInclusive<u16>>, Error> {
    let ranges: Vec<_> = match node.is_array() {
        true => node.elements()?.map(|node| range(&node)).collect::<Result<_, _>>()?,
        false => vec![range(node)?],
    };
    if ranges.is_empty() {
        return Err(node.error("the array is empty; write a status such as 200"));
    }
    Ok(ranges)
}

/// Reads one.
pub(crate) fn range(node: &Node<'_>) -> Result<RangeInclusive<u16>, Error> {
    if !node.is_string() {
        return node.integer(100..=999, "(an HTTP status)").map(|status| status..=status);
    }
    let text = node.string()?;
    let number = |text: &str| text.parse().ok().filter(|status| text.len() == 3 && (100..=999).contains(status));
    let range = text.split_once('-').and_then(|(first, last)| Some(number(first)?..=number(last)?));
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| node.error(format_args!("{} is not a range of statuses; {ADVICE}", quoted(&text))))
}
