//! Tests of the whole module: real files, requests, responses.

use std::{
    fs::{self, File, FileTimes},
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body::Body;
use http_body_util::BodyExt;

use super::*;
use crate::request::path::RequestPath;

mod freshness;
mod headers;
mod links;
mod sending;

/// A served folder, a folder outside of it, and the server.
struct Site {
    tree: tempfile::TempDir,
    base: PathBuf,
    index: Vec<String>,
    follow_symlinks: Option<bool>,
    mime_types: MimeTypes,
    files: StaticFiles,
}

#[derive(Debug, PartialEq, Eq)]
enum Got {
    Status(u16),
    NotFound,
    Forbidden,
    Php,
}

struct SiteResponse {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Site {
    fn new() -> Self {
        let tree = tempfile::tempdir().unwrap();
        let base = tree.path().join("base");
        fs::create_dir_all(base.join("folder")).unwrap();
        fs::create_dir_all(tree.path().join("outside")).unwrap();
        fs::write(tree.path().join("outside/secret"), "secret").unwrap();
        let index = vec!["index.php".to_owned(), "index.html".to_owned()];
        let mime_types = MimeTypes::default();
        Self { tree, base, index, follow_symlinks: None, mime_types, files: StaticFiles::new() }
    }

    /// Writes a file that looks as if it had been there for an hour.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.base.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(hour_ago)).unwrap();
        path
    }

    /// Waits until a file may be cached: its change time cannot be set back.
    async fn settle(&self, path: &Path) {
        while !FileIdentity::new(&rustix::fs::stat(path).unwrap()).is_settled(SystemTime::now()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn serve(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> ShareOutcome {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (request, ()) = request.body(()).unwrap().into_parts();
        let path = format!("{}{}", self.base.display(), RequestPath::normalise(request.uri.path()).unwrap().text());
        let share = ShareRequest {
            place: &self.base,
            path: &path,
            base: &self.base,
            index: &self.index,
            follow_symlinks: self.follow_symlinks,
            traverse_mounts: true,
            types: None,
            mime_types: &self.mime_types,
            target: &|| target.into(),
        };
        self.files.serve(&share, &request).expect("all mounts count as local")
    }

    fn got(&self, method: &str, target: &str) -> Got {
        match self.serve(method, target, &[]) {
            ShareOutcome::Response(response) => Got::Status(response.status().as_u16()),
            ShareOutcome::NotFound => Got::NotFound,
            ShareOutcome::Forbidden | ShareOutcome::OtherType => Got::Forbidden,
            ShareOutcome::Php => Got::Php,
        }
    }

    async fn reply(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> SiteResponse {
        let outcome = self.serve(method, target, headers);
        let ShareOutcome::Response(response) = outcome else { panic!("{method} {target}: {outcome:?}") };
        let (parts, body) = response.into_parts();
        let announced = body.size_hint().exact().unwrap();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        assert_eq!(announced, body.len() as u64);
        SiteResponse { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn get(&self, target: &str) -> SiteResponse {
        self.reply("GET", target, &[]).await
    }

    /// The cached content of a file, if there is any.
    fn kept(&self, name: &str) -> Option<Bytes> {
        let path = self.base.join(name);
        let mut key = String::new();
        let links = LinkPolicy::StayBelow;
        cache::write_key(
            &mut key,
            SharedPath { path: path.to_str().unwrap(), base: &self.base, relative: name, links, mounts: true },
        );
        self.files.cache.borrow().find(&key).and_then(|entry| entry.content.clone())
    }
}

impl SiteResponse {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}
