//! The open connections of a thread, by their clocks.

use crate::protocols::connection::clock::ConnectionClock;
use howdah_config::Http;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::Notify;

/// A thread's connections.
#[derive(Default)]
pub struct Connections {
    clocks: RefCell<HashMap<u64, Rc<dyn ConnectionClock>>>,
    next_key: Cell<u64>,
    all_closed: Notify,
}

/// A connection in the list, until it is dropped.
pub struct Registered<'c> {
    connections: &'c Connections,
    key: u64,
}

/// The most idle connections that are closed at one time to make room for others.
const MAKE_ROOM: usize = 32;

// === impl Connections ===

impl Connections {
    /// Adds a connection.
    pub fn register(&self, clock: Rc<dyn ConnectionClock>) -> Registered<'_> {
        let key = self.next_key.replace(self.next_key.get() + 1);
        self.clocks.borrow_mut().insert(key, clock);
        Registered { connections: self, key }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.clocks.borrow().is_empty()
    }

    /// Waits until the last one is closed.
    pub async fn all_closed(&self) {
        self.all_closed.notified().await;
    }

    /// Ends the connections whose time is over.
    pub fn check(&self, limits: &Http) {
        let now = Instant::now();
        self.clocks.borrow().values().for_each(|clock| clock.check(now, limits));
    }

    /// Ends the connections whose clocks match, after their current requests.
    pub fn drain(&self, matches: impl Fn(&dyn ConnectionClock) -> bool) {
        let clocks: Vec<_> = self.clocks.borrow().values().cloned().collect();
        clocks.iter().filter(|clock| matches(&***clock)).for_each(|clock| clock.drain());
    }

    /// Closes some connections that wait for another request, those first that wait longest.
    pub fn make_room(&self) {
        let clocks = self.clocks.borrow();
        let mut idle: Vec<_> = clocks.values().filter_map(|clock| Some((clock.idle_since()?, clock))).collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle.iter().take(MAKE_ROOM).for_each(|(_, clock)| clock.drain());
    }
}

// === impl Registered ===

impl Registered<'_> {
    /// The connection has another clock from now on.
    pub fn replace(&self, clock: Rc<dyn ConnectionClock>) {
        self.connections.clocks.borrow_mut().insert(self.key, clock);
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut clocks = self.connections.clocks.borrow_mut();
        clocks.remove(&self.key);
        if clocks.is_empty() {
            self.connections.all_closed.notify_one();
        }
    }
}
