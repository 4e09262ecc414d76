//! Copies bytes between private memory and shared words, 8 bytes at a time, with relaxed atomic accesses.
//!
//! A hostile worker may write the same words at the same time. A plain copy (`copy_nonoverlapping`) would then be a data
//! race, which is undefined behaviour. With atomics the reader gets a mixture of old and new bytes; the code that parses
//! these bytes validates them. Order comes from the acquire and release accesses to the positions and to the slot's word,
//! not from here. All accesses have the size of a word, because atomic accesses of mixed sizes may not race either. A
//! word of which only a part is written is loaded and stored whole: each region has only one honest writer.
//!
//! The cost, in nanoseconds for each direction, against `copy_nonoverlapping`: best of 300 runs of each copy alone, on two
//! busy cores of x86-64. `cargo bench -p howdah-channel` measures it within a whole round trip.
//!
//! | bytes  | plain copy | word copy |
//! |--------|------------|-----------|
//! | 16     | 4          | 7 to 10   |
//! | 1,024  | 19         | 50        |
//! | 65,536 | 1,500 to 1,700 | 3,330 |

#![allow(unsafe_code)] // the bytes that were copied become initialised bytes of a vector

use crate::sync::{AtomicU64, Ordering};
use std::mem::MaybeUninit;

/// Bytes of a word.
const WORD: usize = 8;
/// Words of a block: the compiler unrolls the loop over a block, but not the loop over all words.
const BLOCK: usize = 8;

/// Copies `bytes` into the words, from byte number `start` on.
///
/// # Panics
/// When the words end before.
pub(crate) fn copy_in(words: &[AtomicU64], start: usize, bytes: &[u8]) {
    let (first_word, skip) = (start / WORD, start % WORD);
    let (head, bytes) = bytes.split_at(if skip == 0 { 0 } else { bytes.len().min(WORD - skip) });
    let mut words = &words[first_word..];
    if !head.is_empty() {
        store_part(&words[0], skip, head);
        words = &words[1..];
    }
    let (whole, rest) = words.split_at(bytes.len() / WORD);
    let (bytes, tail) = bytes.split_at(whole.len() * WORD);
    let store = |word: &AtomicU64, chunk: &[u8]| {
        word.store(u64::from_ne_bytes(chunk.try_into().expect("8 bytes")), Ordering::Relaxed);
    };
    let (mut blocks, mut of_bytes) = (whole.chunks_exact(BLOCK), bytes.chunks_exact(BLOCK * WORD));
    for (block, bytes) in (&mut blocks).zip(&mut of_bytes) {
        for (word, chunk) in block.iter().zip(bytes.chunks_exact(WORD)) {
            store(word, chunk);
        }
    }
    for (word, chunk) in blocks.remainder().iter().zip(of_bytes.remainder().chunks_exact(WORD)) {
        store(word, chunk);
    }
    if !tail.is_empty() {
        store_part(&rest[0], 0, tail);
    }
}

/// Appends `len` bytes of the words, from byte number `start` on, to `out`.
///
/// # Panics
/// When the words end before.
pub(crate) fn append(words: &[AtomicU64], start: usize, len: usize, out: &mut Vec<u8>) {
    out.reserve(len);
    copy_out(words, start, &mut out.spare_capacity_mut()[..len]);
    // SAFETY: `reserve` made room, and `copy_out` has initialised these `len` bytes.
    unsafe { out.set_len(out.len() + len) };
}

/// Fills `out` from the words, from byte number `start` on.
///
/// # Panics
/// When the words end before.
pub(crate) fn fill(words: &[AtomicU64], start: usize, out: &mut [u8]) {
    // SAFETY: the same memory, as bytes that may be uninitialised; `copy_out` writes initialised bytes only.
    let out = unsafe { &mut *(std::ptr::from_mut(out) as *mut [MaybeUninit<u8>]) };
    copy_out(words, start, out);
}

/// Fills `out` from the words; all of `out` is initialised then.
fn copy_out(words: &[AtomicU64], start: usize, out: &mut [MaybeUninit<u8>]) {
    let (first_word, skip) = (start / WORD, start % WORD);
    let len = out.len();
    let (head, out) = out.split_at_mut(if skip == 0 { 0 } else { len.min(WORD - skip) });
    let mut words = &words[first_word..];
    if !head.is_empty() {
        load_part(&words[0], skip, head);
        words = &words[1..];
    }
    let (whole, rest) = words.split_at(out.len() / WORD);
    let (out, tail) = out.split_at_mut(whole.len() * WORD);
    let load = |word: &AtomicU64, chunk: &mut [MaybeUninit<u8>]| {
        // SAFETY: the chunk has the 8 bytes of a word. The compiler would not join 8 stores of a byte.
        unsafe { chunk.as_mut_ptr().cast::<u64>().write_unaligned(word.load(Ordering::Relaxed)) };
    };
    let (mut blocks, mut of_bytes) = (whole.chunks_exact(BLOCK), out.chunks_exact_mut(BLOCK * WORD));
    for (block, bytes) in (&mut blocks).zip(&mut of_bytes) {
        for (word, chunk) in block.iter().zip(bytes.chunks_exact_mut(WORD)) {
            load(word, chunk);
        }
    }
    for (word, chunk) in blocks.remainder().iter().zip(of_bytes.into_remainder().chunks_exact_mut(WORD)) {
        load(word, chunk);
    }
    if !tail.is_empty() {
        load_part(&rest[0], 0, tail);
    }
}

fn store_part(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let mut whole = word.load(Ordering::Relaxed).to_ne_bytes();
    whole[skip..].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
}

fn load_part(word: &AtomicU64, skip: usize, out: &mut [MaybeUninit<u8>]) {
    let whole = word.load(Ordering::Relaxed).to_ne_bytes();
    out.iter_mut().zip(&whole[skip..]).for_each(|(to, from)| {
        to.write(*from);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count as u64).map(|n| AtomicU64::new(n.wrapping_mul(0x0101_0101_0101_0101) ^ u64::MAX)).collect()
    }

    fn bytes_of(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    fn read(words: &[AtomicU64], start: usize, len: usize) -> Vec<u8> {
        let (mut appended, mut filled) = (vec![9], vec![0; len]);
        append(words, start, len, &mut appended);
        fill(words, start, &mut filled);
        assert_eq!(appended[..1], [9]);
        filled
    }

    #[test]
    fn a_copy_changes_its_own_bytes_only() {
        let step = if cfg!(miri) { 5 } else { 1 };
        for start in (0..20).step_by(step) {
            for len in (0..=(40 - start)).step_by(step) {
                let words = words(5);
                let mut expected = bytes_of(&words);
                assert_eq!(read(&words, start, len), expected[start..start + len], "{len} bytes at {start}");
                let bytes: Vec<u8> = (0..len as u8).collect();
                copy_in(&words, start, &bytes);
                expected[start..start + len].copy_from_slice(&bytes);
                assert_eq!(bytes_of(&words), expected, "{len} bytes at {start}");
            }
        }
    }

    #[test]
    fn a_racing_writer_leaves_a_mixture_of_words() {
        let words = words(64);
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    words
                        .iter()
                        .for_each(|word| word.store(u64::from(round as u8) * 0x0101_0101_0101_0101, Ordering::Relaxed));
                }
            });
            for _ in 0..rounds {
                let bytes = read(&words, 0, 64 * WORD);
                assert!(bytes.chunks(WORD).all(|word| word.iter().all(|byte| *byte == word[0])));
                copy_in(&words, 13, &[7; 100][..50]);
                words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            }
        });
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn words_that_end_before_the_bytes_panic() {
        copy_in(&words(2), 9, &[0; 8]);
    }
}
