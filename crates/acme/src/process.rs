//! The process: it becomes an unprivileged user, and carries out the orders of the supervisor, several at a time.

use crate::accounts::Accounts;
use crate::permission::Program;
use crate::reports::Reports;
use crate::{order, renewal_window};
use howdah_protocol::child::inherited::{CONTROL_FD, take_inherited};
use howdah_protocol::child::parent_death::die_with_supervisor;
use howdah_protocol::messages::acme::{FailureCause, FromAcme, OrderFailure, ToAcme};
use howdah_protocol::sockets::control_socket::ControlSocket;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// Runs until the supervisor closes the socket.
///
/// # Errors
/// When the process cannot start, or a message of the supervisor is not valid.
pub fn run() -> io::Result<()> {
    let socket = Arc::new(ControlSocket::from(take_inherited(CONTROL_FD)?));
    die_with_supervisor(&socket)?;
    let Some((ToAcme::Boot(boot), _)) = socket.wait_for_long()? else {
        return Err(io::Error::other("the supervisor sent no boot message"));
    };
    boot.identity.assume(boot.user.as_deref(), None)?;
    die_with_supervisor(&socket)?;
    let (sender, messages) = mpsc::unbounded_channel();
    let receiving = Arc::clone(&socket);
    // The user is chosen: from here on there may be threads.
    std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        loop {
            match receiving.wait_for_long() {
                Ok(Some((message, _))) => drop(sender.send(message)),
                // Also ends the orders under way: nothing waits for their results.
                Ok(None) => std::process::exit(0),
                Err(error) => {
                    tracing::error!(%error, "a message of the supervisor cannot be read");
                    std::process::exit(1);
                }
            }
        }
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(messages, Reports::to(socket)));
    Ok(())
}

async fn serve(mut messages: mpsc::UnboundedReceiver<ToAcme>, reports: Reports) {
    let accounts = Rc::new(Accounts::default());
    let program = Rc::new(Program::default());
    let mut waiting: HashMap<u64, oneshot::Sender<()>> = HashMap::new();
    while let Some(message) = messages.recv().await {
        waiting.retain(|_, order| !order.is_closed());
        let (accounts, reports) = (Rc::clone(&accounts), reports.clone());
        match message {
            ToAcme::Obtain(order) => {
                let (sender, answered) = oneshot::channel();
                waiting.insert(order.order, sender);
                let failed = FromAcme::Failed { order: order.order, failure: bug() };
                let carried_out = {
                    let reports = reports.clone();
                    async move { order::carry_out(&accounts, &reports, *order, answered).await }
                };
                tokio::task::spawn_local(or_if_it_panics(carried_out, failed, reports));
            }
            ToAcme::ChallengeIsAnswered { order } => {
                if let Some(order) = waiting.remove(&order) {
                    // The order may have failed meanwhile.
                    let _ = order.send(());
                }
            }
            ToAcme::AskForWindow(question) => {
                let failed = renewal_window::unknown(question.question);
                let asked = {
                    let reports = reports.clone();
                    async move {
                        reports.send(&renewal_window::ask(&accounts, question).await);
                    }
                };
                tokio::task::spawn_local(or_if_it_panics(asked, failed, reports));
            }
            ToAcme::AskForName(question) => {
                let program = Rc::clone(&program);
                let failed = FromAcme::NameAnswer { question: question.question, answer: Err(bug().reason) };
                let asked = {
                    let reports = reports.clone();
                    async move {
                        reports.send(&program.ask(question).await);
                    }
                };
                tokio::task::spawn_local(or_if_it_panics(asked, failed, reports));
            }
            ToAcme::Boot(_) => tracing::error!("a second boot message"),
        }
    }
}

/// Carries out a task on this thread, and reports this if the task panics: the supervisor would wait for a result, and end the orders
/// of others with this process.
async fn or_if_it_panics(task: impl Future<Output = ()> + 'static, failed: FromAcme, reports: Reports) {
    if tokio::task::spawn_local(task).await.is_err() {
        reports.send(&failed);
    }
}

/// The failure of a task that has panicked.
fn bug() -> OrderFailure {
    let reason = "a bug of howdah: please report the line of the panic in its log".to_owned();
    OrderFailure { cause: FailureCause::Authority, reason, retry_after_seconds: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_has_a_result() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        let reports = Reports::to(Arc::new(theirs));
        let failed = || FromAcme::NameAnswer { question: 7, answer: Err(bug().reason) };
        let all = async {
            or_if_it_panics(async {}, failed(), reports.clone()).await;
            or_if_it_panics(async { panic!("a test requested it") }, failed(), reports).await;
        };
        LocalSet::new().run_until(all).await;
        let (FromAcme::NameAnswer { question: 7, answer: Err(reason) }, _) = ours.wait_for_long().unwrap().unwrap()
        else {
            panic!("another report");
        };
        assert!(reason.starts_with("a bug of howdah"), "{reason}");
        assert!(ours.wait_for_long::<FromAcme>().unwrap().is_none(), "one report, and the end");
    }
}
