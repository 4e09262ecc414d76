//! A buffer for bytes whose reader is slow: in memory, and beyond a limit in an unlinked temporary file.
//!
//! A response is taken out of its slot as fast as PHP writes it, so that a slow client never holds a worker. When the
//! spool is full ([`Spool::has_room`]), the slot is not read, and PHP waits for the client. Disk space is freed while the
//! file is read, and the file is closed when all of it has been read.
//!
//! All spools together have a limit of memory, too: many clients that read nothing of large responses must not take all
//! memory. Beyond it, spools go to their files as soon as they are not small. Bytes that were taken count until they are dropped.
//! A spool has no more than an eighth of what is free, so that it is the large ones that go to their files when there is little: many slow
//! clients leave memory for the responses of others.
//!
//! Nor may one client take the disk: if the writer can wait, a file has room for no more than an eighth of what is free on its file
//! system, and for none of the last part, which is left to bodies of requests. The free space is looked at each time that a
//! file, or all files together, have grown by a mebibyte, and by each spool that has more than a file was allowed at the last
//! look of any: many that grow at the same time take that last part no more than one that grows alone.
//!
//! Writes go to the page cache. When the disk is full, or has only that last part, a spool without a file keeps its bytes in
//! memory, and has no more room until its client has taken them; if the file of another one cannot be written, the push fails, and
//! so does the response.

use crate::resources::counted_memory::CountedMemory;
use crate::resources::disk_space::{DiskSpace, LOOK_BYTES, is_time_to_look};
use bytes::Bytes;
use howdah_channel::RESPONSE_RING_BYTES;
use rustix::fs::{FallocateFlags, fallocate};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A queue of bytes.
#[derive(Debug)]
pub struct Spool {
    memory: Vec<u8>,
    /// The memory, as all spools together count it.
    counted: CountedMemory,
    all: &'static AllSpools,
    limits: SpoolLimits,
    file: Option<Overflow>,
    folder: Option<PathBuf>,
    /// Whether no file could be made or written. Then the writer waits for the reader.
    has_no_disk: bool,
}

/// The limits of a spool, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct SpoolLimits {
    /// In memory: more bytes go to a file.
    pub memory: usize,
    /// In memory and on the disk: more bytes have no room.
    pub total: u64,
    /// Whether the writer can wait for the reader: then a file has no more than its part of the disk.
    pub writer_waits: bool,
}

/// Shared by spools.
#[derive(Debug)]
struct AllSpools {
    /// Their memory, in bytes.
    memory: AtomicUsize,
    /// The bytes that they have written to files.
    written: AtomicU64,
    /// How many bytes a file may have, by the last look of any spool at the free space. Another file system, after a change
    /// of the configuration, costs more looks.
    part_of_disk: AtomicU64,
}

/// A file: `freed` ≤ `read` ≤ `written`, as offsets.
#[derive(Debug)]
struct Overflow {
    file: File,
    written: u64,
    read: u64,
    /// The disk space before this offset was freed.
    freed: u64,
    /// Whether the file system can free a part of the file.
    can_free: bool,
    /// Whether the file has its part of the file system, by its last look.
    has_its_part: Cell<bool>,
}

/// All spools of the process.
static ALL: AllSpools = AllSpools::new();
/// The most memory of all spools, in bytes: 512 large responses whose clients are slow.
const MOST_OF_ALL: usize = 256 * 1024 * 1024;
/// A spool takes this part of the free memory, and of the free disk space, at most.
const PART_OF_FREE: usize = 8;
/// A smaller spool is not counted, and always in memory.
const SMALL: usize = 16 * 1024;
/// The limit for one [`Spool::take`] from the file, in bytes.
const PORTION: usize = 128 * 1024;
/// The most bytes that a writer that waits pushes at a time.
const LONGEST_PUSH: usize = RESPONSE_RING_BYTES;
/// How many bytes are read from the file before their disk space is freed.
const FREE_BYTES: u64 = 8 * 1024 * 1024;

// === impl SpoolLimits ===

impl SpoolLimits {
    /// The limits of a response; the total is what nginx allows (proxy_max_temp_file_size).
    pub const RESPONSE: SpoolLimits = SpoolLimits { memory: 512 * 1024, total: 1 << 30, writer_waits: true };
}

// === impl Spool ===

impl Spool {
    /// An empty spool. Its file will be in `folder`.
    pub fn new(limits: SpoolLimits, folder: Option<&Path>) -> Spool {
        Spool::sharing(&ALL, limits, folder)
    }

    fn sharing(all: &'static AllSpools, limits: SpoolLimits, folder: Option<&Path>) -> Spool {
        Spool {
            memory: Vec::new(),
            counted: CountedMemory::none(&all.memory),
            all,
            limits,
            file: None,
            folder: folder.map(Path::to_owned),
            has_no_disk: false,
        }
    }

    /// How many bytes are in the spool.
    pub fn len(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, |overflow| overflow.written - overflow.read)
    }

    /// Whether all bytes are in memory: one [`Self::take`] returns them.
    pub fn is_in_memory(&self) -> bool {
        self.file.is_none()
    }

    /// Whether more bytes should be pushed. A push beyond the limit works: the caller waits if it can.
    pub fn has_room(&self) -> bool {
        if self.has_no_disk && !self.memory.is_empty() || self.is_at_limit() {
            return false;
        }
        !(self.limits.writer_waits && self.file.as_ref().is_some_and(|file| file.has_its_part(self.all)))
    }

    /// Whether it has as many bytes as its limits allow in any case.
    pub fn is_at_limit(&self) -> bool {
        let on_disk = self.file.as_ref().map_or(0, Overflow::on_disk);
        self.memory.len() as u64 + on_disk >= self.limits.total
    }

    /// Appends this number of bytes at most to the memory, if there is no file and they do not exceed a limit of memory. `None`:
    /// nothing was called.
    pub fn append<R>(&mut self, most: usize, append: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        if self.file.is_some() || self.memory.len() + most > self.limits.memory || !self.may_be_large(most) {
            return None;
        }
        let result = append(&mut self.memory);
        self.count();
        Some(result)
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When they do not fit into memory, and the file cannot be created or written.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let all = self.memory.len() + bytes.len();
        let fits = self.file.is_none() && all <= self.limits.memory;
        if !(fits && self.may_be_large(bytes.len())) {
            let may_wait = self.limits.writer_waits && self.file.is_none() && all <= self.limits.memory + LONGEST_PUSH;
            match self.write(bytes) {
                // The disk is full: that must not cost every response.
                Err(_) if fits || may_wait => (self.file, self.has_no_disk) = (None, true),
                written => return written,
            }
        }
        self.memory.extend_from_slice(bytes);
        self.count();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let overflow = match &mut self.file {
            Some(overflow) => overflow,
            None => {
                let overflow = Overflow::new(self.folder.as_deref())?;
                if self.limits.writer_waits && overflow.part_of_disk(self.all) == 0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.file.insert(overflow)
            }
        };
        overflow.file.write_all_at(bytes, overflow.written)?;
        let (length, before) = (bytes.len() as u64, overflow.written);
        overflow.written += length;
        let before_of_all = self.all.written.fetch_add(length, Ordering::Relaxed);
        if is_time_to_look(before, overflow.written) || is_time_to_look(before_of_all, before_of_all + length) {
            overflow.compare_with_free_space(self.all);
        }
        Ok(())
    }

    /// Takes the oldest bytes; empty when the spool is empty.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn take(&mut self) -> io::Result<Bytes> {
        if !self.memory.is_empty() {
            let counted = std::mem::replace(&mut self.counted, CountedMemory::none(&self.all.memory));
            return Ok(counted.with(std::mem::take(&mut self.memory)));
        }
        // Without memory of all, a client that reads nothing has no large portion either.
        let most = self.free_part().clamp(SMALL, PORTION);
        let Some(overflow) = &mut self.file else { return Ok(Bytes::new()) };
        let mut portion = vec![0; (overflow.written - overflow.read).min(most as u64) as usize];
        overflow.file.read_exact_at(&mut portion, overflow.read)?;
        overflow.read += portion.len() as u64;
        if overflow.read == overflow.written {
            self.file = None;
        } else {
            overflow.free();
            if overflow.has_its_part.get() {
                overflow.compare_with_free_space(self.all);
            }
        }
        Ok(CountedMemory::count(&self.all.memory, counted_length(portion.len())).with(portion))
    }

    /// Whether this number of bytes more may be in memory.
    fn may_be_large(&self, more: usize) -> bool {
        let bytes = self.memory.len() + more;
        bytes < SMALL || bytes <= self.free_part()
    }

    /// How much of the free memory one spool may take.
    fn free_part(&self) -> usize {
        MOST_OF_ALL.saturating_sub(self.all.memory.load(Ordering::Relaxed)) / PART_OF_FREE
    }

    fn count(&mut self) {
        self.counted.set(counted_length(self.memory.len()));
    }
}

/// Bytes that spools have given, put together. They count until they are dropped, as those of a spool: small ones do not,
/// whose account would cost each response two operations on a word that all threads share.
pub fn counted(bytes: Vec<u8>) -> Bytes {
    CountedMemory::count(&ALL.memory, counted_length(bytes.len())).with(bytes)
}

/// How many bytes a file may have on this file system.
fn part_of_disk(space: DiskSpace) -> u64 {
    space.free.saturating_sub(space.left_free()) / PART_OF_FREE as u64
}

fn counted_length(bytes: usize) -> usize {
    if bytes < SMALL { 0 } else { bytes }
}

// === impl AllSpools ===

impl AllSpools {
    const fn new() -> AllSpools {
        AllSpools { memory: AtomicUsize::new(0), written: AtomicU64::new(0), part_of_disk: AtomicU64::new(u64::MAX) }
    }
}

// === impl Overflow ===

impl Overflow {
    fn new(folder: Option<&Path>) -> io::Result<Overflow> {
        let file = match folder {
            Some(folder) => tempfile::tempfile_in(folder)?,
            None => tempfile::tempfile()?,
        };
        Ok(Overflow { file, written: 0, read: 0, freed: 0, can_free: true, has_its_part: Cell::new(false) })
    }

    /// How many bytes of the disk it takes.
    fn on_disk(&self) -> u64 {
        self.written - self.freed
    }

    /// Whether the file has its part of the file system. Without a look, unless another spool has seen too little.
    fn has_its_part(&self, all: &AllSpools) -> bool {
        if !self.has_its_part.get() && self.on_disk() > all.part_of_disk.load(Ordering::Relaxed) {
            self.compare_with_free_space(all);
        }
        self.has_its_part.get()
    }

    fn compare_with_free_space(&self, all: &AllSpools) {
        self.has_its_part.set(self.on_disk() > self.part_of_disk(all));
    }

    /// Looks how many bytes the file may have, and notes that for all spools.
    fn part_of_disk(&self, all: &AllSpools) -> u64 {
        let part = DiskSpace::of(&self.file).map_or(u64::MAX, part_of_disk);
        all.part_of_disk.store(part, Ordering::Relaxed);
        part
    }

    /// Frees the disk space of the bytes that have been read, if that is worth a system call. Some network file systems
    /// cannot: they free the space when the file is closed.
    fn free(&mut self) {
        let step = if self.has_its_part.get() { LOOK_BYTES } else { FREE_BYTES };
        if !self.can_free || self.read - self.freed < step {
            return;
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, self.freed, self.read - self.freed) {
            Ok(()) => self.freed = self.read,
            Err(_) => self.can_free = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn spool(memory: usize, total: u64) -> Spool {
        Spool::new(SpoolLimits { memory, total, writer_waits: true }, None)
    }

    #[test]
    fn bytes_keep_their_order_across_the_memory_limit() {
        let mut spool = spool(10, 1 << 30);
        let mut expected = Vec::new();
        let mut got = Vec::new();
        for round in 0..100u8 {
            let bytes = vec![round; usize::from(round) % 7];
            expected.extend_from_slice(&bytes);
            spool.push(&bytes).unwrap();
            if round % 9 == 0 {
                got.extend_from_slice(&spool.take().unwrap());
            }
        }
        while spool.len() > 0 {
            got.extend_from_slice(&spool.take().unwrap());
        }
        assert_eq!(got, expected);
        assert!(spool.take().unwrap().is_empty());
    }

    #[test]
    fn memory_is_used_again_when_the_file_has_been_read() {
        let mut spool = spool(4, 1 << 30);
        spool.push(b"123456").unwrap();
        assert!(spool.append(0, |_| ()).is_none());
        assert_eq!(spool.take().unwrap(), &b"123456"[..]);
        assert!(spool.append(0, |_| ()).is_some());
    }

    #[test]
    fn a_full_spool_has_room_again_as_it_is_read() {
        for can_free in [true, false] {
            let mut spool = spool(10, 4 * FREE_BYTES);
            let block = vec![7; 1 << 20];
            let mut pushed = 0;
            while spool.has_room() {
                spool.push(&block).unwrap();
                pushed += block.len() as u64;
            }
            assert_eq!(pushed, 4 * FREE_BYTES);
            spool.file.as_mut().unwrap().can_free = can_free;
            let mut read = 0;
            while !spool.has_room() {
                read += spool.take().unwrap().len() as u64;
            }
            // Without holes, the space is freed with the whole file.
            assert_eq!(read, if can_free { FREE_BYTES } else { pushed });
        }
    }

    #[test]
    fn a_client_that_never_catches_up_does_not_fill_the_disk() {
        let mut spool = spool(10, 4 * FREE_BYTES);
        let block = vec![7; 1 << 20];
        let mut largest = 0;
        for _ in 0..12 {
            while spool.has_room() {
                spool.push(&block).unwrap();
            }
            while !spool.has_room() {
                assert!(!spool.take().unwrap().is_empty());
            }
            let overflow = spool.file.as_ref().unwrap();
            if overflow.can_free {
                largest = largest.max(overflow.file.metadata().unwrap().blocks() * 512);
            }
        }
        assert!(largest <= 4 * FREE_BYTES + (1 << 20), "{largest}");
    }

    #[test]
    fn a_file_takes_a_part_of_the_free_disk() {
        const MIB: u64 = 1 << 20;
        // The size of the file system, what is free, and what a file may have.
        let table = [
            (160 * MIB, 160 * MIB, 150 * MIB / 8),
            (160 * MIB, 18 * MIB, MIB),
            (160 * MIB, 10 * MIB, 0),
            (160 * MIB, MIB, 0),
            (1 << 40, 256 * MIB, 0),
            (1 << 40, 8448 * MIB, 1024 * MIB),
        ];
        for (all, free, expected) in table {
            assert_eq!(part_of_disk(DiskSpace { free, all, of_a_file: 0 }), expected, "{free} of {all}");
        }
        let mut spool = spool(10, 1 << 30);
        spool.push(&[7; 100]).unwrap();
        assert!(spool.has_room());
        spool.file.as_ref().unwrap().has_its_part.set(true);
        assert!(!spool.has_room() && !spool.is_at_limit());
        spool.take().unwrap();
        assert!(spool.has_room());
    }

    #[test]
    fn a_spool_looks_when_another_one_has_seen_too_little() {
        static ALL: AllSpools = AllSpools::new();
        let spool = |writer_waits| {
            let limits = SpoolLimits { memory: 10, writer_waits, ..SpoolLimits::RESPONSE };
            let mut spool = Spool::sharing(&ALL, limits, None);
            spool.push(&[7; 100]).unwrap();
            spool
        };
        let looks = |spool: &Spool, part: u64| {
            ALL.part_of_disk.store(part, Ordering::Relaxed);
            assert!(spool.has_room(), "it is free again");
            ALL.part_of_disk.load(Ordering::Relaxed) != part
        };
        let (one, other) = (spool(true), spool(false));
        assert_eq!([looks(&one, 99), looks(&one, 100), looks(&other, 0)], [true, false, false]);
    }

    #[test]
    fn a_spool_looks_when_all_together_have_grown() {
        static ALL: AllSpools = AllSpools::new();
        let limits = SpoolLimits { memory: 0, ..SpoolLimits::RESPONSE };
        let block = vec![7; LOOK_BYTES as usize / 8];
        let mut spools: Vec<_> = (0..8).map(|_| Spool::sharing(&ALL, limits, None)).collect();
        let looks = spools.iter_mut().map(|spool| {
            spool.push(&block[..1]).unwrap();
            ALL.part_of_disk.store(u64::MAX, Ordering::Relaxed);
            spool.push(&block).unwrap();
            ALL.part_of_disk.load(Ordering::Relaxed) != u64::MAX
        });
        assert_eq!(looks.filter(|looked| *looked).count(), 1);
    }

    #[test]
    fn all_spools_together_have_a_limit_of_memory() {
        static ALL: AllSpools = AllSpools::new();
        const MEMORY: usize = 512 * 1024;
        let spool = || Spool::sharing(&ALL, SpoolLimits { memory: MEMORY, ..SpoolLimits::RESPONSE }, None);
        let large = vec![b'x'; MEMORY];
        // The last one has just enough.
        let others = MOST_OF_ALL - (PART_OF_FREE + 3) * MEMORY;
        ALL.memory.store(others, Ordering::Relaxed);
        let mut full: Vec<_> = (0..4).map(|_| spool()).collect();
        for (n, spool) in full.iter_mut().enumerate() {
            match n % 2 {
                0 => spool.push(&large).unwrap(),
                _ => spool.append(large.len(), |memory| memory.extend_from_slice(&large)).unwrap(),
            }
            assert!(spool.is_in_memory());
        }
        let mut usual = spool();
        usual.push(&large[..MEMORY / 2]).unwrap();
        assert!(usual.is_in_memory(), "there is memory for others");
        drop(usual);
        ALL.memory.fetch_add((PART_OF_FREE - 1) * MEMORY, Ordering::Relaxed);
        let mut one_more = spool();
        one_more.push(&large[..SMALL - 1]).unwrap();
        assert!(one_more.is_in_memory(), "small ones are");
        one_more.push(&large).unwrap();
        assert!(!one_more.is_in_memory() && spool().append(SMALL - 1, |_| ()).is_some());
        assert!(spool().append(SMALL, |_| ()).is_none());
        let taken: Vec<_> = full.iter_mut().map(|spool| spool.take().unwrap()).collect();
        assert_eq!(ALL.memory.load(Ordering::Relaxed), MOST_OF_ALL, "until their client has them");
        drop(taken);
        ALL.memory.fetch_sub((PART_OF_FREE - 1) * MEMORY, Ordering::Relaxed);
        assert_eq!(ALL.memory.load(Ordering::Relaxed), others);
        while one_more.len() > 0 {
            one_more.take().unwrap();
        }
        assert_eq!(ALL.memory.load(Ordering::Relaxed), others);
    }

    #[test]
    fn portions_of_the_file_are_small_without_memory_of_all() {
        static ALL: AllSpools = AllSpools::new();
        let mut spool = Spool::sharing(&ALL, SpoolLimits { memory: 0, ..SpoolLimits::RESPONSE }, None);
        spool.push(&vec![7; 2 * PORTION]).unwrap();
        assert_eq!(spool.take().unwrap().len(), PORTION);
        ALL.memory.store(MOST_OF_ALL, Ordering::Relaxed);
        assert_eq!(spool.take().unwrap().len(), SMALL);
        ALL.memory.store(0, Ordering::Relaxed);
        assert_eq!(spool.take().unwrap().len(), PORTION - SMALL);
    }

    #[test]
    fn without_memory_of_all_and_without_a_disk_the_writer_waits_for_the_reader() {
        static ALL: AllSpools = AllSpools { memory: AtomicUsize::new(MOST_OF_ALL), ..AllSpools::new() };
        let limits = SpoolLimits::RESPONSE;
        let mut spool = Spool::sharing(&ALL, limits, Some(Path::new("/nowhere")));
        let block = vec![7; 64 * 1024];
        for _ in 0..3 {
            assert!(spool.has_room());
            spool.push(&block).unwrap();
            assert!(spool.is_in_memory() && !spool.has_room());
            assert_eq!(spool.take().unwrap(), &block);
        }
        spool.push(&vec![7; limits.memory + LONGEST_PUSH]).unwrap();
        assert!(!spool.has_room(), "one push more than what fits");
        spool.push(&[7]).unwrap_err();
    }

    #[test]
    fn without_a_disk_there_is_memory_for_one_push_more_than_what_was_appended() {
        let limits = SpoolLimits::RESPONSE;
        let mut spool = Spool::new(limits, Some(Path::new("/nowhere")));
        let block = vec![7; LONGEST_PUSH];
        let mut appended = 0;
        while spool.append(LONGEST_PUSH, |memory| memory.extend_from_slice(&block[1..])).is_some() {
            appended += block.len() - 1;
        }
        while spool.has_room() {
            spool.push(&block).unwrap();
            appended += block.len();
        }
        assert!(appended > limits.memory && spool.is_in_memory());
        assert_eq!(spool.take().unwrap().len(), appended);
    }
}
