//! Puts the report's page together: the template, the texts, the charts' data, the style and the script.
//!
//! Text of an application, of a server or of lab.json appears as text: the template escapes it, the data is JSON in a
//! script element in which no `<` appears, and the page's security policy runs no other script than the report's own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The style of all pages.
const STYLE: &str = include_str!("assets/report.css");
/// The script of the report, from three parts: each is readable alone.
const SCRIPT: &str = concat!(
    "'use strict';\n(() => {\n",
    include_str!("assets/figures.js"),
    include_str!("assets/chart.js"),
    include_str!("assets/charts.js"),
    include_str!("assets/page.js"),
    "})();\n"
);
const TEMPLATES: [(&str, &str); 3] = [
    ("frame.html", include_str!("assets/frame.html")),
    ("report.html", include_str!("assets/report.html")),
    ("comparison.html", include_str!("assets/comparison.html")),
];

/// A page of its own: no other file and no network is needed to read it.
///
/// # Errors
/// The template does not fit to the values, or a value is not a number that JSON has. Both are bugs.
pub fn page(template: &str, values: &impl Serialize, chart_data: Option<&impl Serialize>) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_filter("tied", tied);
    for (name, text) in TEMPLATES {
        environment.add_template(name, text).map_err(|error| format!("report: {error:#}"))?;
    }
    let data = chart_data.map(json_for_a_script).transpose()?;
    let script = data.as_ref().map(|_| SCRIPT);
    let policy = format!(
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src '{}'; script-src {}",
        digest(STYLE),
        script.map_or("'none'".to_owned(), |script| format!("'{}'", digest(script)))
    );
    let context = minijinja::context! {
        policy,
        style => Value::from_safe_string(STYLE.to_owned()),
        script => script.map(|script| Value::from_safe_string(script.to_owned())),
        data => data.map(Value::from_safe_string),
        ..Value::from_serialize(values)
    };
    let template = environment.get_template(template).map_err(|error| format!("report: {error:#}"))?;
    template.render(context).map_err(|error| format!("report: {error:#}"))
}

/// A sentence in which no line ends between a number and its unit.
fn tied(sentence: String) -> String {
    let mut tied = String::with_capacity(sentence.len());
    for part in sentence.split_inclusive(' ') {
        match part.strip_suffix(' ') {
            Some(word) if word.ends_with(|last: char| last.is_ascii_digit()) => {
                tied.push_str(word);
                tied.push('\u{a0}');
            }
            _ => tied.push_str(part),
        }
    }
    tied
}

/// JSON without `<`, `>` and `&`, so that no text in it can end its script element or begin a comment.
fn json_for_a_script(data: &impl Serialize) -> Result<String, String> {
    let json = serde_json::to_string(data).map_err(|error| format!("report: {error}"))?;
    Ok(json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

/// The source expression of a security policy that allows this text.
fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}
