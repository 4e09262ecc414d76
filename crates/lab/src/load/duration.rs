//! The notation of times: `1h30m`, `60s`, `500ms`, `1.5s`; a bare number is seconds.

use std::time::Duration;

/// The longest time that a lab takes: a week.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// Reads a time.
///
/// # Errors
/// The text is not a time, or it is longer than a week.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time; write for example \"90s\", \"1m30s\" or \"500ms\"");
    let text = text.trim();
    let mut rest = text;
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit_end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        seconds += match rest[digits..unit_end].trim() {
            "ms" => number / 1000.0,
            "s" => number,
            "" if digits == text.len() => number,
            "m" | "min" => number * 60.0,
            "h" => number * 3600.0,
            _ => return Err(wrong()),
        };
        rest = &rest[unit_end..];
    }
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| format!("{text:?} is longer than a week"))
}

/// Writes a time as a reader expects it: `1m30s`, `60s`, `500ms`.
pub fn format(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    match milliseconds {
        0 => "0s".to_owned(),
        _ if !milliseconds.is_multiple_of(1000) => format!("{milliseconds}ms"),
        _ if milliseconds > 90_000 && milliseconds.is_multiple_of(60_000) => format!("{}m", milliseconds / 60_000),
        _ => format!("{}s", milliseconds / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, milliseconds) in [
            ("60s", 60_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5s", 1500),
            ("7", 7000),
            ("1h", 3_600_000),
            (" 2 s", 2000),
        ] {
            assert_eq!(parse(text).unwrap().as_millis(), milliseconds, "{text}");
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in ["", "s", "5 apples", "-5s", "1m30", "1..5s", "8000h"] {
            assert!(parse(text).unwrap_err().contains(text), "{text}");
        }
    }

    #[test]
    fn a_written_time_is_read_again() {
        for text in ["0s", "500ms", "60s", "90s", "2m", "3601s"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }
}
