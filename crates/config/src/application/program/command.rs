//! `command`: the program of an application that is not PHP's classic or worker mode, and its arguments.
//!
//! A string is split into words as a shell does it: at spaces, with quotes and backslashes. No shell runs, so a string
//! has no pipes, redirections and patterns; an array has one string for each argument. Both may have the variables with
//! the address of the process, if it has one.

use crate::error::{Error, quoted};
use crate::read::node::Node;

/// The program and its arguments. There is at least one word, and the first one is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCommand {
    words: Vec<Vec<WordPart>>,
}

/// A variable of `command`, and of the environment of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressVariable {
    /// `PORT`: the port.
    Port,
    /// `HOWDAH_SOCKET`: the path of the Unix socket.
    Socket,
    /// `HOWDAH_ADDRESS`: `127.0.0.1:PORT`, or `unix:/path`.
    Address,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WordPart {
    Text(String),
    Variable(AddressVariable),
}

/// These characters have a meaning in a shell, outside of quotes.
const SHELL_CHARACTERS: &str = "|&;<>()`*";

// === impl ProgramCommand ===

impl ProgramCommand {
    /// Reads a command. `check` returns the problem of a variable that the application does not have.
    pub(crate) fn read(node: &Node<'_>, check: impl Fn(AddressVariable) -> Result<(), String>) -> Result<Self, Error> {
        let words = match node.is_array() {
            true => node.elements()?.map(|node| Ok(parts(&node.string()?))).collect::<Result<Vec<_>, Error>>()?,
            false => split(&node.nonempty_string()?).map_err(|problem| node.error(problem))?,
        };
        let is_empty = |word: &Vec<WordPart>| word.iter().all(|part| *part == WordPart::Text(String::new()));
        if words.first().is_none_or(is_empty) {
            return Err(node.error("it names no program; write one, as in \"php server.php\""));
        }
        for variable in words.iter().flatten() {
            if let WordPart::Variable(variable) = variable {
                check(*variable).map_err(|problem| node.error(problem))?;
            }
        }
        Ok(Self { words })
    }

    /// The words, with these values of the variables.
    pub fn words(&self, value: impl Fn(AddressVariable) -> String) -> Vec<String> {
        let text = |part: &WordPart| match part {
            WordPart::Text(text) => text.clone(),
            WordPart::Variable(variable) => value(*variable),
        };
        self.words.iter().map(|word| word.iter().map(text).collect()).collect()
    }
}

// === impl AddressVariable ===

impl AddressVariable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Port, Self::Socket, Self::Address];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Port => "PORT",
            Self::Socket => "HOWDAH_SOCKET",
            Self::Address => "HOWDAH_ADDRESS",
        }
    }
}

/// The variable at the beginning of a text after its `$`, and the length of its name.
fn variable_at(text: &str) -> Option<(AddressVariable, usize)> {
    let (name, length) = match text.strip_prefix('{') {
        Some(rest) => rest.split_once('}').map(|(name, _)| (name, name.len() + 2))?,
        None => {
            let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
            (&text[..end], end)
        }
    };
    AddressVariable::ALL.into_iter().find(|variable| variable.name() == name).map(|variable| (variable, length))
}

/// The parts of a word in which no character but the `$` of a known variable has a meaning.
fn parts(word: &str) -> Vec<WordPart> {
    let mut parts = Vec::new();
    let (mut text, mut rest) = (String::new(), word);
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        rest = after;
        match variable_at(after) {
            Some((variable, length)) => {
                parts.push(WordPart::Text(std::mem::take(&mut text)));
                parts.push(WordPart::Variable(variable));
                rest = &after[length..];
            }
            None => text.push('$'),
        }
    }
    text.push_str(rest);
    parts.push(WordPart::Text(text));
    parts
}

/// Splits a command into words.
fn split(command: &str) -> Result<Vec<Vec<WordPart>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<WordPart>> = None;
    let mut quote: Option<char> = None;
    let mut rest = command;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match (quote, c) {
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                push(&mut word, "");
            }
            (Some(end), _) if c == end => quote = None,
            (None | Some('"'), '\\') => {
                let escaped = rest.chars().next().ok_or("it ends with a backslash; remove it")?;
                // In double quotes, a shell keeps other backslashes.
                if quote.is_some() && !matches!(escaped, '"' | '\\' | '$') {
                    push(&mut word, "\\");
                }
                rest = &rest[escaped.len_utf8()..];
                push(&mut word, escaped.encode_utf8(&mut [0; 4]));
            }
            (None | Some('"'), '$') => {
                let (variable, length) = variable_at(rest).ok_or_else(|| {
                    let name: String =
                        rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '{' | '}')).collect();
                    format!(
                        "${name} is not known here; only $PORT, $HOWDAH_SOCKET and $HOWDAH_ADDRESS are, because no shell \
                         runs; write '$…' for a dollar sign"
                    )
                })?;
                rest = &rest[length..];
                word.get_or_insert_default().push(WordPart::Variable(variable));
            }
            (None, _) if SHELL_CHARACTERS.contains(c) => {
                return Err(format!(
                    "{} has a meaning in a shell, but no shell runs; put it into quotes, or write [\"sh\", \"-c\", \
                     \"exec …\"]",
                    quoted(c.encode_utf8(&mut [0; 4]))
                ));
            }
            (_, _) => push(&mut word, c.encode_utf8(&mut [0; 4])),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("the quote {quote} has no end; add it"));
    }
    words.extend(word);
    Ok(words)
}

/// Appends text to a word, or begins a word with it.
fn push(word: &mut Option<Vec<WordPart>>, text: &str) {
    let parts = word.get_or_insert_default();
    match parts.last_mut() {
        Some(WordPart::Text(last)) => last.push_str(text),
        _ => parts.push(WordPart::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn words(command: &str) -> Result<Vec<String>, String> {
        let value = json::parse(command).expect("JSON");
        let check = |variable| match variable {
            AddressVariable::Socket => Err("there is no socket".to_owned()),
            _ => Ok(()),
        };
        let command = ProgramCommand::read(&Node::root(&value), check).map_err(|error| error.to_string())?;
        Ok(command.words(|variable| format!("<{}>", variable.name())))
    }

    #[test]
    fn a_string_is_split_as_by_a_shell() {
        let cases: [(&str, &[&str]); 8] = [
            (r#""php -S 127.0.0.1:$PORT""#, &["php", "-S", "127.0.0.1:<PORT>"]),
            (r#""  a\t b\n""#, &["a", "b"]),
            (r#""a 'b  c' \"d e\"f ''""#, &["a", "b  c", "d ef", ""]),
            (r#""a\\ b 'c\\d' \"e\\f \\\" \\\\\"""#, &["a b", "c\\d", "e\\f \" \\"]),
            (r#""x --a=${PORT}1 \"$HOWDAH_ADDRESS\"""#, &["x", "--a=<PORT>1", "<HOWDAH_ADDRESS>"]),
            (r#""x '$PORT' \\$PORT '|'""#, &["x", "$PORT", "$PORT", "|"]),
            (r#"["a b", "", "$PORT|$x$", "${PORT}é"]"#, &["a b", "", "<PORT>|$x$", "<PORT>é"]),
            (r#"["sh", "-c", "exec $PORT \"$@\""]"#, &["sh", "-c", "exec <PORT> \"$@\""]),
        ];
        for (command, expected) in cases {
            assert_eq!(words(command).expect(command), expected, "{command}");
        }
    }

    #[test]
    fn a_command_that_needs_a_shell_is_rejected() {
        let cases = [
            (r#""a | b""#, "\"|\" has a meaning in a shell, but no shell runs; put it into quotes"),
            (r#""a $HOME/x""#, "$HOME is not known here; only $PORT"),
            (r#""a $""#, "$ is not known here"),
            (r#""a 'b""#, "the quote ' has no end; add it"),
            (r#""a \\""#, "it ends with a backslash; remove it"),
            (r#"" ""#, "it names no program"),
            (r#""'' a""#, "it names no program"),
            ("[]", "it names no program"),
            (r#""a $HOWDAH_SOCKET""#, "there is no socket"),
            ("5", "expected a string; write \"5\", with quotes"),
        ];
        for (command, expected) in cases {
            let error = words(command).expect_err(command);
            assert!(error.contains(expected), "{command}: {error}");
        }
    }
}
