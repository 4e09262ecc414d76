//! The local time in the form of access logs: `31/Dec/1986:19:40:00 +0300`, or `1986-12-31T19:40:00+03:00`.

use jiff::Zoned;
use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

/// The text of a second.
type LastText = RefCell<(u64, String)>;

/// The current time, as in the common log format. The text is made once a second.
pub fn now() -> String {
    thread_local! {
        static LAST: LastText = const { RefCell::new((0, String::new())) };
    }
    LAST.with_borrow_mut(|last| formatted(last, "%d/%b/%Y:%H:%M:%S %z"))
}

/// The current time, as in ISO 8601.
pub fn iso8601() -> String {
    thread_local! {
        static LAST: LastText = const { RefCell::new((0, String::new())) };
    }
    LAST.with_borrow_mut(|last| formatted(last, "%Y-%m-%dT%H:%M:%S%:z"))
}

fn formatted((of, text): &mut (u64, String), format: &str) -> String {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if *of != second || text.is_empty() {
        *text = Zoned::now().strftime(format).to_string();
        *of = second;
    }
    text.clone()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_time_has_the_form_of_the_common_log_format() {
        let now = super::now();
        let form: String = now.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!((&form[..3], &form[6..21]), ("99/", "/9999:99:99:99 "), "{now}");
        assert_eq!(now.len(), "31/Dec/1986:19:40:00 +0300".len());
    }

    #[test]
    fn the_other_form_is_that_of_iso_8601() {
        let now = super::iso8601();
        let form: String = now.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert!(matches!(form.as_str(), "9999-99-99T99:99:99+99:99" | "9999-99-99T99:99:99-99:99"), "{now}");
    }
}
