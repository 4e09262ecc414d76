//! A thread's view of the active configuration, and the views that its last connections still need.
//!
//! A request keeps the view that it started with. When the last request releases an old view, the generations that only
//! that view named are released, too, and the supervisor receives a report
//! ([`SharedGeneration`](crate::backends::php::SharedGeneration)).

use crate::access::{ConnectionLimits, RateLimits, UserFiles};
use crate::backends::fastcgi::FastCgiGeneration;
use crate::backends::php::GenerationPort;
use crate::backends::proxy::{Balancer, HttpGeneration};
use crate::backends::roadrunner::RoadRunnerGeneration;
use crate::dispatch::active_configuration::pins::Pins;
use crate::dispatch::active_configuration::snapshot::Snapshot;
use crate::response::error_pages::LoadedErrorPages;
use howdah_config::{Configuration, Listener, ProxySettings, Upstream};
use rustls::ClientConfig;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A configuration, as one thread serves it.
pub struct View {
    snapshot: Arc<Snapshot>,
    /// The thread's ports to the applications' generations, by application.
    pub ports: HashMap<String, Rc<GenerationPort>>,
    /// The balancers, by upstream.
    pub balancers: HashMap<String, Balancer>,
}

/// The active view, and older ones.
pub struct Views {
    active: RefCell<Rc<View>>,
    /// The last view of each listener that was removed just now: its last connections still get an answer.
    removed: RefCell<HashMap<u64, (Rc<View>, Instant)>>,
}

/// How long the view of a removed listener is kept: longer than its last connections may take to their first request.
const REMOVED_KEPT: Duration = Duration::from_secs(2);

// === impl View ===

impl View {
    /// A thread's view of a snapshot.
    pub fn new(snapshot: Arc<Snapshot>, ports: HashMap<String, Rc<GenerationPort>>) -> View {
        let upstreams = snapshot.configuration.upstreams.iter();
        let balancer = |(name, upstream): (&String, &Upstream)| {
            let tls = snapshot.upstream_tls.of(&upstream.proxy);
            (name.clone(), Balancer::new(name, upstream, &snapshot.upstream_health, tls))
        };
        let balancers = upstreams.map(balancer).collect();
        View { snapshot, ports, balancers }
    }

    /// The configuration.
    pub fn configuration(&self) -> &Configuration {
        &self.snapshot.configuration
    }

    /// The generation of an HTTP application; `None` if it does not start.
    pub fn http_generation(&self, application: &str) -> Option<&Arc<HttpGeneration>> {
        self.snapshot.http_generations.get(application)
    }

    /// The generation of a RoadRunner application; `None` if it does not start.
    pub fn roadrunner_generation(&self, application: &str) -> Option<&Arc<RoadRunnerGeneration>> {
        self.snapshot.roadrunner_generations.get(application)
    }

    /// The generations of all RoadRunner applications.
    pub fn roadrunner_generations(&self) -> impl Iterator<Item = &Arc<RoadRunnerGeneration>> {
        self.snapshot.roadrunner_generations.values()
    }

    /// The generation of a FastCGI application; `None` if it does not start.
    pub fn fastcgi_generation(&self, application: &str) -> Option<&Arc<FastCgiGeneration>> {
        self.snapshot.fastcgi_generations.get(application)
    }

    /// The generations of all FastCGI applications.
    pub fn fastcgi_generations(&self) -> impl Iterator<Item = &Arc<FastCgiGeneration>> {
        self.snapshot.fastcgi_generations.values()
    }

    /// Where the links of its shares lead.
    pub fn pins(&self) -> &Pins {
        &self.snapshot.pins
    }

    /// The TLS of a server behind howdah; `None`: without TLS.
    pub fn upstream_tls(&self, settings: &ProxySettings) -> Option<&Arc<ClientConfig>> {
        self.snapshot.upstream_tls.of(settings)
    }

    /// How many requests the clients have sent to actions with a limit.
    pub fn rate_limits(&self) -> &RateLimits {
        &self.snapshot.rate_limits
    }

    /// How many requests of clients are being answered by actions with a limit.
    pub fn connection_limits(&self) -> &ConnectionLimits {
        &self.snapshot.connection_limits
    }

    /// The files with users for `basic_auth`.
    pub fn user_files(&self) -> &UserFiles {
        &self.snapshot.user_files
    }

    /// The pages of errors.
    pub fn error_pages(&self) -> &LoadedErrorPages {
        &self.snapshot.error_pages
    }

    /// The listener with this number; `None` once it was removed.
    pub fn listener(&self, id: u64) -> Option<&Listener> {
        self.snapshot.listeners.get(&id).map(|index| &self.snapshot.configuration.listeners[*index])
    }
}

// === impl Views ===

impl Views {
    /// The active view.
    pub fn active(&self) -> Rc<View> {
        Rc::clone(&self.active.borrow())
    }

    /// The view for connections of this listener.
    pub fn of_listener(&self, listener: u64) -> Rc<View> {
        let view = self.active();
        match view.listener(listener) {
            Some(_) => view,
            None => self.removed.borrow().get(&listener).map_or(view, |(old, _)| Rc::clone(old)),
        }
    }

    /// Whether the active configuration has this listener.
    pub fn has_listener(&self, listener: u64) -> bool {
        self.active.borrow().listener(listener).is_some()
    }

    /// Makes this view the active one, and keeps the view before it for listeners that are no longer there.
    pub fn activate(&self, view: View, removed: impl IntoIterator<Item = u64>) {
        let old = self.active.replace(Rc::new(view));
        let removed = removed.into_iter().map(|listener| (listener, (Rc::clone(&old), Instant::now())));
        self.removed.borrow_mut().extend(removed);
    }

    /// Releases views of listeners that were removed some time ago.
    pub fn sweep(&self) {
        let released: Vec<_> = {
            let mut removed = self.removed.borrow_mut();
            removed.extract_if(|_, (_, since)| since.elapsed() > REMOVED_KEPT).collect()
        };
        // A view's end may end requests, which may ask for a view.
        drop(released);
    }
}

impl Default for Views {
    /// No listeners, before the first configuration.
    fn default() -> Views {
        let view = View::new(Arc::default(), HashMap::new());
        Views { active: RefCell::new(Rc::new(view)), removed: RefCell::default() }
    }
}
