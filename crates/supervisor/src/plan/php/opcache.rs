//! opcache's settings that follow from the way an application runs.
//!
//! - **Files that howdah watches** (`"reload": "on-change"`): PHP itself would read an edited file within two seconds,
//!   before howdah has compiled it: a syntax error would be live. Therefore opcache does not check files, unless the
//!   configuration sets `opcache.validate_timestamps`.
//! - **Worker mode**: for PHP, a worker script is one request that lasts for hours. After `opcache_reset()`, or when its
//!   memory is full, opcache waits `opcache.force_restart_timeout` seconds (180) for the end of all requests, and then
//!   kills the processes that run one: all workers, with their requests. Therefore it waits forever, unless the
//!   configuration sets this time.

use howdah_config::{PhpApplication, PhpOptions, Reload};

const VALIDATE: &str = "opcache.validate_timestamps";
/// A file that was written just now would be read at each request, and not kept.
const PROTECTION: &str = "opcache.file_update_protection";
const FORCE_RESTART: &str = "opcache.force_restart_timeout";

/// The settings of PHP, which the configuration sets, with those that this application needs.
pub fn for_application(options: PhpOptions, application: &PhpApplication) -> PhpOptions {
    let options = for_reload(options, application.reload);
    let has_worker_script = application.worker.is_some() || !application.worker_scripts.is_empty();
    if has_worker_script { for_worker_mode(options) } else { options }
}

fn is_set(options: &PhpOptions, name: &str) -> bool {
    options.admin.contains_key(name) || options.user.contains_key(name)
}

fn for_reload(mut options: PhpOptions, reload: Reload) -> PhpOptions {
    if reload == Reload::OnChange && !is_set(&options, VALIDATE) {
        options.admin.insert(VALIDATE.to_owned(), "0".to_owned());
        if !is_set(&options, PROTECTION) {
            options.admin.insert(PROTECTION.to_owned(), "0".to_owned());
        }
    }
    options
}

fn for_worker_mode(mut options: PhpOptions) -> PhpOptions {
    if !is_set(&options, FORCE_RESTART) {
        options.admin.insert(FORCE_RESTART.to_owned(), "0".to_owned());
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

    #[test]
    fn opcache_kills_no_worker_that_runs_a_worker_script() {
        let set = |admin: &[(&str, &str)]| PhpOptions {
            admin: admin.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..PhpOptions::default()
        };
        assert_eq!(for_worker_mode(set(&[])).admin, set(&[(FORCE_RESTART, "0")]).admin);
        assert_eq!(for_worker_mode(set(&[(FORCE_RESTART, "60")])).admin, set(&[(FORCE_RESTART, "60")]).admin);
    }
}
