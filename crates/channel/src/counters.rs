//! Counters that one process adds to and another one reads: words in a sealed memfd. They outlive the process that adds.
//!
//! Each word has one thread that writes it. An addition is a load and a store, without a lock: it costs what a variable
//! costs. A reader may see one of two related words before the other. The meaning of the words is the users' affair.

use crate::memory::mapping::Mapping;
use crate::sync::{AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The words, mapped.
#[derive(Debug)]
pub struct Counters {
    memory: Mapping,
    words: usize,
}

// === impl Counters ===

impl Counters {
    /// Makes the memory of this number of words, all zero. Words that are never written take no space.
    ///
    /// # Errors
    /// When there is no descriptor for it.
    pub fn create(words: usize) -> io::Result<OwnedFd> {
        Mapping::create(words * 8)
    }

    /// Maps the memory of this number of words.
    ///
    /// # Errors
    /// When it is not such a memory.
    pub fn map(memory: impl AsFd, words: usize) -> io::Result<Counters> {
        Ok(Counters { memory: Mapping::map(memory, words * 8)?, words })
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.words
    }

    /// Whether there is no word.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// Adds to a word. Only one thread of one process may write it.
    pub fn add(&self, word: usize, number: u64) {
        let word = self.word(word);
        word.store(word.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
    }

    /// Sets a word. A reader that sees it also sees what was written before.
    pub fn set(&self, word: usize, number: u64) {
        self.word(word).store(number, Ordering::Release);
    }

    /// Reads a word.
    pub fn get(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        self.memory.u64(word * 8)
    }
}

#[cfg(all(test, not(miri)))] // Miri has no memfd
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_the_writer_has_added_also_after_its_end() {
        let memory = Counters::create(1000).unwrap();
        let (writer, reader) = (Counters::map(&memory, 1000).unwrap(), Counters::map(&memory, 1000).unwrap());
        writer.add(0, 5);
        writer.add(0, 2);
        writer.add(999, u64::MAX);
        writer.set(7, 3);
        drop(writer);
        assert_eq!((reader.get(0), reader.get(999), reader.get(7), reader.get(1)), (7, u64::MAX, 3, 0));
        assert!(Counters::map(&memory, 999).is_err(), "another size");
    }
}
