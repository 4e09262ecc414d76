//! `/certificates`.

use crate::api::answer::ApiAnswer;
use crate::api::request::ControlRequest;
use crate::control::Control;
use crate::store::certificates;
use howdah_config::{Document, DocumentPath, Refusal, answer};

/// All certificates, one of them, or a part of one.
pub fn get(path: &str, control: &Control) -> Result<ApiAnswer, Refusal> {
    let (path, certificates) = (DocumentPath::parse(path)?, &control.runtime.certificates);
    let Some(name) = path.segments().first() else {
        return Ok(ApiAnswer::document(&certificates.describe_all()));
    };
    let one = Document::compose([(name.as_str(), certificates.describe(name)?)]);
    let found = one.get(&path);
    found
        .map(|found| ApiAnswer::document(&found))
        .map_err(|refusal| Refusal { error: answer::text::INVALID_PATH.to_owned(), ..refusal })
}

/// Adds, replaces or removes a certificate. New connections get a replaced one as soon as the router has it.
pub fn change(path: &str, request: &ControlRequest, control: &mut Control) -> Result<ApiAnswer, Refusal> {
    let path = DocumentPath::parse(path)?;
    let detail = "PUT or DELETE /certificates/NAME";
    let name = match path.segments() {
        [name] => name,
        [] => return Err(Refusal::new(405, answer::text::INVALID_METHOD, detail)),
        _ => return Err(Refusal::new(400, answer::text::INVALID_CERTIFICATE_NAME, detail)),
    };
    let certificates = &mut control.runtime.certificates;
    match request.method.as_str() {
        "PUT" => {
            let used_with_key = certificates::used_with_key(&control.changes.active().configuration);
            if certificates.put(name, &request.body, &used_with_key)? {
                tracing::info!("the certificate {name:?} was replaced");
                control.send_replaced_certificate(name);
            } else {
                tracing::info!("the certificate {name:?} was uploaded");
            }
            Ok(ApiAnswer::success(answer::text::CERTIFICATE_UPLOADED))
        }
        "DELETE" => {
            certificates.delete(name, &certificates::used(&control.changes.active().configuration))?;
            tracing::info!("the certificate {name:?} was deleted");
            Ok(ApiAnswer::success(answer::text::CERTIFICATE_DELETED))
        }
        _ => Err(Refusal::new(405, answer::text::INVALID_METHOD, "GET, PUT and DELETE are possible here")),
    }
}
