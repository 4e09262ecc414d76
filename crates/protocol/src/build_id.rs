//! The build id: two executables with the same id agree on the layout of a channel, the states of a slot, the format of
//! what a slot carries, and the messages of the control sockets.
//!
//! howdah and howdah-php8.2 are two files, and an update or a build may leave them at two versions. Without the id they
//! would read each other's memory wrongly, and no error would report it.

/// The id of this executable: howdah's version, and a hash of the shared sources.
pub const BUILD_ID: &str = {
    match std::str::from_utf8(&TEXT) {
        Ok(text) => text,
        Err(_) => panic!("the version is ASCII"),
    }
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const DIGITS: usize = 16;
const LEN: usize = VERSION.len() + 1 + DIGITS;
const TEXT: [u8; LEN] = text();

/// The sources that both executables must agree on. Code of one end only is not hashed.
const SOURCES: [&str; 20] = [
    include_str!("messages/confinement.rs"),
    include_str!("sockets/control_socket.rs"),
    include_str!("child/identity.rs"),
    include_str!("child/inherited.rs"),
    include_str!("messages/process_end.rs"),
    include_str!("messages/prototype.rs"),
    include_str!("../../channel/src/worker_record/account.rs"),
    include_str!("../../channel/src/lock_free/idle.rs"),
    include_str!("../../channel/src/memory/layout.rs"),
    include_str!("../../channel/src/lock_free/mailbox.rs"),
    include_str!("../../channel/src/memory/mapping.rs"),
    include_str!("../../channel/src/content/request.rs"),
    include_str!("../../channel/src/content/response.rs"),
    include_str!("../../channel/src/memory/ring.rs"),
    include_str!("../../channel/src/worker_record/sampling.rs"),
    include_str!("../../channel/src/slot_state.rs"),
    include_str!("../../channel/src/lock_free/submission.rs"),
    include_str!("../../channel/src/memory/word_copy.rs"),
    include_str!("../../channel/src/view.rs"),
    include_str!("../../channel/src/worker_record/recycle.rs"),
];

/// `0.1.0-1f2e3d4c5b6a7988`
const fn text() -> [u8; LEN] {
    let mut text = [b'-'; LEN];
    let mut at = 0;
    while at < VERSION.len() {
        text[at] = VERSION.as_bytes()[at];
        at += 1;
    }
    let hash = hash();
    let mut digit = 0;
    while digit < DIGITS {
        text[VERSION.len() + 1 + digit] = b"0123456789abcdef"[(hash >> (60 - 4 * digit) & 0xf) as usize];
        digit += 1;
    }
    text
}

/// FNV-1a: no attacker chooses the sources.
const fn hash() -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut source = 0;
    while source < SOURCES.len() {
        let bytes = SOURCES[source].as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        source += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_version_and_a_hash() {
        let (version, hash) = BUILD_ID.split_once('-').unwrap();
        assert_eq!(version, VERSION);
        assert!(hash.len() == DIGITS && hash.bytes().all(|digit| digit.is_ascii_hexdigit()), "{hash}");
    }
}
