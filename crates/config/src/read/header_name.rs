//! Names of headers.

/// Whether the text may name a header: whether it is a token (RFC 9110, 5.6.2).
pub(crate) fn is_header_name(text: &str) -> bool {
    let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_byte)
}
