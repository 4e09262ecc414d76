//! `howdah lab init`: writes a lab.json for an application.
//!
//! Fails if the file exists already, or the folder has no PHP script.

use crate::commands::serve::layout;
use crate::terminal::output;
use clap::Args;
use howdah_lab::plan::application::newest_php;
use howdah_lab::stacks::Library;
use howdah_lab::stacks::detect::detect;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The options of `howdah lab init`.
#[derive(Debug, Args)]
pub struct LabInitOptions {
    /// The application's folder.
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// The file that is written; by default lab.json in the folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A folder with stacks of your own.
    #[arg(long, value_name = "DIR")]
    stacks_dir: Option<PathBuf>,
}

/// Two closed loops and an open one.
const LOADS: &str = r#"[
    { "name": "clients-10", "connections": 10, "duration": "30s" },
    { "name": "clients-100", "connections": 100, "duration": "30s" },
    { "name": "rate", "schedule": "line(1, 100, 30s) const(100, 60s)", "objective": "p99 < 500ms, errors < 1%" }
  ]"#;
/// The highest number of URLs that are found.
const MAX_URLS: usize = 5;

// === impl LabInitOptions ===

impl LabInitOptions {
    /// Writes the file.
    ///
    /// # Errors
    /// There is no application, or the file cannot be written.
    pub fn run(&self) -> Result<(), String> {
        let folder = self.folder.canonicalize().map_err(|error| howdah_lab::reason::at(&self.folder, &error))?;
        let layout = layout::detect(&folder, None)?;
        let urls = urls(&layout.root, layout.front_controller.is_some());
        if urls.is_empty() {
            return Err(format!("{} has no PHP script; name the folder of an application", layout.root.display()));
        }
        let library = Library::load(self.stacks_dir.as_deref())?;
        let php = newest_php().ok_or("no PHP is installed: apt-get install php-cli php-fpm")?;
        let (stacks, missing) = stacks(&library, &php);
        let mut application = json!({ "root": layout.root, "php": php });
        if let Some(script) = &layout.front_controller {
            application["front_controller"] = json!(script);
        }
        let title = json!(format!("Servers for {}", layout.description));
        let text = format!(
            "{{\n  \"title\": {title},\n  \"application\": {application},\n  \"stacks\": {},\n  \"targets\": {},\n  \"loads\": {LOADS},\n  \
             \"rounds\": 5\n}}\n",
            lines(&stacks),
            lines(&urls.iter().map(|url| json!(url)).collect::<Vec<_>>())
        );
        let file = self.out.clone().unwrap_or_else(|| folder.join("lab.json"));
        write_new(&file, &text)?;
        output::print(&format!("{}: {} stacks, {} URLs\n", file.display(), stacks.len(), urls.len()));
        for (name, reason) in missing {
            output::print(&format!("without {name}: {reason}\n"));
        }
        output::print(&format!("next: howdah lab run --quick {}\n", file.display()));
        Ok(())
    }
}

/// A list with one item a line.
fn lines(items: &[Value]) -> String {
    let items: Vec<_> = items.iter().map(|item| format!("\n    {item}")).collect();
    format!("[{}\n  ]", items.join(","))
}

/// The stacks that this machine can run without a script of the application, and the others with their reasons.
fn stacks(library: &Library, php: &str) -> (Vec<Value>, Vec<(String, String)>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for definition in library.all() {
        match (detect(definition, php), &definition.manifest.script) {
            (Ok(_), None) => found.push(json!(definition.name)),
            (Ok(_), Some(script)) => missing.push((definition.name.clone(), format!("it needs {script}"))),
            (Err(reason), _) => {
                missing.push((definition.name.clone(), format!("{}: {}", reason.reason, reason.remedy)))
            }
        }
    }
    if found.contains(&json!("nginx-fpm")) {
        for (name, settings) in
            [("nginx-fpm-dynamic", json!({"pm": "dynamic"})), ("nginx-fpm-tcp", json!({"socket": "tcp"}))]
        {
            found.push(json!({ "name": name, "stack": "nginx-fpm", "settings": settings }));
        }
    }
    (found, missing)
}

/// The front page, and scripts of the document root without a front controller.
fn urls(root: &Path, has_front_controller: bool) -> Vec<String> {
    if has_front_controller {
        return vec!["/".to_owned()];
    }
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let scripts =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.ends_with(".php"));
    let mut scripts: Vec<_> = scripts.map(|name| format!("/{name}")).collect();
    scripts.sort();
    scripts.truncate(MAX_URLS);
    scripts
}

fn write_new(file: &Path, text: &str) -> Result<(), String> {
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).open(file);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} exists already; --out names another file", file.display())
        }
        _ => howdah_lab::reason::at(file, &error),
    })
}
