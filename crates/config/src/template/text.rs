//! Texts with variables, which are replaced for each request: `applications/$host`, `https://${host}$request_uri`.
//!
//! `$name` and `${name}` stand for a [`TemplateVariable`], `$dollar` for a dollar sign. A text without variables is
//! kept as a constant, so that evaluating it costs nothing. A text that begins with a backquote is one of NGINX Unit's
//! JavaScript templates, which howdah does not have; it is rejected.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, quoted};
use crate::read::node::Node;
use crate::template::variable::{TemplateVariable, Variables};

/// Space reserved for each value when a text is evaluated; most values are short.
const BYTES_PER_VARIABLE: usize = 32;

/// Text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    source: String,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Constant(String),
    /// At least one variable. Literals are not empty, and no two literals follow each other.
    Pieces(Vec<Piece>),
}

/// A literal or a variable of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Literal(String),
    Variable(TemplateVariable),
}

/// A part of a template, for callers that treat text and values differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePart<'t> {
    /// Text of the configuration.
    Literal(&'t str),
    /// A variable, to be replaced by its value.
    Variable(&'t TemplateVariable),
}

// === impl Template ===

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// A `$` that is not followed by the name of a variable; a JavaScript template.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|problem| Error::configuration(format!("{} {problem}", quoted(text))))
    }

    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let text = node.string()?;
        parse(&text).map_err(|problem| node.error(format_args!("{} {problem}", quoted(&text))))
    }

    /// The text, if it has no variables.
    pub fn as_constant(&self) -> Option<&str> {
        match &self.content {
            Content::Constant(constant) => Some(constant),
            Content::Pieces(_) => None,
        }
    }

    /// The text for one request. Without variables, nothing is allocated.
    pub fn render<V: Variables + ?Sized>(&self, variables: &V) -> Cow<'_, str> {
        match &self.content {
            Content::Constant(constant) => Cow::Borrowed(constant),
            Content::Pieces(pieces) => {
                let mut text = String::with_capacity(self.source.len() + BYTES_PER_VARIABLE * pieces.len());
                write_pieces(pieces, variables, &mut text);
                Cow::Owned(text)
            }
        }
    }

    /// Appends the text for one request.
    pub fn write<V: Variables + ?Sized>(&self, variables: &V, out: &mut String) {
        match &self.content {
            Content::Constant(constant) => out.push_str(constant),
            Content::Pieces(pieces) => write_pieces(pieces, variables, out),
        }
    }

    /// Its parts, in their order.
    pub fn parts(&self) -> impl Iterator<Item = TemplatePart<'_>> {
        let (constant, pieces) = match &self.content {
            Content::Constant(constant) => (Some(TemplatePart::Literal(constant)), &[][..]),
            Content::Pieces(pieces) => (None, pieces.as_slice()),
        };
        let parts = pieces.iter().map(|piece| match piece {
            Piece::Literal(text) => TemplatePart::Literal(text),
            Piece::Variable(variable) => TemplatePart::Variable(variable),
        });
        constant.into_iter().chain(parts)
    }
}

impl FromStr for Template {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl fmt::Display for Template {
    /// Writes the text of the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn write_pieces<V: Variables + ?Sized>(pieces: &[Piece], variables: &V, out: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Literal(literal) => out.push_str(literal),
            Piece::Variable(variable) => {
                let _ = variables.write(variable, out);
            }
        }
    }
}

/// Parses a template. The error is what is wrong with the text, to follow the text in a message.
pub(crate) fn parse(text: &str) -> Result<Template, String> {
    let mut pieces = parse_pieces(text)?;
    let content = match pieces.as_mut_slice() {
        [] => Content::Constant(String::new()),
        [Piece::Literal(literal)] => Content::Constant(std::mem::take(literal)),
        _ => Content::Pieces(pieces),
    };
    Ok(Template { source: text.to_owned(), content })
}

/// Parses the pieces of a text. Literals are not empty, and no two literals follow each other.
pub(crate) fn parse_pieces(text: &str) -> Result<Vec<Piece>, String> {
    if text.starts_with('`') {
        return Err("is a JavaScript template, which howdah does not run; write a text with variables, such as \
                    \"/srv/$host$uri\", and use \"match\" to choose"
            .into());
    }
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        literal.push_str(before);
        let (name, after) = split_name(after)?;
        if name == "dollar" {
            literal.push('$');
        } else {
            let variable = TemplateVariable::named(name)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Variable(variable));
        }
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// Splits the text after the name of a variable (`name` or `{name}`).
fn split_name(text: &str) -> Result<(&str, &str), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(text) = text.strip_prefix('{') {
        let (name, rest) = text.split_once('}').ok_or("has a \"${\" without a \"}\"; add it")?;
        if !name.chars().all(is_name) {
            return Err(format!("has the unknown variable {}; a name has letters, digits and \"_\"", quoted(name)));
        }
        return Ok((name, rest));
    }
    match text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len())) {
        ("", _) => Err("has a \"$\" without the name of a variable; write ${dollar} for a dollar sign".into()),
        name_and_rest => Ok(name_and_rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::test_request::TestRequest;

    fn render(template: &str) -> String {
        let request = TestRequest { host: "x.org", uri: "/a b", ..TestRequest::default() };
        let request = request.with_header("User-Agent", "curl").with_query("x=1&x=2").with_cookies("c=3; c=4");
        let template = Template::parse(template).expect(template);
        let rendered = template.render(&request).into_owned();
        let mut written = String::from(">");
        template.write(&request, &mut written);
        assert_eq!(written[1..], rendered);
        rendered
    }

    #[test]
    fn variables_are_replaced() {
        let cases = [
            ("applications/$host", "applications/x.org"),
            ("${host}_x${uri}", "x.org_x/a b"),
            ("$host$uri", "x.org/a b"),
            ("${dollar}uri$dollar", "$uri$"),
            ("$arg_x-$arg_y|$cookie_c|$header_user_agent", "2-|4|curl"),
            ("$header_User_Agent", "curl"),
            ("plain", "plain"),
            ("", ""),
        ];
        for (template, expected) in cases {
            assert_eq!(render(template), expected, "{template}");
            assert_eq!(Template::parse(template).expect(template).to_string(), template);
        }
    }

    #[test]
    fn a_text_without_variables_is_constant() {
        let constant = |text: &str| Template::parse(text).expect(text).as_constant().map(str::to_owned);
        assert_eq!(constant("a${dollar}b"), Some("a$b".to_owned()));
        assert_eq!(constant(""), Some(String::new()));
        assert_eq!(constant("$host"), None);
    }

    #[test]
    fn an_error_names_the_wrong_variable() {
        let cases = [
            ("/$", "has a \"$\" without the name of a variable; write ${dollar} for a dollar sign"),
            ("/$/x", "has a \"$\" without the name of a variable"),
            ("/${uri", "has a \"${\" without a \"}\"; add it"),
            ("/${}", "has the unknown variable \"\"; write $uri"),
            ("/${a-b}", "has the unknown variable \"a-b\"; a name has letters, digits and \"_\""),
            ("/$url", "has the unknown variable \"url\"; did you mean \"uri\"?"),
            (
                "`/www/html${vars.host}`",
                "is a JavaScript template, which howdah does not run; write a text with variables",
            ),
        ];
        for (template, expected) in cases {
            let error = Template::parse(template).expect_err(template).to_string();
            assert!(error.contains(expected), "{template}: {error}");
        }
    }
}
