//! The commands of other threads to an event-loop thread.

use crate::backends::php::WarmUpOrder;
use crate::dispatch::Snapshot;
use crate::net::accept::Listening;
use crate::process::access_change::Authorities;
use crate::report::ReportOnDrop;
use howdah_channel::WorkerId;
use rustls::ServerConfig;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::net::UdpSocket;
use std::sync::Arc;

/// A command to a thread.
pub enum ThreadCommand {
    /// Make this configuration the active one.
    Configure(Reconfiguration),
    /// Use these TLS settings for the connections that these listeners accept from now on, with these authorities.
    SetTls(Arc<HashMap<u64, Arc<ServerConfig>>>, Arc<Authorities>),
    /// Send a generation, which no configuration names yet, its first requests.
    WarmUp(WarmUpOrder),
    /// No configuration will name this generation.
    Forget(u64),
    /// A worker of a generation is dead. It died of the request with this slot and sequence number, if of any.
    WorkerDied(u64, WorkerId, Option<(u16, u32)>),
    /// Write the access log to this file from now on.
    ReopenLog(Arc<File>),
    /// Drop this. A thread that hangs does not.
    Drop(Arc<ReportOnDrop>),
    /// Stop accepting, finish all requests, exit.
    Drain,
}

/// A configuration for a thread.
#[derive(Clone)]
pub struct Reconfiguration {
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// Its listening sockets by number.
    pub listeners: Arc<BTreeMap<u64, Arc<Listening>>>,
    /// The sockets of QUIC of the listeners with HTTP/3, by the numbers of these listeners.
    pub quic_sockets: Arc<BTreeMap<u64, UdpSocket>>,
    /// The authorities that vouch for the clients of its listeners.
    pub authorities: Arc<Authorities>,
    /// Dropped when the configuration is active on the thread.
    pub done: Arc<ReportOnDrop>,
}
