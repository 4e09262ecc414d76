//! The executable of the tests (`scripts/ci-cargo` sets the variable) is linked to a fixed address. It is started tens of
//! thousands of times, and without optimization it has 190,000 relocations, which take longer than the rest of its start.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=HOWDAH_FIXED_ADDRESS");
    if std::env::var_os("HOWDAH_FIXED_ADDRESS").is_some() {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
