//! Two readings of the status become the deploys and restarts between them.

use crate::commands::dashboard::history::rates::applications;
use crate::commands::dashboard::history::record::{Change, Mark, MarkKind};
use serde_json::Value;
use std::collections::BTreeMap;

/// The generation of each application at a time. An application that does not start has none.
#[derive(Debug)]
pub struct Generations(BTreeMap<String, Generation>);

#[derive(Debug, PartialEq)]
struct Generation {
    number: u64,
    /// Where each path of the configuration leads.
    release: BTreeMap<String, String>,
}

/// An application that has another generation than before.
#[derive(Debug, PartialEq)]
pub struct NewGeneration {
    /// The application.
    pub application: String,
    /// The paths that lead elsewhere; none after a restart.
    changes: Vec<Change>,
}

// === impl Generations ===

impl Generations {
    /// From a status.
    pub fn of(status: &Value) -> Generations {
        let all = applications(status).filter_map(|(name, application)| {
            let number = application.pointer("/generation/number")?.as_u64()?;
            let paths = application.pointer("/generation/release").and_then(Value::as_object).into_iter().flatten();
            let release = paths.filter_map(|(path, target)| Some((path.clone(), target.as_str()?.to_owned())));
            Some((name.clone(), Generation { number, release: release.collect() }))
        });
        Generations(all.collect())
    }

    /// The applications that have another generation than in a former reading.
    pub fn since(&self, former: &Generations) -> Vec<NewGeneration> {
        let pairs = self.0.iter().filter_map(|(name, now)| Some((name, now, former.0.get(name)?)));
        let new = pairs.filter(|(_, now, before)| now.number != before.number).map(|(name, now, before)| {
            let changes = now.release.iter().filter_map(|(path, target)| {
                let before = before.release.get(path).filter(|before| *before != target)?;
                Some(Change { path: path.clone(), before: Some(before.clone()), after: Some(target.clone()) })
            });
            NewGeneration { application: name.clone(), changes: changes.collect() }
        });
        new.collect()
    }
}

// === impl NewGeneration ===

impl NewGeneration {
    /// Its mark in the history.
    pub fn mark(self, time: u64) -> Mark {
        let (kind, text) = if self.changes.is_empty() {
            (MarkKind::Restart, "a new generation from the same release: a restart, or changed files")
        } else {
            (MarkKind::Deploy, "a new release")
        };
        Mark {
            time,
            kind,
            application: Some(self.application),
            text: text.to_owned(),
            etag: None,
            changes: self.changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn generations(number: u64, target: &str) -> Generations {
        let path = "/srv/shop/current";
        Generations::of(&json!({ "applications": {
            "shop": { "generation": { "number": number, "release": { path: target, "/srv/lib": "/srv/lib" } } },
            "failed": { "failure": "x" },
        } }))
    }

    #[test]
    fn a_new_generation_is_a_deploy_if_its_paths_lead_elsewhere() {
        let former = generations(1, "/srv/shop/41");
        assert_eq!(generations(1, "/srv/shop/41").since(&former), []);
        let restarted = generations(2, "/srv/shop/41").since(&former).remove(0).mark(7);
        assert_eq!((restarted.kind, restarted.application.as_deref()), (MarkKind::Restart, Some("shop")));
        let deployed = generations(2, "/srv/shop/42").since(&former).remove(0).mark(7);
        let change = Change {
            path: "/srv/shop/current".to_owned(),
            before: Some("/srv/shop/41".to_owned()),
            after: Some("/srv/shop/42".to_owned()),
        };
        assert_eq!((deployed.kind, deployed.changes), (MarkKind::Deploy, vec![change]));
        assert_eq!(generations(1, "/").since(&Generations::of(&json!({}))), [], "a new application is no deploy");
    }
}
