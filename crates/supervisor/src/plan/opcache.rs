//! opcache's settings for an application whose files howdah watches (`"reload": "on-change"`).
//!
//! PHP itself would read an edited file within two seconds, before howdah has compiled it: a syntax error would be
//! live. Therefore opcache does not check files, unless the configuration sets `opcache.validate_timestamps`.

use howdah_config::{PhpOptions, Reload};

const VALIDATE: &str = "opcache.validate_timestamps";
/// A file that was written just now would be read at each request, and not kept.
const PROTECTION: &str = "opcache.file_update_protection";

/// The settings of PHP with those for this way of reloading.
pub fn for_reload(mut options: PhpOptions, reload: Reload) -> PhpOptions {
    if reload == Reload::OnChange && !options.admin.contains_key(VALIDATE) && !options.user.contains_key(VALIDATE) {
        options.admin.insert(VALIDATE.to_owned(), "0".to_owned());
        if !options.user.contains_key(PROTECTION) {
            options.admin.entry(PROTECTION.to_owned()).or_insert_with(|| "0".to_owned());
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_howdah_loads_files_that_it_watches() {
        let options = |admin: &[&str]| PhpOptions {
            admin: admin.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect(),
            ..PhpOptions::default()
        };
        for (admin, reload, expected) in [
            (&[][..], Reload::OnSwap, &[][..]),
            (&[], Reload::OnChange, &[(PROTECTION, "0"), (VALIDATE, "0")]),
            (&[PROTECTION], Reload::OnChange, &[(PROTECTION, "1"), (VALIDATE, "0")]),
            (&[VALIDATE], Reload::OnChange, &[(VALIDATE, "1")]),
        ] {
            let found = for_reload(options(admin), reload).admin;
            let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(found, expected, "{admin:?}");
        }
    }
}
