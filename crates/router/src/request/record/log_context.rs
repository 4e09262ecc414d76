//! The request that a thread works on, for its log lines: each line that is logged while a request's future is polled has
//! the request's method, URI, client and application.
//!
//! A thread polls one future at a time, so the current request is a thread-local value, set for the time of each poll.

use crate::request::record::application_log::ApplicationLog;
use crate::request::record::ids::RequestIds;
use crate::request::record::numbers::RequestNumbers;
use crate::request::record::trace::RequestTrace;
use howdah_metrics::labels::{Cause, NameId};
use howdah_protocol::plain_text::short;
use http::{Method, StatusCode, Uri};
use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::task::spawn_local;

/// The application of a log line.
#[derive(Debug)]
pub struct LoggedApplication {
    /// Its name.
    name: String,
    /// The same for its numbers.
    id: NameId,
    /// Its own log, for the lines that its scripts cause.
    log: Option<Arc<ApplicationLog>>,
}

/// The request of a log line.
#[derive(Debug)]
pub struct LogContext {
    /// The method.
    pub method: Method,
    /// The target as the client sent it.
    pub uri: Uri,
    /// The client's address.
    pub client: Rc<str>,
    /// Its id, and that of its trace.
    pub ids: RequestIds,
    /// Its numbers.
    pub numbers: RequestNumbers,
    /// Its spans, if it is recorded.
    pub trace: Option<Box<RequestTrace>>,
    /// The application that answers it, when that is known.
    application: RefCell<Option<Rc<LoggedApplication>>>,
}

/// A future whose log lines have a context.
pub struct WithLogContext<F> {
    context: Rc<LogContext>,
    future: F,
}

/// The context of the thread before [`LogContext::scope`]. It is set again when this is dropped, also by a panic, which
/// costs only one request.
struct Former(Option<Rc<LogContext>>);

thread_local! {
    static CURRENT: RefCell<Option<Rc<LogContext>>> = const { RefCell::new(None) };
}

// === impl LoggedApplication ===

impl LoggedApplication {
    /// The application with this name.
    pub fn new(name: String, log: Option<Arc<ApplicationLog>>) -> Rc<LoggedApplication> {
        Rc::new(LoggedApplication { id: NameId::of(&name), name, log })
    }
}

// === impl LogContext ===

impl LogContext {
    /// The context of a request, whose application is not known yet.
    pub fn new(
        method: Method,
        uri: Uri,
        client: Rc<str>,
        ids: RequestIds,
        trace: Option<Box<RequestTrace>>,
    ) -> Rc<LogContext> {
        Rc::new(LogContext {
            method,
            uri,
            client,
            ids,
            numbers: RequestNumbers::default(),
            trace,
            application: RefCell::default(),
        })
    }

    /// The context of the current request; `None` outside of requests.
    pub fn current() -> Option<Rc<LogContext>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Sets the application of the current request.
    pub fn set_application(application: Rc<LoggedApplication>) {
        CURRENT.with_borrow(|current| {
            if let Some(context) = current {
                context.trace.iter().for_each(|trace| trace.set_application(&application.name));
                context.application.replace(Some(application));
            }
        });
    }

    /// The name of the current request's application, if that is known.
    pub fn application_name() -> Option<String> {
        CURRENT.with_borrow(|current| Some(current.as_ref()?.application.borrow().as_ref()?.name.clone()))
    }

    /// Notes why the current request is refused.
    pub fn refuse(cause: Cause) {
        CURRENT.with_borrow(|current| current.iter().for_each(|context| context.numbers.refuse(cause)));
    }

    /// Counts the request, which came at `since` and is answered now.
    pub fn count(&self, status: StatusCode, since: Instant) {
        let application = self.application.borrow().as_ref().map_or(NameId::NONE, |application| application.id);
        self.numbers.count(application, self.method.as_str(), status, since);
        self.trace.iter().for_each(|trace| trace.set_status(status));
    }

    /// A step of a route is for the request.
    pub fn set_route(&self, path: &str) {
        self.numbers.set_route(path);
        self.trace.iter().for_each(|trace| trace.set_route(path));
    }

    /// The response has ended.
    pub fn end(&self) {
        self.numbers.end();
        self.end_trace();
    }

    /// The response has ended, or the client has left before it: the spans are sent.
    pub fn end_trace(&self) {
        self.trace.iter().for_each(|trace| trace.end(self.method.as_str(), &self.numbers));
    }

    /// Calls `act` while this is the context of the thread's log lines.
    pub fn scope<T>(self: &Rc<Self>, act: impl FnOnce() -> T) -> T {
        let _former = Former(CURRENT.replace(Some(Rc::clone(self))));
        act()
    }

    /// Runs the future as a task of this thread, whose log lines have the context of the current request.
    pub fn spawn(future: impl Future<Output = ()> + 'static) {
        let context = LogContext::current();
        spawn_local(async move {
            let future = pin!(future);
            match context {
                Some(context) => context.wrap(future).await,
                None => future.await,
            }
        });
    }

    /// The future, whose log lines have this context.
    pub fn wrap<F: Future + Unpin>(self: Rc<Self>, future: F) -> WithLogContext<F> {
        WithLogContext { context: self, future }
    }
}

/// The fields of the current request for a log line: names and values, of which a long path is cut. Empty outside of
/// requests.
pub fn current_request_fields() -> Vec<(&'static str, String)> {
    let fields = |context: &LogContext| {
        let application = context.application.borrow();
        let application = application.iter().map(|application| ("application", application.name.clone()));
        let request = [
            ("method", short(context.method.as_str()).into_owned()),
            // The query may contain secrets.
            ("uri", short(context.uri.path()).into_owned()),
            ("client", context.client.to_string()),
        ];
        let id = context.ids.request.iter().filter_map(|id| Some(("request_id", id.to_str().ok()?.to_owned())));
        let trace = context.ids.trace().map(|trace| ("trace_id", trace));
        application.chain(request).chain(id).chain(trace).collect()
    };
    CURRENT.with_borrow(|current| current.as_deref().map(fields).unwrap_or_default())
}

/// The own log of the current request's application, if it has one.
pub fn current_application_log() -> Option<Arc<ApplicationLog>> {
    CURRENT.with_borrow(|current| current.as_ref()?.application.borrow().as_ref()?.log.clone())
}

impl Drop for Former {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl<F: Future + Unpin> Future for WithLogContext<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let context = Rc::clone(&self.context);
        context.scope(|| Pin::new(&mut self.future).poll(task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_have_the_request_whose_future_is_polled() {
        let context = |uri: &str| {
            LogContext::new(Method::GET, uri.parse().unwrap(), "127.0.0.1".into(), RequestIds::default(), None)
        };
        let fields = |name: &'static str| async move {
            LogContext::set_application(LoggedApplication::new(name.to_owned(), None));
            tokio::task::yield_now().await;
            current_request_fields()
        };
        let one = context("/1").wrap(Box::pin(fields("a")));
        let two = context("/2").wrap(Box::pin(fields("b")));
        let (one, two) = tokio::join!(one, two);
        let expected = |application: &str, uri: &str| {
            let fields = [("application", application), ("method", "GET"), ("uri", uri), ("client", "127.0.0.1")];
            fields.map(|(name, value)| (name, value.to_owned())).to_vec()
        };
        assert_eq!((one, two), (expected("a", "/1"), expected("b", "/2")));
        assert!(current_request_fields().is_empty());
    }

    #[test]
    fn a_panic_ends_the_context() {
        let context =
            LogContext::new(Method::GET, Uri::from_static("/"), "127.0.0.1".into(), RequestIds::default(), None);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| context.scope(|| panic!("a bug"))));
        assert!(panicked.is_err() && current_request_fields().is_empty());
    }
}
