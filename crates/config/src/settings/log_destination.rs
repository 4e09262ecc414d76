//! Where a log is written: a file, standard output, a syslog server, or the journal of systemd.
//!
//! A log daemon has one of these forms, here and on the command line:
//!
//! - `journald`, or `journald:/run/systemd/journal.NAME/socket` for the journal of a namespace
//! - `syslog`, which is `syslog:/dev/log`; `syslog:udp://HOST:PORT` and `syslog:tcp://HOST:PORT`; each may end with
//!   `?facility=local3&tag=shop`

use crate::error::Error;
use crate::read::node::Node;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a log is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// A file, to which lines are appended. The path is absolute.
    Path(PathBuf),
    /// Standard output: `"-"`.
    Stdout,
    /// A daemon that keeps the logs of this machine or of several.
    Daemon(LogDaemon),
}

/// A daemon that keeps logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDaemon {
    /// The journal of systemd, by the path of its socket.
    Journal(PathBuf),
    /// A syslog server.
    Syslog(Syslog),
}

/// A syslog server, and what its messages name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syslog {
    /// Its address.
    pub server: SyslogServer,
    /// The number of the facility: 0 to 23.
    pub facility: u8,
    /// The name of the application in its messages: 1 to 48 printable ASCII characters.
    pub tag: String,
}

/// The address of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogServer {
    /// The path of a datagram socket.
    Unix(PathBuf),
    /// A host and its port.
    Udp(String, u16),
    /// A host and its port.
    Tcp(String, u16),
}

const JOURNAL: &str = "journald";
const SYSLOG: &str = "syslog";
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";
const SYSLOG_SOCKET: &str = "/dev/log";
const DEFAULT_TAG: &str = "howdah";
const MAX_TAG_BYTES: usize = 48;
const MAX_HOST_BYTES: usize = 253;
/// The facilities of RFC 5424 by number; those between `ftp` and `local0` have no common names.
const FACILITIES: [(&str, u8); 20] = [
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("cron", 9),
    ("authpriv", 10),
    ("ftp", 11),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];
const DEFAULT_FACILITY: u8 = 3;

// === impl LogDestination ===

impl LogDestination {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let text = node.string()?;
        match text.as_str() {
            "-" => Ok(Self::Stdout),
            text if LogDaemon::is_meant(text) => text.parse().map(Self::Daemon).map_err(|reason| node.error(reason)),
            _ => node.absolute_path().map(Self::Path),
        }
    }
}

// === impl LogDaemon ===

impl LogDaemon {
    /// Whether a text names a daemon, and not a file.
    pub fn is_meant(text: &str) -> bool {
        let rest = text.strip_prefix(JOURNAL).or_else(|| text.strip_prefix(SYSLOG));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '?']))
    }
}

impl FromStr for LogDaemon {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix(JOURNAL) {
            let path = match rest.strip_prefix(':') {
                Some(path) => path,
                None if rest.is_empty() => JOURNAL_SOCKET,
                None => return Err(format!("{text:?} has options; the journal has none: write {JOURNAL:?}")),
            };
            let socket = socket_path(path).ok_or_else(|| {
                format!("{text:?} has no absolute path; write \"{JOURNAL}\" or \"{JOURNAL}:/run/systemd/journal.NAME/socket\"")
            })?;
            return Ok(Self::Journal(socket));
        }
        let rest = text.strip_prefix(SYSLOG).unwrap_or_default();
        let (server, options) = rest.split_once('?').unwrap_or((rest, ""));
        let server = match server.strip_prefix(':') {
            Some(server) => SyslogServer::parse(server).ok_or_else(|| {
                format!("{text:?} has no valid address; write syslog:/dev/log, syslog:udp://HOST:PORT or syslog:tcp://HOST:PORT")
            })?,
            None => SyslogServer::Unix(SYSLOG_SOCKET.into()),
        };
        let mut syslog = Syslog { server, facility: DEFAULT_FACILITY, tag: DEFAULT_TAG.to_owned() };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            syslog.set(option)?;
        }
        Ok(Self::Syslog(syslog))
    }
}

impl Display for LogDaemon {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            LogDaemon::Journal(path) => write!(f, "the journal at {}", path.display()),
            LogDaemon::Syslog(Syslog { server: SyslogServer::Unix(path), .. }) => {
                write!(f, "syslog at {}", path.display())
            }
            LogDaemon::Syslog(Syslog { server: SyslogServer::Udp(host, port), .. }) => {
                write!(f, "syslog at udp://{host}:{port}")
            }
            LogDaemon::Syslog(Syslog { server: SyslogServer::Tcp(host, port), .. }) => {
                write!(f, "syslog at tcp://{host}:{port}")
            }
        }
    }
}

// === impl Syslog ===

impl Syslog {
    fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "facility" => {
                let known = FACILITIES.iter().find(|(name, _)| *name == value);
                let (_, number) = known.ok_or_else(|| {
                    format!("there is no facility {value:?} in syslog; write daemon, user, or local0 to local7")
                })?;
                self.facility = *number;
            }
            "tag" => {
                let is_printable = value.bytes().all(|byte| byte.is_ascii_graphic());
                if value.is_empty() || value.len() > MAX_TAG_BYTES || !is_printable {
                    return Err(format!(
                        "{value:?} is no tag of syslog; write 1 to {MAX_TAG_BYTES} printable ASCII characters without spaces"
                    ));
                }
                value.clone_into(&mut self.tag);
            }
            _ => return Err(format!("syslog has no option {name:?}; there are facility and tag")),
        }
        Ok(())
    }
}

// === impl SyslogServer ===

impl SyslogServer {
    fn parse(text: &str) -> Option<Self> {
        if let Some(address) = text.strip_prefix("udp://") {
            return host_and_port(address).map(|(host, port)| Self::Udp(host, port));
        }
        if let Some(address) = text.strip_prefix("tcp://") {
            return host_and_port(address).map(|(host, port)| Self::Tcp(host, port));
        }
        socket_path(text).map(Self::Unix)
    }
}

fn socket_path(text: &str) -> Option<PathBuf> {
    (text.starts_with('/') && !text.contains('\0')).then(|| text.into())
}

/// `192.0.2.7:514`, `[2001:db8::7]:514` or `logs.example.com:514`.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_valid = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.len() <= MAX_HOST_BYTES && host.chars().all(is_known),
    };
    let port = port.parse().ok().filter(|port| *port > 0)?;
    is_valid.then(|| (bare.unwrap_or(host).to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syslog(server: SyslogServer, facility: u8, tag: &str) -> LogDaemon {
        LogDaemon::Syslog(Syslog { server, facility, tag: tag.to_owned() })
    }

    #[test]
    fn daemons_have_addresses_and_options() {
        let dev_log = || SyslogServer::Unix("/dev/log".into());
        let table = [
            ("journald", LogDaemon::Journal(JOURNAL_SOCKET.into())),
            ("journald:/run/x", LogDaemon::Journal("/run/x".into())),
            ("syslog", syslog(dev_log(), 3, "howdah")),
            ("syslog:/dev/log", syslog(dev_log(), 3, "howdah")),
            ("syslog?facility=local7&tag=shop", syslog(dev_log(), 23, "shop")),
            ("syslog:/run/log?tag=a", syslog(SyslogServer::Unix("/run/log".into()), 3, "a")),
            ("syslog:udp://192.0.2.7:514", syslog(SyslogServer::Udp("192.0.2.7".into(), 514), 3, "howdah")),
            ("syslog:tcp://[2001:db8::7]:601", syslog(SyslogServer::Tcp("2001:db8::7".into(), 601), 3, "howdah")),
            (
                "syslog:tcp://logs.example.com:601?facility=user",
                syslog(SyslogServer::Tcp("logs.example.com".into(), 601), 1, "howdah"),
            ),
        ];
        for (text, expected) in table {
            assert!(LogDaemon::is_meant(text), "{text}");
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn files_are_no_daemons() {
        for text in ["/syslog", "syslogs", "journald.log", "./journald", "-", "journal", ""] {
            assert!(!LogDaemon::is_meant(text), "{text}");
        }
    }

    #[test]
    fn a_wrong_address_or_option_is_named() {
        let table = [
            ("journald:run", "has no absolute path"),
            ("journald?tag=x", "the journal has none"),
            ("syslog:", "has no valid address"),
            ("syslog:dev/log", "has no valid address"),
            ("syslog:udp://192.0.2.7", "write syslog:/dev/log, syslog:udp://HOST:PORT"),
            ("syslog:udp://192.0.2.7:0", "has no valid address"),
            ("syslog:udp://:514", "has no valid address"),
            ("syslog:tcp://a b:514", "has no valid address"),
            ("syslog:tcp://[x]:514", "has no valid address"),
            ("syslog?facility=local8", "there is no facility \"local8\""),
            ("syslog?tag=", "is no tag of syslog"),
            ("syslog?tag=a b", "is no tag of syslog"),
            ("syslog?severity=info", "syslog has no option \"severity\"; there are facility and tag"),
        ];
        for (text, expected) in table {
            let error = text.parse::<LogDaemon>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
