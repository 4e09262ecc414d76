//! Work that may take some time, on another thread.

use crate::commands::dashboard::answer::Answer;
use howdah_blocking_work::Pool;
use hyper::StatusCode;

static COMPUTING: Pool = Pool::new("computing");

/// The result of such work.
///
/// # Errors
/// The answer for the page.
pub async fn computed<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> Result<T, Answer> {
    let failed =
        |failure| Answer::error(StatusCode::INTERNAL_SERVER_ERROR, &format!("the data could not be read: {failure}"));
    COMPUTING.spawn(compute).await.map_err(failed)
}
