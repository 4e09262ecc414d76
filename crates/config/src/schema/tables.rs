//! The tables of docs/configuration.md, generated from the schema.
//!
//! Each object of the schema that has a `title` becomes a table, and so do the variables. On the page, a table is
//! between `<!-- table: TITLE -->` and `<!-- end of table -->`.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use crate::SCHEMA;
use crate::json::{self, JsonValue, print};

const BEGIN: &str = "<!-- table: ";
const END: &str = "<!-- end of table -->";
const VARIABLES: &str = "variables";

type Object = IndexMap<String, JsonValue>;

/// The schema, with its members in their order.
pub(super) struct Schema {
    root: JsonValue,
}

impl Schema {
    pub fn new() -> Self {
        Self { root: json::parse(SCHEMA).expect("schema.json is JSON") }
    }

    /// The page with each table generated again.
    ///
    /// # Panics
    ///
    /// When the page lacks a table, or has one that the schema does not know.
    pub fn rewrite(&self, page: &str) -> String {
        let mut missing: BTreeSet<&str> = self.objects().map(|object| text(object, "title")).collect();
        missing.insert(VARIABLES);
        let mut sections = page.split(BEGIN);
        let mut rewritten = sections.next().unwrap_or_default().to_owned();
        for section in sections {
            let (title, rest) = section.split_once(" -->").expect("the comment that begins a table ends");
            let (_, after) = rest.split_once(END).unwrap_or_else(|| panic!("table {title:?} ends with {END}"));
            assert!(missing.remove(title), "the schema has no object titled {title:?}, or the page has it twice");
            rewritten += &format!("{BEGIN}{title} -->\n{}{END}{after}", self.table(title));
        }
        assert!(missing.is_empty(), "docs/configuration.md lacks the tables {missing:?}; add {BEGIN}TITLE -->{END}");
        rewritten
    }

    /// The objects that become tables: the configuration itself, and the objects of `$defs` with a title.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        let root = object(&self.root);
        let definitions = object(&root["$defs"]).values().map(object);
        std::iter::once(root).chain(definitions).filter(|object| object.contains_key("title"))
    }

    fn table(&self, title: &str) -> String {
        if title == VARIABLES {
            return self.variables();
        }
        let object = self.objects().find(|object| text(object, "title") == title).expect("a title of the schema");
        let rows = self::object(&object["properties"]).iter().map(|(name, option)| {
            let option = self::object(option);
            let cells = [
                format!("`{name}`"),
                self.type_of(option),
                default_of(object, name, option),
                text(option, "description").to_owned(),
                unit_of(option),
            ];
            row(&cells)
        });
        let head = "| option | type | default | meaning | NGINX Unit |\n|---|---|---|---|---|\n";
        head.to_owned() + &rows.collect::<String>()
    }

    fn variables(&self) -> String {
        let variables = object(&self.definition("template")["x-variables"]);
        let rows = variables.iter().map(|(name, meaning)| row(&[format!("`{name}`"), string(meaning).to_owned()]));
        "| variable | value |\n|---|---|\n".to_owned() + &rows.collect::<String>()
    }

    /// The type in words: `x-type` of the option or of the definition to which it refers, or else a description of the
    /// schema's own keywords.
    fn type_of(&self, option: &Object) -> String {
        if let Some(words) = option.get("x-type") {
            return string(words).to_owned();
        }
        if let Some(reference) = option.get("$ref") {
            let name = string(reference).strip_prefix("#/$defs/").expect("references are local");
            return self.type_of(self.definition(name));
        }
        if option.contains_key("not") && !option.contains_key("type") {
            return "none".to_owned();
        }
        if let Some(JsonValue::Array(values)) = option.get("enum") {
            return values.iter().map(|value| format!("`{}`", print::compact(value))).collect::<Vec<_>>().join(", ");
        }
        match (text(option, "type"), option.get("minimum"), option.get("maximum")) {
            ("boolean", ..) => "true or false".to_owned(),
            (kind, Some(minimum), Some(maximum)) => {
                format!("{kind}, {} to {}", print::compact(minimum), print::compact(maximum))
            }
            (kind, Some(minimum), None) => format!("{kind}, from {}", print::compact(minimum)),
            ("object", ..) => match option.get("additionalProperties") {
                Some(JsonValue::Object(of)) => format!("object of {}s", self.type_of(of)),
                _ => "object".to_owned(),
            },
            (kind, ..) => kind.to_owned(),
        }
    }

    fn definition(&self, name: &str) -> &Object {
        let definitions = object(&object(&self.root)["$defs"]);
        object(definitions.get(name).unwrap_or_else(|| panic!("$defs/{name} exists")))
    }
}

fn default_of(parent: &Object, name: &str, option: &Object) -> String {
    if let Some(words) = option.get("x-default") {
        return string(words).to_owned();
    }
    if let Some(value) = option.get("default") {
        return format!("`{}`", print::compact(value));
    }
    match parent.get("required") {
        Some(JsonValue::Array(required)) if required.contains(&JsonValue::String(name.to_owned())) => {
            "required".to_owned()
        }
        _ => String::new(),
    }
}

fn unit_of(option: &Object) -> String {
    match &option["x-unit"] {
        JsonValue::String(word) if word == "ours" => "howdah's own".to_owned(),
        JsonValue::String(word) => word.clone(),
        JsonValue::Object(detail) => {
            detail.iter().map(|(word, detail)| format!("{word}: {}", string(detail))).collect::<Vec<_>>().join("; ")
        }
        other => panic!("x-unit is {other:?}"),
    }
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |")
}

pub(super) fn object(value: &JsonValue) -> &Object {
    match value {
        JsonValue::Object(object) => object,
        other => panic!("{other:?} is an object"),
    }
}

pub(super) fn string(value: &JsonValue) -> &str {
    match value {
        JsonValue::String(string) => string,
        other => panic!("{other:?} is a string"),
    }
}

fn text<'o>(object: &'o Object, key: &str) -> &'o str {
    object.get(key).map_or("", string)
}
