//! Failures of the confinement, as sentences: the option, the step, the error, and what to do.

use nix::unistd::geteuid;
use std::{fmt, io};

/// A step of the confinement that failed.
pub struct Problem {
    /// The option, below `isolation`.
    pub option: &'static str,
    /// The step.
    pub doing: String,
    /// The kernel's error.
    pub error: io::Error,
}

/// Makes a problem of an error, for `map_err`.
pub fn problem<E: Into<io::Error>>(option: &'static str, doing: impl Into<String>) -> impl FnOnce(E) -> Problem {
    move |error| Problem { option, doing: doing.into(), error: error.into() }
}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { option, doing, error } = self;
        write!(f, "{option}: {doing}: {error}")?;
        match (error.raw_os_error(), geteuid().is_root()) {
            (Some(nix::libc::EPERM | nix::libc::EACCES), true) => f.write_str(
                "; in a container the kernel requires more rights (docker: --cap-add SYS_ADMIN, and seccomp and AppArmor \
                 profiles that allow unshare and mount); give them or remove the option",
            ),
            (Some(nix::libc::EPERM | nix::libc::EACCES), false) => {
                f.write_str("; start howdah as root, or add isolation/namespaces/credential, or remove the option")
            }
            (Some(nix::libc::ENOSPC | nix::libc::EUSERS), _) => f.write_str(
                "; raise the kernel's limit (sysctl user.max_user_namespaces and its neighbours) or remove the option",
            ),
            (Some(nix::libc::ENOSYS), _) => f.write_str("; it requires Linux 5.6 or newer"),
            (Some(nix::libc::EROFS), _) => f.write_str("; make this folder in the rootfs beforehand"),
            _ => Ok(()),
        }
    }
}
