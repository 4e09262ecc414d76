//! A time in seconds, as a number or with a unit: `90`, `"90s"`, `"1.5m"`, `"250ms"`.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::{Error, quoted};
use crate::read::node::Node;

/// The units, the longer ones first.
const UNITS: [(&str, f64); 5] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// Reads a time in whole seconds, as in NGINX Unit, or with a unit.
pub(crate) fn whole_seconds(node: &Node<'_>, range: RangeInclusive<u64>) -> Result<Duration, Error> {
    if !node.is_string() {
        return node.integer(range, "seconds").map(Duration::from_secs);
    }
    let (text, seconds) = with_unit(node, *range.start() as f64..=*range.end() as f64)?;
    if seconds.fract() != 0.0 {
        return Err(node.error(format_args!("{} is not a whole number of seconds", quoted(&text))));
    }
    Ok(Duration::from_secs(seconds as u64))
}

/// Reads a time in seconds, whole or not, or with a unit.
pub(crate) fn seconds(node: &Node<'_>, range: RangeInclusive<f64>) -> Result<Duration, Error> {
    let seconds = match node.is_string() {
        true => with_unit(node, range)?.1,
        false => node.number(range, "seconds")?,
    };
    Ok(Duration::from_secs_f64(seconds))
}

fn with_unit(node: &Node<'_>, range: RangeInclusive<f64>) -> Result<(String, f64), Error> {
    let text = node.string()?;
    let advice = format!("write {} to {} seconds, as a number or with a unit: \"30s\"", range.start(), range.end());
    let seconds = parse(&text).ok_or_else(|| node.error(format_args!("{} is not a time; {advice}", quoted(&text))))?;
    if !range.contains(&seconds) {
        return Err(node.error(format_args!("{} is out of range; {advice}", quoted(&text))));
    }
    Ok((text, seconds))
}

fn parse(text: &str) -> Option<f64> {
    let (number, factor) = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let is_decimal = |c: char| c.is_ascii_digit() || c == '.';
    let is_number = number.starts_with(|c: char| c.is_ascii_digit()) && number.chars().all(is_decimal);
    // In thousandths, because 0.001 has no exact form.
    let milliseconds = number.parse::<f64>().ok().filter(|_| is_number)? * (factor * 1000.0);
    Some(milliseconds.round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_time_has_a_unit() {
        let cases = [
            ("30s", Some(30.0)),
            ("5m", Some(300.0)),
            ("1.5h", Some(5400.0)),
            ("7d", Some(604_800.0)),
            ("250ms", Some(0.25)),
            ("0s", Some(0.0)),
            ("30", None),
            ("s", None),
            ("-1s", None),
            (".5s", None),
            ("1 s", None),
            ("1e3s", None),
            ("infs", None),
            ("1S", None),
            ("1min", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn a_number_and_a_text_have_the_same_range() {
        let read = |json: &str| {
            let value = json::parse(json).expect("JSON");
            whole_seconds(&Node::root(&value), 1..=60).map_err(|error| error.to_string())
        };
        let advice = "write 1 to 60 seconds, as a number or with a unit: \"30s\"";
        assert_eq!(read("30"), Ok(Duration::from_secs(30)));
        assert_eq!(read("\"1m\""), Ok(Duration::from_secs(60)));
        assert_eq!(read("\"2m\""), Err(format!("\"2m\" is out of range; {advice}")));
        assert_eq!(read("\"30\""), Err(format!("\"30\" is not a time; {advice}")));
        assert_eq!(read("\"1500ms\""), Err("\"1500ms\" is not a whole number of seconds".to_owned()));
        assert_eq!(read("61"), Err("61 is out of range; write 1 to 60 seconds".to_owned()));
    }
}
