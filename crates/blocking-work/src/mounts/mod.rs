//! The mounts of the machine, as they are now, and whether a file in them may wait: a thread of its own reads them at each change.
//!
//! The kernel reports a change within microseconds. Without `/proc`, all mounts count as local, and the log has a
//! warning.

mod table;

use howdah_background_writer::standard_error;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, PoisonError, RwLock};
use std::thread;
use table::MountTable;

const MOUNTS: &str = "/proc/self/mountinfo";

/// Whether some mount may wait. The only thing that a look-up reads on most machines.
static SOME_MAY_WAIT: AtomicBool = AtomicBool::new(false);
static TABLE: LazyLock<RwLock<MountTable>> = LazyLock::new(RwLock::default);

/// Reads the mounts, and starts the thread that follows their changes.
///
/// # Errors
/// When no thread can be started.
pub fn watch() -> io::Result<()> {
    let opened = File::open(MOUNTS).and_then(|mut mounts| read(&mut mounts).map(|()| mounts));
    match opened {
        Ok(mounts) => thread::Builder::new().name("mounts".into()).spawn(|| follow(mounts)).map(drop),
        Err(error) => {
            tracing::warn!(%error, "cannot read {MOUNTS}; a file system that hangs will stop this process, and with it all applications");
            Ok(())
        }
    }
}

/// Whether no mount may wait.
pub fn are_all_local() -> bool {
    !SOME_MAY_WAIT.load(Ordering::Relaxed)
}

/// Whether operations on this open file never wait for another machine or process. Never waits itself.
pub fn never_waits(file: impl AsFd) -> bool {
    are_all_local() || mount_of(file).is_ok_and(|mount| table(|table| table.is_local(mount)))
}

/// The number of the mount. Requests nothing else, and no synchronization, so that no file system is asked.
fn mount_of(file: impl AsFd) -> Result<u64, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, "", flags, StatxFlags::MNT_ID).map(|found| found.stx_mnt_id)
}

fn follow(mut mounts: File) {
    loop {
        // A change is an error condition of the file.
        let changed = poll(&mut [PollFd::new(&mounts, PollFlags::PRI)], None);
        let result = match changed {
            Ok(_) => read(&mut mounts),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = result {
            tracing::error!(%error, "cannot follow the mounts any more");
            // From now on, all work that can wait does so elsewhere.
            set(MountTable::parse("unknown"));
            return;
        }
    }
}

fn read(mounts: &mut File) -> io::Result<()> {
    let mut text = Vec::new();
    mounts.rewind()?;
    mounts.read_to_end(&mut text)?;
    set(MountTable::parse(&String::from_utf8_lossy(&text)));
    Ok(())
}

fn set(new: MountTable) {
    let some_may_wait = !new.is_all_local();
    *TABLE.write().unwrap_or_else(PoisonError::into_inner) = new;
    SOME_MAY_WAIT.store(some_may_wait, Ordering::Relaxed);
    check_standard_error();
}

/// Log lines for a file that may hang are written by a thread of their own. Called when standard error is another file.
pub fn check_standard_error() {
    standard_error().set_may_hang(!never_waits(rustix::stdio::stderr()));
}

fn table<T>(read: impl FnOnce(&MountTable) -> T) -> T {
    read(&TABLE.read().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounts_of_this_machine_can_be_read() {
        let mut mounts = File::open(MOUNTS).unwrap();
        let mut text = String::new();
        mounts.read_to_string(&mut text).unwrap();
        assert!(MountTable::parse(&text).is_local(mount_of(File::open("/proc/self").unwrap()).unwrap()), "{text}");
    }
}
