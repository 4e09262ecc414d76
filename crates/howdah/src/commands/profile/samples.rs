//! The samples of a profile.
//!
//! The control API returns the samplers' lines unchanged, one for each sample: the worker, then its frames, innermost
//! first. A frame is a name, a file and a line. The application can write into that file, too: lines of another form are
//! ignored, and all text is made safe for a terminal.

use crate::terminal::plain::plain;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// The samples of a profile.
#[derive(Debug, Default, PartialEq)]
pub struct Samples {
    /// Every function once.
    pub frames: Vec<Frame>,
    /// The samples of each worker, by its pid. A sample has indexes of `frames`, outermost first.
    pub(super) workers: BTreeMap<u32, Vec<Vec<usize>>>,
    /// The number of samples that have no stack, because the ones before have the most frames of a profile.
    pub without_stack: usize,
}

/// A function, or the top level of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    pub(super) name: String,
    /// Empty for functions in C.
    pub file: String,
}

/// A frame of one sample.
#[derive(Debug, PartialEq)]
pub struct StackFrame {
    /// The function, or a system call in brackets.
    pub name: String,
    /// Empty for functions in C.
    pub file: String,
    /// 0 for functions in C.
    pub line: u32,
}

/// Separates the frames of a line.
const FRAME_SEPARATOR: u8 = 0x1f;
/// Separates the name, the file and the line of a frame.
const PART_SEPARATOR: u8 = 0x1e;
/// The most functions of a profile. The application can write any number of them.
const MAX_FRAMES: usize = 50_000;
/// The name of all others.
const OTHERS: &str = "(others)";
/// The most frames of all samples together: more than 16 MiB of samples have, unless their names have a few bytes only.
const MAX_FRAMES_OF_ALL: usize = 1_000_000;
/// The most workers of a profile.
const MAX_WORKERS: usize = 10_000;
/// The pid that stands for all further workers.
pub const OTHER_WORKERS: u32 = 0;
/// The most frames of a sample: several times those of the sampler.
const MAX_DEPTH: usize = 1000;
/// The number of functions in the summary.
const BUSIEST: usize = 5;

// === impl Samples ===

impl Samples {
    /// The number of samples of each stack. A stack has indexes of `frames`, outermost first.
    pub fn folded(&self) -> BTreeMap<&[usize], usize> {
        let mut folded = BTreeMap::new();
        for sample in self.all() {
            *folded.entry(sample.as_slice()).or_default() += 1;
        }
        folded
    }

    /// Reads the samplers' lines.
    pub fn read(bytes: &[u8]) -> Samples {
        let mut samples = Samples::default();
        let mut indexes = HashMap::new();
        let mut frames_of_all = 0;
        for line in bytes.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == FRAME_SEPARATOR);
            let worker = fields.next().and_then(|field| std::str::from_utf8(field).ok()?.parse().ok());
            let Some(worker) = worker else { continue };
            let mut index_of = |mut frame: Frame| {
                if samples.frames.len() >= MAX_FRAMES && !indexes.contains_key(&frame) {
                    frame = Frame::others();
                }
                *indexes.entry(frame.clone()).or_insert_with(|| {
                    samples.frames.push(frame);
                    samples.frames.len() - 1
                })
            };
            let fields = fields.take(MAX_DEPTH);
            let depth = fields.clone().count();
            let sample: Vec<_> = match depth {
                0 => continue,
                _ if samples.without_stack > 0 || frames_of_all + depth > MAX_FRAMES_OF_ALL => {
                    samples.without_stack += 1;
                    vec![index_of(Frame::others())]
                }
                _ => {
                    frames_of_all += depth;
                    let mut sample: Vec<_> = fields.map(|field| index_of(Frame::read(field))).collect();
                    sample.reverse();
                    sample
                }
            };
            let is_full = samples.workers.len() >= MAX_WORKERS && !samples.workers.contains_key(&worker);
            samples.workers.entry(if is_full { OTHER_WORKERS } else { worker }).or_default().push(sample);
        }
        samples
    }

    /// All samples of all workers.
    pub fn all(&self) -> impl Iterator<Item = &Vec<usize>> {
        self.workers.values().flatten()
    }

    /// The number of samples.
    pub fn count(&self) -> usize {
        self.all().count()
    }

    /// A sentence if samples have no stack; empty otherwise.
    pub fn shortage(&self) -> String {
        match self.without_stack {
            0 => String::new(),
            count => format!(
                "{count} samples are shown as {OTHERS}, because the ones before have {MAX_FRAMES_OF_ALL} frames together; use a shorter \
                 time or a lower rate.\n"
            ),
        }
    }

    /// The number of workers with a sample.
    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// The functions that were innermost most often, a line for each. A wait in the kernel counts for the function that
    /// waits.
    pub fn busiest_functions(&self) -> String {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for sample in self.all() {
            let innermost = sample.iter().rev().find(|index| !self.frames[**index].name.starts_with('['));
            if let Some(index) = innermost {
                *counts.entry(*index).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(index, count)| (Reverse(*count), *index));
        let percent = |count: usize| 100.0 * count as f64 / self.count() as f64;
        let lines = counts.iter().take(BUSIEST).map(|(index, count)| {
            let frame = &self.frames[*index];
            let has_same_name = |other: &Frame| other.name == frame.name && other.file != frame.file;
            let is_ambiguous = self.frames.iter().any(has_same_name);
            let file = if is_ambiguous { format!(" in {}", frame.file) } else { String::new() };
            format!("{:5.1} %  {}{file}\n", percent(*count), frame.label())
        });
        lines.collect()
    }
}

/// The last stack of a worker, innermost first; `None` if the samplers' lines have none.
pub fn last_stack(bytes: &[u8], worker: u32) -> Option<Vec<StackFrame>> {
    let worker = worker.to_string();
    let of_worker = |line: &&[u8]| line.split(|byte| *byte == FRAME_SEPARATOR).next() == Some(worker.as_bytes());
    let line = bytes.split(|byte| *byte == b'\n').rfind(of_worker)?;
    let frames = line.split(|byte| *byte == FRAME_SEPARATOR).skip(1).take(MAX_DEPTH).map(|field| {
        let mut parts = field.split(|byte| *byte == PART_SEPARATOR).map(String::from_utf8_lossy);
        let mut next = || parts.next().map(|part| plain(&part)).unwrap_or_default();
        StackFrame { name: next(), file: next(), line: next().parse().unwrap_or_default() }
    });
    Some(frames.collect())
}

// === impl Frame ===

impl Frame {
    fn read(field: &[u8]) -> Frame {
        let mut parts = field.split(|byte| *byte == PART_SEPARATOR).map(String::from_utf8_lossy);
        let mut next = || parts.next().map(|part| plain(&part)).unwrap_or_default();
        Frame { name: next(), file: next() }
    }

    fn others() -> Frame {
        Frame { name: OTHERS.to_owned(), file: String::new() }
    }

    /// The name; with the file for closures and top levels of files, which have no name of their own.
    pub fn label(&self) -> String {
        match self.file.rsplit('/').next() {
            Some(file) if self.name.starts_with('{') && !file.is_empty() => format!("{} {file}", self.name),
            _ => self.name.clone(),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const SAMPLES: &[u8] = b"7\x1f[clock_nanosleep]\x1e\x1e\x1fsleep\x1e\x1e0\x1f{main}\x1e/s/a.php\x1e3\n\
        7\x1fA;b::c\x1e/s/b.php\x1e9\x1f{main}\x1e/s/a.php\x1e4\n\
        no sample\n\x1f\n8\n\
        8\x1fsleep\x1e\x1e0\x1f{main}\x1e/s/a.php\x1e3\n";

    #[test]
    fn samples_are_read_and_other_lines_are_ignored() {
        let samples = Samples::read(SAMPLES);
        assert_eq!(samples.count(), 3);
        assert_eq!(samples.workers.keys().copied().collect::<Vec<_>>(), [7, 8]);
        assert_eq!(samples.busiest_functions(), " 66.7 %  sleep\n 33.3 %  A;b::c\n");
        assert_eq!(Samples::read(b"\xff\x1f\n").count(), 0);
    }

    #[test]
    fn equal_stacks_are_counted_together() {
        let samples =
            Samples::read(b"7\x1fsleep\x1e\x1e0\x1f{main}\x1e/a\x1e3\n8\x1fsleep\x1e\x1e0\x1f{main}\x1e/a\x1e3\n");
        assert_eq!(samples.folded(), BTreeMap::from([(&[1, 0][..], 2)]));
    }

    #[test]
    fn the_number_of_functions_is_bounded() {
        let mut bytes = Vec::new();
        for number in 0..=MAX_FRAMES / 500 {
            bytes.extend_from_slice(b"7");
            (0..2 * MAX_DEPTH).for_each(|frame| bytes.extend_from_slice(format!("\x1f{number}-{frame}").as_bytes()));
            bytes.push(b'\n');
        }
        let samples = Samples::read(&bytes);
        assert_eq!((samples.frames.len(), samples.count()), (MAX_FRAMES + 1, MAX_FRAMES / 500 + 1));
        assert_eq!(samples.frames[MAX_FRAMES].name, OTHERS);
        assert_eq!(last_stack(&bytes, 7).unwrap().len(), MAX_DEPTH);
    }

    /// Samples of many short frames, each with another outermost one.
    pub fn deep_samples(count: usize) -> Vec<u8> {
        let frames = "\x1fa".repeat(MAX_DEPTH - 1);
        (0..count).flat_map(|number| format!("7{frames}\x1f{number}\n").into_bytes()).collect()
    }

    #[test]
    fn the_frames_of_all_samples_are_bounded() {
        let full = MAX_FRAMES_OF_ALL / MAX_DEPTH;
        let samples = Samples::read(&[&deep_samples(full + 5)[..], SAMPLES].concat());
        assert_eq!((samples.count(), samples.without_stack), (full + 8, 8));
        assert_eq!(samples.all().map(Vec::len).sum::<usize>(), MAX_FRAMES_OF_ALL + 8);
        let last = samples.workers[&8].last().unwrap();
        assert_eq!(last.iter().map(|index| samples.frames[*index].name.as_str()).collect::<Vec<_>>(), [OTHERS]);
        assert!(samples.shortage().starts_with("8 samples are shown as (others), "), "{}", samples.shortage());
        assert_eq!(Samples::read(SAMPLES).shortage(), "");
    }

    #[test]
    fn the_number_of_workers_is_bounded() {
        let lines: String = (1..=2 * MAX_WORKERS).map(|worker| format!("{worker}\x1fa\n")).collect();
        let samples = Samples::read(lines.as_bytes());
        assert_eq!((samples.worker_count(), samples.count()), (MAX_WORKERS + 1, 2 * MAX_WORKERS));
        assert_eq!(samples.workers[&OTHER_WORKERS].len(), MAX_WORKERS);
    }

    #[test]
    fn the_last_stack_of_a_worker_has_lines() {
        let frame = |name: &str, file: &str, line| StackFrame { name: name.into(), file: file.into(), line };
        assert_eq!(last_stack(SAMPLES, 7), Some(vec![frame("A;b::c", "/s/b.php", 9), frame("{main}", "/s/a.php", 4)]));
        assert_eq!(last_stack(SAMPLES, 9), None);
        assert_eq!(last_stack(b"7\x1f\xff\x1b\x1ea", 7), Some(vec![frame("\u{fffd}\\u{1b}", "a", 0)]));
    }
}
