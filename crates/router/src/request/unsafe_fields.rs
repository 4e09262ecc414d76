//! Headers whose names CGI cannot distinguish: names with characters other than letters, digits and hyphens.
//!
//! `X_Forwarded_For` and `X-Forwarded-For` are both `HTTP_X_FORWARDED_FOR`. With `settings/http/discard_unsafe_fields`,
//! which is true by default, the former is dropped: applications, upstreams, conditions and logs do not see it.

use http::header::HeaderMap;

/// Whether a header's name, in lower case, has only letters, digits and hyphens.
pub fn is_safe(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Removes the headers whose names are not safe.
pub fn discard(headers: &mut HeaderMap) {
    if headers.keys().all(|name| is_safe(name.as_str())) {
        return;
    }
    let unsafe_names: Vec<_> = headers.keys().filter(|name| !is_safe(name.as_str())).cloned().collect();
    for name in unsafe_names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::HeaderName;

    #[test]
    fn only_safe_names_stay() {
        let names = ["host", "x-a1", "x_a", "x.a", "a!", "x-b", "_", "~x"];
        let mut headers: HeaderMap =
            names.iter().map(|name| (HeaderName::from_static(name), "1".parse().unwrap())).collect();
        headers.append("x_a", "2".parse().unwrap());
        discard(&mut headers);
        let mut left: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "x-a1", "x-b"]);
    }
}
