//! A new file below `stacks/` must be embedded, too: `include_dir!` alone notices only changes of known files.

fn main() {
    println!("cargo:rerun-if-changed=stacks");
}
