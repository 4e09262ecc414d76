//! The folder of a history: one for each howdah, beside the state of howdah itself.

use crate::paths::StatePaths;
use std::path::PathBuf;

const FOLDER: &str = "dashboard";
/// Of the readable part of a folder's name.
const MAX_NAME: usize = 60;

/// The default folder for the howdah with this control address.
pub fn of_howdah(control: &str) -> PathBuf {
    StatePaths::of_this_user().state_dir.join(FOLDER).join(name(control))
}

/// A name that other addresses do not have. The address of a `howdah serve` contains its process id: without it, each start
/// continues the same history.
fn name(control: &str) -> String {
    let parts = control.split('/').map(|part| match part.rsplit_once('.') {
        Some((name, pid))
            if !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) && control.contains("/serve/") =>
        {
            name
        }
        _ => part,
    });
    let lasting = parts.collect::<Vec<_>>().join("/");
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let tail: String = lasting.chars().rev().take(MAX_NAME).map(safe).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{}-{:016x}", tail.trim_start_matches('_'), hash(lasting.as_bytes()))
}

/// FNV-1a: other versions of howdah must find the folder, too.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_howdah_has_its_own_folder() {
        let addresses = [
            "unix:/run/howdah/control.sock",
            "unix:/run/howdah/serve/shop-5b1c2f90.4711/control.sock",
            "unix:/run/howdah/serve/blog-5b1c2f91.4711/control.sock",
            "127.0.0.1:8081",
            "127.0.0.2:8081",
            "unix:/run/howdah_control.sock",
            "unix:@abstract",
        ];
        let names: std::collections::BTreeSet<_> = addresses.iter().map(|address| name(address)).collect();
        assert_eq!(names.len(), addresses.len());
        assert!(names.iter().all(|name| !name.contains(['/', '.']) && name.len() < 90), "{names:?}");
        assert_eq!(name("unix:/run/howdah/serve/shop-5b1c2f90.1/control.sock"), name(addresses[1]));
        assert!(name(&format!("unix:/{}", "ü".repeat(500))).len() < 90);
    }
}
