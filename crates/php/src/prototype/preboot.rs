//! `"preboot": true` of a worker script: the script boots in the prototype. When it asks for its first request, the prototype
//! reports that PHP is up, and goes on in its loop, within the script: each worker that it forks continues the script with a
//! request of its own. Therefore a worker starts as fast as in classic mode, and shares the memory of the boot with the others.
//!
//! Descriptors that the boot leaves open are shared, too. A connection, or a pipe to a process, would mix up the answers to
//! different workers, SQLite does not survive a fork, and other threads do not exist in one: these are errors, which name what
//! to do.

#![allow(unsafe_code)] // reads descriptors of the script

use super::serve::{Prototype, Served};
use crate::log;
use crate::worker::forked::Worker;
use crate::worker::{callbacks, script};
use howdah_protocol::messages::prototype::{FromPrototype, WorkerScript};
use nix::sys::resource::{Resource, getrlimit};
use rustix::fs::{FileType, fstat, fstatfs};
use rustix::io::pread;
use rustix::net::sockopt::socket_type;
use rustix::net::{SocketAddr, SocketAddrAny, SocketAddrUnix, SocketType, getpeername};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, RawFd};
use std::process::ExitCode;
use std::rc::Rc;

/// Descriptors, and the files that they refer to: by device and inode.
type Descriptors = BTreeMap<RawFd, (u64, u64)>;

/// Higher ones are not found without /proc.
const MOST_DESCRIPTORS: u64 = 1 << 16;

/// Boots the script, and then serves as a prototype. Returns when the script has ended without a request.
pub fn run(prototype: Prototype, script: &WorkerScript, booted: FromPrototype) -> ExitCode {
    let before = descriptors();
    prototype.stderr().to_supervisor();
    // The script takes the prototype when it asks for its first request.
    let waiting = Rc::new(Cell::new(Some(prototype)));
    let taken = Rc::clone(&waiting);
    let is_ready = script::run(script, move || match taken.take() {
        Some(prototype) => serve(prototype, &before, &booted),
        None => callbacks::exit(1),
    });
    if is_ready {
        // A worker: its script is over.
        callbacks::exit(script::exit_code());
    }
    if let Some(prototype) = waiting.take() {
        prototype.report(&FromPrototype::Failed { reason: script::ended_without_a_request(script) });
    }
    ExitCode::FAILURE
}

/// The script is ready. Returns in the workers.
fn serve(prototype: Prototype, before: &Descriptors, booted: &FromPrototype) -> Worker {
    if let Some(problem) = shared_descriptor(before).or_else(other_threads) {
        let option = format!("applications/{}/worker/preboot", prototype.application());
        prototype.report(&FromPrototype::Failed { reason: format!("{option}: {problem}, or remove \"preboot\"") });
        callbacks::exit(1);
    }
    prototype.stderr().to_log();
    // It would go off in the prototype.
    nix::unistd::alarm::cancel();
    prototype.report(booted);
    match prototype.serve() {
        Ok(Served::Forked(worker)) => worker,
        // Not the end of the script: its shutdown functions belong to the workers.
        Ok(Served::Stopped) => callbacks::exit(0),
        Err(reason) => {
            log::write(&reason);
            callbacks::exit(1)
        }
    }
}

/// The descriptors of this process.
fn descriptors() -> Descriptors {
    let listed: Vec<RawFd> = match std::fs::read_dir("/proc/self/fd") {
        Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect(),
        // A rootfs without /proc.
        Err(_) => {
            let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
            (0..most.min(MOST_DESCRIPTORS) as RawFd).collect()
        }
    };
    // Not the one of the list itself, which is closed again: the script's first connection may get its number.
    let status = |number| fstat(examined(number)).ok();
    listed.into_iter().filter_map(|number| status(number).map(|it| (number, (it.st_dev, it.st_ino)))).collect()
}

/// A descriptor of the script, for questions about it: if it is closed, the answer is an error.
fn examined<'fd>(number: RawFd) -> BorrowedFd<'fd> {
    // SAFETY: it is not -1. This process has one thread, so no other code closes it meanwhile.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// A descriptor that the script has opened, and that workers must not share.
fn shared_descriptor(before: &Descriptors) -> Option<String> {
    let now = descriptors();
    let opened = now.iter().filter(|(number, _)| !before.contains_key(number));
    opened.into_iter().find_map(|(number, file)| {
        let descriptor = examined(*number);
        let ends = |all: &Descriptors| all.values().filter(|other| *other == file).count();
        let what = if let Some(peer) = peer(descriptor) {
            format!("opened a connection (to {})", name_of(peer))
        } else if is_pipe(descriptor) && ends(before) == 0 && ends(&now) == 1 {
            // Other pipes are standard error, which php://stderr duplicates, and those with both ends in this process.
            "opened a pipe to another process, as proc_open() and popen() do,".to_owned()
        } else if is_sqlite(descriptor) {
            let path = std::fs::read_link(format!("/proc/self/fd/{number}"));
            format!("opened a database of SQLite ({})", path.unwrap_or_default().display())
        } else {
            return None;
        };
        Some(format!(
            "the worker script has {what} before it asked for a request, and all workers would use the same one; open it at \
             its first use"
        ))
    })
}

/// Whether it is a pipe without a name.
fn is_pipe(file: BorrowedFd) -> bool {
    const PIPEFS: i64 = 0x5049_5045;
    fstatfs(file).is_ok_and(|status| status.f_type == PIPEFS)
}

/// The peer of a connection. A datagram socket, such as syslog's, may be shared.
fn peer(socket: BorrowedFd) -> Option<SocketAddrAny> {
    let is_stream = socket_type(socket).is_ok_and(|kind| kind != SocketType::DGRAM);
    is_stream.then(|| getpeername(socket).ok().flatten())?
}

/// SQLite's locks and caches do not survive a fork: two workers that share them damage the file.
fn is_sqlite(file: BorrowedFd) -> bool {
    const HEADER: &[u8; 16] = b"SQLite format 3\0";
    let mut start = [0; HEADER.len()];
    let is_regular = fstat(file).is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
    is_regular && pread(file, &mut start, 0).is_ok() && start == *HEADER
}

fn name_of(peer: SocketAddrAny) -> String {
    if let Ok(address) = SocketAddr::try_from(peer.clone()) {
        return address.to_string();
    }
    let path = SocketAddrUnix::try_from(peer).ok().and_then(|unix| Some(unix.path()?.to_string_lossy().into_owned()));
    path.unwrap_or_else(|| {
        "a socket without a name, such as one of stream_socket_pair() or curl_multi_init()".to_owned()
    })
}

/// Threads that an extension has started.
fn other_threads() -> Option<String> {
    let count = std::fs::read_dir("/proc/self/task").ok()?.count();
    (count > 1).then(|| {
        format!(
            "the worker script has {} other threads when it asks for a request, and workers would not have them; start them \
             in the handler",
            count - 1
        )
    })
}
