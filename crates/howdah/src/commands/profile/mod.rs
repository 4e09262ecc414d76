//! `howdah profile`: where the time of an application goes, as a flame graph and for speedscope.
//!
//! howdah hands on what the samplers wrote, a line a sample: the worker, then its frames, the innermost first. Each is a
//! name, a file and a line. All of it comes of the application, which may write there what it likes: lines that are none
//! are left out.

use crate::client::connection::Server;
use crate::client::plain::plain;
use crate::client::segment;
use crate::output;
use howdah_supervisor::system_error::words;
use inferno::flamegraph;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// How to sample.
#[derive(Debug)]
pub struct Wish {
    /// For how long.
    pub seconds: f64,
    /// How often a second.
    pub rate: u32,
}

/// What was sampled.
#[derive(Debug, Default, PartialEq)]
struct Profile {
    frames: Vec<Frame>,
    /// By worker: its samples, each as places in `frames`, the outermost first.
    workers: BTreeMap<u32, Vec<Vec<usize>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Frame {
    name: String,
    file: String,
}

/// What is asked for if nothing is said.
pub const DEFAULT: Wish = Wish { seconds: 10.0, rate: 99 };
/// For how long howdah profiles, in seconds. What is outside of it, or of [`RATES`], the supervisor would refuse, too.
pub const SECONDS: RangeInclusive<f64> = 0.1..=600.0;
/// How often a second.
pub const RATES: RangeInclusive<i64> = 1..=1000;
const FRAME: u8 = 0x1f;
const PART: u8 = 0x1e;
/// Where the samplers stop.
const FULL_BYTES: usize = 16 << 20;
/// So many functions are printed.
const PRINTED: usize = 5;

/// Profiles an application, and writes both files.
///
/// # Errors
/// When howdah does not, nothing ran, or a file cannot be written.
pub fn profile(server: &Server, application: &str, wish: &Wish, output: Option<&Path>) -> Result<(), String> {
    let svg = output.map_or_else(|| PathBuf::from(file_name(application)), Path::to_owned);
    let speedscope = svg.with_extension("speedscope.json");
    // What cannot be written is told before ten seconds have passed.
    for path in [&svg, &speedscope] {
        let exists = path.exists();
        std::fs::OpenOptions::new().append(true).create(true).open(path).map_err(|error| unwritable(path, &error))?;
        if !exists {
            let _ = std::fs::remove_file(path);
        }
    }
    let path = format!("/control/applications/{}/profile", segment(application)?);
    let body = json!({ "seconds": wish.seconds, "rate": wish.rate }).to_string();
    let bytes = server.ask("POST", &path, None, body.into_bytes())?.succeeded(None)?.bytes;
    let profile = Profile::read(&bytes);
    let samples = profile.samples();
    if samples == 0 {
        return Err(format!(
            "no request of {application:?} ran within {} s; profile it while it has something to do",
            wish.seconds
        ));
    }
    let graph = profile.flame_graph(application, wish)?;
    std::fs::write(&svg, graph).map_err(|error| unwritable(&svg, &error))?;
    let text = profile.speedscope(application, wish);
    std::fs::write(&speedscope, text).map_err(|error| unwritable(&speedscope, &error))?;
    let full = match bytes.len() >= FULL_BYTES {
        true => {
            "The samples were too many to be kept: those of the end are missing; take fewer seconds or a lower rate.\n"
        }
        false => "",
    };
    output::print(&format!(
        "{samples} samples of {}, {} a second and worker.\n{full}{}\nFlame graph: {}\nFor https://speedscope.app: {}\n",
        workers(profile.workers.len()),
        wish.rate,
        profile.busiest(),
        svg.display(),
        speedscope.display(),
    ));
    Ok(())
}

fn workers(count: usize) -> String {
    format!("{count} worker{}", if count == 1 { "" } else { "s" })
}

fn unwritable(path: &Path, error: &std::io::Error) -> String {
    format!("{path:?} cannot be written: {}; choose another file with --output", words(error))
}

fn file_name(application: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    format!("{}-profile.svg", application.chars().map(safe).collect::<String>())
}

// === impl Profile ===

impl Profile {
    fn read(bytes: &[u8]) -> Profile {
        let mut profile = Profile::default();
        let mut places = HashMap::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == FRAME);
            let worker = fields.next().and_then(|field| std::str::from_utf8(field).ok()?.parse().ok());
            let Some(worker) = worker else { continue };
            let mut sample: Vec<_> = fields
                .map(|field| {
                    let mut parts = field.split(|byte| *byte == PART).map(String::from_utf8_lossy);
                    let mut next = || parts.next().map(|part| plain(&part)).unwrap_or_default();
                    let frame = Frame { name: next(), file: next() };
                    *places.entry(frame.clone()).or_insert_with(|| {
                        profile.frames.push(frame);
                        profile.frames.len() - 1
                    })
                })
                .collect();
            sample.reverse();
            if !sample.is_empty() {
                profile.workers.entry(worker).or_default().push(sample);
            }
        }
        profile
    }

    fn all(&self) -> impl Iterator<Item = &Vec<usize>> {
        self.workers.values().flatten()
    }

    fn samples(&self) -> usize {
        self.all().count()
    }

    /// The functions that were innermost most often. A wait in the kernel counts for the function that waits.
    fn busiest(&self) -> String {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for sample in self.all() {
            let innermost = sample.iter().rev().find(|place| !self.frames[**place].name.starts_with('['));
            if let Some(place) = innermost {
                *counts.entry(*place).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(place, count)| (std::cmp::Reverse(*count), *place));
        let percent = |count: usize| 100.0 * count as f64 / self.samples() as f64;
        let lines = counts.iter().take(PRINTED).map(|(place, count)| {
            let frame = &self.frames[*place];
            let is_alike = |other: &Frame| other.name == frame.name && other.file != frame.file;
            let file = if self.frames.iter().any(is_alike) { format!(" in {}", frame.file) } else { String::new() };
            format!("{:5.1} %  {}{file}\n", percent(*count), frame.label())
        });
        lines.collect()
    }

    fn flame_graph(&self, application: &str, wish: &Wish) -> Result<Vec<u8>, String> {
        let mut folded: BTreeMap<String, usize> = BTreeMap::new();
        for sample in self.all() {
            let labels: Vec<_> = sample.iter().map(|place| self.frames[*place].label().replace(';', ":")).collect();
            *folded.entry(labels.join(";")).or_default() += 1;
        }
        let lines: Vec<_> = folded.iter().map(|(stack, count)| format!("{stack} {count}")).collect();
        let mut options = flamegraph::Options::default();
        options.title = format!("{}: {} s, {} samples a second", plain(application), wish.seconds, wish.rate);
        options.deterministic = true;
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
            .map_err(|error| format!("the flame graph cannot be drawn: {error}"))?;
        Ok(svg)
    }

    fn speedscope(&self, application: &str, wish: &Wish) -> String {
        let weight = 1.0 / f64::from(wish.rate);
        let profiles = self.workers.iter().map(|(worker, samples)| {
            json!({
                "type": "sampled",
                "name": format!("worker {worker}"),
                "unit": "seconds",
                "startValue": 0,
                "endValue": weight * samples.len() as f64,
                "samples": samples,
                "weights": vec![weight; samples.len()],
            })
        });
        let frames = self.frames.iter().map(|frame| match frame.file.as_str() {
            "" => json!({ "name": frame.name }),
            file => json!({ "name": frame.label(), "file": file }),
        });
        json!({
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": concat!("howdah ", env!("CARGO_PKG_VERSION")),
            "name": application,
            "shared": { "frames": frames.collect::<Vec<_>>() },
            "profiles": profiles.collect::<Vec<_>>(),
        })
        .to_string()
    }
}

// === impl Frame ===

impl Frame {
    /// A name that tells it from others: closures and files have none of their own.
    fn label(&self) -> String {
        match self.file.rsplit('/').next() {
            Some(file) if self.name.starts_with('{') && !file.is_empty() => format!("{} {file}", self.name),
            _ => self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &[u8] = b"7\x1f[clock_nanosleep]\x1e\x1e\x1fsleep\x1e\x1e0\x1f{main}\x1e/s/a.php\x1e3\n\
        7\x1fA;b::c\x1e/s/b.php\x1e9\x1f{main}\x1e/s/a.php\x1e4\n\
        no sample\n\x1f\n8\n\
        8\x1fsleep\x1e\x1e0\x1f{main}\x1e/s/a.php\x1e3\n";
    const WISH: Wish = Wish { seconds: 1.0, rate: 10 };

    #[test]
    fn samples_are_read_and_nothing_else() {
        let profile = Profile::read(SAMPLES);
        assert_eq!(profile.samples(), 3);
        assert_eq!(profile.workers.keys().copied().collect::<Vec<_>>(), [7, 8]);
        assert_eq!(profile.busiest(), " 66.7 %  sleep\n 33.3 %  A;b::c\n");
        assert_eq!(Profile::read(b"\xff\x1f\n").samples(), 0);
    }

    #[test]
    fn both_files_have_the_functions() {
        let profile = Profile::read(SAMPLES);
        let svg = String::from_utf8(profile.flame_graph("<shop>", &WISH).unwrap()).unwrap();
        assert!(svg.contains("{main} a.php (3 samples, 100.00%)") && svg.contains("A:b::c"), "{svg}");
        let speedscope: serde_json::Value = serde_json::from_str(&profile.speedscope("shop", &WISH)).unwrap();
        assert_eq!(speedscope.pointer("/profiles/0/samples").unwrap().as_array().unwrap().len(), 2);
        assert_eq!(speedscope.pointer("/profiles/1/endValue").unwrap(), 0.1);
    }
}
