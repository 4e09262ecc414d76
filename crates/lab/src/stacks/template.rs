//! The language of templates: Jinja (the crate minijinja). An unknown variable is an error.
//!
//! | variable | value |
//! |---|---|
//! | `folder`, `shm` | the stack's own folder in /tmp, and one in /dev/shm |
//! | `port`, `free_port(name)` | the port of the race; a free port for a purpose: the same name, the same port |
//! | `root`, `front_controller` | the document root; the script below it for all other URLs, or an empty text |
//! | `script`, `script_path` | the stack's script, as lab.json names it, and its path; empty without one |
//! | `workers` | the number of PHP processes |
//! | `php`, `php_ini`, `scan_dir` | PHP's version (`8.2`), the php.ini, the folder of its further files |
//! | `user`, `group` | PHP's user if the lab runs as root; else empty |
//! | `environment` | the application's environment |
//! | `programs.NAME`, `settings.NAME`, `variables.NAME` | paths of programs, settings, variables of the lab's environment |
//! | `somaxconn`, `open_files` | limits of the machine |

use minijinja::{Environment, UndefinedBehavior, Value, context};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// Renders templates with one set of variables.
#[derive(Debug)]
pub struct Renderer {
    environment: Environment<'static>,
    variables: Value,
}

// === impl Renderer ===

impl Renderer {
    /// A renderer with these variables, and the function `free_port`.
    pub fn new(variables: Value) -> Renderer {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_keep_trailing_newline(true);
        let ports = Arc::new(Mutex::new(BTreeMap::new()));
        environment.add_function("free_port", move |name: String| {
            let mut ports = ports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *ports.entry(name).or_insert_with(|| free_port().unwrap_or(0))
        });
        Renderer { environment, variables }
    }

    /// The text with its variables replaced.
    ///
    /// # Errors
    /// A mistake in the template; the message names the line.
    pub fn render(&self, text: &str) -> Result<String, String> {
        self.environment.render_str(text, &self.variables).map_err(|error| error.to_string())
    }

    /// The words of a command, without those that became empty.
    ///
    /// # Errors
    /// A mistake in a template.
    pub fn words(&self, words: &[String]) -> Result<Vec<String>, String> {
        let rendered: Result<Vec<_>, _> = words.iter().map(|word| self.render(word)).collect();
        Ok(rendered?.into_iter().filter(|word| !word.is_empty()).collect())
    }
}

/// A free port of 127.0.0.1.
///
/// # Errors
/// All ports are in use.
pub fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"))?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// A renderer for manifests before a start: of names of programs and instructions.
pub fn of_php(php: &str, programs: &BTreeMap<String, String>, variables: &BTreeMap<String, String>) -> Renderer {
    Renderer::new(context! { php, programs, variables })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_and_empty_words_left_out() {
        let renderer = of_php("8.2", &BTreeMap::from([("php".into(), "/usr/bin/php".into())]), &BTreeMap::new());
        let words = ["{{ programs.php }}", "{% if php == '7' %}-x{% endif %}", "php{{ php }}"].map(str::to_owned);
        assert_eq!(renderer.words(&words).unwrap(), ["/usr/bin/php", "php8.2"]);
        assert!(renderer.render("{{ prot }}").unwrap_err().contains("undefined"));
    }

    #[test]
    fn the_same_name_is_the_same_port() {
        let renderer = Renderer::new(context! {});
        let ports = renderer.render("{{ free_port('a') }} {{ free_port('b') }} {{ free_port('a') }}").unwrap();
        let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().unwrap()).collect();
        assert!(ports[0] == ports[2] && ports[0] != ports[1] && ports[0] > 0, "{ports:?}");
    }
}
