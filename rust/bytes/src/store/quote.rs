//! Names in messages: quoted, escaped and short, whatever a hostile file calls its tensors.

/// Characters of one name that a message shows.
const SHOWN_CHARS: usize = 100;
/// Names of one list that a message shows.
const SHOWN_NAMES: usize = 10;

/// The name in double quotes, control characters escaped, its middle left out when it is long.
pub(crate) fn quoted(name: &str) -> String {
    match name.char_indices().nth(SHOWN_CHARS) {
        None => format!("{name:?}"),
        Some((cut, _)) => format!("{:?}… ({} bytes long)", &name[..cut], name.len()),
    }
}

/// The first few names, quoted, and how many more there are.
pub(crate) fn list<S: AsRef<str>>(names: &[S]) -> String {
    let shown = names.iter().take(SHOWN_NAMES);
    let mut text = shown
        .map(|name| quoted(name.as_ref()))
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
