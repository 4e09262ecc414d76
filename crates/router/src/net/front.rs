//! The description of a request by a web server in front of howdah, over FastCGI.
//!
//! The web server is believed as far as it describes the client and itself. The script that it names is only a wish:
//! howdah looks for it below the application's root, as for a path of its own.

use bytes::Bytes;

/// The variables of a request that are not headers of the client.
#[derive(Debug, Default)]
pub struct Front {
    /// Whether the client used TLS.
    pub is_https: bool,
    /// Names and values. Each name occurs once.
    variables: Vec<(Bytes, Bytes)>,
}

/// The variables that howdah determines itself, of those that a web server sends.
const HOWDAHS_OWN: [&[u8]; 23] = [
    b"CONTENT_LENGTH",
    b"CONTENT_TYPE",
    b"DOCUMENT_ROOT",
    b"DOCUMENT_URI",
    b"FCGI_ROLE",
    b"GATEWAY_INTERFACE",
    b"HTTPS",
    b"PATH_INFO",
    b"PATH_TRANSLATED",
    b"QUERY_STRING",
    b"REDIRECT_STATUS",
    b"REMOTE_ADDR",
    b"REMOTE_PORT",
    b"REQUEST_METHOD",
    b"REQUEST_SCHEME",
    b"REQUEST_URI",
    b"SCRIPT_FILENAME",
    b"SCRIPT_NAME",
    b"SERVER_ADDR",
    b"SERVER_NAME",
    b"SERVER_PORT",
    b"SERVER_PROTOCOL",
    b"SERVER_SOFTWARE",
];

// === impl Front ===

impl Front {
    /// Adds a variable. The last value of a name is valid, as with PHP-FPM.
    pub fn set(&mut self, name: Bytes, value: Bytes) {
        match self.variables.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = value,
            None => self.variables.push((name, value)),
        }
    }

    /// How many variables there are.
    pub fn len(&self) -> usize {
        self.variables.len()
    }

    /// The value of a variable, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.get_or_empty(name).filter(|value| !value.is_empty())
    }

    /// The value of a variable, which may be empty.
    pub fn get_or_empty(&self, name: &str) -> Option<&Bytes> {
        let (_, value) = self.variables.iter().find(|(known, _)| *known == name)?;
        Some(value)
    }

    /// The variables that a script gets as they are.
    pub fn others(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let others = self
            .variables
            .iter()
            .filter(|(name, _)| !HOWDAHS_OWN.contains(&&**name) && !name.starts_with(b"HOWDAH_") && !is_setting(name));
        others.map(|(name, value)| (&**name, &**value))
    }

    /// Whether the web server wants to change settings of PHP, as PHP-FPM lets it.
    pub fn changes_settings(&self) -> bool {
        self.variables.iter().any(|(name, _)| is_setting(name))
    }
}

fn is_setting(name: &[u8]) -> bool {
    matches!(name, b"PHP_VALUE" | b"PHP_ADMIN_VALUE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_is_valid_and_an_empty_one_is_none() {
        let mut front = Front::default();
        for (name, value) in [("A", "1"), ("B", "2"), ("A", "3"), ("B", ""), ("PHP_VALUE", "x"), ("HOWDAH_X", "y")] {
            front.set(Bytes::from_static(name.as_bytes()), Bytes::from_static(value.as_bytes()));
        }
        front.set(Bytes::from_static(b"SCRIPT_NAME"), Bytes::from_static(b"/index.php"));
        assert_eq!(front.get("A").map(|value| &**value), Some(&b"3"[..]));
        assert_eq!((front.get("B"), front.get("C"), front.len()), (None, None, 5));
        let others: Vec<_> = front.others().collect();
        assert_eq!(others, [(&b"A"[..], &b"3"[..]), (b"B", b"")]);
        assert!(front.changes_settings());
    }
}
