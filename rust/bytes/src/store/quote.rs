//! Names in messages: quoted, escaped and short, whatever a hostile file calls its tensors.

use std::fmt;

/// Characters of one name that a message shows.
const SHOWN_CHARS: usize = 100;
/// Names of one list that a message shows.
const SHOWN_NAMES: usize = 10;

/// The name in double quotes, control characters escaped, its end left out when it is long.
///
/// Written only when a message is: checks may have it at hand for nothing.
pub(crate) fn quoted(name: &str) -> Quoted<'_> {
    Quoted(name)
}

/// See [`quoted`].
pub(crate) struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0;
        match name.char_indices().nth(SHOWN_CHARS) {
            None => write!(out, "{name:?}"),
            Some((cut, _)) => write!(out, "{:?}… ({} bytes long)", &name[..cut], name.len()),
        }
    }
}

/// The first few names, quoted, and how many more there are.
pub(crate) fn list<S: AsRef<str>>(names: &[S]) -> String {
    let shown = names.iter().take(SHOWN_NAMES);
    let mut text = shown
        .map(|name| quoted(name.as_ref()).to_string())
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more) = names
        .len()
        .checked_sub(SHOWN_NAMES)
        .filter(|&more| more > 0)
    {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
