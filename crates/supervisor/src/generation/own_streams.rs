//! Our own standard output and error, for an application that has no file for them.
//!
//! A file and a pipe are passed on as they are. A terminal, a socket and any other device are not: with a terminal's descriptor
//! an application reads what root types there, and with a socket's it ends the connection for us, too (shutdown(2)), as
//! systemd's journal has it. For them an application gets pipes of its own, from which we copy, at one rate for all of them.
//!
//! Each prototype has its pipes. Processes that it leaves behind keep them open: beyond [`MAX_PIPES`], the oldest is closed.

use crate::generation::process_output::{CopyRate, ProcessOutput};
use crate::os::files::output_writer::OutputWriter;
use rustix::fs::FileType;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How many pipes are copied.
static COPIED_PIPES: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::channel(0).0);
/// How long the end of the output may take when all applications have ended.
const END_TIMEOUT: Duration = Duration::from_millis(200);

/// The pipes of each application, by its name.
static APPLICATIONS: LazyLock<Mutex<HashMap<String, Pipes>>> = LazyLock::new(Mutex::default);
/// The most pipes of an application: more than all generations that may run have.
const MAX_PIPES: usize = 100;

/// A pipe that counts in [`COPIED_PIPES`].
struct CopiedPipe(ProcessOutput);

/// The pipes of an application.
struct Pipes {
    rate: CopyRate,
    /// Their tasks, the oldest first.
    tasks: VecDeque<AbortHandle>,
}

/// The standard output of an application.
///
/// # Errors
/// When there are no descriptors.
pub fn output(application: &str) -> io::Result<OwnedFd> {
    let stdout = io::stdout();
    if is_passed_on(stdout.as_fd()) {
        return stdout.as_fd().try_clone_to_owned();
    }
    let file = Arc::new(File::from(stdout.as_fd().try_clone_to_owned()?));
    copied(application, OutputWriter::of(&file, "standard output", ""))
}

/// The standard error of an application.
///
/// # Errors
/// When there are no descriptors.
pub fn error(application: &str) -> io::Result<OwnedFd> {
    let stderr = io::stderr();
    if is_passed_on(stderr.as_fd()) { stderr.as_fd().try_clone_to_owned() } else { copied(application, None) }
}

/// Waits until everything is copied, when all applications have ended: nothing of their last words is lost. One that left
/// a process behind is not waited for.
pub async fn finish() {
    let mut pipes = COPIED_PIPES.subscribe();
    let _ = timeout(END_TIMEOUT, pipes.wait_for(|count| *count == 0)).await;
}

fn is_passed_on(stream: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstat(stream).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(FileType::RegularFile | FileType::Fifo))
}

/// A pipe that is copied until all its writers have closed it; `None` to our standard error.
fn copied(application: &str, writer: Option<Arc<OutputWriter>>) -> io::Result<OwnedFd> {
    // The list is complete at any time.
    let mut applications = APPLICATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    for pipes in applications.values_mut() {
        pipes.tasks.retain(|task| !task.is_finished());
    }
    applications.retain(|name, pipes| name == application || !pipes.tasks.is_empty());
    let new = || Pipes { rate: CopyRate::new(), tasks: VecDeque::new() };
    let pipes = applications.entry(application.to_owned()).or_insert_with(new);
    let (output, theirs) = ProcessOutput::pipe_at(writer, pipes.rate.share())?;
    if pipes.tasks.len() >= MAX_PIPES
        && let Some(oldest) = pipes.tasks.pop_front()
    {
        tracing::warn!(
            "processes that \"{application}\" has left behind keep {MAX_PIPES} pipes of its output open; closing the oldest"
        );
        oldest.abort();
    }
    COPIED_PIPES.send_modify(|count| *count += 1);
    let mut pipe = CopiedPipe(output);
    pipes.tasks.push_back(tokio::spawn(async move { pipe.0.copy_all().await }).abort_handle());
    Ok(theirs)
}

impl Drop for CopiedPipe {
    fn drop(&mut self) {
        COPIED_PIPES.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use tempfile::tempfile;

    #[tokio::test]
    async fn a_pipe_is_copied_to_its_end() {
        let mut file = Arc::new(tempfile().unwrap());
        let mut theirs = File::from(copied("shop", OutputWriter::of(&file, "a test", "shop")).unwrap());
        theirs.write_all(b"the last words\n").unwrap();
        drop(theirs);
        finish().await;
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "the last words\n");
    }

    #[tokio::test]
    async fn pipes_of_processes_that_were_left_behind_have_a_limit() {
        let mut left = Vec::new();
        for _ in 0..=MAX_PIPES {
            left.push(File::from(copied("hostile", None).unwrap()));
            // The pipes of another application are not closed.
            left.extend((left.len() == 1).then(|| File::from(copied("shop", None).unwrap())));
        }
        while left[0].write_all(b"x").is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(left[1..].iter_mut().all(|pipe| pipe.write_all(b"\n").is_ok()));
    }

    #[test]
    fn only_files_and_pipes_are_passed_on() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let device = File::open("/dev/null").unwrap();
        assert!(is_passed_on(reader.as_fd()) && is_passed_on(tempfile().unwrap().as_fd()));
        assert!(!is_passed_on(socket.as_fd()) && !is_passed_on(device.as_fd()));
    }
}
