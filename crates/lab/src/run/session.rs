//! The lab's own folders, removed at its end, and the conditions that are the same for all stacks.

use crate::plan::Plan;
use crate::plan::StackPlan;
use crate::stacks::Conditions;
use crate::stacks::php::{IniSources, PhpIni};
use crate::stacks::template::Renderer;
use crate::stacks::user_files::{last_lines, make_file_for_user, open_to_user};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A lab's session.
#[derive(Debug)]
pub struct Session {
    folder: TempDir,
    /// Removed with the session.
    shm: TempDir,
    /// The conditions of all stacks.
    pub conditions: Conditions,
    ini: IniSources,
    starts: Cell<u32>,
}

/// The place of one start of a stack.
#[derive(Clone, Debug)]
pub struct Place {
    /// A folder of its own; it does not exist yet.
    pub folder: PathBuf,
    /// Its php.ini.
    pub php_ini: PhpIni,
    /// The folder that PHP reports to.
    pub facts: Option<PathBuf>,
}

const READABLE: u32 = 0o755;

// === impl Session ===

impl Session {
    /// Makes the folders. `somaxconn` and `open_files` are limits of the machine; `services` renders templates that use
    /// the ports of services.
    ///
    /// # Errors
    /// A folder cannot be made, or a template is wrong.
    pub fn new(plan: &Plan, somaxconn: u32, open_files: u64) -> Result<Session, String> {
        let make = |parent: &Path| {
            let folder = tempfile::Builder::new().prefix("howdah-lab-").tempdir_in(parent);
            let folder = folder.map_err(|error| crate::reason::at(parent, &error))?;
            set_mode(folder.path(), READABLE)?;
            Ok::<_, String>(folder)
        };
        let folder = make(&std::env::temp_dir())?;
        let shm = Path::new("/dev/shm");
        let shm = make(if shm.is_dir() { shm } else { folder.path() })?;
        // FPM binds there before it changes its user; a server that is started as PHP's user must write, too. Other users
        // must not: a link or a socket of theirs would get what the lab's servers write.
        give(shm.path(), plan.application.user.as_deref())?;
        let error_log = folder.path().join("php-error.log");
        // The lab prints the end of it: other users write nothing there.
        make_file_for_user(&error_log, plan.application.user.as_deref())
            .map_err(|error| crate::reason::at(&error_log, &error))?;
        let application = &plan.application;
        let conditions = Conditions {
            root: application.root.clone(),
            front_controller: application.front_controller.clone(),
            php: application.php.clone(),
            scan_dir: application.ini.scan_dir.clone(),
            user: application.user.clone(),
            somaxconn,
            open_files,
            shm: shm.path().to_owned(),
            cores: plan.stack_cores.clone(),
        };
        Ok(Session { folder, shm, conditions, ini: application.ini.clone(), starts: Cell::new(0) })
    }

    /// The session's folder in /tmp.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A place for the next start of a stack. With `has_facts`, PHP reports about itself.
    ///
    /// # Errors
    /// A file cannot be written, or a template of a setting is wrong.
    pub fn place(&self, stack: &StackPlan, services: &Renderer, has_facts: bool) -> Result<Place, String> {
        self.starts.set(self.starts.get() + 1);
        let name = format!("{}-{}", stack.name, self.starts.get());
        let facts = has_facts.then(|| self.folder.path().join(format!("{name}-facts")));
        if let Some(facts) = &facts {
            fs::create_dir(facts).map_err(|error| crate::reason::at(facts, &error))?;
            give(facts, self.conditions.user.as_deref())?;
        }
        let mut ini = self.ini.clone();
        ini.settings.extend(stack.ini.clone());
        for value in ini.settings.values_mut() {
            *value = services.render(value)?;
        }
        let path = self.folder.path().join(format!("{name}-php.ini"));
        let php_ini = ini.write(&path, &self.folder.path().join("php-error.log"), facts.as_deref())?;
        Ok(Place { folder: self.folder.path().join(name), php_ini, facts })
    }

    /// The end of PHP's error log.
    pub fn php_errors(&self) -> Vec<String> {
        last_lines(&self.folder.path().join("php-error.log"), 5)
    }

    /// The session's folder in /dev/shm.
    pub fn shm(&self) -> &Path {
        self.shm.path()
    }
}

fn give(path: &Path, user: Option<&str>) -> Result<(), String> {
    open_to_user(path, user).map_err(|error| crate::reason::at(path, &error))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, permissions).map_err(|error| crate::reason::at(path, &error))
}
