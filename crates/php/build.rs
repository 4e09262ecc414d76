//! Compiles the SAPI against one PHP version and links that version's libphp.
//!
//! `HOWDAH_PHP_CONFIG` names the php-config (default: `php-config`). `HOWDAH_SANITIZE` names a folder for reports: then the C is
//! built with AddressSanitizer and UndefinedBehaviorSanitizer (`make sanitize`).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The build with sanitizers only.
const SANITIZE: &str = "sapi/sanitize.c";

fn main() {
    println!("cargo::rerun-if-env-changed=HOWDAH_PHP_CONFIG");
    println!("cargo::rerun-if-env-changed=HOWDAH_SANITIZE");
    println!("cargo::rerun-if-changed=sapi");
    let php_config = env::var("HOWDAH_PHP_CONFIG").unwrap_or_else(|_| "php-config".into());
    let ask = |option: &str| {
        let output = Command::new(&php_config).arg(option).output().unwrap_or_else(|error| {
            panic!("cannot run {php_config}: {error}; install php-dev, or name it with HOWDAH_PHP_CONFIG")
        });
        String::from_utf8(output.stdout).expect("php-config prints text").trim().to_owned()
    };
    let version = ask("--version");
    let short: String = version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");

    let mut build = cc::Build::new();
    for file in c_files(Path::new("sapi")) {
        build.file(file);
    }
    // The files include each other by their paths below sapi/.
    build.flag("-iquotesapi");
    if let Ok(reports) = env::var("HOWDAH_SANITIZE") {
        const SANITIZERS: &str = "-fsanitize=address,undefined";
        build.file(SANITIZE).define("HOWDAH_SANITIZE_REPORTS", format!("{reports:?}").as_str());
        // A report ends the process, so that the test fails, too.
        build.flag(SANITIZERS).flag("-fno-sanitize-recover=all").flag("-fno-omit-frame-pointer").flag("-g");
        // No object refers to the functions of sanitize.c: the linker would leave it out of the executable.
        build.link_lib_modifier("+whole-archive");
    }
    build.warnings_into_errors(true).extra_warnings(true);
    // php_config.h defines it too, but too late for the C library's headers that were included before.
    build.define("_GNU_SOURCE", None);
    // PHP's own headers are not clean under -Wextra.
    for include in ask("--includes").split_whitespace().filter_map(|flag| flag.strip_prefix("-I")) {
        build.flag("-isystem").flag(include);
    }
    build.flag("-std=gnu11").compile("howdah_sapi");

    if env::var_os("HOWDAH_SANITIZE").is_some() {
        // rustc links without the compiler's default libraries. The sanitizers must be loaded before libphp.
        println!("cargo::rustc-link-lib=dylib=asan");
        println!("cargo::rustc-link-lib=dylib=ubsan");
    }
    println!("cargo::rustc-link-search=native={}/lib", ask("--prefix"));
    println!("cargo::rustc-link-lib=dylib=php{short}");
    // PHP's extensions are shared objects that expect PHP's symbols in the process: libphp exports them.
    println!("cargo::rustc-env=HOWDAH_PHP_SHORT_VERSION={short}");
}

/// All C files of a folder and the folders in it, in a fixed order, but [`SANITIZE`].
fn c_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let mut paths: Vec<_> =
        entries.map(|entry| entry.expect("a folder of this repository can be read").path()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(c_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "c") && path != Path::new(SANITIZE) {
            files.push(path);
        }
    }
    files
}
