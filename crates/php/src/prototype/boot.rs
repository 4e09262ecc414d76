//! The boot of a prototype, by the supervisor's boot message. PHP is started at its end.
//!
//! Each failure is a sentence for the operator, with the option that it concerns where there is one.

#![allow(unsafe_code)] // starts PHP, changes the environment

use super::{confine, ini, lock_folder, readable};
use crate::sapi;
use crate::worker::sampler::Sampling;
use crate::worker::stderr::Stderr;
use howdah_channel::WorkerChannel;
use howdah_protocol::child::parent_death::die_with_supervisor;
use howdah_protocol::messages::prototype::{BootDescriptors, PoolBoot, PrototypeBoot, WorkerScript};
use howdah_protocol::sockets::control_socket::ControlSocket;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::getppid;
use std::ffi::{CStr, CString, c_int};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The supervisor: this process and its workers die with it.
pub struct SupervisorProcess {
    /// Readable once the last of its threads is dead.
    pub pidfd: OwnedFd,
    /// Its process id as seen from here: zero from within a pid namespace.
    pub pid: c_int,
}

/// The result of a boot.
pub struct Loaded {
    /// The channel of each pool, and the script that its workers run.
    pub pools: Vec<WorkerPool>,
    pub sampling: Sampling,
    pub supervisor: SupervisorProcess,
    pub stderr: Stderr,
    pub opcache: bool,
}

/// Workers that share a channel.
pub struct WorkerPool {
    pub channel: WorkerChannel,
    pub script: Option<WorkerScript>,
}

/// Confines this process, becomes the application's user, and starts PHP.
///
/// # Errors
/// A sentence for the operator.
pub fn boot_php(boot: &PrototypeBoot, control: &ControlSocket, descriptors: BootDescriptors) -> Result<Loaded, String> {
    let BootDescriptors { stderr, profile, slow_log, channels, bells } = descriptors;
    let sampling = Sampling { profile, slow_log: slow_log.zip(boot.slow_log), has_limit: boot.timeout_ms.is_some() };
    let pools = attach(&boot.pools, &channels, &bells).map_err(|error| format!("cannot map a channel: {error}"))?;
    // The pidfd before the change of user: then the supervisor may belong to another user.
    let parent = rustix::process::getppid().ok_or("the supervisor is gone")?;
    let pidfd = rustix::process::pidfd_open(parent, rustix::process::PidfdFlags::empty())
        .map_err(|error| format!("cannot watch the supervisor: {error}"))?;
    // This also checks that the pidfd is the supervisor's, and not of a process that adopted this one.
    die_with_supervisor(control).map_err(|error| format!("cannot watch the supervisor: {error}"))?;
    confine::enter(boot, control)?;
    match &boot.confinement {
        Some(confinement) => boot.identity.assume_with(&confinement.groups),
        None => boot.identity.assume(boot.user.as_deref(), None),
    }
    .map_err(|error| format!("cannot become the application's user: {error}"))?;
    confine::finish(boot)?;
    // The change of user has cleared the death signal, and so has a fork.
    confine::die_with(&pidfd).map_err(|error| format!("cannot watch the supervisor: {error}"))?;
    let supervisor = SupervisorProcess { pidfd, pid: getppid().as_raw() };
    if let Some(folder) = &boot.working_directory {
        std::env::set_current_dir(folder).map_err(|error| {
            format!("applications/{}/working_directory: cannot enter {}: {error}", boot.application, folder.display())
        })?;
    }
    if let Some(most) = boot.descriptors {
        getrlimit(Resource::RLIMIT_NOFILE)
            .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, most.min(hard), hard))
            .map_err(|error| format!("cannot set the limit of descriptors: {error}"))?;
    }
    let rootfs = boot.confinement.as_ref().and_then(|confinement| confinement.rootfs.as_ref());
    readable::check(&boot.required_paths, rootfs.map(|rootfs| rootfs.path.as_path()))?;
    for name in &boot.loader_variables {
        // SAFETY: the process has one thread.
        unsafe { std::env::remove_var(name) };
    }
    let opcache = start_php(boot)?;
    // Until now the supervisor has read standard error, for its answer about the start.
    let stderr = Stderr::begin(stderr);
    let stderr = stderr.map_err(|error| format!("cannot set standard error: {error}"))?;
    Ok(Loaded { pools, sampling, supervisor, stderr, opcache })
}

/// Attaches to the channels. The pools share the eventfds of the router's threads.
fn attach(pools: &[PoolBoot], channels: &[OwnedFd], bells: &[OwnedFd]) -> io::Result<Vec<WorkerPool>> {
    let attach = |(pool, memory): (&PoolBoot, &OwnedFd)| {
        let bells = bells.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?;
        let channel = WorkerChannel::attach(memory, pool.geometry, bells)?;
        Ok(WorkerPool { channel, script: pool.worker_script.clone() })
    };
    pools.iter().zip(channels).map(attach).collect()
}

/// Starts PHP; returns whether opcache is on.
fn start_php(boot: &PrototypeBoot) -> Result<bool, String> {
    let ini_file = boot.php_ini.as_ref().map(|path| {
        std::fs::metadata(path)
            .map_err(|error| format!("applications/{}/options/file: {}: {error}", boot.application, path.display()))?;
        Ok::<_, String>(c_string(&path.to_string_lossy()))
    });
    let ini_file = ini_file.transpose()?;
    let settings = || boot.user_values.iter().chain(&boot.admin_values);
    let entries = c_string(&ini::entries(settings()));
    let software = c_string(&boot.server_software);
    let (lock_folder, lock_folder_problem) = match lock_folder::choose(&boot.application) {
        Ok(folder) => (c_string(folder).into_raw().cast_const(), std::ptr::null()),
        Err(problem) => (std::ptr::null(), c_string(&problem).into_raw().cast_const()),
    };
    // PHP keeps the pointers.
    let entries: &'static CStr = Box::leak(entries.into_boxed_c_str());
    // SAFETY: PHP is started once, on the only thread; the strings are leaked.
    let started = unsafe {
        sapi::howdah_lock_folder_set(lock_folder, lock_folder_problem);
        // With several scripts none is in async mode.
        if let Some(script) = boot.pools.iter().find_map(|pool| pool.worker_script.as_ref()) {
            sapi::howdah_php_enable_worker_script(script.concurrency.is_some().into());
        }
        sapi::howdah_php_startup(
            ini_file.map_or(std::ptr::null(), |path| path.into_raw().cast_const()),
            entries.as_ptr(),
            software.into_raw(),
        )
    };
    if started == 0 {
        return Err("PHP does not start; see its messages on stderr".into());
    }
    // SAFETY: PHP is started; the text is a C string.
    if unsafe { sapi::howdah_php_count_settings(entries.as_ptr()) } != settings().count() as c_int {
        return Err(format!(
            "applications/{}/options: PHP cannot read all of \"admin\" and \"user\"; correct their names and values",
            boot.application
        ));
    }
    for name in boot.admin_values.keys() {
        // SAFETY: PHP is started; the name is a C string.
        unsafe { sapi::howdah_php_lock_setting(c_string(name).as_ptr()) };
    }
    boot.written.iter().try_for_each(|file| compile(file))?;
    // SAFETY: PHP is started, no request runs.
    Ok(unsafe { sapi::howdah_php_opcache_is_on() != 0 })
}

/// Checks that PHP can compile a script that was written. One that was removed meanwhile is not missed.
fn compile(file: &Path) -> Result<(), String> {
    if !file.is_file() {
        return Ok(());
    }
    let mut reason = [0u8; 512];
    let path = c_string(&file.to_string_lossy());
    // SAFETY: PHP is started, no request runs; C writes at most the length of `reason`, with a NUL.
    let compiles = unsafe { sapi::howdah_php_compiles(path.as_ptr(), reason.as_mut_ptr().cast(), reason.len()) };
    if compiles != 0 {
        return Ok(());
    }
    let reason = CStr::from_bytes_until_nul(&reason).unwrap_or_default().to_string_lossy();
    let reason = reason.lines().next().unwrap_or("see its log");
    Err(format!("PHP cannot compile {}: {reason}", file.display()))
}

/// The text as a C string, without NULs.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).expect("the NULs were just removed")
}
