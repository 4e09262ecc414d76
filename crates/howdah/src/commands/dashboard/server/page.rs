//! The files of the page. ui/ builds them; they are part of the executable.

use crate::commands::dashboard::answer::Answer;

macro_rules! built {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/dist/", $name))
    };
}

/// The paths of the files, their types and contents.
const FILES: [(&str, &str, &[u8]); 5] = [
    ("/", "text/html; charset=utf-8", built!("index.html")),
    ("/app.js", "text/javascript; charset=utf-8", built!("app.js")),
    ("/app.css", "text/css; charset=utf-8", built!("app.css")),
    ("/icon.svg", "image/svg+xml", built!("icon.svg")),
    ("/licenses.txt", "text/plain; charset=utf-8", built!("licenses.txt")),
];

/// The file with this path.
pub fn file(path: &str) -> Option<Answer> {
    let (_, content_type, body) = FILES.iter().find(|(its_path, ..)| *its_path == path)?;
    Some(Answer::file(content_type, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_no_other_file() {
        let [(_, _, html), (_, _, script), (_, _, css), ..] = FILES;
        let text = format!("{}{}", String::from_utf8_lossy(html), String::from_utf8_lossy(css));
        for foreign in ["http:", "https:", "//", "@import", "<style", "style=", "onload="] {
            assert!(!text.contains(foreign), "{foreign}");
        }
        let text = text + &String::from_utf8_lossy(script);
        for (path, ..) in &FILES[1..] {
            assert!(text.contains(path), "{path}");
        }
        let size: usize = FILES.iter().map(|(_, _, body)| body.len()).sum();
        assert!(size < 200_000, "{size} bytes");
    }
}
