//! The local time in the form of access logs: `31/Dec/1986:19:40:00 +0300`.

use jiff::Zoned;
use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

/// The current time. The text is made once a second.
pub fn now() -> String {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|(of, text)| {
        if *of != second || text.is_empty() {
            *text = Zoned::now().strftime("%d/%b/%Y:%H:%M:%S %z").to_string();
            *of = second;
        }
        text.clone()
    })
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
}
