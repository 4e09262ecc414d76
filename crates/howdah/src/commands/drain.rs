//! `howdah drain`: a server of an upstream, or an application, finishes its requests, and gets no others until `--end`.
//!
//! It is a change of the configuration, `upstreams/NAME/servers/ADDRESS/drain` or `applications/NAME/drain`, so that it stays when
//! howdah is started again.

use crate::control_client::{ApiOptions, ApiResponse, ControlApi, name_segment};
use crate::terminal::output;
use crate::terminal::plain::plain;
use clap::Args;
use howdah_config::Endpoint;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// The options of `howdah drain`.
#[derive(Debug, Args)]
pub struct DrainOptions {
    #[command(flatten)]
    api: ApiOptions,
    /// The application's name; or the upstream's, before the address of a server.
    #[arg(value_name = "NAME")]
    name: String,
    /// The address of a server of the upstream, as in the configuration: 10.0.0.5:8080.
    #[arg(value_name = "SERVER")]
    server: Option<String>,
    /// It gets requests again.
    #[arg(long)]
    end: bool,
    /// How long to wait for the end of its requests; 0 does not wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, conflicts_with = "end")]
    timeout: u32,
}

/// The option of the server or of the application that is changed.
struct Change {
    path: String,
    etag: Option<String>,
    /// For a person.
    subject: String,
}

/// The pause between two looks at the number of requests.
const PERIOD: Duration = Duration::from_millis(200);

// === impl DrainOptions ===

impl DrainOptions {
    /// Changes the configuration, and waits until the server or the application has finished its requests.
    ///
    /// # Errors
    /// The reason of the control API; no such server or application; it still has requests after the time.
    pub fn run(&self) -> Result<(), String> {
        let api = ControlApi::new(&self.api)?;
        let Change { path, etag, subject } = match &self.server {
            Some(server) => self.change_of_server(&api, server)?,
            None => self.change_of_application(&api)?,
        };
        let body = (!self.end).to_string().into_bytes();
        api.request("PUT", &path, etag.as_deref(), body)?.accepted(None)?;
        if self.end {
            output::print(&format!("The {subject} gets requests again.\n"));
            return Ok(());
        }
        match self.wait(&api)? {
            Some(0) => output::print(&format!("The {subject} drains: it has no requests.\n")),
            _ if self.timeout == 0 => output::print(&format!("The {subject} drains: it gets no more requests.\n")),
            left => {
                let left = match (&self.server, left) {
                    (Some(_), Some(left)) => format!("{left} requests"),
                    _ => "requests".to_owned(),
                };
                return Err(format!(
                    "after {} s, the {subject} still has {left}; it gets no others: repeat the command to wait longer",
                    self.timeout
                ));
            }
        }
        Ok(())
    }

    fn change_of_server(&self, api: &ControlApi, server: &str) -> Result<Change, String> {
        let listed = api.get(&servers_path(&self.name)?)?;
        if listed.is_not_found() {
            return Err(format!(
                "the configuration has no upstream {:?}; see `howdah config get upstreams`",
                self.name
            ));
        }
        let (path, etag) = change_path(&self.name, server, &listed.accepted(None)?)?;
        Ok(Change { path, etag, subject: format!("server {}", plain(server)) })
    }

    fn change_of_application(&self, api: &ControlApi) -> Result<Change, String> {
        let path = application_path(&self.name)?;
        let found = api.get(&path)?;
        if found.is_not_found() {
            return Err(format!(
                "the configuration has no application {:?}; see `howdah config get applications`, or write the address of \
                 a server after the name of its upstream",
                self.name
            ));
        }
        let etag = found.accepted(None)?.etag;
        Ok(Change { path: format!("{path}/drain"), etag, subject: format!("application {:?}", self.name) })
    }

    /// The number of requests, or of former processes, that are left; `None` if it is not known.
    fn wait(&self, api: &ControlApi) -> Result<Option<u64>, String> {
        let deadline = Instant::now() + Duration::from_secs(self.timeout.into());
        loop {
            let status = api.get("/status")?.accepted(None)?.json()?;
            let left = match &self.server {
                Some(server) => active(&status, &self.name, server),
                None => Some(former(&status, &self.name)),
            };
            if left == Some(0) || Instant::now() >= deadline {
                return Ok(left);
            }
            std::thread::sleep(PERIOD);
        }
    }
}

/// The path of an application in the control API.
///
/// # Errors
/// The name is empty.
pub fn application_path(application: &str) -> Result<String, String> {
    Ok(format!("/config/applications/{}", name_segment(application)?))
}

/// The path of the servers of an upstream in the control API.
///
/// # Errors
/// The name is empty.
pub fn servers_path(upstream: &str) -> Result<String, String> {
    Ok(format!("/config/upstreams/{}/servers", name_segment(upstream)?))
}

/// The path of the option, and the ETag with which to change it.
///
/// # Errors
/// The servers have no such address.
pub fn change_path(upstream: &str, server: &str, servers: &ApiResponse) -> Result<(String, Option<String>), String> {
    let all = servers.json()?;
    let all = all.as_object().cloned().unwrap_or_default();
    let key = key_of(&all, server).ok_or_else(|| {
        let known: Vec<_> = all.keys().map(|key| plain(key)).collect();
        format!("the upstream {upstream:?} has no server {server:?}; write one of these: {}", known.join(", "))
    })?;
    Ok((format!("{}/{}/drain", servers_path(upstream)?, name_segment(key)?), servers.etag.clone()))
}

/// The address as the configuration has it: an address may be written in several ways.
fn key_of<'s>(servers: &'s Map<String, Value>, server: &str) -> Option<&'s String> {
    let wanted: Option<Endpoint> = server.parse().ok();
    servers.keys().find(|key| *key == server || wanted.is_some() && key.parse().ok() == wanted)
}

fn active(status: &Value, upstream: &str, server: &str) -> Option<u64> {
    let servers = status.get("upstreams")?.get(upstream)?.get("servers")?.as_object()?;
    servers.get(key_of(servers, server)?)?.get("active")?.as_u64()
}

/// The former generations of an application, which still finish requests.
fn former(status: &Value, application: &str) -> u64 {
    let draining = status.get("draining").and_then(|draining| draining.get(application));
    draining.and_then(|former| former.get("generations")).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_client::connection::tests::api;
    use serde_json::json;

    #[test]
    fn an_address_is_found_however_it_is_written() {
        let servers = api(vec![("/config/upstreams/u/servers", (200, r#"{"[0::1]:80": {}, "unix:/run/a": {}}"#))]);
        let servers = servers.get(&servers_path("u").unwrap()).unwrap();
        let path = |server| change_path("u", server, &servers).map(|(path, _)| path);
        assert_eq!(path("[::1]:80"), Ok("/config/upstreams/u/servers/[0::1]:80/drain".to_owned()));
        assert_eq!(path("unix:/run/a"), Ok("/config/upstreams/u/servers/unix:%2Frun%2Fa/drain".to_owned()));
        let reason = path("10.0.0.1:80").unwrap_err();
        assert!(reason.ends_with("write one of these: [0::1]:80, unix:/run/a"), "{reason}");
        let status =
            json!({ "upstreams": { "u": { "servers": { "[::1]:80": { "state": "drained", "active": 3 } } } } });
        assert_eq!((active(&status, "u", "[0::1]:80"), active(&status, "v", "[::1]:80")), (Some(3), None));
        let status = json!({ "draining": { "shop": { "generations": 2, "processes": 9 } } });
        assert_eq!((former(&status, "shop"), former(&status, "blog"), former(&json!({}), "shop")), (2, 0, 0));
    }
}
