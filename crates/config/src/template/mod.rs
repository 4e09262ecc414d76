//! Texts with variables, such as `https://$host$uri`, and paths with variables, such as `/srv/$host$uri`.

pub(crate) mod path;
pub(crate) mod text;
pub(crate) mod variable;
