//! Log files. The supervisor opens them, because it may be root. The router writes the access log, and applications
//! write the output of PHP.
//!
//! An open file stays open: if its path cannot be opened again, the old file is still written. A named pipe must have a
//! reader, because opening it never waits for one. Symbolic links of other users at the end of a path are not followed
//! ([`trusted_path`]).

use crate::os::files::hanging::{TIMEOUT, within};
use crate::os::files::output_writer::OutputWriter;
use crate::os::system_error::error_text;
use howdah_blocking_work::mounts::{check_standard_error, never_waits};
use howdah_config::LogDestination;
use howdah_protocol::trusted_path;
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MODE: Mode = Mode::from_raw_mode(0o640);

/// The files to which an application writes instead of our own standard output and error.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    stdout: Option<Arc<File>>,
    stderr: Option<Arc<File>>,
    /// Writes to `stderr` what we copy.
    stderr_writer: Option<Arc<OutputWriter>>,
}

/// An access log that is open.
#[derive(Clone, Debug)]
pub struct AccessLogFile {
    destination: LogDestination,
    /// `None` for a daemon, to which the router sends by itself.
    file: Option<Arc<OwnedFd>>,
}

// === impl Outputs ===

impl Outputs {
    /// Opens the application's `stdout` and `stderr`.
    ///
    /// # Errors
    /// With the path of the option, the path of the file and the reason.
    pub fn open(application: &str, stdout: Option<&Path>, stderr: Option<&Path>) -> Result<Outputs, String> {
        let open = |option: &str, path: Option<&Path>| {
            let output = path.map(|path| append_to(path).map(Arc::new).map_err(|error| (path, error)));
            output.transpose().map_err(|(path, error)| {
                let reason = explain(path, &error);
                format!("applications/{application}/{option}: {path:?} cannot be opened: {reason}; choose another file")
            })
        };
        let (stdout, stderr) = (open("stdout", stdout)?, open("stderr", stderr)?);
        let writer_of = |file| {
            OutputWriter::of(file, "an application's stderr", application).ok_or_else(|| {
                format!(
                    "applications/{application}/stderr: the files of former processes are named pipes that nothing reads, or in a \
                     file system that hangs; read them, or choose another file"
                )
            })
        };
        let stderr_writer = stderr.as_ref().map(writer_of).transpose()?;
        Ok(Outputs { stdout, stderr, stderr_writer })
    }

    /// Copies of the files for standard output and error.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn files(&self) -> io::Result<[Option<File>; 2]> {
        let copy = |output: &Option<Arc<File>>| output.as_ref().map(|file| file.try_clone()).transpose();
        Ok([copy(&self.stdout)?, copy(&self.stderr)?])
    }

    /// Writes to the file for standard error; `None` if that is our own.
    pub fn stderr_writer(&self) -> Option<Arc<OutputWriter>> {
        self.stderr_writer.clone()
    }
}

// === impl AccessLogFile ===

impl AccessLogFile {
    /// Opens the access log. Waits no longer than `timeout` for its file system.
    ///
    /// # Errors
    /// With the path of the option, the path of the file and the reason.
    pub fn open(destination: &LogDestination, timeout: Duration) -> Result<AccessLogFile, String> {
        let file = match destination {
            LogDestination::Daemon(_) => return Ok(AccessLogFile { destination: destination.clone(), file: None }),
            LogDestination::Stdout => io::stdout()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| format!("access_log: standard output cannot be used: {}", error_text(&error)))?,
            LogDestination::Path(path) => append_soon(path, timeout).map(OwnedFd::from).map_err(|error| {
                format!("access_log: {path:?} cannot be opened: {}; choose another file", explain(path, &error))
            })?,
        };
        Ok(AccessLogFile { destination: destination.clone(), file: Some(Arc::new(file)) })
    }

    /// Whether the log has this destination.
    pub fn writes_to(&self, destination: &LogDestination) -> bool {
        self.destination == *destination
    }

    /// Whether both have the same destination.
    pub fn is_same_as(&self, other: &AccessLogFile) -> bool {
        self.writes_to(&other.destination)
    }

    /// Opens the path again, because the file may have been renamed. On failure the old file stays open. `false` if the
    /// log has no path.
    pub fn reopen(&mut self) -> bool {
        if !matches!(self.destination, LogDestination::Path(_)) {
            return false;
        }
        match AccessLogFile::open(&self.destination, TIMEOUT) {
            Ok(fresh) => *self = fresh,
            Err(reason) => tracing::error!("cannot reopen the access log; the old file is still written: {reason}"),
        }
        true
    }

    /// A descriptor of the log, for a router; `None` if it is not a file.
    ///
    /// # Errors
    /// When there are none.
    pub fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        self.file.as_ref().map(|file| file.try_clone()).transpose()
    }
}

/// Makes this file our standard error, and the standard error of all children that are started later. Waits no longer than
/// `timeout` for its file system.
///
/// # Errors
/// A sentence.
pub fn write_errors_to(path: &Path, timeout: Duration) -> Result<(), String> {
    let redirected = append_soon(path, timeout).and_then(|file| replace_standard_error(path, file, timeout));
    check_standard_error();
    redirected.map_err(|error| {
        format!("the log {path:?} cannot be opened: {}; choose another with --log", explain(path, &error))
    })
}

/// The former file is closed, which may take long. The new one is in its place before that.
fn replace_standard_error(path: &Path, file: File, timeout: Duration) -> io::Result<()> {
    if never_waits(rustix::stdio::stderr()) {
        return Ok(rustix::stdio::dup2_stderr(file)?);
    }
    let _ = within(path, timeout, |_| Ok(rustix::stdio::dup2_stderr(file)?));
    Ok(())
}

fn append_soon(path: &Path, timeout: Duration) -> io::Result<File> {
    let owned = path.to_owned();
    within(path, timeout, move |_| append_to(&owned))
}

/// Opens a file for appending. It never waits: not for the reader of a named pipe, and not for a modem.
pub fn append_to(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = trusted_path::open(path, flags, MODE)?;
    // Writers may wait: otherwise PHP would lose what does not fit into a pipe.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Why a log cannot be opened: mostly because its folder does not exist.
fn explain(path: &Path, error: &io::Error) -> String {
    let missing = path.parent().filter(|folder| error.kind() == io::ErrorKind::NotFound && !folder.is_dir());
    match (missing, Errno::from_io_error(error)) {
        (Some(folder), _) => format!("there is no folder {folder:?}"),
        (None, Some(Errno::NXIO)) if path.metadata().is_ok_and(|it| it.file_type().is_socket()) => {
            "it is a socket, which has no file to open; systemd, for example, makes standard error one".to_owned()
        }
        (None, Some(Errno::NXIO)) => "it is a pipe without a reader; start the reader first".to_owned(),
        (None, _) => error_text(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::PathBuf;

    fn pipe_in(folder: &Path) -> PathBuf {
        let path = folder.join("log");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe_in(folder.path());
        let error = AccessLogFile::open(&LogDestination::Path(path.clone()), TIMEOUT).unwrap_err();
        assert!(error.contains("it is a pipe without a reader"), "{error}");
        let error = Outputs::open("shop", None, Some(&path)).unwrap_err();
        assert!(error.starts_with("applications/shop/stderr: ") && error.contains("without a reader"), "{error}");
        assert!(write_errors_to(&path, TIMEOUT).unwrap_err().contains("without a reader"));
    }

    #[test]
    fn a_pipe_with_a_reader_makes_its_writers_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe_in(folder.path());
        let mut options = OpenOptions::new();
        let mut reader = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path).unwrap();
        let outputs = Outputs::open("shop", Some(&path), None).unwrap();
        let [stdout, stderr] = outputs.files().unwrap();
        let mut stdout = stdout.unwrap();
        assert!(stderr.is_none() && !fcntl_getfl(&stdout).unwrap().contains(OFlags::NONBLOCK));
        stdout.write_all(b"hello").unwrap();
        let mut written = [0; 5];
        reader.read_exact(&mut written).unwrap();
        assert_eq!(&written, b"hello");
    }

    #[test]
    fn a_socket_is_named_as_the_reason() {
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        let error = write_errors_to(&path, TIMEOUT).unwrap_err();
        assert!(error.contains("it is a socket") && error.ends_with("choose another with --log"), "{error}");
    }

    #[test]
    fn a_log_whose_path_is_gone_stays_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/access.log");
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        let mut log = AccessLogFile::open(&LogDestination::Path(path.clone()), TIMEOUT).unwrap();
        let outputs = Outputs::open("shop", Some(&path), None).unwrap();
        std::fs::remove_dir_all(folder.path().join("logs")).unwrap();
        assert!(log.reopen());
        log.descriptor().unwrap().unwrap();
        assert!(outputs.files().unwrap()[0].is_some());
    }

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        append_to(&link).unwrap();
        assert!(target.exists(), "our own link is followed");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            std::fs::remove_file(&target).unwrap();
            let error = Outputs::open("shop", None, Some(&link)).unwrap_err();
            assert!(error.contains("a symbolic link of user id 65534"), "{error}");
            assert!(!target.exists());
        }
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/x.log");
        let error = AccessLogFile::open(&LogDestination::Path(path.clone()), TIMEOUT).unwrap_err();
        let missing = path.parent().unwrap();
        assert!(error.contains(&format!("there is no folder {missing:?}; choose another file")), "{error}");
    }
}
