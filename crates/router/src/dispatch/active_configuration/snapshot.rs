//! The active configuration as all threads share it. It is immutable, and replaced whole.

use crate::access::{ConnectionLimits, RateLimits, UserFiles};
use crate::backends::fastcgi::FastCgiGeneration;
use crate::backends::php::SharedGeneration;
use crate::backends::proxy::{HealthStates, HttpGeneration, TlsBySettings};
use crate::backends::roadrunner::RoadRunnerGeneration;
use crate::dispatch::active_configuration::pins::Pins;
use crate::response::error_pages::LoadedErrorPages;
use howdah_config::Configuration;
use rustls::ServerConfig;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::Arc;

/// A configuration, and the resources that the router made for it.
#[derive(Default)]
pub struct Snapshot {
    /// The configuration.
    pub configuration: Arc<Configuration>,
    /// For each listener's number, its index in the configuration. Looked up for each request: a few numbers need no hash.
    pub listeners: BTreeMap<u64, usize>,
    /// The TLS configurations, by listener.
    pub tls: HashMap<u64, Arc<ServerConfig>>,
    /// The TLS configurations of servers behind howdah.
    pub upstream_tls: TlsBySettings,
    /// Which servers of upstreams get requests.
    pub upstream_health: HealthStates,
    /// Where links led when these generations were planned.
    pub pins: Pins,
    /// The generation of each PHP application.
    pub generations: BTreeMap<String, Arc<SharedGeneration>>,
    /// The generation of each HTTP application.
    pub http_generations: BTreeMap<String, Arc<HttpGeneration>>,
    /// The generation of each RoadRunner application.
    pub roadrunner_generations: BTreeMap<String, Arc<RoadRunnerGeneration>>,
    /// The generation of each FastCGI application.
    pub fastcgi_generations: BTreeMap<String, Arc<FastCgiGeneration>>,
    /// How many requests the clients have sent to actions with a limit.
    pub rate_limits: Arc<RateLimits>,
    /// How many requests of clients are being answered by actions with a limit.
    pub connection_limits: ConnectionLimits,
    /// The files with users for `basic_auth`.
    pub user_files: UserFiles,
    /// The pages of errors.
    pub error_pages: LoadedErrorPages,
    /// The file of the access log.
    pub access_log: Option<Arc<File>>,
}
