//! A thread's means to answer requests.

use crate::access::{Authentication, Withdrawals};
use crate::backends::proxy::Proxy;
use crate::dispatch::active_configuration::view::Views;
use crate::response::access_log::AccessLogWriter;
use crate::response::log_entry::LogSink;
use crate::static_files::StaticFiles;
use howdah_config::Configuration;
use std::cell::RefCell;
use std::rc::Rc;

/// The state that the requests of one thread share.
#[derive(Default)]
pub struct Dispatcher {
    /// Files.
    pub static_files: StaticFiles,
    /// Connections to other servers.
    pub proxy: Proxy,
    /// The active configuration.
    pub views: Views,
    /// Passwords.
    pub authentication: Authentication,
    /// Connections whose access was withdrawn.
    pub withdrawals: Withdrawals,
    /// The access log.
    pub access_log: Rc<RefCell<AccessLogWriter>>,
}

// === impl Dispatcher ===

impl Dispatcher {
    /// The access log of this configuration; `None` without one.
    pub fn log_sink<'a>(&'a self, configuration: &'a Configuration) -> Option<LogSink<'a>> {
        let settings = configuration.access_log.as_ref()?;
        let is_open = self.access_log.borrow().is_on();
        is_open.then_some(LogSink { settings, writer: &self.access_log })
    }
}
