//! `"preboot": true` of a worker script: the script boots in the prototype. When it asks for its first request, the prototype
//! reports that PHP is up, and goes on in its loop, within the script: each worker that it forks continues the script with a
//! request of its own. Therefore a worker starts as fast as in classic mode, and shares the memory of the boot with the others.
//!
//! Descriptors that the boot leaves open are shared, too. A connection would mix up the answers to different workers, and other threads
//! do not exist in a fork: both are errors, which name what to do.

#![allow(unsafe_code)] // reads descriptors of the script

use super::serve::{Prototype, Served};
use crate::log;
use crate::worker::requests::{Children, Requests};
use crate::worker::{callbacks, script};
use howdah_protocol::messages::prototype::{FromPrototype, WorkerScript};
use rustix::net::sockopt::socket_type;
use rustix::net::{SocketAddr, SocketAddrAny, SocketAddrUnix, SocketType, getpeername};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, RawFd};
use std::process::ExitCode;
use std::rc::Rc;

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
        callbacks::exit(0);
    }
    if let Some(prototype) = waiting.take() {
        prototype.report(&FromPrototype::Failed { reason: script::ended_without_a_request(script) });
    }
    ExitCode::FAILURE
}

/// The script is ready. Returns in the workers.
fn serve(prototype: Prototype, before: &BTreeSet<RawFd>, booted: &FromPrototype) -> Requests {
    if let Some(problem) = shared_connection(before).or_else(other_threads) {
        let option = format!("applications/{}/worker/preboot", prototype.application());
        prototype.report(&FromPrototype::Failed { reason: format!("{option}: {problem}, or remove \"preboot\"") });
        callbacks::exit(1);
    }
    prototype.stderr().to_log();
    // It would go off in the prototype.
    nix::unistd::alarm::cancel();
    prototype.report(booted);
    match prototype.serve() {
        Ok(Served::Forked(worker)) => worker.requests(Children::Keep),
        // Not the end of the script: its shutdown functions belong to the workers.
        Ok(Served::Stopped) => callbacks::exit(0),
        Err(reason) => {
            log::write(&reason);
            callbacks::exit(1)
        }
    }
}

/// The numbers of this process's descriptors; empty if /proc cannot be read.
fn descriptors() -> BTreeSet<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A connection that the script has opened.
fn shared_connection(before: &BTreeSet<RawFd>) -> Option<String> {
    let peer = descriptors().difference(before).find_map(|number| {
        // SAFETY: it is only asked for its type; if it is closed meanwhile, that is an error.
        let socket = unsafe { BorrowedFd::borrow_raw(*number) };
        // A datagram socket, such as syslog's, may be shared.
        let is_stream = socket_type(socket).is_ok_and(|kind| kind != SocketType::DGRAM);
        is_stream.then(|| getpeername(socket).ok().flatten())?
    })?;
    Some(format!(
        "the worker script has opened a connection (to {}) before it asked for a request, and all workers would use the \
         same one; open it at its first use",
        name_of(peer)
    ))
}

fn name_of(peer: SocketAddrAny) -> String {
    if let Ok(address) = SocketAddr::try_from(peer.clone()) {
        return address.to_string();
    }
    match SocketAddrUnix::try_from(peer) {
        Ok(unix) => unix.path().map_or("a Unix socket".to_owned(), |path| path.to_string_lossy().into_owned()),
        Err(_) => "a socket".to_owned(),
    }
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
