//! The case of header names over HTTP/1.1: as a script, an upstream or the configuration wrote them, and otherwise as
//! in `Content-Type`. Scripts and old clients compare names with their case, although HTTP ignores it.
//!
//! A `HeaderMap` has its names in lower case, and hyper capitalizes them. A response with names that were written in
//! another way has hyper's own extension for names. That extension is private to hyper: a client of hyper makes it when
//! it reads a response. Responses of upstreams therefore have it already. For all others, a client reads a head with
//! these names from memory ([`in_memory`]). Each thread keeps the extensions of the names that it used last.
//!
//! Nothing fails here: without the extension, hyper capitalizes all names.

mod in_memory;

use http::{Extensions, Response};
use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

/// The names that the extension of a response stands for, as lines of a head. Responses of upstreams do not have them.
#[derive(Clone, Debug)]
struct WrittenNames(Arc<str>);

/// A thread's last sets of names.
#[derive(Default)]
struct NameSets {
    /// The set that is looked up, as lines of a head.
    wanted: String,
    /// The sets that were looked up last, the latest first. A site has few.
    recent: Vec<NameSet>,
}

/// A set of names, and the extensions of a response that has them.
struct NameSet {
    lines: Arc<str>,
    /// `None` if hyper cannot read these lines.
    extensions: Option<Extensions>,
}

thread_local! {
    static NAME_SETS: RefCell<NameSets> = RefCell::default();
    static FILE_EXTENSIONS: OnceCell<Extensions> = const { OnceCell::new() };
}

/// The names of the headers of a file. hyper would write all but one of them in the same way, but capitalizes letter by
/// letter what it could copy.
const FILE_NAMES: [&str; 5] = ["Content-Type", "Content-Length", "Accept-Ranges", "ETag", "Last-Modified"];
/// More names than these are capitalized, in bytes: a script chooses them.
const MAX_BYTES: usize = 4096;
/// How many sets of names a thread keeps.
const MAX_SETS: usize = 64;
/// The rest of a line after its name. The value is valid for `Content-Length`, too.
const LINE_REST: &str = ": 0\r\n";

/// Whether hyper writes a name in this way.
pub fn is_capitalized(name: &[u8]) -> bool {
    let mut previous = b'-';
    name.iter().all(|&byte| {
        let is_start = std::mem::replace(&mut previous, byte) == b'-';
        !(if is_start { byte.is_ascii_lowercase() } else { byte.is_ascii_uppercase() })
    })
}

/// Keeps the case of `unusual` names, which hyper would write in another way, in a response that has its headers. `all`
/// are the names of all headers in their order.
pub fn keep<'n, B>(response: &mut Response<B>, unusual: &[&str], all: impl Iterator<Item = &'n str>) {
    NAME_SETS.with_borrow_mut(|sets| {
        let headers = response.headers();
        sets.wanted.clear();
        let occurrences = |name: &str| headers.get_all(name).iter().take(2).count();
        let mut is_repeated = false;
        for name in unusual {
            match occurrences(name) {
                0 => {}
                1 => sets.want(name),
                _ => is_repeated = true,
            }
        }
        if is_repeated {
            // hyper gives the names of a header to its values in their order: the usual ones are needed as well.
            sets.wanted.clear();
            all.filter(|name| headers.contains_key(*name)).for_each(|name| sets.want(name));
        }
        if let Some(extensions) = sets.extensions() {
            add(response.extensions_mut(), extensions.clone());
        }
    });
}

/// Keeps the case of the names of a file's headers, among them `ETag`, the only name that howdah itself does not write
/// as hyper would. None of them is repeated.
pub fn keep_file_names<B>(response: &mut Response<B>) {
    let extensions = FILE_EXTENSIONS.with(|extensions| {
        let lines = || FILE_NAMES.map(|name| [name, LINE_REST].concat()).concat();
        extensions.get_or_init(|| NameSet::new(&lines()).extensions.unwrap_or_default()).clone()
    });
    add(response.extensions_mut(), extensions);
}

/// Nearly all responses have no other extension: then nothing is copied once more.
fn add(extensions: &mut Extensions, added: Extensions) {
    if extensions.is_empty() {
        *extensions = added;
    } else {
        extensions.extend(added);
    }
}

/// Gives a header, which was just set to one value, this name. `replaced`: the response had such a header before.
pub fn rename<B>(response: &mut Response<B>, name: &str, replaced: bool) {
    let has_names = !response.extensions().is_empty();
    if is_capitalized(name.as_bytes()) && !(replaced && has_names) {
        return;
    }
    let head = match response.extensions().get::<WrittenNames>() {
        Some(WrittenNames(lines)) => Arc::clone(lines),
        None if has_names => in_memory::written_head(response).unwrap_or_default().into(),
        None => Arc::default(),
    };
    let others: Vec<_> = names_in(&head).filter(|other| !other.eq_ignore_ascii_case(name)).collect();
    // Also a usual name is kept: an extension that has the header's old name is replaced.
    let unusual = others.iter().copied().filter(|other| !is_capitalized(other.as_bytes())).chain([name]);
    keep(response, &unusual.collect::<Vec<_>>(), others.iter().copied().chain([name]));
}

/// Keeps the case of the names of another response, whose headers were copied into this one, beside its own.
pub fn adopt<B>(response: &mut Response<B>, other: &Extensions) {
    let Some(WrittenNames(added)) = other.get::<WrittenNames>() else { return };
    let own = response.extensions().get::<WrittenNames>().map(|names| Arc::clone(&names.0)).unwrap_or_default();
    let is_own = |name: &&str| names_in(&own).any(|own| own.eq_ignore_ascii_case(name));
    let all: Vec<_> = names_in(added).filter(|name| !is_own(name)).chain(names_in(&own)).collect();
    let unusual = all.iter().copied().filter(|name| !is_capitalized(name.as_bytes()));
    keep(response, &unusual.collect::<Vec<_>>(), all.iter().copied());
}

/// The names of a head's lines.
fn names_in(head: &str) -> impl Iterator<Item = &str> {
    head.lines().filter_map(|line| Some(line.split_once(':')?.0))
}

// === impl NameSets ===

impl NameSets {
    /// Adds a name, which is a token, to the set that is looked up.
    fn want(&mut self, name: &str) {
        // A longer set is not looked up: the rest of it does not matter.
        if self.wanted.len() <= MAX_BYTES {
            self.wanted.push_str(name);
            self.wanted.push_str(LINE_REST);
        }
    }

    /// The extensions of the set that is looked up.
    fn extensions(&mut self) -> Option<&Extensions> {
        if self.wanted.is_empty() || self.wanted.len() > MAX_BYTES {
            return None;
        }
        match self.recent.iter().position(|set| *set.lines == *self.wanted) {
            Some(0) => {}
            Some(index) => self.recent[..=index].rotate_right(1),
            None => {
                self.recent.truncate(MAX_SETS - 1);
                self.recent.insert(0, NameSet::new(&self.wanted));
            }
        }
        self.recent[0].extensions.as_ref()
    }
}

// === impl NameSet ===

impl NameSet {
    fn new(lines: &str) -> NameSet {
        let lines: Arc<str> = lines.into();
        let mut extensions = in_memory::read_extensions(&lines, MAX_BYTES / LINE_REST.len());
        if let Some(extensions) = &mut extensions {
            extensions.insert(WrittenNames(Arc::clone(&lines)));
        }
        NameSet { lines, extensions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{DATE, HeaderName};

    /// A response whose headers have these names and the values 0, 1, 2 and so on.
    fn response(names: &[&str]) -> Response<()> {
        let mut response = Response::new(());
        for (value, name) in names.iter().enumerate() {
            response.headers_mut().append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.into());
        }
        let unusual: Vec<_> = names.iter().copied().filter(|name| !is_capitalized(name.as_bytes())).collect();
        keep(&mut response, &unusual, names.iter().copied());
        response
    }

    /// The response as an upstream's: without the names that it was made of.
    fn of_upstream(mut response: Response<()>) -> Response<()> {
        response.extensions_mut().remove::<WrittenNames>();
        response
    }

    /// The bytes of the headers, as hyper sends them, without those that it adds.
    fn wire(response: &Response<()>) -> String {
        let head = in_memory::written_head(response).unwrap();
        let lines = head.split_inclusive("\r\n").skip(1);
        lines.filter(|line| response.headers().contains_key(DATE) || !line.starts_with("Date: ")).collect()
    }

    #[test]
    fn hyper_capitalizes_the_beginning_of_each_word() {
        for name in ["Content-Type", "X", "A-1b", "X-_a", "-", ""] {
            assert!(is_capitalized(name.as_bytes()), "{name}");
        }
        for name in ["content-type", "Content-type", "ETag", "X-PHP", "WWW-Authenticate"] {
            assert!(!is_capitalized(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn names_are_sent_as_they_were_written() {
        let sent = [
            (&["Content-type", "Link"][..], "Content-type: 0\r\nLink: 1\r\n\r\n"),
            (&["ETag", "Etag"], "ETag: 0\r\nEtag: 1\r\n\r\n"),
            (&["X-ODD-case", "content-length", "date"], "X-ODD-case: 0\r\ncontent-length: 1\r\ndate: 2\r\n\r\n"),
            (
                &["Set-Cookie", "x-a", "set-Cookie", "Set-Cookie"],
                "Set-Cookie: 0\r\nset-Cookie: 2\r\nSet-Cookie: 3\r\nx-a: 1\r\n\r\n",
            ),
            (&["Content-Type"], "Content-Type: 0\r\n\r\n"),
        ];
        for (names, bytes) in sent {
            // The second time, the extensions are those of the first time.
            for _ in 0..2 {
                assert_eq!(wire(&response(names)), bytes);
            }
        }
    }

    #[test]
    fn names_without_a_header_are_ignored() {
        let mut plain = Response::new(());
        keep(&mut plain, &["transfer-encoding", "x\r\ny", ""], ["x"].into_iter());
        assert!(plain.extensions().is_empty());
    }

    #[test]
    fn the_headers_of_a_file_have_their_names_beside_other_extensions() {
        for has_other in [false, true] {
            let mut file = response(&FILE_NAMES);
            file.extensions_mut().clear();
            if has_other {
                file.extensions_mut().insert(7_u8);
            }
            keep_file_names(&mut file);
            let bytes =
                "Content-Type: 0\r\nContent-Length: 1\r\nAccept-Ranges: 2\r\nETag: 3\r\nLast-Modified: 4\r\n\r\n";
            assert_eq!(wire(&file), bytes);
            assert_eq!(file.extensions().get::<u8>().is_some(), has_other);
        }
    }

    #[test]
    fn the_names_of_a_file_change_no_other_header() {
        let mut file = response(&["content-type", "X-a"]);
        file.extensions_mut().clear();
        keep_file_names(&mut file);
        rename(&mut file, "x-A", true);
        assert_eq!(wire(&file), "Content-Type: 0\r\nx-A: 1\r\n\r\n");
    }

    #[test]
    fn a_renamed_header_leaves_the_others_as_they_are() {
        let table = [
            (&["Content-type", "X-a"][..], "X-A", "Content-type: 0\r\nX-A: 9\r\n\r\n"),
            (&["x-a", "set-cookie", "Set-Cookie"], "X-a", "x-a: 9\r\nset-cookie: 1\r\nSet-Cookie: 2\r\n\r\n"),
            (&["x-a", "x-b"], "X-A", "X-A: 9\r\nx-b: 1\r\n\r\n"),
            (&["x-b"], "X-XSS-Protection", "x-b: 0\r\nX-XSS-Protection: 9\r\n\r\n"),
            (&["x-b"], "X-New", "x-b: 0\r\nX-New: 9\r\n\r\n"),
            (&["Link"], "X-XSS-Protection", "Link: 0\r\nX-XSS-Protection: 9\r\n\r\n"),
        ];
        for (names, name, bytes) in table {
            for mut response in [response(names), of_upstream(response(names))] {
                let replaced =
                    response.headers_mut().insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), 9.into());
                rename(&mut response, name, replaced.is_some());
                assert_eq!(wire(&response).replace("X-a: 9", "x-a: 9"), bytes, "{names:?} {name}");
            }
        }
    }

    #[test]
    fn a_response_adopts_the_names_of_another_one() {
        let mut file = response(&["ETag", "Content-Type"]);
        let script = response(&["content-type", "etag", "x-a"]);
        file.headers_mut().insert("x-a", 9.into());
        adopt(&mut file, script.extensions());
        assert_eq!(wire(&file), "ETag: 0\r\ncontent-type: 1\r\nx-a: 9\r\n\r\n");
    }

    #[test]
    fn very_many_names_are_capitalized() {
        let names: Vec<_> = (0..MAX_BYTES).map(|number| format!("x-{number}")).collect();
        assert!(response(&names.iter().map(String::as_str).collect::<Vec<_>>()).extensions().is_empty());
    }

    #[test]
    fn the_set_that_was_not_used_for_longest_is_dropped() {
        let mut sets = NameSets::default();
        let mut look_up = |name: &str| {
            sets.wanted.clear();
            sets.want(name);
            assert!(sets.extensions().is_some());
            sets.recent.iter().map(|set| set.lines.trim_end().trim_end_matches(": 0").to_owned()).collect::<Vec<_>>()
        };
        look_up("ETag");
        look_up("x");
        for number in 0..MAX_SETS {
            look_up(&format!("x-{number}"));
            look_up("ETag");
        }
        let recent = look_up("ETag");
        assert_eq!((recent.len(), &*recent[0]), (MAX_SETS, "ETag"));
        assert!(!recent.contains(&"x".to_owned()) && recent.contains(&"x-1".to_owned()));
    }

    #[test]
    fn names_that_hyper_cannot_read_are_remembered() {
        let mut sets = NameSets::default();
        for _ in 0..2 {
            sets.wanted = "no header line".to_owned();
            assert!(sets.extensions().is_none());
            assert_eq!(sets.recent.len(), 1);
        }
    }
}
