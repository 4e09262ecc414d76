//! The process: it becomes an unprivileged user, and carries out the orders of the supervisor, several at a time.

use crate::accounts::Accounts;
use crate::permission::Program;
use crate::records::Records;
use crate::reports::Reports;
use crate::{order, renewal_window};
use howdah_blocking_work::NAMES;
use howdah_protocol::child::inherited::{CONTROL_FD, take_inherited};
use howdah_protocol::child::parent_death::die_with_supervisor;
use howdah_protocol::messages::acme::{FromAcme, RecordRemoval, ToAcme};
use howdah_protocol::sockets::control_socket::ControlSocket;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// Runs until the supervisor closes the socket, or stops it.
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
    NAMES.start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(messages, Reports::to(socket)));
    Ok(())
}

async fn serve(mut messages: mpsc::UnboundedReceiver<ToAcme>, reports: Reports) {
    let accounts = Rc::new(Accounts::default());
    let program = Rc::new(Program::default());
    let records = Rc::new(Records::new(reports.clone()));
    let mut waiting: HashMap<u64, oneshot::Sender<()>> = HashMap::new();
    while let Some(message) = messages.recv().await {
        waiting.retain(|_, order| !order.is_closed());
        let (accounts, records, program) = (Rc::clone(&accounts), Rc::clone(&records), Rc::clone(&program));
        let reports = reports.clone();
        match message {
            ToAcme::Obtain(order) => {
                let (sender, answered) = oneshot::channel();
                let number = order.order;
                waiting.insert(number, sender);
                let (account_reports, failed) = (reports.clone(), move |reason| order::failed(number, reason));
                let task =
                    async move { order::carry_out(&accounts, &records, &account_reports, *order, answered).await };
                tokio::task::spawn_local(report(task, failed, reports));
            }
            ToAcme::ChallengeIsAnswered { order } => {
                if let Some(order) = waiting.remove(&order) {
                    let _ = order.send(());
                }
            }
            ToAcme::AskForWindow(question) => {
                let number = question.question;
                let task = async move { renewal_window::ask(&accounts, question).await };
                tokio::task::spawn_local(report(task, move |_| renewal_window::unknown(number), reports));
            }
            ToAcme::AskForName(question) => {
                let number = question.question;
                let failed = move |reason| FromAcme::NameAnswer { question: number, answer: Err(reason) };
                let task = async move { program.ask(question).await };
                tokio::task::spawn_local(report(task, failed, reports));
            }
            ToAcme::RemoveRecord(removal) => {
                let RecordRemoval { order, command, record } = *removal;
                records.on_left();
                tokio::task::spawn_local(async move { records.remove(order, &command, &mut Some(record)).await });
            }
            ToAcme::Stop => return records.stop().await,
            ToAcme::Boot(_) => tracing::error!("a second boot message"),
        }
    }
}

/// Carries out a task, and reports its result. The supervisor must not wait for one that panics or is too long to be sent: it would
/// end the orders of others with this process. `failed` has the report for a reason.
async fn report(
    task: impl Future<Output = FromAcme> + 'static,
    failed: impl FnOnce(String) -> FromAcme,
    reports: Reports,
) {
    let reason = match tokio::task::spawn_local(task).await {
        Ok(result) if reports.send(&result) => return,
        Ok(_) => "the other side has sent something that is too long",
        Err(_) => "a bug of howdah: please report the line of the panic in its log",
    };
    reports.send(&failed(reason.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::messages::acme::Secret;

    #[tokio::test]
    async fn each_task_has_one_report() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        let reports = Reports::to(Arc::new(theirs));
        let failed = |reason| order::failed(7, reason);
        let obtained = |bytes| FromAcme::Obtained { order: 7, pem: Secret("x".repeat(bytes)) };
        let all = async {
            report(async move { obtained(1) }, failed, reports.clone()).await;
            report(async move { obtained(1 << 20) }, failed, reports.clone()).await;
            report(async { panic!("a test requested it") }, failed, reports).await;
        };
        LocalSet::new().run_until(all).await;
        let next = || ours.wait_for_long::<FromAcme>().unwrap().map(|(report, _)| report);
        assert!(matches!(next(), Some(FromAcme::Obtained { order: 7, .. })));
        for expected in ["the other side has sent something that is too long", "a bug of howdah"] {
            let Some(FromAcme::Failed { order: 7, failure }) = next() else { panic!("another report") };
            assert!(failure.reason.starts_with(expected), "{}", failure.reason);
        }
        assert!(next().is_none(), "one report each, and the end");
    }
}
