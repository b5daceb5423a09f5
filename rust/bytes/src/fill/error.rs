//! What can be wrong with an initialiser or with where it is to be used, as whole sentences.

/// A shape as Python writes it.
pub(crate) fn tuple(shape: &[usize]) -> String {
    match shape {
        [dim] => format!("({dim},)"),
        _ => format!(
            "({})",
            shape
                .iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// An initialiser that cannot be made, or cannot be used for this parameter.
///
/// The message says what is wrong, what was expected and found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct InitError {
    problem: String,
    expected: Option<String>,
    found: Option<String>,
    remedy: Option<String>,
}

impl InitError {
    /// What is wrong: a clause without a full stop.
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            expected: None,
            found: None,
            remedy: None,
        }
    }

    pub(crate) fn expecting(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    pub(crate) fn finding(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    pub(crate) fn curing(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// What is wrong: a clause without a full stop.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What was expected, where there is something to compare.
    pub fn expected(&self) -> Option<&str> {
        self.expected.as_deref()
    }

    /// What was found instead.
    pub fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// What to do about it: a sentence without the full stop.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    fn sentence(&self) -> String {
        let mut text = self.problem.clone();
        match (&self.expected, &self.found) {
            (Some(expected), Some(found)) => {
                text += &format!(": expected {expected}, found {found}");
            }
            (Some(expected), None) => text += &format!(": expected {expected}"),
            (None, Some(found)) => text += &format!(": found {found}"),
            (None, None) => {}
        }
        text.push('.');
        if let Some(remedy) = &self.remedy {
            text += &format!(" {remedy}.");
        }
        text
    }
}
