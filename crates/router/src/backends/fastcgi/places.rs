//! Which request gets which connection: the connections to each address, their limit, and the requests that wait, in the
//! order of their times.
//!
//! A request gets a place at the address with the fewest requests: a connection that waits for one, or the right to make
//! one. An address that cannot be reached has no places until it can.
//!
//! Of the requests that have waited for about the same time, one of the thread that frees a place gets it: another thread
//! would have to be woken, and to watch the connection from then on.
//!
//! A connection is kept for another request only while each other connection to its address has answered before. One that
//! has not may be in the backlog of the server, because all of its processes have a connection: a connection that is kept
//! would keep a process from it, for as long as requests wait.

use crate::backends::admission::{Ticket, Waiting};
use crate::backends::fastcgi::connection::Connection;
use crate::report::short_reason;
use howdah_config::Endpoint;
use howdah_protocol::messages::router::FastCgiServerLoad;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The connections of a generation, for all threads.
pub struct Places(Mutex<State>);

/// The right to have a connection to an address. Dropping it gives it to another request.
pub struct Place {
    /// `None` once it was given back.
    places: Option<Arc<Places>>,
    /// The index of the address.
    pub server: usize,
    endpoint: Endpoint,
    /// A connection that waits for a request.
    connection: Option<Connection>,
    progress: Progress,
}

/// How far the connection of a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It does not exist yet.
    Unconnected,
    /// It has not answered yet.
    Unanswered,
    /// It has answered.
    Answered,
}

struct State {
    servers: Vec<Server>,
    waiting: VecDeque<InLine>,
    last_number: u64,
    /// The address that had the last turn.
    last: usize,
    /// Whether connections wait for another request: the configuration names the generation.
    keeps: bool,
}

/// A request in the line.
struct InLine {
    ticket: Ticket,
    thread: ThreadId,
    sender: oneshot::Sender<Place>,
}

struct Server {
    endpoint: Endpoint,
    limit: usize,
    /// Its places that are taken, with those of idle connections.
    taken: usize,
    /// Connections that have not answered yet.
    unanswered: usize,
    /// Connections that wait for a request, and since when. The last one is used first.
    idle: Vec<(Connection, Instant)>,
    trouble: Option<Trouble>,
}

/// Why an address has no places.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// As a phrase.
    pub reason: String,
    /// Since when.
    pub since: Instant,
}

/// How much earlier a request of another thread may have come, without being the next one.
const SAME_TIME: Duration = Duration::from_millis(20);
/// How many requests are looked at.
const MOST_LOOKED_AT: usize = 64;

// === impl Places ===

impl Places {
    /// Places at these addresses.
    pub fn new(endpoints: Vec<Endpoint>, limit: usize) -> Places {
        let server = |endpoint| Server { endpoint, limit, taken: 0, unanswered: 0, idle: Vec::new(), trouble: None };
        let servers = endpoints.into_iter().map(server).collect();
        Places(Mutex::new(State { servers, waiting: VecDeque::new(), last_number: 0, last: 0, keeps: true }))
    }

    /// The number of places.
    pub fn count(&self) -> u64 {
        self.lock().servers.iter().map(|server| server.limit as u64).sum()
    }

    /// A place for a request that waits since then, or its ticket in the line.
    pub fn take(self: &Arc<Self>, since: Instant) -> Result<Place, Waiting<Place>> {
        let mut state = self.lock();
        // Requests that wait already come first, unless they wait for shorter.
        let is_next = state.waiting.front().is_none_or(|first| since < first.ticket.0);
        if is_next && let Some(place) = state.choose(self) {
            return Ok(place);
        }
        state.last_number += 1;
        let ticket = (since, state.last_number);
        let (sender, turn) = oneshot::channel();
        // Nearly always, this is the end.
        let index = state.waiting.partition_point(|other| other.ticket < ticket);
        state.waiting.insert(index, InLine { ticket, thread: thread::current().id(), sender });
        Err(Waiting { ticket, turn })
    }

    /// A request does not wait any more. A place that it got meanwhile goes to another one.
    pub fn leave(&self, waiting: Waiting<Place>) {
        {
            let mut state = self.lock();
            if let Ok(index) = state.waiting.binary_search_by_key(&waiting.ticket, |other| other.ticket) {
                state.waiting.remove(index);
            }
        }
        // Without the lock: it may have a place.
        drop(waiting.turn);
    }

    /// Where the address with this index is.
    pub fn endpoint(&self, server: usize) -> Endpoint {
        self.lock().servers[server].endpoint.clone()
    }

    /// An address cannot be reached. Returns whether that is new.
    pub fn unreachable(&self, server: usize, reason: String, now: Instant) -> bool {
        let mut state = self.lock();
        let server = &mut state.servers[server];
        let is_new = server.trouble.is_none();
        let since = server.trouble.as_ref().map_or(now, |trouble| trouble.since);
        server.trouble = Some(Trouble { reason, since });
        let idle = std::mem::take(&mut server.idle);
        server.taken -= idle.len();
        is_new
    }

    /// Whether this address can be reached, as far as it is known.
    pub fn is_reachable(&self, server: usize) -> bool {
        self.lock().servers[server].trouble.is_none()
    }

    /// An address can be reached again. Returns its trouble, once.
    pub fn reachable(self: &Arc<Self>, server: usize) -> Option<Trouble> {
        let mut state = self.lock();
        let trouble = state.servers[server].trouble.take();
        state.serve(self);
        trouble
    }

    /// Closes connections that have been idle for this time.
    pub fn close_idle(self: &Arc<Self>, longest: Duration, now: Instant) {
        let mut closed = Vec::new();
        let mut state = self.lock();
        for server in &mut state.servers {
            let is_old = |(_, since): &mut (Connection, Instant)| now.saturating_duration_since(*since) >= longest;
            let before = closed.len();
            closed.extend(server.idle.extract_if(.., is_old));
            server.taken -= closed.len() - before;
        }
        drop(state);
    }

    /// Whether connections are kept for another request from now on. If not, those that are idle are closed.
    pub fn keep(self: &Arc<Self>, keeps: bool) {
        self.lock().keeps = keeps;
        if !keeps {
            self.close_idle(Duration::ZERO, Instant::now());
        }
    }

    /// The connections to each address.
    pub fn load(&self) -> BTreeMap<String, FastCgiServerLoad> {
        let state = self.lock();
        let load = |server: &Server| FastCgiServerLoad {
            connections: server.taken as u64,
            idle: server.idle.len() as u64,
            trouble: server.trouble.as_ref().map(|trouble| short_reason(&trouble.reason)),
        };
        state.servers.iter().map(|server| (server.endpoint.to_string(), load(server))).collect()
    }

    /// The state is complete at any time.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// A place at the address with the fewest requests; of several, at the next one.
    fn choose(&mut self, places: &Arc<Places>) -> Option<Place> {
        let (count, last) = (self.servers.len(), self.last);
        let turns = (1..=count).map(|turn| (last + turn) % count);
        let index =
            turns.filter(|index| self.servers[*index].has_place()).min_by_key(|index| self.servers[*index].busy())?;
        self.last = index;
        let server = &mut self.servers[index];
        let connection = server.idle.pop().map(|(connection, _)| connection);
        let progress = if connection.is_some() { Progress::Answered } else { Progress::Unconnected };
        if connection.is_none() {
            server.taken += 1;
        }
        let endpoint = server.endpoint.clone();
        Some(Place { places: Some(Arc::clone(places)), server: index, endpoint, connection, progress })
    }

    /// Gives the free places to the requests that wait for the longest time.
    fn serve(&mut self, places: &Arc<Places>) {
        while !self.waiting.is_empty() {
            let Some(place) = self.choose(places) else { return };
            if !self.give(place) {
                return;
            }
        }
    }

    /// The request that gets the next place: one of this thread, or the one that waits for the longest time.
    fn next(&mut self) -> Option<InLine> {
        let (oldest, here) = (self.waiting.front()?.ticket.0, thread::current().id());
        let mut first = self.waiting.iter().take(MOST_LOOKED_AT);
        let index = first.position(|other| other.thread == here).unwrap_or(0);
        let is_same_time = self.waiting[index].ticket.0.saturating_duration_since(oldest) < SAME_TIME;
        self.waiting.remove(if is_same_time { index } else { 0 })
    }

    /// Gives a place to a request that waits; without one, it is free.
    fn give(&mut self, mut place: Place) -> bool {
        while let Some(InLine { sender, .. }) = self.next() {
            match sender.send(place) {
                Ok(()) => return true,
                // This request was cancelled.
                Err(refused) => place = refused,
            }
        }
        let server = &mut self.servers[place.server];
        match place.connection.take() {
            Some(connection) => server.idle.push((connection, Instant::now())),
            None => server.taken -= 1,
        }
        // Its drop must not lock this state.
        place.places = None;
        false
    }
}

// === impl Server ===

impl Server {
    fn has_place(&self) -> bool {
        self.trouble.is_none() && (!self.idle.is_empty() || self.taken < self.limit)
    }

    /// How many requests it has.
    fn busy(&self) -> usize {
        self.taken - self.idle.len()
    }
}

// === impl Place ===

impl Place {
    /// The connection that waits for a request. The place has no connection from then on.
    pub fn take_connection(&mut self) -> Option<Connection> {
        let connection = self.connection.take();
        if connection.is_some() {
            self.progress = Progress::Unconnected;
        }
        connection
    }

    /// There is a new connection.
    pub fn connected(&mut self) {
        if self.progress == Progress::Unconnected {
            self.progress = Progress::Unanswered;
            self.with_server(|server| server.unanswered += 1);
        }
    }

    /// The connection has answered.
    pub fn answered(&mut self) {
        if self.progress == Progress::Unanswered {
            self.with_server(|server| server.unanswered -= 1);
        }
        self.progress = Progress::Answered;
    }

    /// The address.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The connection is free for another request, after a complete answer.
    pub fn give_back(mut self, connection: Connection) {
        let Some(places) = self.places.clone() else { return };
        let mut state = places.lock();
        let server = &state.servers[self.server];
        if state.keeps && server.unanswered == 0 && server.trouble.is_none() {
            self.connection = Some(connection.reused());
            state.give(self);
            return;
        }
        drop(state);
        // Closed before the place is free: the server does not have more connections than places.
        drop(connection);
    }

    fn with_server(&self, act: impl FnOnce(&mut Server)) {
        if let Some(places) = &self.places {
            act(&mut places.lock().servers[self.server]);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.connection.take());
        let Some(places) = self.places.take() else { return };
        let mut state = places.lock();
        let server = &mut state.servers[self.server];
        if self.progress == Progress::Unanswered {
            server.unanswered -= 1;
        }
        server.taken -= 1;
        state.serve(&places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::transport::Transport;
    use tokio::net::UnixStream;

    fn places(limits: &[usize]) -> Arc<Places> {
        let endpoint = |index| format!("unix:/{index}").parse().expect("an endpoint");
        let places = Places::new((0..limits.len()).map(endpoint).collect(), 1);
        places.lock().servers.iter_mut().zip(limits).for_each(|(server, limit)| server.limit = *limit);
        Arc::new(places)
    }

    fn server(place: Result<Place, Waiting<Place>>) -> (usize, Option<Place>) {
        place.map_or((usize::MAX, None), |place| (place.server, Some(place)))
    }

    /// A connection, and the server's end.
    fn connection() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        (Connection::new(Transport::Unix(ours)), theirs)
    }

    /// A place with a connection that has answered.
    fn answered(places: &Arc<Places>) -> Place {
        let mut place = places.take(Instant::now()).ok().expect("a place");
        place.connected();
        place.answered();
        place
    }

    #[test]
    fn a_request_goes_to_the_address_with_the_fewest() {
        let places = places(&[2, 2, 1]);
        let now = Instant::now();
        let taken: Vec<_> = (0..5).map(|_| server(places.take(now))).collect();
        let servers: Vec<_> = taken.iter().map(|(server, _)| *server).collect();
        assert_eq!(servers, [1, 2, 0, 1, 0], "they take turns");
        assert!(places.take(now).is_err(), "all places are taken");
        drop(taken);
        assert_eq!(places.load().values().map(|load| load.connections).sum::<u64>(), 0);
    }

    #[tokio::test]
    async fn without_keeping_connections_are_closed_when_they_are_idle() {
        let places = places(&[2]);
        let ((idle, idle_end), (busy, busy_end)) = (connection(), connection());
        let running = answered(&places);
        answered(&places).give_back(idle);
        let is_closed = |end: &UnixStream| end.try_read(&mut [0; 1]).is_ok_and(|read| read == 0);
        assert!(!is_closed(&idle_end));
        places.keep(false);
        idle_end.readable().await.expect("an event");
        assert!(is_closed(&idle_end), "it was idle");
        running.give_back(busy);
        busy_end.readable().await.expect("an event");
        assert!(is_closed(&busy_end), "it would be idle");
        assert_eq!(places.load().values().map(|load| load.connections).sum::<u64>(), 0);
    }

    #[tokio::test]
    async fn requests_wait_in_the_order_of_their_times() {
        let (places, now) = (places(&[1]), Instant::now());
        let first = places.take(now).ok().expect("a place");
        let mut waiting: Vec<_> = [3, 1, 2]
            .map(|second| places.take(now + Duration::from_secs(second)).err().expect("no place"))
            .into_iter()
            .collect();
        drop(first);
        let place = waiting[1].turn.try_recv().expect("the oldest one has it");
        places.leave(waiting.remove(2));
        drop(place);
        let place = waiting[0].turn.try_recv().expect("the next one has it");
        assert!(waiting[1].turn.try_recv().is_err());
        // A request that got a place, and leaves, gives it to another one.
        let last = places.take(now + Duration::from_secs(9)).err().expect("no place");
        drop(place);
        places.leave(last);
        assert!(places.take(now).is_ok());
    }

    #[tokio::test]
    async fn of_requests_of_the_same_time_one_of_this_thread_is_next() {
        let (places, now) = (places(&[1]), Instant::now());
        let wait = |after: Duration| places.take(now + after).err().expect("no place");
        let far = |after: Duration| thread::scope(|scope| scope.spawn(|| wait(after)).join().expect("a thread"));
        let first = places.take(now).ok().expect("a place");
        let mut one = far(Duration::ZERO);
        let mut here = wait(SAME_TIME / 2);
        let mut late = wait(SAME_TIME);
        drop(first);
        let place = here.turn.try_recv().expect("it is next");
        assert!(one.turn.try_recv().is_err());
        drop(place);
        let place = one.turn.try_recv().expect("it has waited for longer");
        assert!(late.turn.try_recv().is_err());
        drop(place);
        assert!(late.turn.try_recv().is_ok());
    }

    #[tokio::test]
    async fn a_connection_is_kept_unless_another_one_may_be_in_the_backlog() {
        let places = places(&[3]);
        let (kept, _server) = connection();
        answered(&places).give_back(kept);
        assert_eq!(places.load()["unix:/0"], FastCgiServerLoad { connections: 1, idle: 1, trouble: None });
        let mut place = places.take(Instant::now()).ok().expect("a place");
        let kept = place.take_connection().expect("the connection that was kept");
        place.answered();
        let mut other = places.take(Instant::now()).ok().expect("a place");
        other.connected();
        place.give_back(kept);
        assert_eq!(places.load()["unix:/0"].connections, 1, "only the one that has not answered");
        other.answered();
        let (kept, _server) = connection();
        other.give_back(kept);
        places.close_idle(Duration::from_secs(60), Instant::now());
        assert_eq!(places.load()["unix:/0"].idle, 1);
        places.close_idle(Duration::ZERO, Instant::now());
        assert_eq!(places.load()["unix:/0"], FastCgiServerLoad::default());
    }

    #[tokio::test]
    async fn a_waiting_request_gets_a_kept_connection() {
        let (places, now) = (places(&[1]), Instant::now());
        let place = answered(&places);
        let mut waiting = places.take(now).err().expect("no place");
        let (kept, _server) = connection();
        place.give_back(kept);
        let mut place = waiting.turn.try_recv().expect("a place");
        assert!(place.take_connection().is_some_and(|connection| connection.is_reused()));
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_reached_has_no_places() {
        let (places, now) = (places(&[1, 1]), Instant::now());
        let (kept, _server) = connection();
        answered(&places).give_back(kept);
        for server in [0, 1] {
            assert!(places.unreachable(server, "no such file".to_owned(), now), "it is new");
            assert!(!places.unreachable(server, "refused".to_owned(), now));
        }
        assert_eq!(places.load().values().map(|load| load.connections).sum::<u64>(), 0, "its connections are closed");
        let mut waiting = places.take(now).err().expect("no place");
        assert_eq!(places.reachable(1).map(|trouble| trouble.reason), Some("refused".to_owned()));
        assert_eq!(waiting.turn.try_recv().expect("a place").server, 1);
        assert!(places.reachable(1).is_none() && !places.is_reachable(0));
    }
}
